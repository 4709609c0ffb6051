//! The report on stored posts and labels, as a self-contained HTML page or as SVG charts.
//!
//! [`gather`] reads aggregates and a few example posts from the store into a [`Report`], which is plain data.
//! [`render_page`] renders it as an HTML file without external resources, [`render_body`] renders it as a fragment for
//! use in another page, and [`charts`] renders it as SVG files. The numbers of labels, topics, columns and quoted posts
//! are limited, so the page does not grow with the number of posts.

mod build;
mod charts;
mod data;
mod headline;
mod page;
pub mod svg;
mod table;
pub(crate) mod time;

use chrono::TimeDelta;
use serde_json::{Value, json};
use topicmill_core::{Fullname, LabelSet, SourceKind, TextHash, ThingKind, Timestamp};

use topicmill_review::coverage::{Bounds, Covered, comparable, gaps_of};
use topicmill_review::evaluate::{Counted, groups_of};
use topicmill_review::quality;
use topicmill_store::{
    Grouping, PeriodCell, ReportQuery, ReportSums, SamplePost, Store, StoreError, Target,
};

pub use self::charts::{Chart, charts};
pub use self::data::{
    Agreement, Change, Compared, Groups, LabelScore, LabelSetVersion, NotCompared, OutcomeStats,
    QuotedPost, Report, TopicStats,
};
pub(crate) use self::headline::capital;
pub use self::headline::headline;
pub use self::page::{render_body, render_page};
pub use self::table::ChartTable;

/// Marks pages and charts that topicmill made; such files may be overwritten.
pub const GENERATOR: &str = "made by topicmill report";

/// Maximum number of quoted posts of each kind.
const QUOTED: usize = 5;

/// The scope of a report.
#[derive(Debug, Clone)]
pub struct ReportOptions {
    /// Posts or comments.
    pub kind: ThingKind,
    /// The model and the label set that produced the labels; `None` if no post is labelled yet.
    pub subject: Option<(Target, LabelSet)>,
    /// Start of the period: posts from this time on are included.
    pub since: Option<Timestamp>,
    /// End of the period: only posts before this time are included.
    pub until: Option<Timestamp>,
    /// Display name for the database, without a password.
    pub database: String,
    /// The current time.
    pub now: Timestamp,
    /// Groups of posts to show the labels of.
    pub by: Option<Grouping>,
}

impl ReportOptions {
    /// Returns options for all posts under the current label set.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn all_posts(
        store: &Store,
        database: &str,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            kind: ThingKind::Post,
            subject: store.labels().current().await?,
            since: None,
            until: None,
            database: database.to_owned(),
            now,
            by: None,
        })
    }

    fn query(&self) -> ReportQuery {
        let until = self.until.unwrap_or(Timestamp::LATEST);
        ReportQuery {
            kind: self.kind,
            target: self.subject.as_ref().map(|(target, _)| *target),
            since: self.since.unwrap_or(Timestamp::EPOCH),
            until,
        }
    }

    /// Returns the bounds of the periods to compare: the halves of the time from the first to the last post or, with a
    /// start, the period since then and the period of the same length before it.
    fn bounds(&self, first: Timestamp, last: Timestamp) -> Bounds {
        let from = self.since.map_or(first, |since| {
            let until = self.until.map_or(self.now, |until| until.min(self.now));
            start_of_period_before(since, until)
        });
        Bounds {
            from,
            split: self.since,
            // The last post belongs to the period.
            until: (last.as_datetime() + TimeDelta::seconds(1)).into(),
        }
    }
}

/// Returns the start of the period that ends at `since` and is as long as the time from `since` to `until`.
fn start_of_period_before(since: Timestamp, until: Timestamp) -> Timestamp {
    let (since, until) = (since.as_datetime(), until.as_datetime());
    match since.checked_sub_signed(until - since) {
        Some(start) => Timestamp::from(start).max(Timestamp::EPOCH),
        None => Timestamp::EPOCH,
    }
}

