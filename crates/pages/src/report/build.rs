//! Builds a report from database aggregates: counts posts by outcome, topic and time, and compares two periods.

use std::collections::BTreeMap;

use topicmill_core::{LabelSet, Mode, short_hash};

use super::ReportOptions;
use super::axis::Axis;
use super::data::{
    Agreement, BINS, Change, Compared, DeletionChecks, Groups, LabelSetVersion, NotCompared,
    OutcomeStats, Report, TopicStats,
};
use super::label_names::LabelNames;
use super::quotes::{Quotes, Scores};
use topicmill_review::as_f64;
use topicmill_review::change::{PeriodCounts, holm, standardised_change};
use topicmill_review::coverage::Covered;
use topicmill_review::quality::MeasuredQuality;
use topicmill_store::{
    Gap, ModelRow, PeriodCell, PostOutcome, ReportCell, ReportSums, TopicKeywords,
};

/// Maximum number of topics in a report. Imported posts may name any number of them.
const TOPICS: usize = 400;
/// Minimum number of scored posts in each of two periods that are compared. With this many, only a change of about 25
/// percentage points is significant: from 50 to 75 %, its standard error is 12 points.
const MIN_POSTS: u64 = 30;

/// The input for a report in addition to the aggregates.
#[derive(Default)]
pub struct Context {
    /// The scores of the posts that may be quoted.
    pub scores: Scores,
    /// Two periods in which the same subreddits were read without gaps, and the counts of these subreddits' posts.
    pub compared: Option<(Covered, Vec<PeriodCell>)>,
    /// Time ranges with missing posts.
    pub gaps: Vec<Gap>,
    /// The keywords that posts were selected with.
    pub keywords: Vec<TopicKeywords>,
    /// The last checks for deletions.
    pub checked_for_deletions: DeletionChecks,
    /// The model that assigned the labels.
    pub model: Option<ModelRow>,
    /// The quality and the shares of labels.
    pub estimates: Estimates,
}

/// The quality and the shares of labels, as measured with annotators' answers.
#[derive(Default)]
pub struct Estimates {
    /// The labels' quality; its shares are those of the posts in the period.
    pub quality: Option<MeasuredQuality>,
    /// Number of random answers about posts in the period.
    pub sampled: usize,
    /// The labels' shares by group of posts.
    pub groups: Option<Groups>,
}

/// An outcome, and the slug of its label if it has one.
type Key = (PostOutcome, Option<String>);

/// Counts for one outcome.
#[derive(Clone)]
struct Tally {
    posts: u64,
    score_sum: f64,
    series: Vec<u64>,
    bins: Vec<u64>,
}

/// Builds the report.
pub fn build(options: &ReportOptions, sums: ReportSums, context: Context) -> Report {
    let mut axis = match (sums.first, sums.last) {
        (Some(first), Some(last)) => Axis::new(sums.step, first, last),
        _ => Axis::default(),
    };
    let set = options.subject.as_ref().map(|(_, set)| set);
    let names = LabelNames::new(set);
    let mut outcomes = outcomes(tallies(&sums, set, &axis), &names);
    let compared = match context.compared {
        Some((covered, cells)) => compare(covered, &cells, &mut outcomes),
        None if options.since.is_some() => Err(NotCompared::NotCovered),
        None => Err(NotCompared::TooShort),
    };
    let posts_with = |outcome| {
        let cells = sums.cells.iter().filter(|cell| cell.outcome == outcome);
        cells.map(|cell| cell.posts).sum()
    };
    let posts = sums.cells.iter().map(|cell| cell.posts).sum();
    axis.mark_incomplete(posts);
    let mut topics = topics(&sums.cells, &outcomes, &names, &axis);
    let agreement = agreement(&topics, &outcomes);
    topics.truncate(TOPICS);
    let quotes = Quotes {
        labels: set.map_or(&[][..], |set| &set.labels),
        names: &names,
        scores: &context.scores,
    };
    let is_shown = |gap: &Gap| {
        options.since.is_none_or(|since| gap.until_at > since)
            && options.until.is_none_or(|until| gap.from_at < until)
    };
    Report {
        kind: options.kind,
        database: options.database.clone(),
        now: options.now,
        model: context
            .model
            .map(|model| format!("{} ({})", model.name, model.precision)),
        label_set: set.map(|set| LabelSetVersion {
            name: set.name.clone(),
            version: short_hash(&set.hash()).to_owned(),
        }),
        threshold: set.map_or(0.0, |set| set.threshold),
        scores_are_shares: set.is_none_or(|set| set.mode != Mode::Raw),
        is_bounded: options.is_bounded(),
        first: sums.first,
        last: sums.last,
        compared,
        totals: totals(&sums.cells, &axis),
        posts,
        waiting: posts_with(PostOutcome::Waiting),
        without_text: posts_with(PostOutcome::WithoutText),
        axis,
        outcomes,
        topics,
        agreement,
        quality: context.estimates.quality,
        sampled: context.estimates.sampled,
        groups: context.estimates.groups,
        closest: quotes.of(&sums.closest),
        most_confident: quotes.of(&sums.most_confident),
        gaps: context.gaps.into_iter().filter(is_shown).collect(),
        keywords: context.keywords,
        skipped: sums.skipped,
        checked_for_deletions: context.checked_for_deletions,
    }
}

