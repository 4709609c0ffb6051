//! The next command to run: the first applicable step, from what blocks everything to what can wait.

use serde::Serialize;
use topicmill_score::{LabelSet, Mode, short_hash};

use super::StatusReport;
use topicmill_core::{RunStatus, Stage};
use topicmill_store::OtherLabels;

/// A recommended command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextCommand {
    /// The command; `None` if there is nothing to do, a run is active, or no command does it.
    pub command: Option<String>,
    /// The reason, a sentence without its full stop.
    pub why: String,
}

/// The label set and model that `classify` uses without flags, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ConfiguredDefaults {
    /// The label set.
    pub label_set: Option<LabelSet>,
    /// True if the label set comes from a pipeline file in the settings, not from the built-in one.
    pub has_pipeline_file: bool,
    /// True if the current label set is a calibrated copy of the label set.
    pub is_original: bool,
    /// The name of the model.
    pub model: Option<String>,
}

/// Advice to keep a calibration.
const NAME_CALIBRATED: &str = "set `pipeline` in the settings to the file of the current label set, which is a \
                               calibrated copy of the one that `classify` uses by default";

impl StatusReport {
    /// Returns the next command to run.
    pub fn next(&self) -> NextCommand {
        let (command, why) = self.choose();
        NextCommand { command, why }
    }

    fn choose(&self) -> (Option<String>, String) {
        let run = |command: &str, why: &str| (Some(command.to_owned()), why.to_owned());
        let (backlog, waiting) = (&self.backlog, self.waiting());
        if backlog.posts == 0 && self.running.is_empty() {
            return run(
                "topicmill run --source arctic-shift",
                "no post is stored yet; `topicmill demo` shows how it works",
            );
        }
        if let Some(last) = self.failed_stages().max_by_key(|last| last.id) {
            let stage = last.stage;
            if last.status != RunStatus::Crashed {
                let why = format!("the last {stage} failed; check the setup");
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
        if backlog.parked > 0 {
            return run(
                &format!("{} --select failed", self.classify()),
                "posts are parked after repeated failures: fix the cause, then retry them",
            );
        }
        if !self.failed_topics.is_empty() {
            let why =
                "topics fail: see Failing, and correct their subreddits in your pipeline file";
            return (None, why.to_owned());
        }
        if self.is_rewrite_due {
            return run(
                "topicmill db vacuum",
                "the database files may still contain bytes of purged posts",
            );
        }
        if !self.gaps.is_empty() {
            return run(
                "topicmill collect --since 2d",
                "some posts may be missing: collect them by time, or collect more often",
            );
        }
        if self.defaults.has_pipeline_file
            && !self.is_running(Stage::Classify)
            && !self.set_flags().is_empty()
        {
            if self.defaults.is_original {
                return (None, NAME_CALIBRATED.to_owned());
            }
            return run(
                "topicmill classify --make-current",
                "the pipeline file in the settings differs from the current label set; or name the file of this set in \
                 the setting `pipeline`",
            );
        }
        if let Some(run) = self.failed_scheduled_runs.first() {
            let why = format!("`{}` failed, and the list shows why", run.schedule);
            return (Some("topicmill schedule list".to_owned()), why);
        }
        let why = self.running.first().map_or_else(
            || "nothing: every post has a label".to_owned(),
            |run| format!("{} is running; nothing to do", run.stage),
        );
        (None, why)
    }

    /// Returns the command for a backlog that no run is labelling.
    fn label(&self, waiting: i64) -> (Option<String>, String) {
        let posts = if waiting == 1 {
            "post is waiting"
        } else {
            "posts are waiting"
        };
        if self.defaults.is_original {
            let why =
                format!("{NAME_CALIBRATED}; {waiting} {posts} for labels of the current label set");
            return (Some(self.classify()), why);
        }
        if let Some(theirs) = &self.other_labels {
            let why = format!(
                "{waiting} {posts} for a label of the current model and label set, but the newest have one of {} under \
                 {}: show those labels, or run `topicmill classify` with the current model and pipeline file",
                theirs.model, theirs.label_set
            );
            return (Some(use_command(theirs)), why);
        }
        let backlog = &self.backlog;
        let (set, model) = (self.set_flags(), self.model_flags());
        let mut why = format!("{waiting} {posts} for a label");
        if let (false, Some(set), Some(hash)) =
            (set.is_empty(), &backlog.label_set, &backlog.label_set_hash)
        {
            why.extend([format!(" of `{set}` (version {})", short_hash(hash))]);
        }
        if let (false, Some(model)) = (model.is_empty(), &backlog.model) {
            why.extend([format!(" by the model `{model}`")]);
        }
        if !(set.is_empty() && model.is_empty()) {
            why += ", which the settings do not name";
        }
        (Some(self.classify()), why + ", and no worker is labelling")
    }

    /// Returns the command that labels the backlog under the current model and label set. `FILE` and `DIR` are
    /// placeholders for the pipeline file and the model folder, which the database does not know.
    pub fn classify(&self) -> String {
        let (set, model) = (self.set_flags(), self.model_flags());
        format!("topicmill classify{set}{model}")
    }

    /// Returns the flags for the current label set; none if it is the default of `classify`.
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

    /// Returns the flags for the current model. The model's name contains the shortlist length, if there is a
    /// shortlist.
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

/// Returns the command that makes other stored labels current. Used when `classify` runs with a different model or
/// label set, which never reduces the backlog of the current ones.
pub(super) fn use_command(other: &OtherLabels) -> String {
    let (set, model) = (
        short_hash(&other.label_set_hash),
        short_hash(&other.model_hash),
    );
    format!("topicmill labels use {set} --model {model}")
}
