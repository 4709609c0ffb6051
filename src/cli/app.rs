//! Holds what every command shares: the effective settings, and the store, pipeline, sources and models created from
//! them.

mod model;
mod run_flags;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

pub use self::model::{DEFAULT_MODEL, ModelFlags, SmallFlags};
pub use self::run_flags::RunFlags;
use super::{CliError, Global};
use crate::classify::{MakeCurrent, Options};
use crate::collect::ReadOptions;
use crate::config::{self, CommentText, Loaded, Origin, Settings};
use crate::metrics::Metrics;
use crate::pipeline::Context;
use crate::pipeline_file::Pipeline;
use crate::telemetry::{self, LogFormat};
use topicmill_core::clock::{SharedClock, SystemClock};
use topicmill_core::record::RunSettings;
use topicmill_core::{LabelSet, Listing, Mode, SourceKind};
use topicmill_http::{ClientSettings, Timeouts};
use topicmill_score::library;
use topicmill_sources::SourceSettings;
use topicmill_sources::arctic_shift::ArcticShiftSettings;
use topicmill_sources::reddit::RedditSettings;
use topicmill_store::{Access, Address, Store, worker_name};

/// Settings and resources that every command shares.
#[derive(Debug, Clone)]
pub struct App {
    pub loaded: Loaded,
    pub clock: SharedClock,
    pub log_format: LogFormat,
    /// Cancelled by the first signal.
    pub stop: CancellationToken,
    /// The scheduled run that the command belongs to.
    pub scheduled_run: Option<i64>,
    /// The metrics of this process.
    pub metrics: Arc<Metrics>,
}

/// Flags of commands that read a pipeline file.
#[derive(Debug, Clone, Args)]
pub struct PipelineFlags {
    /// Read topics and labels from a pipeline file
    ///
    /// The default is the setting `pipeline`, or else the sixteen built-in topics.
    #[arg(long, value_name = "FILE")]
    pub pipeline: Option<PathBuf>,
}

/// Flags of commands that label stored posts.
#[derive(Debug, Clone, Args)]
pub struct CurrentFlags {
    /// Make this run's label set the current one, which the views show
    ///
    /// By default, this happens only if there is no current label set yet.
    #[arg(long)]
    make_current: bool,
    /// With --make-current: also if posts whose text was deleted lose their label
    #[arg(long, requires = "make_current")]
    yes: bool,
}

impl CurrentFlags {
    /// Returns the condition for a run to change the current label set.
    pub fn make_current(&self) -> MakeCurrent {
        match (self.make_current, self.yes) {
            (false, _) => MakeCurrent::IfNone,
            (true, false) => MakeCurrent::Always,
            (true, true) => MakeCurrent::EvenIfLabelsAreLost,
        }
    }
}

impl App {
    /// Reads the settings and starts logging.
    pub fn load(global: &Global) -> Result<Self, CliError> {
        let (url, log_format) = (&global.database, &global.log_format);
        let flags = [("database.url", url), ("log.format", log_format)].into_iter();
        let flags = flags.filter_map(|(key, value)| Some((key, value.clone()?)));
        let flags: Vec<_> = flags.collect();
        // `vars` would panic on a variable that is not UTF-8.
        let env: Vec<_> = std::env::vars_os()
            .filter_map(|(name, value)| utf8_variable(name, value).transpose())
            .collect::<Result<_, _>>()?;
        let loaded = config::load(global.config.as_deref(), env, &flags)?;
        if global.config.is_none() {
            check_libraries(&loaded)?;
        }
        let format = loaded.settings.log.format;
        let verbosity = if global.quiet {
            -1
        } else {
            i8::try_from(global.verbose).unwrap_or(i8::MAX)
        };
        telemetry::init(format, verbosity);
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        Ok(Self {
            loaded,
            clock: SystemClock::shared(),
            log_format: format,
            stop: CancellationToken::new(),
            scheduled_run: None,
            metrics: Arc::default(),
        })
    }

    /// Returns the effective settings.
    pub fn settings(&self) -> &Settings {
        &self.loaded.settings
    }

    /// Returns true if the database is a SQLite file that does not exist.
    pub fn is_database_missing(&self) -> bool {
        let address = Address::parse(self.settings().database.url.reveal());
        matches!(address, Ok(Address::File(path)) if !path.exists())
    }

    /// Opens the database of the settings.
    pub async fn store(&self, access: Access) -> Result<Store, CliError> {
        self.store_at(self.settings().database.url.reveal(), access)
            .await
    }

