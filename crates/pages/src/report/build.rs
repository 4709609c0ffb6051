//! Builds a report from database aggregates.

use std::collections::BTreeMap;

use topicmill_core::reddit::thing_text;
use topicmill_core::{Fullname, LabelSet, Mode, SourceKind, ThingKind, Timestamp, short_hash};

use super::ReportOptions;
use super::data::{
    Agreement, BINS, Change, Compared, Groups, LabelScore, LabelSetVersion, NotCompared,
    OutcomeStats, QuotedPost, Report, TopicStats,
};
use super::time::Axis;
use crate::display;
use topicmill_review::as_f64;
use topicmill_review::change::{PeriodCounts, ShareChange, holm, standardised_change};
use topicmill_review::coverage::Covered;
use topicmill_review::quality::MeasuredQuality;
use topicmill_store::{
    Gap, ModelRow, PeriodCell, PostOutcome, ReportCell, ReportSums, SamplePost, TopicKeywords,
};

/// Maximum number of characters in a quoted title or comment: three lines on a phone.
const TITLE: usize = 160;
/// Tolerance for comparing scores, which are stored with seven digits.
const SCORE_ERROR: f64 = 1e-4;
/// Maximum number of topics in a report.
const TOPICS: usize = 400;

/// The fewest labelled posts in each of two periods that are compared.
const FEWEST: u64 = 30;

/// The scores of quoted posts, in the order of the label set.
type QuotedScores = BTreeMap<Fullname, Option<Vec<f64>>>;

/// The input for a report in addition to the aggregates.
#[derive(Default)]
pub struct Context {
    pub scores: QuotedScores,
    /// Two periods in which the same subreddits were read without gaps, and the counts of these subreddits' posts.
    pub compared: Option<(Covered, Vec<PeriodCell>)>,
    /// Time ranges with missing posts.
    pub gaps: Vec<Gap>,
    /// The keywords that posts were selected with.
    pub keywords: Vec<TopicKeywords>,
    /// Times of the last complete checks for deletions, on Reddit and in the archive.
    pub reconciled_at: [Option<Timestamp>; 2],
    /// The model that assigned the labels.
    pub model: Option<ModelRow>,
    /// What is known from answers.
    pub estimates: Estimates,
}

/// What is known about the labels from answers.
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
struct Tally {
    posts: u64,
    score_sum: f64,
    series: Vec<u64>,
    bins: Vec<u64>,
}

impl Tally {
    fn new(columns: usize) -> Self {
        Self {
            posts: 0,
            score_sum: 0.0,
            series: vec![0; columns],
            bins: vec![0; BINS],
        }
    }
}

/// Builds the report.
pub fn build(options: &ReportOptions, sums: ReportSums, context: Context) -> Report {
    let mut axis = match (sums.first, sums.last) {
        (Some(first), Some(last)) => Axis::new(sums.step, first, last),
        _ => Axis::default(),
    };
    let set = options.subject.as_ref().map(|(_, set)| set);
    let names = Names::of(set);
    let tallies = tallies(&sums, set, &axis);
    let mut outcomes = outcomes(&tallies, &names);
    let compared = match context.compared {
        Some((covered, cells)) => compare(covered, &cells, &mut outcomes),
        None if options.since.is_some() => Err(NotCompared::NotCovered),
        None => Err(NotCompared::TooShort),
    };
    let posts_of = |outcome| {
        let cells = sums.cells.iter().filter(|cell| cell.outcome == outcome);
        cells.map(|cell| cell.posts).sum()
    };
    let posts = sums.cells.iter().map(|cell| cell.posts).sum();
    axis.mark_incomplete(posts);
    let (topics, agreement) = topics(&sums.cells, &outcomes, &names, &axis);
    let quotes = |samples: &[SamplePost]| quotes(samples, &context.scores, set, &names);
    let is_bounded = options.since.is_some() || options.until.is_some();
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
        is_bounded,
        first: sums.first,
        last: sums.last,
        compared,
        totals: totals(&sums.cells, &axis),
        posts,
        waiting: posts_of(PostOutcome::Waiting),
        without_text: posts_of(PostOutcome::WithoutText),
        axis,
        outcomes,
        topics,
        agreement,
        quality: context.estimates.quality,
        sampled: context.estimates.sampled,
        groups: context.estimates.groups,
        closest: quotes(&sums.closest),
        most_confident: quotes(&sums.most_confident),
        gaps: context.gaps.into_iter().filter(is_shown).collect(),
        keywords: context.keywords,
        skipped: sums.skipped,
        reconciled_at: context.reconciled_at,
    }
}

/// Label text by slug.
struct Names<'s>(BTreeMap<&'s str, &'s str>);

