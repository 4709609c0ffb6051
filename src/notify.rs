//! Tells people what they would otherwise find out too late: that a run failed, that it works again, and once a day how it
//! goes.
//!
//! What enters are runs that ended, and the settings `[notify]`. What leaves is one JSON object for a program or a webhook.
//! What was told is noted in the database, so that of several processes one tells it. Nothing here fails a run or holds it
//! up for more than some seconds: what cannot be sent is a warning, and is sent with the next run.
//!
//! Whoever runs something else than a stage, such as a slot of a schedule, calls [`Notify::ended`] with a name for it.

mod news;
mod send;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, NaiveDate, Timelike, Utc};
use serde_json::Value;

pub use self::news::{Event, News};
pub use self::send::{NotifyError, Way};
use crate::domain::RunStatus;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};

/// Longer than whoever answers takes, and short enough that no run is held up.
const LONGEST: Duration = Duration::from_secs(5);
/// The same with what the database is asked for it.
const LONGEST_WITH_DATABASE: Duration = Duration::from_secs(12);
/// What is noted of something that failed, and of something that works.
const FAILED: &str = "failed";
const WORKS: &str = "works";
/// What is noted of a summary that could not be sent.
const UNSENT: &str = "unsent";
/// The key of the day of the last summary.
const SUMMARY: &str = "notified of the day";

/// Something that ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// What: a stage, or another name that is the same each time.
    pub what: &'a str,
    /// Its row of `runs`, or for a schedule of `slots`.
    pub run: i64,
    /// Whether it is a slot of a schedule.
    pub is_slot: bool,
    /// How it ended.
    pub status: RunStatus,
    /// What it counted.
    pub counts: &'a Value,
    /// What ended it, if an error.
    pub error: Option<&'a str>,
    /// Host and process.
    pub worker: &'a str,
}

/// Whom to tell, and how. By default nobody.
#[derive(Debug, Default)]
pub struct Notify {
    way: Way,
    /// From this hour (UTC) on, the first run that ends tells of the day; `None`: no run does.
    summary_hour: Option<u32>,
    metrics: Arc<Metrics>,
    /// The day of which this process knows that it was told.
    day: Mutex<Option<NaiveDate>>,
}

impl Notify {
    /// Tells by `way`; `summary_hour` is the hour (UTC) from which on the day's summary is sent.
    pub fn new(way: Way, summary_hour: Option<u32>, metrics: Arc<Metrics>) -> Self {
        Self {
            way,
            summary_hour,
            metrics,
            day: Mutex::default(),
        }
    }

    /// Tells of something that ended, if it failed and worked before, or the other way round; and of the day, if nobody did.
    /// It takes a few seconds at most, and what goes wrong is logged.
    pub async fn ended(&self, store: &Store, ended: &Ended<'_>, now: DateTime<Utc>) {
        if self.way.is_nobody() {
            return;
        }
        let tell = async {
            self.changed(store, ended, now).await;
            self.daily(store, now).await;
        };
        if tokio::time::timeout(LONGEST_WITH_DATABASE, tell)
            .await
            .is_err()
        {
            tracing::warn!("a notification was cut off: the database did not answer in time");
        }
    }

    /// Tells of the day, if it is late enough and nobody told of it.
    pub async fn daily(&self, store: &Store, now: DateTime<Utc>) {
        let day = now.date_naive();
        let Some(hour) = self.summary_hour else {
            return;
        };
        if self.way.is_nobody() || now.hour() < hour || self.knows(day) {
            return;
        }
        let text = day.to_string();
        match store.keep_new(SUMMARY, &text).await {
            Ok(true) => {}
            Ok(false) => return self.note(day),
            Err(error) => return warn(&error),
        }
        let sent = match News::summary(store, now).await {
            Ok(news) => self.send(&news).await,
            Err(error) => {
                warn(&error);
                false
            }
        };
        if sent {
            self.note(day);
        } else if let Err(error) = store.keep_instead(SUMMARY, &text, UNSENT).await {
            warn(&error);
        }
    }

    /// Sends the summary now, whoever was told of the day.
    ///
    /// # Errors
    /// Those of the store as [`NotifyError::Store`], and of whoever is told.
    pub async fn summary_now(&self, store: &Store, now: DateTime<Utc>) -> Result<(), NotifyError> {
        let news = News::summary(store, now).await?;
        self.way.send(&news, LONGEST).await
    }

    /// Tells of a change between working and failing.
    async fn changed(&self, store: &Store, ended: &Ended<'_>, now: DateTime<Utc>) {
        let (from, to) = match judged(ended) {
            Some(true) => (FAILED, WORKS),
            Some(false) => (WORKS, FAILED),
            None => return,
        };
        let key = format!("notified of {}", ended.what);
        let is_new = if to == FAILED {
            store.keep_new(&key, to).await
        } else {
            store.keep_instead(&key, from, to).await
        };
        let is_new = match is_new {
            Ok(is_new) => is_new,
            Err(error) => {
                warn(&error);
                // Better told twice than never.
                to == FAILED
            }
        };
        if !is_new {
            return;
        }
        let event = if to == FAILED {
            Event::Failed
        } else {
            Event::Recovered
        };
        if !self.send(&News::of(event, ended, now)).await
            && let Err(error) = store.keep_instead(&key, to, from).await
        {
            warn(&error);
        }
    }

    /// Sends, and tells whether that worked.
    async fn send(&self, news: &News) -> bool {
        let sent = self.way.send(news, LONGEST).await;
        self.metrics.notified(news.event.word(), sent.is_ok());
        match sent {
            Ok(()) => true,
            Err(error) => {
                let event = news.event.word();
                tracing::warn!("nobody was notified ({event}): {error}; the next run tries again");
                false
            }
        }
    }

    fn knows(&self, day: NaiveDate) -> bool {
        *self.day.lock().expect("no holder of this lock panics") == Some(day)
    }

    fn note(&self, day: NaiveDate) {
        *self.day.lock().expect("no holder of this lock panics") = Some(day);
    }
}

/// Whether it worked; `None` where somebody stopped it.
fn judged(ended: &Ended<'_>) -> Option<bool> {
    match ended.status {
        RunStatus::Failed | RunStatus::Died => Some(false),
        RunStatus::Stopped | RunStatus::Running => None,
        // Some posts or topics failed, which `status` tells; but a source that gives nothing at all is down.
        RunStatus::Partial => Some(!is_all_lost(ended.counts)),
        RunStatus::Done => Some(true),
    }
}

/// Whether no topic of a run could be read.
fn is_all_lost(counts: &Value) -> bool {
    let outcomes = counts.get("by_outcome").and_then(Value::as_object);
    outcomes.is_some_and(|outcomes| !outcomes.is_empty() && !outcomes.contains_key("ok"))
}

fn warn(error: &StoreError) {
    tracing::warn!("what people were notified of is not known: {error}");
}

#[cfg(test)]
mod tests;
