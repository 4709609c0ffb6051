//! `topicmill export --format label-studio` and `--format argilla`: tasks for people who label elsewhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Export, ExportFormat};
use crate::cli::output::{self, OutputFormat};
use crate::cli::setup::Setup;
use crate::cli::{CliError, Exit};
use crate::domain::{Chosen, Fullname};
use crate::export::Subject;
use crate::placing::{Standing, put};
use crate::review::ask;
use crate::review::tasks::Tasks;
use crate::store::{Access, ReviewPost, Store};

/// Tasks that are written unless asked otherwise: an hour or two of one person's time.
const TASKS: u32 = 200;

/// The share of them that is drawn at random: that of the review page, see `ask`.
const RANDOM_SHARE: f64 = 0.2;

impl Export {
    /// The tool that tasks are wanted for.
    pub(super) fn tool(&self) -> Option<ExportFormat> {
        let is_tool = |format: &ExportFormat| {
            matches!(format, ExportFormat::LabelStudio | ExportFormat::Argilla)
        };
        self.format.filter(is_tool)
    }

    /// Writes tasks.
    pub(super) async fn tasks(&self, setup: &Setup, tool: ExportFormat) -> Result<Exit, CliError> {
        self.refuse_what_tasks_cannot()?;
        let store = setup.store(Access::ReadOnly).await?;
        let subject = self.subject(setup, &store).await?;
        let posts = self.posts(&store, &subject).await?;
        let models = store.models().await?;
        let model = models.iter().find(|(id, _)| *id == subject.target.model);
        let tasks = Tasks {
            set: &subject.set,
            model: model.map_or("", |(_, row)| &row.name),
            posts: &posts,
        };
        store.close().await?;
        if posts.is_empty() {
            tracing::warn!(
                "no tasks are written: no labelled post is left that nobody has said anything about"
            );
            if self.json {
                self.print_told(&posts, 0, None)?;
            }
            return Ok(Exit::Done);
        }
        let config = if matches!(tool, ExportFormat::LabelStudio) {
            Some(self.label_studio(&tasks)?)
        } else {
            self.argilla(&tasks)?;
            None
        };
        self.tell(&posts, config.as_deref())
    }