impl<'s> Names<'s> {
    fn of(set: Option<&'s LabelSet>) -> Self {
        let labels = set.map(|set| set.labels.iter()).unwrap_or_default();
        Self(
            labels
                .map(|label| (label.slug.as_str(), label.label.as_str()))
                .collect(),
        )
    }

    fn name(&self, slug: &str) -> String {
        self.0.get(slug).map_or(slug, |name| name).to_owned()
    }

    /// Returns the slug of the label that a topic names: the label with this slug, or the only label with this text.
    /// The `topic_agreement` view uses the same rule.
    fn label_of_topic(&self, topic: &str) -> Option<&'s str> {
        if let Some((slug, _)) = self.0.get_key_value(topic) {
            return Some(slug);
        }
        let mut same = self.0.iter().filter(|(_, name)| **name == topic);
        let (slug, _) = same.next()?;
        same.next().is_none().then_some(*slug)
    }
}

fn tallies(sums: &ReportSums, set: Option<&LabelSet>, axis: &Axis) -> BTreeMap<Key, Tally> {
    let mut tallies: BTreeMap<Key, Tally> = BTreeMap::new();
    // Labels are inserted first so that labels without posts also have a row.
    for label in set.map(|set| set.labels.iter()).unwrap_or_default() {
        let key = (PostOutcome::Labelled, Some(label.slug.clone()));
        tallies.insert(key, Tally::new(axis.len()));
    }
    for cell in sums.cells.iter().filter(|cell| cell.outcome.is_scored()) {
        let tally = tallies
            .entry((cell.outcome, cell.label.clone()))
            .or_insert_with(|| Tally::new(axis.len()));
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

fn outcomes(tallies: &BTreeMap<Key, Tally>, names: &Names<'_>) -> Vec<OutcomeStats> {
    let posts: u64 = tallies.values().map(|tally| tally.posts).sum();
    let mut lines: Vec<OutcomeStats> = tallies
        .iter()
        .map(|((outcome, label), tally)| {
            let slug = slug_of(*outcome, label.as_deref());
            OutcomeStats {
                slug: slug.to_owned(),
                name: match outcome {
                    PostOutcome::Labelled => names.name(slug),
                    _ => slug.to_owned(),
                },
                outcome: *outcome,
                posts: tally.posts,
                // Without any posts, each share is 0.
                share: as_f64(tally.posts) / as_f64(posts.max(1)),
                series: tally.series.clone(),
                mean_score: (tally.posts > 0 && *outcome != PostOutcome::Other)
                    .then(|| tally.score_sum / as_f64(tally.posts)),
                bins: tally.bins.clone(),
                change: None,
            }
        })
        .collect();
    lines.sort_by(|a, b| {
        let rank = |line: &OutcomeStats| (line.outcome, std::cmp::Reverse(line.posts));
        rank(a).cmp(&rank(b)).then(a.name.cmp(&b.name))
    });
    lines
}

/// Adds the changes between two periods to the outcomes.
fn compare(
    covered: Covered,
    cells: &[PeriodCell],
    lines: &mut [OutcomeStats],
) -> Result<Compared, NotCompared> {
    let mut posts: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for cell in cells {
        posts.entry(&cell.subreddit).or_default()[usize::from(cell.is_later)] += cell.posts;
    }
    let sums = [0, 1].map(|period| posts.values().map(|posts| posts[period]).sum::<u64>());
    if sums.iter().any(|posts| *posts < FEWEST) {
        return Err(NotCompared::TooFewPosts);
    }
    let change = |line: &OutcomeStats| -> Option<([u64; 2], ShareChange)> {
        let mut counts: BTreeMap<&str, PeriodCounts> = BTreeMap::new();
        for (subreddit, posts) in &posts {
            counts.entry(subreddit).or_default().posts = *posts;
        }
        for cell in cells.iter().filter(|cell| line.counts(cell)) {
            let counts = counts.entry(&cell.subreddit).or_default();
            counts.with[usize::from(cell.is_later)] += cell.posts;
        }
        let counts: Vec<PeriodCounts> = counts.into_values().collect();
        let with = [0, 1].map(|period| counts.iter().map(|counts| counts.with[period]).sum());
        Some((with, standardised_change(&counts)?))
    };
    let changes: Vec<_> = lines.iter().map(change).collect();
    // An outcome without posts is not tested.
    let tested = (changes.iter().flatten()).filter(|(posts, _)| posts.iter().sum::<u64>() > 0);
    let p_values: Vec<f64> = tested.map(|(_, share)| share.p).collect();
    let mut corrected = holm(&p_values).into_iter();
    for (line, change) in lines.iter_mut().zip(changes) {
        line.change = change.map(|(posts, share)| Change {
            posts,
            share,
            p: match posts {
                [0, 0] => 1.0,
                _ => corrected.next().unwrap_or(1.0),
            },
        });
    }
    Ok(Compared {
        covered,
        posts: sums,
    })
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

/// Returns the topics with the outcomes of their posts, and the agreement of the posts' labels with them.
fn topics(
    cells: &[ReportCell],
    lines: &[OutcomeStats],
    names: &Names<'_>,
    axis: &Axis,
) -> (Vec<TopicStats>, Agreement) {
    let places: BTreeMap<(PostOutcome, &str), usize> = lines
        .iter()
        .enumerate()
        .map(|(place, line)| ((line.outcome, line.slug.as_str()), place))
        .collect();
    let mut topics: BTreeMap<&str, TopicStats> = BTreeMap::new();
    let mut agreement = Agreement::default();
    for cell in cells {
        let Some(topic) = &cell.topic else { continue };
        let line = topics.entry(topic).or_insert_with(|| TopicStats {
            slug: topic.clone(),
            name: names.name(topic),
            label: names.label_of_topic(topic).map(str::to_owned),
            posts: 0,
            scored: 0,
            row: vec![0; lines.len()],
            series: vec![0; axis.len()],
        });
        line.posts += cell.posts;
        if let Some(column) = axis.column(&cell.time) {
            line.series[column] += cell.posts;
        }
        if !cell.outcome.is_scored() {
            continue;
        }
        line.scored += cell.posts;
        let slug = slug_of(cell.outcome, cell.label.as_deref());
        if let Some(place) = places.get(&(cell.outcome, slug)) {
            line.row[*place] += cell.posts;
        }
        if let Some(label) = &line.label {
            agreement.comparable += cell.posts;
            if cell.outcome == PostOutcome::Labelled && slug == label {
                agreement.agreed += cell.posts;
            }
        }
    }
    let mut topics: Vec<_> = topics.into_values().collect();
    // Topics that are labels are sorted in label order, which puts agreement on the heat map's diagonal. Topics that
    // are not labels follow, largest first.
    topics.sort_by_key(|topic| {
        let label = topic.label.as_deref();
        let place = label.and_then(|label| places.get(&(PostOutcome::Labelled, label)));
        (
            place.copied().unwrap_or(usize::MAX),
            std::cmp::Reverse(topic.posts),
            topic.slug.clone(),
        )
    });
    topics.truncate(TOPICS);
    (topics, agreement)
}

/// Formats the title of a post, or a comment's own words, for a quote.
pub(super) fn quoted(fullname: &Fullname, text: &str) -> String {
    let (own, none) = match fullname.kind() {
        ThingKind::Post => (text.to_owned(), "(no title)"),
        ThingKind::Comment => (thing_text(fullname, "", text), "(a long quote)"),
    };
    match display::single_line(&own, TITLE) {
        text if text.is_empty() => none.to_owned(),
        text => text,
    }
}

fn quotes(
    samples: &[SamplePost],
    scores: &QuotedScores,
    set: Option<&LabelSet>,
    names: &Names<'_>,
) -> Vec<QuotedPost> {
    let labels = set.map(|set| set.labels.as_slice()).unwrap_or_default();
    samples
        .iter()
        .map(|sample| {
            let stored = scores.get(&sample.fullname).and_then(Option::as_ref);
            let mut best: Vec<LabelScore> = stored
                .into_iter()
                .flat_map(|stored| labels.iter().zip(stored))
                .map(|(label, score)| LabelScore {
                    label: label.label.clone(),
                    score: *score,
                })
                .collect();
            best.sort_by(|a, b| b.score.total_cmp(&a.score));
            // The margin is the distance to the second-best score, which may be the background's.
            let rival = sample.score - sample.margin;
            let second = best.get(1).map_or(0.0, |second| second.score);
            if !best.is_empty() && rival > second + SCORE_ERROR {
                let (label, score) = ("other".to_owned(), rival);
                best.insert(1, LabelScore { label, score });
            }
            best.truncate(2);
            // Posts from the sample source are not on Reddit. Paths that are not permalinks are ignored.
            let is_linked = |path: &&str| {
                sample.source != SourceKind::Sample.as_str()
                    && (path.starts_with("/r/") || path.starts_with("/user/"))
            };
            QuotedPost {
                fullname: sample.fullname.clone(),
                text: quoted(&sample.fullname, &sample.text),
                subreddit: display::single_line(&sample.subreddit, 60),
                link: sample
                    .permalink
                    .as_deref()
                    .filter(is_linked)
                    .map(|path| format!("https://www.reddit.com{path}")),
                topic: sample.topic.as_deref().map(|topic| names.name(topic)),
                best,
                is_labelled: sample.label.is_some(),
            }
        })
        .collect()
}