/// Reads the data for a report.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn gather(store: &Store, options: &ReportOptions) -> Result<Report, StoreError> {
    let query = options.query();
    let mut sums = store.status().report_sums(&query).await?;
    sums.closest = diversify(std::mem::take(&mut sums.closest));
    sums.most_confident = diversify(std::mem::take(&mut sums.most_confident));
    let quoted = sums.closest.iter().chain(&sums.most_confident);
    let quoted: Vec<Fullname> = quoted.map(|sample| sample.fullname.clone()).collect();
    let hashes = store.posts().text_hashes(&quoted).await?;
    let (quoted, texts): (Vec<Fullname>, Vec<TextHash>) = hashes.into_iter().unzip();
    let target = query.target.unwrap_or(Target::NONE);
    let scores = store.computed().text_scores(target, &texts).await?;
    let purging = store.purging();
    let context = build::Context {
        scores: quoted.into_iter().zip(scores).collect(),
        compared: compare(store, options, &sums).await?,
        gaps: gaps_of(store, options.kind).await?,
        keywords: store.posts().keywords().await?,
        reconciled_at: [
            purging.reconciled_at(SourceKind::Reddit).await?,
            purging.reconciled_at(SourceKind::ArcticShift).await?,
        ],
        model: match query.target {
            Some(target) => {
                let models = store.labels().models().await?;
                let model = models.into_iter().find(|(id, _)| *id == target.model);
                model.map(|(_, row)| row)
            }
            None => None,
        },
        estimates: estimate(store, options, &query).await?,
    };
    Ok(build::build(options, sums, context))
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
    let (mut quality, mut sample) =
        quality::measure(store, options.kind, *target, set, Counted::All).await?;
    let mut counted = Counted::All;
    if options.since.is_some() || options.until.is_some() {
        counted = Counted::Created(query.since, query.until);
        if let Some(all) = sample {
            let period = (query.since, query.until);
            let of_period = all.within(store, *target, period).await?;
            if !quality.shares.is_empty() {
                quality.shares = of_period.shares(set).unwrap_or_default();
            }
            sample = Some(of_period);
        }
    }
    // A sample that is hardly random has no shares either.
    let usable = sample.as_ref().filter(|sample| sample.doubt().is_none());
    let groups = match options.by {
        Some(by) => {
            let groups =
                groups_of(store, (*target, set), (by, options.kind), usable, counted).await?;
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
    let mut cells = store
        .status()
        .period_cells(options.kind, *target, &covered.periods)
        .await?;
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
    let quoted: Vec<&QuotedPost> = report
        .closest
        .iter()
        .chain(&report.most_confident)
        .collect();
    let names: Vec<&Fullname> = quoted.iter().map(|quote| &quote.fullname).collect();
    let texts = store.posts().post_texts(&names).await?;
    let stays = |quote: &QuotedPost| {
        let text = texts.iter().find(|text| text.fullname == quote.fullname);
        text.is_some_and(|text| {
            let shown = text.fullname.title_or_body(&text.title, &text.body);
            build::quoted(&text.fullname, shown) == quote.text
        })
    };
    if quoted.into_iter().all(stays) {
        return Ok(None);
    }
    let mut report = report.clone();
    report.closest.retain(stays);
    report.most_confident.retain(stays);
    Ok(Some(report))
}

/// Returns the figures of a report as JSON: the headline, the labels' shares and their changes.
pub fn summary(report: &Report) -> Value {
    let things = report.kind.plural();
    let shares = report.outcomes.iter().map(|line| {
        let change = line.change.map(|change| {
            let mut json = json!(change.share);
            json[things] = json!(change.posts);
            json["p_corrected"] = json!(change.p);
            json
        });
        let estimated = report.estimate_of(&line.slug).map(|one| one.estimated);
        json!({
            "label": line.slug, things: line.posts, "assigned": line.share, "estimated": estimated, "change": change,
        })
    });
    let compared = report.compared.as_ref().ok().map(|compared| {
        let periods = compared.covered.periods;
        json!({
            "from": periods.from, "split": periods.split, "until": periods.until, things: compared.posts,
            "subreddits": compared.covered.subreddits, "of_subreddits": compared.covered.all_subreddits,
        })
    });
    json!({
        "finding": headline(report), things: report.posts, "labelled": report.scored(),
        "shares": shares.collect::<Vec<_>>(), "compared": compared, "quality": report.quality,
    })
}

/// Selects posts with as many labels as possible: the first post for each label, then the second, and so on.
fn diversify(mut samples: Vec<SamplePost>) -> Vec<SamplePost> {
    let mut taken: Vec<SamplePost> = Vec::new();
    while taken.len() < QUOTED && !samples.is_empty() {
        let mut seen: Vec<Option<String>> = Vec::new();
        let mut later = Vec::new();
        for sample in samples {
            if taken.iter().any(|quoted| quoted.text == sample.text) {
                // This is a crosspost or a duplicate.
                continue;
            }
            if taken.len() >= QUOTED || seen.contains(&sample.label) {
                later.push(sample);
            } else {
                seen.push(sample.label.clone());
                taken.push(sample);
            }
        }
        samples = later;
    }
    taken
}

#[cfg(test)]
mod tests;