    fn refuse_what_tasks_cannot(&self) -> Result<(), CliError> {
        let random_share = self.random_share.unwrap_or(RANDOM_SHARE);
        if !(0.0..=1.0).contains(&random_share) {
            return Err(CliError::Usage(format!(
                "--random-share {random_share} is no share: give a number from 0 to 1"
            )));
        }
        let filters = [
            ("--label", !self.label.is_empty()),
            ("--since", self.since.is_some()),
            ("--until", self.until.is_some()),
            ("--min-score", self.min_score.is_some()),
            ("--where", self.expression.is_some()),
            ("--unlabelled", self.unlabelled),
            ("--split", self.split.is_some()),
            ("--bom", self.bom),
            ("--safe-csv", self.safe_csv),
        ];
        match filters.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(CliError::Usage(format!(
                "{flag} does not go with tasks, which are the closest calls and random posts: leave it out"
            ))),
        }
    }

    /// The posts to ask about, with why.
    async fn posts(
        &self,
        store: &Store,
        subject: &Subject,
    ) -> Result<Vec<(ReviewPost, Chosen)>, CliError> {
        let limit = self.limit.unwrap_or(TASKS);
        let share = self.random_share.unwrap_or(RANDOM_SHARE);
        let closest = store.closest_calls(subject.target, None, limit).await?;
        let random = store.random_posts(subject.target, None, limit).await?;
        let mixed = ask::mixed(closest, random, share, limit as usize);
        let names: Vec<Fullname> = mixed.iter().map(|(name, _)| name.clone()).collect();
        let mut posts = store.review_posts(subject.target, &names).await?;
        let mut all = Vec::with_capacity(posts.len());
        // Whatever was purged in between is not there.
        let mut mixed = mixed.into_iter();
        for post in posts.drain(..) {
            let why = mixed.find(|(name, _)| *name == post.fullname);
            all.extend(why.map(|(_, chosen)| (post, chosen)));
        }
        Ok(all)
    }

    /// A file of tasks, and its labelling interface beside it; the path of that.
    fn label_studio(&self, tasks: &Tasks<'_>) -> Result<PathBuf, CliError> {
        let config = self.out.with_extension("xml");
        if config == self.out {
            let usage = "end OUT in .json: the labelling interface goes into a file of the same name that ends in .xml";
            return Err(CliError::Usage(usage.into()));
        }
        self.refuse_to_replace(&[&self.out, &config])?;
        self.put(&config, tasks.label_studio_config().as_bytes())?;
        self.put(&self.out, pretty(&tasks.label_studio()).as_bytes())?;
        Ok(config)
    }

    /// A folder that Argilla opens.
    fn argilla(&self, tasks: &Tasks<'_>) -> Result<(), CliError> {
        let settings = self.out.join(".argilla");
        let files = [
            (settings.join("dataset.json"), tasks.argilla_dataset()),
            (settings.join("settings.json"), tasks.argilla_settings()),
            (self.out.join("records.json"), tasks.argilla_records()),
        ];
        let paths: Vec<&Path> = files.iter().map(|(path, _)| path.as_path()).collect();
        self.refuse_to_replace(&paths)?;
        fs::create_dir_all(&settings).map_err(|error| not_written(&self.out, error))?;
        for (path, value) in &files {
            self.put(path, pretty(value).as_bytes())?;
        }
        Ok(())
    }

    fn refuse_to_replace(&self, paths: &[&Path]) -> Result<(), CliError> {
        let mut there = paths.iter().filter(|path| path.symlink_metadata().is_ok());
        match there.next() {
            Some(path) if !self.overwrite => Err(CliError::Usage(format!(
                "`{}` exists already: give another name, or replace it with --overwrite",
                path.display()
            ))),
            _ => Ok(()),
        }
    }

    /// A file that has its name when it is whole.
    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), CliError> {
        put(path, bytes, Standing::by(self.overwrite)).map_err(|error| not_written(path, error))
    }

    fn print_told(
        &self,
        posts: &[(ReviewPost, Chosen)],
        random: usize,
        config: Option<&Path>,
    ) -> Result<(), CliError> {
        let path = Some(&self.out).filter(|_| !posts.is_empty());
        let value = json!({
            "path": path, "tasks": posts.len(), "random": random, "closest": posts.len() - random, "config": config,
        });
        output::print_json(&value, OutputFormat::Json)
    }

    fn tell(
        &self,
        posts: &[(ReviewPost, Chosen)],
        config: Option<&Path>,
    ) -> Result<Exit, CliError> {
        let random = posts.iter().filter(|(_, chosen)| *chosen == Chosen::Random);
        let random = random.count();
        if self.json {
            self.print_told(posts, random, config)?;
            return Ok(Exit::Done);
        }
        let path = self.out.display();
        let tasks = posts.len();
        if let Some(config) = config {
            tracing::info!(
                tasks,
                random,
                "the tasks are in `{path}`; `{}` is the labelling interface for the project's settings; what people answered, \
                 exported as JSON, comes back with `topicmill labels gold import`",
                config.display()
            );
        } else {
            tracing::info!(
                tasks,
                random,
                "the tasks are in the folder `{path}`, which `rg.Dataset.from_disk` opens; what people answered, exported with \
                 `dataset.records.to_json`, comes back with `topicmill labels gold import`"
            );
        }
        Ok(Exit::Done)
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("JSON can be written") + "\n"
}

fn not_written(path: &Path, source: io::Error) -> CliError {
    CliError::Write {
        path: path.display().to_string(),
        source,
    }
}