    /// Opens the database at a URL with the settings.
    pub async fn store_at(&self, url: &str, access: Access) -> Result<Store, CliError> {
        let store = Store::open_cancellable(url, access, &self.stop).await?;
        Ok(store.reading_titles(self.settings().collect.comment_text == CommentText::TitleAndBody))
    }

    /// Returns an error if `output` is the database file, or another SQLite database: no file of results replaces one.
    pub fn check_not_database(&self, output: &Path) -> Result<(), CliError> {
        let address = Address::parse(self.settings().database.url.reveal());
        let what = if address.is_ok_and(|address| address.includes(output)) {
            "the database itself"
        } else if first_bytes(output).starts_with(b"SQLite format 3\0") {
            "a SQLite database"
        } else {
            return Ok(());
        };
        Err(CliError::Usage(format!(
            "cannot write `{}`: it is {what}; choose a different file",
            output.display()
        )))
    }

    /// Creates the context that a run's stages share.
    pub fn context(&self, store: Store) -> Context {
        let (clock, stop) = (self.clock.clone(), self.stop.clone());
        let mut context = Context::new(store, clock, stop, worker_name());
        context.scheduled_run = self.scheduled_run;
        context.metrics = Arc::clone(&self.metrics);
        context
    }

    /// Loads the pipeline file from the flags, from the settings, or the built-in one, in this order.
    pub fn pipeline(&self, flags: &PipelineFlags) -> Result<Pipeline, CliError> {
        let loaded = self.load_pipeline(self.pipeline_path(flags));
        loaded.map_err(|error| match error {
            // The file was not set by a flag, so name the setting that it comes from.
            CliError::Pipeline(error) if flags.pipeline.is_none() => {
                let origin = self.loaded.origin("pipeline");
                CliError::Usage(format!("setting `pipeline` in {origin}: {error}"))
            }
            error => error,
        })
    }

    /// Returns the path of the file that [`Self::pipeline`] reads; `None` for the built-in one.
    pub fn pipeline_path<'a>(&'a self, flags: &'a PipelineFlags) -> Option<&'a Path> {
        let default = self.settings().pipeline.as_deref();
        flags.pipeline.as_deref().or(default)
    }

    /// Logs which pipeline file later runs use by default, if this run made the labels of a different one current.
    pub fn log_default_pipeline(&self, flags: &PipelineFlags, make_current: MakeCurrent) {
        let Some(file) = &flags.pipeline else {
            return;
        };
        let default = self.settings().pipeline.as_deref();
        let real_path = |path: &Path| path.canonicalize().ok();
        let is_default = default.is_some_and(|default| real_path(default) == real_path(file));
        if is_default || make_current == MakeCurrent::IfNone {
            return;
        }
        let default = default.map_or_else(
            || "the built-in topics".to_owned(),
            |default| format!("`{}`", default.display()),
        );
        tracing::info!(
            "runs without --pipeline use {default}: to label new posts with these labels, set `pipeline` in the \
             settings to `{}`",
            real_path(file).as_ref().unwrap_or(file).display()
        );
    }

    /// Loads a pipeline file; without a path, the built-in one.
    pub fn load_pipeline(&self, path: Option<&Path>) -> Result<Pipeline, CliError> {
        let collect = &self.settings().collect;
        let listing = collect.listing.unwrap_or(Listing::Hot);
        let mut pipeline = Pipeline::load(path, listing, collect.limit)?;
        for topic in &mut pipeline.topics {
            topic.is_default_listing &= collect.listing.is_none();
        }
        Ok(pipeline)
    }

    /// Converts the settings in `[reddit]`.
    pub fn reddit_settings(&self) -> RedditSettings {
        let set = &self.settings().reddit;
        RedditSettings {
            auth_url: set.auth_url.clone(),
            api_url: set.api_url.clone(),
            client_id: set.client_id.clone(),
            client_secret: set.client_secret.reveal().to_owned(),
            username: set.username.clone(),
            password: set.password.reveal().to_owned(),
            client: ClientSettings {
                user_agent: set.user_agent.clone(),
                requests_per_minute: set.requests_per_minute,
                wait_budget: Duration::from_secs(set.wait_budget_secs),
                tries: set.tries,
                timeouts: Timeouts {
                    connect: Duration::from_secs(set.connect_timeout_secs),
                    read: Duration::from_secs(set.read_timeout_secs),
                    total: Duration::from_secs(set.total_timeout_secs),
                },
            },
        }
    }

