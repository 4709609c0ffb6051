//! Reads the data for a report from the store, and removes quotes that are no longer valid.

use std::collections::HashMap;

use topicmill_core::{Fullname, SourceKind, TextHash};
use topicmill_review::coverage::{Covered, comparable, gaps_of};
use topicmill_review::evaluate::{Counted, groups_of};
use topicmill_review::quality;
use topicmill_store::{
    ModelRow, Period, PeriodCell, ReportQuery, ReportSums, SamplePost, Store, StoreError, Target,
};

use super::data::{DeletionChecks, Groups, QuotedPost, Report};
use super::quotes::quoted;
use super::{ReportOptions, build};

/// Maximum number of quoted posts of each kind.
const QUOTED: usize = 5;

/// Reads the data for a report.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn gather(store: &Store, options: &ReportOptions) -> Result<Report, StoreError> {
    let query = options.query();
    let mut sums = store.status().report_sums(&query).await?;
    sums.closest = diversify(std::mem::take(&mut sums.closest));
    sums.most_confident = diversify(std::mem::take(&mut sums.most_confident));
    let samples = sums.closest.iter().chain(&sums.most_confident);
    let names: Vec<Fullname> = samples.map(|sample| sample.fullname.clone()).collect();
    let hashes = store.posts().text_hashes(&names).await?;
    let (names, texts): (Vec<Fullname>, Vec<TextHash>) = hashes.into_iter().unzip();
    let target = query.target.unwrap_or(Target::NONE);
    let scores = store.computed().text_scores(target, &texts).await?;
    let purging = store.purging();
    let context = build::Context {
        scores: names.into_iter().zip(scores).collect(),
        compared: compare(store, options, &sums).await?,
        gaps: gaps_of(store, options.kind).await?,
        keywords: store.posts().keywords().await?,
        checked_for_deletions: DeletionChecks {
            reddit: purging.reconciled_at(SourceKind::Reddit).await?,
            archive: purging.reconciled_at(SourceKind::ArcticShift).await?,
        },
        model: match query.target {
            Some(target) => model_of(store, target).await?,
            None => None,
        },
        estimates: estimate(store, options, &query).await?,
    };
    Ok(build::build(options, sums, context))
}

/// Returns the model that assigned the labels.
async fn model_of(store: &Store, target: Target) -> Result<Option<ModelRow>, StoreError> {
    let models = store.labels().models().await?;
    let model = models.into_iter().find(|(id, _)| *id == target.model);
    Ok(model.map(|(_, row)| row))
}

/// Measures the labels' quality, and estimates their shares of the posts in the period, in all and by group.
async fn estimate(
    store: &Store,
    options: &ReportOptions,
    query: &ReportQuery,
) -> Result<build::Estimates, StoreError> {
    let Some((target, set)) = &options.subject else {
        return Ok(build::Estimates::default());
    };
    let period = Period {
        since: query.since,
        until: query.until,
    };
    let (mut quality, sample) =
        quality::measure(store, options.kind, *target, set, Counted::All).await?;
    let sample = match sample {
        Some(all_periods) if options.is_bounded() => {
            let of_period = all_periods.within(store, *target, period).await?;
            if !quality.shares.is_empty() {
                quality.shares = of_period.shares(set).unwrap_or_default();
            }
            Some(of_period)
        }
        sample => sample,
    };
    let groups = match options.by {
        Some(by) => {
            // A sample that is hardly random has no shares either.
            let usable = sample.as_ref().filter(|sample| sample.doubt().is_none());
            let counted = if options.is_bounded() {
                Counted::Created(period)
            } else {
                Counted::All
            };
            let groups = groups_of(store, *target, set, by, options.kind, usable, counted).await?;
            let labels = set.labels.iter().map(|label| label.slug.clone()).collect();
            Some(Groups { by, labels, groups })
        }
        None => None,
    };
    Ok(build::Estimates {
        sampled: sample.map_or(0, |sample| sample.covered.posts.len()),
        quality: Some(quality),
        groups,
    })
}

/// Finds two periods in which the same subreddits were read without gaps, and counts their posts.
async fn compare(
    store: &Store,
    options: &ReportOptions,
    sums: &ReportSums,
) -> Result<Option<(Covered, Vec<PeriodCell>)>, StoreError> {
    let (Some((target, _)), Some(first), Some(last)) = (&options.subject, sums.first, sums.last)
    else {
        return Ok(None);
    };
    let bounds = options.bounds(first, last);
    let Some(covered) = comparable(store, options.kind, &bounds).await? else {
        return Ok(None);
    };
    let status = store.status();
    let cells = status.period_cells(options.kind, *target, &covered.periods);
    let mut cells = cells.await?;
    cells.retain(|cell| covered.subreddits.contains(&cell.subreddit.to_lowercase()));
    Ok(Some((covered, cells)))
}

/// Returns the report without quotes from posts that have since been purged or edited; `None` if no quote is stale.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn without_stale_quotes(
    store: &Store,
    report: &Report,
) -> Result<Option<Report>, StoreError> {
    let quotes: Vec<&QuotedPost> = report
        .closest
        .iter()
        .chain(&report.most_confident)
        .collect();
    let names: Vec<&Fullname> = quotes.iter().map(|quote| &quote.fullname).collect();
    let texts = store.posts().post_texts(&names).await?;
    let stays = |quote: &QuotedPost| {
        let text = texts.iter().find(|text| text.fullname == quote.fullname);
        text.is_some_and(|text| {
            let shown = text.fullname.title_or_body(&text.title, &text.body);
            quoted(&text.fullname, shown) == quote.text
        })
    };
    if quotes.into_iter().all(stays) {
        return Ok(None);
    }
    let mut report = report.clone();
    report.closest.retain(stays);
    report.most_confident.retain(stays);
    Ok(Some(report))
}

/// Selects posts with as many labels as possible: the first post for each label, then the second, and so on. Crossposts
/// and other posts with the same text are left out.
fn diversify(samples: Vec<SamplePost>) -> Vec<SamplePost> {
    let mut ranked: Vec<(usize, SamplePost)> = Vec::new();
    let mut posts_with: HashMap<Option<String>, usize> = HashMap::new();
    for sample in samples {
        let is_repeated = |(_, earlier): &(usize, SamplePost)| earlier.text == sample.text;
        if ranked.iter().any(is_repeated) {
            continue;
        }
        let rank = posts_with.entry(sample.label.clone()).or_default();
        ranked.push((*rank, sample));
        *rank += 1;
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    let samples = ranked.into_iter().map(|(_, sample)| sample);
    samples.take(QUOTED).collect()
}