/// Counts the scored posts of each outcome, by time and by score. Labels without posts have a tally too.
fn tallies(sums: &ReportSums, set: Option<&LabelSet>, axis: &Axis) -> BTreeMap<Key, Tally> {
    let empty = Tally {
        posts: 0,
        score_sum: 0.0,
        series: vec![0; axis.len()],
        bins: vec![0; BINS],
    };
    let mut tallies: BTreeMap<Key, Tally> = BTreeMap::new();
    for label in set.map(|set| set.labels.iter()).unwrap_or_default() {
        let key = (PostOutcome::Labelled, Some(label.slug.clone()));
        tallies.insert(key, empty.clone());
    }
    for cell in sums.cells.iter().filter(|cell| cell.outcome.is_scored()) {
        let tally = tallies
            .entry((cell.outcome, cell.label.clone()))
            .or_insert_with(|| empty.clone());
        tally.posts += cell.posts;
        tally.score_sum += cell.score_sum;
        if let Some(column) = axis.column(&cell.time) {
            tally.series[column] += cell.posts;
        }
    }
    for bin in &sums.bins {
        if let Some(tally) = tallies.get_mut(&(bin.outcome, bin.label.clone())) {
            tally.bins[bin.bin.min(BINS - 1)] += bin.posts;
        }
    }
    tallies
}

/// Returns the slug of a scored outcome: that of the label, `other` or `unsure`.
fn slug_of(outcome: PostOutcome, label: Option<&str>) -> &str {
    match (outcome, label) {
        (PostOutcome::Other, _) => "other",
        (PostOutcome::Labelled, Some(label)) => label,
        _ => "unsure",
    }
}

/// Returns the outcomes: labels, largest first, then `other` and `unsure`.
fn outcomes(tallies: BTreeMap<Key, Tally>, names: &LabelNames<'_>) -> Vec<OutcomeStats> {
    let scored: u64 = tallies.values().map(|tally| tally.posts).sum();
    let mut outcomes: Vec<OutcomeStats> = tallies
        .into_iter()
        .map(|((outcome, label), tally)| {
            let slug = slug_of(outcome, label.as_deref());
            OutcomeStats {
                slug: slug.to_owned(),
                name: match outcome {
                    PostOutcome::Labelled => names.name(slug),
                    _ => slug.to_owned(),
                },
                outcome,
                posts: tally.posts,
                // Without any posts, each share is 0.
                share: as_f64(tally.posts) / as_f64(scored.max(1)),
                series: tally.series,
                mean_score: (tally.posts > 0 && outcome != PostOutcome::Other)
                    .then(|| tally.score_sum / as_f64(tally.posts)),
                bins: tally.bins,
                change: None,
            }
        })
        .collect();
    outcomes.sort_by(|a, b| {
        let rank = |stats: &OutcomeStats| (stats.outcome, std::cmp::Reverse(stats.posts));
        rank(a).cmp(&rank(b)).then(a.name.cmp(&b.name))
    });
    outcomes
}

/// Adds the changes between two periods to the outcomes. `cells` are the scored posts of both periods.
fn compare(
    covered: Covered,
    cells: &[PeriodCell],
    outcomes: &mut [OutcomeStats],
) -> Result<Compared, NotCompared> {
    let mut by_subreddit: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    let mut posts = [0; 2];
    for cell in cells {
        let period = usize::from(cell.is_later);
        by_subreddit.entry(&cell.subreddit).or_default()[period] += cell.posts;
        posts[period] += cell.posts;
    }
    if posts.iter().any(|posts| *posts < MIN_POSTS) {
        return Err(NotCompared::TooFewPosts);
    }
    for stats in outcomes.iter_mut() {
        stats.change = change(stats, &by_subreddit, cells);
    }
    correct_p_values(outcomes);
    Ok(Compared { covered, posts })
}