    /// Returns the concurrency, overlap and page cap of `collect`.
    pub fn read_options(&self, source: SourceKind) -> ReadOptions {
        let (set, archive) = (&self.settings().collect, &self.settings().arctic_shift);
        ReadOptions {
            concurrency: set.concurrency,
            overlap: match source {
                SourceKind::ArcticShift => Duration::from_hours(archive.overlap_hours.into()),
                _ => Duration::from_secs(set.overlap_secs),
            },
            page_cap: set.page_cap,
            time_range: None,
        }
    }

    /// Converts the settings for every source.
    pub fn source_settings(&self) -> SourceSettings {
        let set = &self.settings().arctic_shift;
        let reddit = self.reddit_settings();
        SourceSettings {
            arctic_shift: ArcticShiftSettings {
                api_url: set.api_url.clone(),
                client: ClientSettings {
                    requests_per_minute: set.requests_per_minute,
                    wait_budget: Duration::from_secs(set.wait_budget_secs),
                    ..reddit.client.clone()
                },
            },
            reddit,
        }
    }

    /// Returns the label set of a pipeline in the mode from the flag or the setting. A classifier's own labels replace
    /// those of the pipeline, unless they are the same.
    pub fn label_set(&self, flags: &ModelFlags, mut set: LabelSet) -> Result<LabelSet, CliError> {
        let classifier = self.classifier(flags);
        if let Some((name, head)) = &classifier {
            set = model::classifier_label_set(name, head, set);
        }
        if let Some(mode) = flags.mode.or(self.settings().classify.mode) {
            if set.fitted.is_some() && mode != set.mode {
                return Err(CliError::Usage(format!(
                    "the label set `{}` was fitted in mode {}, and mode {mode} is set: leave the mode out",
                    set.name, set.mode
                )));
            }
            set.mode = mode;
        }
        if set.mode == Mode::Raw && classifier.is_none() {
            return Err(CliError::Usage(
                "mode raw returns the logits of a classifier, but the model is not a classifier: use single or multi"
                    .into(),
            ));
        }
        Ok(set)
    }

    /// Returns the options for labelling the backlog, from the settings.
    pub fn backlog_options(&self) -> Options {
        let set = &self.settings().classify;
        Options {
            lease: Duration::from_secs(set.lease_secs),
            max_attempts: set.max_attempts,
            limit: None,
            retry_failed: false,
            watch: false,
            pipeline_file: None,
            make_current: MakeCurrent::IfNone,
            settings: RunSettings::default(),
        }
    }
}

/// Returns the first bytes of a file; none if it cannot be read, or is a pipe or a device.
fn first_bytes(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if path.is_file()
        && let Ok(file) = File::open(path)
    {
        let _ = file.take(64).read_to_end(&mut bytes);
    }
    bytes
}

/// Rejects settings that run code if an untrusted file in the current folder sets them.
fn check_libraries(loaded: &Loaded) -> Result<(), CliError> {
    for key in ["onnxruntime.library", "openvino.library"] {
        if let Origin::File(path) = loaded.origin(key)
            && let Some(why) = library::untrusted_reason(path)
        {
            let path = path.display();
            return Err(CliError::Usage(format!(
                "refusing `{key}` from `{path}`: {why}; if you trust the file, pass it with `--config {path}`"
            )));
        }
    }
    Ok(())
}

/// Starts of the names of variables that are read here or by the driver of PostgreSQL.
const READ_VARIABLES: &str =
    "TOPICMILL__ DATABASE_URL PGHOST PGPORT PGUSER PGPASS PGDATABASE PGSSL PGOPTIONS";

/// Converts an environment variable to text. Skips one that is not UTF-8, but rejects it if it is read: ignoring it
/// would, for example, use another database.
fn utf8_variable(name: OsString, value: OsString) -> Result<Option<(String, String)>, CliError> {
    let shown = name.to_string_lossy().into_owned();
    match (name.into_string(), value.into_string()) {
        (Ok(name), Ok(value)) => Ok(Some((name, value))),
        _ if READ_VARIABLES
            .split(' ')
            .any(|start| shown.starts_with(start)) =>
        {
            Err(CliError::Usage(format!(
                "the environment variable `{shown}` is not UTF-8: correct or unset it"
            )))
        }
        _ => Ok(None),
    }
}

/// Runs blocking work on another thread, so that signals are still handled.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    let ended = tokio::task::spawn_blocking(work).await;
    // The error can only be a panic, because nothing aborts the task. A panic is a bug, so it is propagated.
    ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}
