//! The report on stored posts and labels, as a self-contained HTML page or as SVG charts.
//!
//! [`gather`] reads aggregates and a few example posts from the store into a [`Report`], which is plain data.
//! [`render_page`] renders it as an HTML file without external resources, [`render_body`] renders it as a fragment for
//! use in another page, and [`charts`] renders it as SVG files. The numbers of labels, topics, columns and quoted posts
//! are limited, so the page does not grow with the number of posts.

mod axis;
mod build;
mod charts;
mod data;
mod gather;
mod headline;
mod label_names;
mod label_table;
mod page;
mod quotes;
mod svg;
mod table;
pub(crate) mod time;

use chrono::TimeDelta;
use serde_json::{Value, json};

use topicmill_core::{LabelSet, ThingKind, Timestamp};
use topicmill_review::coverage::Bounds;
use topicmill_store::{Grouping, ReportQuery, Store, StoreError, Target};

pub use self::charts::{Chart, charts};
pub use self::data::{
    Agreement, Change, Compared, DeletionChecks, Groups, LabelScore, LabelSetVersion, NotCompared,
    OutcomeStats, QuotedPost, Report, TopicStats,
};
pub use self::gather::{gather, without_stale_quotes};
pub(crate) use self::headline::capital;
pub use self::headline::headline;
pub use self::page::{render_body, render_page};
pub use self::table::ChartTable;

/// Marks pages and charts that topicmill made; such files may be overwritten.
pub const GENERATOR: &str = "made by topicmill report";

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

    /// Returns true if the period is restricted.
    fn is_bounded(&self) -> bool {
        self.since.is_some() || self.until.is_some()
    }

    fn query(&self) -> ReportQuery {
        ReportQuery {
            kind: self.kind,
            target: self.subject.as_ref().map(|(target, _)| *target),
            since: self.since.unwrap_or(Timestamp::EPOCH),
            until: self.until.unwrap_or(Timestamp::LATEST),
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

/// Returns the figures of a report as JSON: the headline, the labels' shares and their changes.
pub fn summary(report: &Report) -> Value {
    let things = report.kind.plural();
    let shares = report.outcomes.iter().map(|stats| {
        let change = stats.change.map(|change| {
            let mut json = json!(change.share);
            json[things] = json!(change.posts);
            json["p_corrected"] = json!(change.p);
            json
        });
        let estimated = report.estimate_of(&stats.slug).map(|share| share.estimated);
        json!({
            "label": stats.slug, things: stats.posts, "assigned": stats.share, "estimated": estimated, "change": change,
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

#[cfg(test)]
mod tests;