/// Measures the change of an outcome's share, in the mix of subreddits that both periods have in common. The p-value is
/// not corrected yet.
fn change(
    stats: &OutcomeStats,
    by_subreddit: &BTreeMap<&str, [u64; 2]>,
    cells: &[PeriodCell],
) -> Option<Change> {
    let mut strata: BTreeMap<&str, PeriodCounts> = BTreeMap::new();
    for (subreddit, posts) in by_subreddit {
        strata.entry(subreddit).or_default().posts = *posts;
    }
    let mut posts = [0; 2];
    for cell in cells.iter().filter(|cell| stats.counts(cell)) {
        let period = usize::from(cell.is_later);
        strata.entry(&cell.subreddit).or_default().with[period] += cell.posts;
        posts[period] += cell.posts;
    }
    let strata: Vec<PeriodCounts> = strata.into_values().collect();
    let share = standardised_change(&strata)?;
    let p = if posts == [0, 0] { 1.0 } else { share.p };
    Some(Change { posts, share, p })
}

/// Corrects the p-values for the number of outcomes that are tested, which are those with posts.
fn correct_p_values(outcomes: &mut [OutcomeStats]) {
    let changes = outcomes
        .iter_mut()
        .filter_map(|stats| stats.change.as_mut());
    let tested: Vec<&mut Change> = changes.filter(|change| change.posts != [0, 0]).collect();
    let p_values: Vec<f64> = tested.iter().map(|change| change.p).collect();
    for (change, corrected) in tested.into_iter().zip(holm(&p_values)) {
        change.p = corrected;
    }
}

/// Returns the posts per column: labelled, `other` or `unsure`, and not scored.
fn totals(cells: &[ReportCell], axis: &Axis) -> Vec<[u64; 3]> {
    let mut totals = vec![[0; 3]; axis.len()];
    for cell in cells {
        let place = match cell.outcome {
            PostOutcome::Labelled => 0,
            PostOutcome::Other | PostOutcome::Unsure => 1,
            PostOutcome::Waiting | PostOutcome::WithoutText => 2,
        };
        if let Some(column) = axis.column(&cell.time) {
            totals[column][place] += cell.posts;
        }
    }
    totals
}

/// Returns the topics with the outcomes of their posts: first the topics that are labels, in label order, which puts
/// agreement on the heat map's diagonal, then the others, largest first.
fn topics(
    cells: &[ReportCell],
    outcomes: &[OutcomeStats],
    names: &LabelNames<'_>,
    axis: &Axis,
) -> Vec<TopicStats> {
    let keys = outcomes
        .iter()
        .map(|stats| (stats.outcome, stats.slug.as_str()));
    let places: BTreeMap<(PostOutcome, &str), usize> = keys.zip(0..).collect();
    let mut topics: BTreeMap<&str, TopicStats> = BTreeMap::new();
    for cell in cells {
        let Some(slug) = &cell.topic else { continue };
        let topic = topics.entry(slug).or_insert_with(|| TopicStats {
            slug: slug.clone(),
            name: names.name(slug),
            label: names.label_of_topic(slug).map(str::to_owned),
            posts: 0,
            scored: 0,
            row: vec![0; outcomes.len()],
            series: vec![0; axis.len()],
        });
        topic.posts += cell.posts;
        if let Some(column) = axis.column(&cell.time) {
            topic.series[column] += cell.posts;
        }
        if cell.outcome.is_scored() {
            topic.scored += cell.posts;
            let outcome = slug_of(cell.outcome, cell.label.as_deref());
            if let Some(place) = places.get(&(cell.outcome, outcome)) {
                topic.row[*place] += cell.posts;
            }
        }
    }
    let mut topics: Vec<_> = topics.into_values().collect();
    topics.sort_by_key(|topic| {
        let label = topic.label.as_deref();
        let place = label.and_then(|label| places.get(&(PostOutcome::Labelled, label)));
        (
            place.copied().unwrap_or(usize::MAX),
            std::cmp::Reverse(topic.posts),
            topic.slug.clone(),
        )
    });
    topics
}

/// Counts the posts whose topic is a label, and those that got this label.
fn agreement(topics: &[TopicStats], outcomes: &[OutcomeStats]) -> Agreement {
    let mut agreement = Agreement::default();
    for topic in topics {
        let Some(label) = &topic.label else { continue };
        agreement.comparable += topic.scored;
        let is_label =
            |stats: &OutcomeStats| stats.outcome == PostOutcome::Labelled && stats.slug == *label;
        if let Some(place) = outcomes.iter().position(is_label) {
            agreement.agreed += topic.row[place];
        }
    }
    agreement
}
