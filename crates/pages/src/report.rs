//! A picture of what is stored: one page that opens anywhere, and charts as files.
//!
//! [`gather`] asks the store for sums and a few posts and makes a [`Report`] of them: plain numbers. [`render_page`]
//! draws it as one HTML file that loads nothing from anywhere, [`render_body`] as the part of such a page that others
//! put into theirs, and [`charts`] as SVG files. What is drawn is bounded: labels, topics, columns and quoted posts have
//! a most, so that the page of a million posts is as large as that of a thousand.

mod build;
mod charts;
#[expect(missing_docs, reason = "a name that says all needs no sentence")]
mod data;
mod finding;
mod page;
pub mod svg;
mod table;
mod time;

use topicmill_score::LabelSet;

use topicmill_core::{Fullname, Timestamp};
use topicmill_store::{ReportQuestion, Sample, Store, StoreError, Target};

pub use self::charts::{Chart, charts};
pub use self::data::{Change, OutcomeStats, Period, QuotedPost, Report, TopicStats};
pub use self::finding::headline;
pub use self::page::{render_body, render_page};
pub use self::table::ChartTable;

/// By this a page or a chart of topicmill is known again: it may be replaced without a question.
pub const GENERATOR: &str = "made by topicmill report";

/// Quoted posts of each kind.
const QUOTED: usize = 5;

/// Of what a report is.
#[derive(Debug, Clone)]
pub struct ReportOptions {
    /// Under which model and label set; `None`: nothing is labelled yet.
    pub subject: Option<(Target, LabelSet)>,
    /// Posts from this time on.
    pub since: Option<Timestamp>,
    /// Posts before this time.
    pub until: Option<Timestamp>,
    /// What the database is called, without a password.
    pub database: String,
    /// What time it is.
    pub now: Timestamp,
}

impl ReportOptions {
    /// Of everything, under what the views show.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn all_posts(
        store: &Store,
        database: &str,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let subject = match store.labels().current_target().await? {
            Some(target) => Some((target, store.labels().label_set(target.label_set).await?)),
            None => None,
        };
        Ok(Self {
            subject,
            since: None,
            until: None,
            database: database.to_owned(),
            now,
        })
    }

    fn question(&self) -> ReportQuestion {
        // Databases write years of four digits.
        let end = Timestamp::from_epoch_secs(253_402_300_799).expect("it is a date");
        let until = self.until.unwrap_or(end);
        let before = self.since.map(|since| {
            let (since, until) = (since.as_datetime(), until.min(self.now).as_datetime());
            let before = since
                .checked_sub_signed(until - since)
                .map_or(Timestamp::EPOCH, Timestamp::from);
            before.max(Timestamp::EPOCH)
        });
        ReportQuestion {
            target: self.subject.as_ref().map(|(target, _)| *target),
            since: self.since.unwrap_or(Timestamp::EPOCH),
            until,
            before,
        }
    }
}

/// Reads what a report is made of.
///
/// # Errors
/// See [`StoreError`].
pub async fn gather(store: &Store, options: &ReportOptions) -> Result<Report, StoreError> {
    let question = options.question();
    let mut sums = store.outlook().report_sums(&question).await?;
    sums.closest = varied(std::mem::take(&mut sums.closest));
    sums.surest = varied(std::mem::take(&mut sums.surest));
    let quoted = sums.closest.iter().chain(&sums.surest);
    let quoted: Vec<Fullname> = quoted.map(|sample| sample.fullname.clone()).collect();
    let scores = store.outlook().report_scores(&question, &quoted).await?;
    let around = build::Around {
        gaps: store.posts().gaps().await?,
        reconciled_at: store.purging().reconciled_at().await?,
        model: match question.target {
            Some(target) => {
                let models = store.labels().models().await?;
                let mut named = models.into_iter().filter(|(id, _)| *id == target.model);
                named.next().map(|(_, row)| row)
            }
            None => None,
        },
    };
    Ok(build::build(options, sums, &scores, around))
}

/// Returns the report without its quotes of posts that were purged or edited since; `None` where there are none of these.
///
/// # Errors
/// See [`StoreError`].
pub async fn without_stale_quotes(
    store: &Store,
    report: &Report,
) -> Result<Option<Report>, StoreError> {
    let quoted: Vec<&QuotedPost> = report.closest.iter().chain(&report.surest).collect();
    let names: Vec<&Fullname> = quoted.iter().map(|call| &call.fullname).collect();
    let texts = store.posts().texts_of(&names).await?;
    let stays = |call: &QuotedPost| {
        let text = texts.iter().find(|text| text.fullname == call.fullname);
        text.is_some_and(|text| build::title(&text.title) == call.title)
    };
    if quoted.into_iter().all(stays) {
        return Ok(None);
    }
    let mut report = report.clone();
    report.closest.retain(stays);
    report.surest.retain(stays);
    Ok(Some(report))
}

/// Some posts, of as many labels as there are: the first one of each label, then the second.
fn varied(samples: Vec<Sample>) -> Vec<Sample> {
    let mut taken: Vec<Sample> = Vec::new();
    let mut left = samples;
    while taken.len() < QUOTED && !left.is_empty() {
        let mut seen: Vec<Option<String>> = Vec::new();
        let mut later = Vec::new();
        for sample in left {
            if taken.iter().any(|one| one.title == sample.title) {
                // A crosspost, or the same post again.
                continue;
            }
            if taken.len() >= QUOTED || seen.contains(&sample.label) {
                later.push(sample);
            } else {
                seen.push(sample.label.clone());
                taken.push(sample);
            }
        }
        left = later;
    }
    taken
}

#[cfg(test)]
mod tests;
