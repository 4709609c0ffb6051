//! The one thing to do next: the first that holds of a list, from what stops everything to what can wait.

use serde::Serialize;

use super::Outlook;
use crate::domain::{RunStatus, Stage};
use crate::store::LabelledBeside;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Next {
    /// The command; none where nothing is to be done, or something is under way.
    pub command: Option<String>,
    /// Why, in a sentence without its full stop.
    pub why: String,
}

impl Next {
    fn run(command: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            command: Some(command.into()),
            why: why.into(),
        }
    }
}

impl Outlook {
    /// What to do next.
    pub fn next(&self) -> Next {
        let standing = &self.backlog;
        if standing.posts == 0 && self.running.is_empty() {
            return Next::run(
                "topicmill run --source arctic-shift",
                "no post is stored yet; `topicmill demo` shows how it works",
            );
        }
        if let Some(next) = self.broken() {
            return next;
        }
        let waiting = self.waiting();
        if waiting > 0 && !self.runs_now(Stage::Classify.as_str()) {
            return self.label(waiting);
        }
        if standing.set_aside > 0 {
            return Next::run(
                format!("{} --select failed", self.classify()),
                "posts were set aside after failing: mend what is wrong, then try them again",
            );
        }
        if !self.failed_topics.is_empty() {
            return Next::run(
                "topicmill labels validate",
                "topics fail: look at their subreddits in your pipeline file",
            );
        }
        if self.is_rewrite_due {
            return Next::run(
                "topicmill db vacuum",
                "bytes of purged posts may be in the database's files still",
            );
        }
        self.at_leisure()
    }

    /// Posts wait, and nobody labels.
    fn label(&self, waiting: i64) -> Next {
        let posts = if waiting == 1 {
            "post waits"
        } else {
            "posts wait"
        };
        if let Some(theirs) = &self.labelled_beside {
            return Next::run(
                use_them(theirs),
                format!(
                    "{waiting} {posts} for a label of the current model and label set, but the newest have one by {} \
                     under {}: show those labels, or run `topicmill classify` with the current model and pipeline file",
                    theirs.model, theirs.label_set
                ),
            );
        }
        let named = self.named();
        Next::run(
            self.classify(),
            format!("{waiting} {posts} for a label{named}, and nobody is labelling"),
        )
    }

    /// Of which label set and model the labels are that are waited for, where the settings name others.
    fn named(&self) -> String {
        let standing = &self.backlog;
        let (set, model) = (self.set_flags(), self.model_flags());
        let set = standing.label_set.as_deref().filter(|_| !set.is_empty());
        let set = set.zip(standing.label_set_hash.as_deref());
        let set = set.map(|(set, hash)| format!(" of `{set}` (version {})", short(hash)));
        let model = standing.model.as_deref().filter(|_| !model.is_empty());
        let model = model.map(|model| format!(" by the model `{model}`"));
        let named = [set, model];
        if named.iter().all(Option::is_none) {
            return String::new();
        }
        let named: String = named.into_iter().flatten().collect();
        format!("{named}, which the settings do not name")
    }

    /// A stage whose last run failed, while none of that stage is under way.
    fn broken(&self) -> Option<Next> {
        let bad = [RunStatus::Failed.as_str(), RunStatus::Died.as_str()];
        let last = self
            .stages
            .iter()
            .filter(|last| bad.contains(&last.status.as_str()));
        let last = last
            .filter(|last| !self.runs_now(&last.stage))
            .max_by_key(|last| last.id)?;
        let labelling = self.classify();
        let command = match last.stage.parse() {
            _ if last.status == RunStatus::Failed.as_str() => "topicmill doctor",
            Ok(Stage::Collect) => "topicmill collect",
            Ok(Stage::Import) => "topicmill import FILE",
            Ok(Stage::Classify) if self.waiting() > 0 => labelling.as_str(),
            Ok(Stage::Classify) => "topicmill classify",
            Ok(Stage::Purge) => "topicmill purge --check-deleted",
            Err(_) => "topicmill doctor",
        };
        let stage = &last.stage;
        let why = if last.status == RunStatus::Died.as_str() {
            format!("the last {stage} was killed")
        } else {
            format!("the last {stage} failed; see what is missing")
        };
        Some(Next::run(command, why))
    }

    /// Nothing is wrong.
    fn at_leisure(&self) -> Next {
        if !self.gaps.is_empty() {
            return Next::run(
                "topicmill collect --since 2d",
                "posts of some hours may be missing: read them by time, or collect more often",
            );
        }
        let why = if let Some(run) = self.running.first() {
            format!("{} is under way; nothing to do", run.stage)
        } else {
            "nothing: every post has a label".to_owned()
        };
        Next { command: None, why }
    }
}

/// The command that shows labels which stand beside the current ones. `classify` went on with another model or label set:
/// however often it runs, the posts wait for the current ones.
pub(super) fn use_them(beside: &LabelledBeside) -> String {
    format!(
        "topicmill labels use {} --model {}",
        short(&beside.label_set_hash),
        short(&beside.model_hash)
    )
}

/// As much of a hash as `labels list` shows.
fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
