//! `topicmill export --format label-studio` and `--format argilla`: tasks for people who label elsewhere.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{Export, ExportFormat};
use crate::cli::output::{self, OutputFormat};
use crate::cli::setup::Setup;
use crate::cli::{CliError, Exit};
use crate::domain::{Chosen, Fullname};
use crate::export::{Subject, folder};
use crate::placing::{Standing, beside, folder_of, place, put};
use crate::review::ask;
use crate::review::tasks::Tasks;
use crate::store::{Access, ReviewPost, Store};

/// Tasks that are written unless asked otherwise: an hour or two of one person's time.
const TASKS: u32 = 200;

/// The share of them that is drawn at random: that of the review page, see `ask`.
const RANDOM_SHARE: f64 = 0.2;

/// The folder of Argilla's settings, and the records beside it.
const SETTINGS: &str = ".argilla";
const RECORDS: &str = "records.json";

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
        let interface = tasks.label_studio_config();
        let former = fs::read(&config).ok();
        // An export that was killed in between leaves the interface without its tasks: the same one is in nobody's way.
        let is_there = former.as_deref() == Some(interface.as_bytes());
        if !is_there {
            self.refuse_to_replace(&config)?;
        }
        self.refuse_to_replace(&self.out)?;
        // Both are whole before either gets its name.
        let interface = if is_there {
            None
        } else {
            Some(draft(&config, &interface)?)
        };
        let list = draft(&self.out, &pretty(&tasks.label_studio()))?;
        let standing = Standing::by(self.overwrite);
        let placed = interface.is_some();
        if let Some((file, target)) = interface {
            place(file, &target, standing).map_err(|error| not_placed(&config, error))?;
        }
        let (file, target) = list;
        place(file, &target, standing).map_err(|error| {
            // Tasks that somebody else put there meanwhile need the interface.
            if placed && error.kind() != io::ErrorKind::AlreadyExists {
                put_back(&config, former.as_deref());
            }
            not_placed(&self.out, error)
        })?;
        Ok(config)
    }

    /// A folder that Argilla opens.
    fn argilla(&self, tasks: &Tasks<'_>) -> Result<(), CliError> {
        // Behind a link lies the folder that is meant.
        let out = fs::canonicalize(&self.out).unwrap_or_else(|_| self.out.clone());
        let is_to_be_filled = self.refuse_folder(&out)?;
        let write = || -> io::Result<Option<PathBuf>> {
            fs::create_dir_all(folder_of(&out))?;
            let made = if is_to_be_filled {
                folder::within(&out)?
            } else {
                folder::beside(&out)?
            };
            fs::create_dir(made.path().join(SETTINGS))?;
            for (name, value) in [
                (".argilla/dataset.json", tasks.argilla_dataset()),
                (".argilla/settings.json", tasks.argilla_settings()),
                (RECORDS, tasks.argilla_records()),
            ] {
                folder::write(&made, name, pretty(&value))?;
            }
            if is_to_be_filled {
                // Settings without records, which may be replaced.
                drop(fs::remove_dir_all(out.join(SETTINGS)));
                for name in [SETTINGS, RECORDS] {
                    fs::rename(made.path().join(name), out.join(name))?;
                }
                return Ok(None);
            }
            folder::place(&made, &out, Standing::by(self.overwrite))?;
            // What was replaced lies here now. Somebody may have put something into it since it was looked at.
            Ok(foreign(made.path())?.is_some().then(|| made.keep()))
        };
        match write() {
            Ok(None) => Ok(()),
            Ok(Some(former)) => Err(CliError::Usage(format!(
                "the tasks are in `{}`, and the folder that they replaced got a file of somebody else's meanwhile: it is \
                 `{}` now",
                self.out.display(),
                former.display()
            ))),
            Err(error) => Err(not_placed(&self.out, error)),
        }
    }

    fn refuse_to_replace(&self, path: &Path) -> Result<(), CliError> {
        if path.symlink_metadata().is_ok() && !self.overwrite {
            return Err(exists(path));
        }
        Ok(())
    }

    /// A folder goes as a whole, so it is replaced only where nobody has put anything of their own into it. True for a
    /// folder without records, which is filled and stays the folder that it is.
    fn refuse_folder(&self, out: &Path) -> Result<bool, CliError> {
        let Ok(there) = out.symlink_metadata() else {
            return Ok(false);
        };
        let other = if there.is_dir() {
            foreign(out).map_err(|error| not_written(&self.out, error))?
        } else {
            Some(out.to_owned())
        };
        let is_missing = |name: &str| out.join(name).symlink_metadata().is_err();
        match other {
            // Settings without records may be all that somebody took out of Argilla.
            None if is_missing(RECORDS) && (is_missing(SETTINGS) || self.overwrite) => Ok(true),
            None => self.refuse_to_replace(out).map(|()| false),
            Some(other) => {
                self.refuse_to_replace(out)?;
                Err(CliError::Usage(format!(
                    "write `{}`: `export` did not make `{}`, or somebody has answered in it; it stays as it is: move it \
                     away, or give another name",
                    self.out.display(),
                    other.display()
                )))
            }
        }
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

/// A file that is whole and on the disk, and where it is to go: to what a link points to, not in the link's place.
fn draft(path: &Path, text: &str) -> Result<(NamedTempFile, PathBuf), CliError> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let write = || -> io::Result<NamedTempFile> {
        let mut file = beside(&target)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        Ok(file)
    };
    match write() {
        Ok(file) => Ok((file, target)),
        Err(error) => Err(not_written(path, error)),
    }
}

/// Puts back what a file was before; what cannot be put back is as good as what took its place.
fn put_back(path: &Path, former: Option<&[u8]>) {
    let _ = match former {
        Some(former) => put(path, former, Standing::Replaced),
        None => fs::remove_file(path),
    };
}

/// What lies in a folder for Argilla and is no file as an export writes it there.
fn foreign(out: &Path) -> io::Result<Option<PathBuf>> {
    for (below, known) in [
        (out.to_owned(), [SETTINGS, RECORDS]),
        (out.join(SETTINGS), ["dataset.json", "settings.json"]),
    ] {
        let entries = match fs::read_dir(&below) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let is_folder = entry.file_type()?.is_dir();
            // What an export left that was killed while it wrote.
            let word = name.to_string_lossy();
            let is_draft = is_folder && word.starts_with('.') && word.ends_with(".partial");
            let is_known =
                known.iter().any(|known| name == **known) && is_folder == (name == *SETTINGS);
            if !is_known && !is_draft {
                return Ok(Some(below.join(name)));
            }
        }
    }
    let records = out.join(RECORDS);
    let is_answered = match fs::read(&records) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        bytes => is_answered(&bytes?),
    };
    Ok(is_answered.then_some(records))
}

/// Whether records are others than those of tasks that nobody has answered.
fn is_answered(records: &[u8]) -> bool {
    let Ok(records) = serde_json::from_slice::<Vec<Value>>(records) else {
        return true;
    };
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(values) => values.is_empty(),
        Value::Array(values) => values.is_empty(),
        _ => false,
    };
    records
        .iter()
        .any(|record| !record.get("responses").is_none_or(is_empty))
}

fn exists(path: &Path) -> CliError {
    CliError::Usage(format!(
        "`{}` exists already: give another name, or replace it with --overwrite",
        path.display()
    ))
}

/// Somebody may have put something there since it was looked for.
fn not_placed(path: &Path, source: io::Error) -> CliError {
    match source.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => not_written(path, source),
    }
}

fn not_written(path: &Path, source: io::Error) -> CliError {
    CliError::Write {
        path: path.display().to_string(),
        source,
    }
}
