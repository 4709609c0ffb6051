//! The next command to run. Each rule names a command only if it is right whatever else is going on; without such a
//! rule, there is no command.

use serde::Serialize;

use super::StatusReport;
use topicmill_core::Stage;

/// A recommended command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextCommand {
    /// The command; `None` if there is nothing to do, or no command does it.
    pub command: Option<&'static str>,
    /// The reason, a sentence without its full stop.
    pub why: String,
}

impl NextCommand {
    /// Returns the command to run.
    fn run(command: &'static str, why: String) -> Self {
        let command = Some(command);
        Self { command, why }
    }

    /// Returns that there is no command to run.
    fn none(why: String) -> Self {
        Self { command: None, why }
    }
}

impl StatusReport {
    /// Returns the next command to run.
    pub fn next(&self) -> NextCommand {
        if let Some(run) = self.running.first() {
            return NextCommand::none(format!("{} is running", run.stage));
        }
        if self.backlog.posts == 0 {
            return NextCommand::run(
                "topicmill run",
                "no post is stored yet; `topicmill demo` shows how it works".to_owned(),
            );
        }
        if let Some(last) = self.failed_stages().max_by_key(|last| last.id) {
            let why = format!(
                "the last {} {}; the error says what to do",
                last.stage,
                last.problem().unwrap_or_default()
            );
            return NextCommand::none(why);
        }
        if let Some(error) = &self.pipeline_error {
            return NextCommand::none(format!("correct the pipeline file: {error}"));
        }
        if self.waiting() > 0 {
            let why = format!("{} posts are waiting for a label", self.waiting());
            if self.labels_current {
                return NextCommand::run("topicmill classify", why);
            }
            let current = self.backlog.label_set.as_deref().unwrap_or_default();
            return NextCommand::none(format!(
                "{why} of `{current}`, but the settings name a different label set or model: run `topicmill classify \
                 --make-current` or, if that one's labels are stored, `topicmill labels use`; to keep `{current}`, \
                 correct `pipeline` and `classify.model`"
            ));
        }
        if self.labels_current && self.backlog.parked > 0 {
            return NextCommand::run(
                "topicmill classify --select failed",
                "posts are parked after repeated failures: fix the cause, then retry them"
                    .to_owned(),
            );
        }
        if self.is_rewrite_due && self.may_rewrite {
            return NextCommand::run(
                "topicmill db vacuum",
                "the database files may still contain bytes of purged posts".to_owned(),
            );
        }
        NextCommand::none("nothing to run".to_owned())
    }

    /// Returns true if a run of the stage is active.
    pub fn is_running(&self, stage: Stage) -> bool {
        self.running.iter().any(|run| run.stage == stage)
    }
}
