//! What is told: an event in a line and in a few, for people and for programs.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::Ended;
use crate::domain::{Stage, Timestamp, ago};
use crate::store::{Store, StoreError};

/// Posts that failed this often are set aside; the summary only subtracts them from those that wait.
const MAX_ATTEMPTS: u32 = 5;
/// The end of an error that is longer than a screen helps nobody on a phone.
const LONGEST_ERROR: usize = 600;

/// Why somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Something failed that worked before.
    Failed,
    /// Something works that failed before.
    Recovered,
    /// A day has passed.
    Summary,
}

impl Event {
    /// As the JSON has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Recovered => "recovered",
            Self::Summary => "summary",
        }
    }
}

/// What is told.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    /// Why.
    pub event: Event,
    /// In a line.
    pub title: String,
    /// In up to five lines.
    pub text: String,
    /// More of it, for programs.
    fields: Value,
}

impl News {
    /// Of something that failed, or works again.
    pub(super) fn of(event: Event, ended: &Ended<'_>, now: DateTime<Utc>) -> Self {
        let Ended {
            what, run, worker, ..
        } = *ended;
        let error = ended.error.map(|error| shortened(error, LONGEST_ERROR));
        let (unit, command) = if ended.is_slot {
            ("Slot", "topicmill schedule list")
        } else {
            ("Run", "topicmill status")
        };
        let (title, text) = if event == Event::Recovered {
            let title = format!("topicmill: {what} works again");
            (
                title,
                format!("{unit} {run} of {what} by {worker} ended well."),
            )
        } else {
            let why = error.clone().unwrap_or_else(|| lost(ended.counts));
            let title = format!("topicmill: {what} failed");
            let text = format!(
                "{unit} {run} of {what} by {worker} {}: {why}\n`{command}` shows more.",
                ended.status
            );
            (title, text)
        };
        let fields = json!({
            "what": what, "run": run, "status": ended.status, "error": error,
            "worker": worker, "at": Timestamp::from(now),
        });
        Self {
            event,
            title,
            text,
            fields,
        }
    }

    /// Of the last 24 hours.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn summary(store: &Store, now: DateTime<Utc>) -> Result<Self, StoreError> {
        let stages = store.runs_since((now - TimeDelta::days(1)).into()).await?;
        let standing = store.about(MAX_ATTEMPTS, now.into()).await?.standing;
        let last_runs = store.last_runs().await?;
        let collected = store.recent_runs(Some(Stage::Collect), 1).await?;
        let sum = |of: fn(&crate::store::StageRuns) -> i64| stages.iter().map(of).sum::<i64>();
        let (runs, failed, partial) = (sum(|s| s.runs), sum(|s| s.failed), sum(|s| s.partial));
        let of_stage = |name: Stage| stages.iter().find(|stage| stage.stage == name.as_str());
        let read = [Stage::Collect, Stage::Import].map(of_stage);
        let posts: i64 = read.iter().flatten().map(|stage| stage.posts).sum();
        let new: i64 = read.iter().flatten().map(|stage| stage.new).sum();
        let labelled = of_stage(Stage::Classify).map_or(0, |stage| stage.posts);
        let waiting = (standing.unlabelled - standing.set_aside).max(0);
        let since = |time: Timestamp| ago(now - time.as_datetime());
        let oldest = standing.oldest_unlabelled.filter(|_| waiting > 0);
        let oldest = oldest.map_or(String::new(), |oldest| {
            format!(", the oldest for {}", since(oldest))
        });
        let counts = collected.first().map(|run| &run.counts);
        let topics = counts.map_or_else(|| "no topic was collected yet".to_owned(), topics);
        let good: Vec<String> = last_runs
            .iter()
            .map(|last| match last.good_at {
                Some(at) => format!("{} {} ago", last.stage, since(at)),
                None => format!("{} never", last.stage),
            })
            .collect();
        let good = if good.is_empty() {
            "nothing ran yet".to_owned()
        } else {
            good.join(", ")
        };
        let text = format!(
            "24 hours to {}: runs {runs}, failed {failed}, in part {partial}\n\
             Posts: read {posts}, new {new}, labelled {labelled}\n\
             Stored: {}; waiting for a label: {waiting}{oldest}; set aside: {}\n\
             Topics: {topics}\n\
             Last good runs: {good}",
            now.format("%Y-%m-%d %H:%M UTC"),
            standing.posts,
            standing.set_aside,
        );
        let fields = json!({
            "runs": runs, "failed": failed, "partial": partial, "posts_read": posts, "posts_new": new,
            "posts_labelled": labelled, "posts": standing.posts, "waiting": waiting,
            "set_aside": standing.set_aside, "at": Timestamp::from(now),
        });
        let title = if failed > 0 {
            format!("topicmill: {failed} of {runs} runs failed in 24 hours")
        } else {
            format!("topicmill: {new} new posts, {labelled} labelled in 24 hours")
        };
        Ok(Self {
            event: Event::Summary,
            title,
            text,
            fields,
        })
    }

    /// As one JSON object; `text` is what chats show.
    pub(super) fn to_json(&self) -> Value {
        let mut json = self.fields.clone();
        json["event"] = self.event.word().into();
        json["title"] = self.title.clone().into();
        json["text"] = format!("{}\n{}", self.title, self.text).into();
        json
    }
}

/// What came of the topics of a run, in a line.
fn topics(counts: &Value) -> String {
    let outcomes = counts.get("by_outcome").and_then(Value::as_object);
    let outcomes = outcomes.into_iter().flatten();
    let parts: Vec<String> = outcomes
        .map(|(outcome, topics)| format!("{topics} {outcome}"))
        .collect();
    if parts.is_empty() {
        "the last run read none".to_owned()
    } else {
        format!("{} in the last run", parts.join(", "))
    }
}

/// Why a run that has no error counts as failed.
fn lost(counts: &Value) -> String {
    format!("no topic could be read ({})", topics(counts))
}

/// The beginning of a text.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
