//! `topicmill export --format label-studio`: writes tasks for annotators who use Label Studio.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::NamedTempFile;

use super::Export;
use crate::atomic_file::{self, IfExists};
use crate::cli::{App, CliError, Exit, Kind, OutputFormat, output};
use crate::export::Subject;
use topicmill_core::{Fullname, SampleReason};
use topicmill_review::label_studio::{self, Tasks};
use topicmill_review::sampling;
use topicmill_store::{Access, ReviewOrder, ReviewPost, Store};

/// The default number of tasks: an hour or two of work for one annotator.
const DEFAULT_TASKS: u32 = 200;

/// The default share of random tasks, the same as on the review page.
const DEFAULT_RANDOM_SHARE: f64 = 0.2;

impl Export {
    pub(super) async fn export_tasks(&self, app: &App) -> Result<Exit, CliError> {
        self.check_task_flags()?;
        let store = app.store(Access::ReadOnly).await?;
        let subject = self.subject(app, &store).await?;
        let posts = self.select_posts(&store, &subject).await?;
        let models = store.labels().models().await?;
        let model = models.iter().find(|(id, _)| *id == subject.target.model);
        let tasks = Tasks {
            set: &subject.set,
            model: model.map_or("", |(_, row)| &row.name),
            posts: &posts,
        };
        store.close().await?;
        if posts.is_empty() {
            tracing::warn!(
                "no tasks written: every labelled post that still has its text already has a gold label"
            );
            return self.print_tasks(&posts, None);
        }
        let config = self.write_tasks(&tasks)?;
        self.print_tasks(&posts, Some(&config))
    }

    fn check_task_flags(&self) -> Result<(), CliError> {
        let filters = [
            ("--kind comments", self.kind == Kind::Comments),
            ("--label", !self.label.is_empty()),
            ("--since", self.since.is_some()),
            ("--until", self.until.is_some()),
            ("--min-score", self.min_score.is_some()),
            ("--where", self.expression.is_some()),
            ("--unlabelled", self.unlabelled),
            ("--bom", self.bom),
            ("--vectors", self.vectors),
            ("--answers", self.answers),
            ("--safe-csv", self.safe_csv),
        ];
        match filters.iter().find(|(_, is_used)| *is_used) {
            None => Ok(()),
            Some((flag, _)) => Err(CliError::Usage(format!(
                "{flag} cannot be used with --format label-studio, which selects closest calls and random posts: leave \
                 it out; on the page `/review` of `topicmill serve --review`, you can filter by kind, label and score"
            ))),
        }
    }

    /// Selects the posts for the tasks, each with the reason for its selection.
    async fn select_posts(
        &self,
        store: &Store,
        subject: &Subject,
    ) -> Result<Vec<(ReviewPost, SampleReason)>, CliError> {
        let limit = self.limit.unwrap_or(DEFAULT_TASKS);
        let share = self.random_share.unwrap_or(DEFAULT_RANDOM_SHARE);
        let (gold, target) = (store.gold(), subject.target);
        let closest = gold.posts_to_review(target, None, ReviewOrder::Margin, limit);
        let random = gold.posts_to_review(target, None, ReviewOrder::Random, limit);
        let (closest, random) = (closest.await?, random.await?);
        let selected = sampling::mix(closest, random, share, limit as usize);
        let names: Vec<Fullname> = selected.iter().map(|(name, _)| name.clone()).collect();
        let posts = gold.review_posts(target, &names).await?;
        // A post may have been purged since it was selected.
        let mut selected = selected.into_iter();
        let with_reason = posts.into_iter().filter_map(|post| {
            let (_, reason) = selected.find(|(name, _)| *name == post.fullname)?;
            Some((post, reason))
        });
        Ok(with_reason.collect())
    }

    /// Writes the tasks, and the labelling interface next to them. Returns the path of the interface.
    fn write_tasks(&self, tasks: &Tasks<'_>) -> Result<PathBuf, CliError> {
        let config = self.out.with_extension("xml");
        if config == self.out {
            let usage = "use the extension .json for OUT: the labelling interface is written to a file with the same \
                         name and the extension .xml";
            return Err(CliError::Usage(usage.into()));
        }
        let interface = tasks.labeling_config();
        // A killed export may have left the interface without its tasks; an identical file is not a conflict.
        let present = fs::read(&config).unwrap_or_default();
        let is_written = present == interface.as_bytes();
        if !is_written {
            self.check_not_existing(&config)?;
        }
        self.check_not_existing(&self.out)?;
        // --overwrite applies to the file that the command line names.
        if config.symlink_metadata().is_ok() && !label_studio::is_labeling_config(&present) {
            return Err(CliError::Usage(format!(
                "`{}` exists and is not a labelling interface: move it, or choose a different name for OUT",
                config.display()
            )));
        }
        // The tasks go to a temporary file first, so that a full disk does not leave the interface without them.
        let (list, target) = write_temporary(&self.out, &format!("{:#}\n", tasks.to_json()))?;
        let if_exists = IfExists::from_overwrite(self.overwrite);
        if !is_written {
            atomic_file::write(&config, &interface, if_exists)
                .map_err(|error| write_error(&config, error))?;
        }
        atomic_file::persist(list, &target, if_exists)
            .map_err(|error| write_error(&self.out, error))?;
        Ok(config)
    }

    fn check_not_existing(&self, path: &Path) -> Result<(), CliError> {
        if path.symlink_metadata().is_ok() && !self.overwrite {
            return Err(already_exists(path));
        }
        Ok(())
    }

    /// Prints or logs the result; `config` is `None` if no tasks were written.
    fn print_tasks(
        &self,
        posts: &[(ReviewPost, SampleReason)],
        config: Option<&Path>,
    ) -> Result<Exit, CliError> {
        let reasons = posts.iter().map(|(_, reason)| *reason);
        let random = reasons
            .filter(|reason| *reason == SampleReason::Random)
            .count();
        if self.json {
            let path = config.map(|_| &self.out);
            let value = json!({
                "path": path, "tasks": posts.len(), "random": random, "closest": posts.len() - random, "config": config,
            });
            output::print_json(&value, OutputFormat::Json)?;
        } else if let Some(config) = config {
            tracing::info!(
                tasks = posts.len(),
                random,
                "wrote the tasks to `{}`; paste `{}` into the labelling interface of the project's settings, and \
                 import the answers, exported as JSON, with `topicmill labels gold import`",
                self.out.display(),
                config.display()
            );
        }
        Ok(Exit::Done)
    }
}

/// Writes and syncs a temporary file. Returns it with its target, which is the link's target if `path` is a symlink.
fn write_temporary(path: &Path, text: &str) -> Result<(NamedTempFile, PathBuf), CliError> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let write = || -> io::Result<NamedTempFile> {
        let mut file = atomic_file::temp_file(&target)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    let file = write().map_err(CliError::writing(path))?;
    Ok((file, target))
}

fn already_exists(path: &Path) -> CliError {
    CliError::Usage(format!(
        "`{}` already exists: choose a different name, or replace it with --overwrite",
        path.display()
    ))
}

/// Converts an error of the final rename; the file may have appeared since it was checked.
fn write_error(path: &Path, source: io::Error) -> CliError {
    match source.kind() {
        io::ErrorKind::AlreadyExists => already_exists(path),
        _ => CliError::writing(path)(source),
    }
}
