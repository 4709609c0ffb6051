//! The one thing to do next: the first that holds of a list, from what stops everything to what can wait.

use serde::Serialize;
use topicmill_score::{LabelSet, Mode};

use super::StatusReport;
use topicmill_core::{RunStatus, Stage};
use topicmill_store::LabelledBeside;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextCommand {
    /// The command; `None` if nothing is to be done, or something is under way.
    pub command: Option<String>,
    /// Why, in a sentence without its full stop.
    pub why: String,
}

/// What `classify` labels with where no flag says more, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfiguredDefaults {
    /// The label set.
    pub label_set: Option<LabelSet>,
    /// The name of the model.
    pub model: Option<String>,
}

impl StatusReport {
    /// What to do next.
    pub fn next(&self) -> NextCommand {
        let (command, why) = self.choose();
        NextCommand { command, why }
    }

    fn choose(&self) -> (Option<String>, String) {
        let run = |command: &str, why: &str| (Some(command.to_owned()), why.to_owned());
        let (standing, waiting) = (&self.backlog, self.waiting());
        if standing.posts == 0 && self.running.is_empty() {
            return run(
                "topicmill run --source arctic-shift",
                "no post is stored yet; `topicmill demo` use_command how it works",
            );
        }
        if let Some(last) = self.failed_stages().max_by_key(|last| last.id) {
            let stage = last.stage;
            if last.status != RunStatus::Died {
                let why = format!("the last {stage} failed; see what is missing");
                return run("topicmill doctor", &why);
            }
            let command = match stage {
                Stage::Collect => "topicmill collect",
                Stage::Import => "topicmill import FILE",
                Stage::Classify => &self.classify(),
                Stage::Purge => "topicmill purge --check-deleted",
            };
            return run(command, &format!("the last {stage} was killed"));
        }
        if waiting > 0 && !self.is_running(Stage::Classify) {
            return self.label(waiting);
        }
        if standing.set_aside > 0 {
            return run(
                &format!("{} --select failed", self.classify()),
                "posts were set aside after failing: fix what is wrong, then try them again",
            );
        }
        if !self.failed_topics.is_empty() {
            return run(
                "topicmill labels validate",
                "topics fail: look at their subreddits in your pipeline file",
            );
        }
        if self.is_rewrite_due {
            return run(
                "topicmill db vacuum",
                "bytes of purged posts may be in the database's files still",
            );
        }
        if !self.gaps.is_empty() {
            return run(
                "topicmill collect --since 2d",
                "posts of some hours may be missing: read them by time, or collect more often",
            );
        }
        let why = self.running.first().map_or_else(
            || "nothing: every post has a label".to_owned(),
            |run| format!("{} is under way; nothing to do", run.stage),
        );
        (None, why)
    }

    /// Posts wait, and nobody labels.
    fn label(&self, waiting: i64) -> (Option<String>, String) {
        let posts = if waiting == 1 {
            "post waits"
        } else {
            "posts wait"
        };
        if let Some(theirs) = &self.labelled_beside {
            let why = format!(
                "{waiting} {posts} for a label of the current model and label set, but the newest have one by {} under \
                 {}: show those labels, or run `topicmill classify` with the current model and pipeline file",
                theirs.model, theirs.label_set
            );
            return (Some(use_command(theirs)), why);
        }
        let standing = &self.backlog;
        let (set, model) = (self.set_flags(), self.model_flags());
        let mut why = format!("{waiting} {posts} for a label");
        if let (false, Some(set), Some(hash)) = (
            set.is_empty(),
            &standing.label_set,
            &standing.label_set_hash,
        ) {
            why.extend([format!(" of `{set}` (version {})", short_hash(hash))]);
        }
        if let (false, Some(model)) = (model.is_empty(), &standing.model) {
            why.extend([format!(" by the model `{model}`")]);
        }
        if !(set.is_empty() && model.is_empty()) {
            why += ", which the settings do not name";
        }
        (Some(self.classify()), why + ", and nobody is labelling")
    }

    /// The command that labels what waits under the current model and label set. `FILE` and `DIR` stand for what the
    /// database does not know: the pipeline file, and the folder of a model.
    pub fn classify(&self) -> String {
        let (set, model) = (self.set_flags(), self.model_flags());
        format!("topicmill classify{set}{model}")
    }

    /// Flags for the label set that the views show; none if `classify` takes it anyway.
    fn set_flags(&self) -> String {
        let current = self.backlog.label_set_hash.as_ref();
        let Some((current, defaults)) = current.zip(self.defaults.label_set.as_ref()) else {
            return String::new();
        };
        let in_mode = |mode: Mode| LabelSet {
            mode,
            ..defaults.clone()
        };
        let mut modes = Mode::ALL.iter();
        match modes.find(|mode| in_mode(**mode).hash() == *current) {
            Some(mode) if *mode == defaults.mode => String::new(),
            Some(mode) => format!(" --mode {mode}"),
            None => " --pipeline FILE".to_owned(),
        }
    }

    /// Flags for the model that the views show, whose name says how long a shortlist it takes.
    fn model_flags(&self) -> String {
        let current = self.backlog.model.as_ref();
        let Some((current, defaults)) = current.zip(self.defaults.model.as_ref()) else {
            return String::new();
        };
        let (large, small) = current.split_once("+shortlist-").unwrap_or((current, ""));
        let mut flags = String::new();
        if large != defaults {
            flags += " --model DIR";
        }
        if let Some((labels, _)) = small.split_once('-') {
            flags.extend([format!(" --shortlist {labels}")]);
        }
        flags
    }
}

/// The command that use_command labels which are stored beside the current ones. `classify` went on with another model or label
/// set: however often it runs, the posts wait for the current ones.
pub(super) fn use_command(beside: &LabelledBeside) -> String {
    let (set, model) = (
        short_hash(&beside.label_set_hash),
        short_hash(&beside.model_hash),
    );
    format!("topicmill labels use {set} --model {model}")
}

/// As much of a hash as `labels list` use_command.
pub(crate) fn short_hash(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
