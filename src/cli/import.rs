//! `topicmill import`: stores posts and comments from files: saved pages, tables, monthly dumps, or ids to look up.

mod dry_run;
mod ids;

use std::path::PathBuf;

use chrono::NaiveDate;
use clap::{Args, ValueEnum};

use super::app::{App, PipelineFlags, RunFlags};
use super::source::SourceFlag;
use super::{CliError, Exit, Kind, check_stdin};
use crate::pipeline::{Context, ImportOrder};
use crate::telemetry::{Progress, nonzero};
use topicmill_core::record::ImportCounts;
use topicmill_core::{RunStatus, Timestamp, Topic};
use topicmill_sources::file::filter::Filter;
use topicmill_sources::file::names::{Column, FIELDS};
use topicmill_sources::file::table::DefaultValue;
use topicmill_sources::file::{FileOptions, dump};
use topicmill_store::Access;
use topicmill_tables::TableFormat;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "a flag each")]
#[command(after_help = "Examples:
  topicmill import RS_2024-01.zst --subreddit food
  topicmill import posts.csv --map title=headline --set subreddit=food
  topicmill import --format ids shared.txt")]
pub struct Import {
    /// Read FILE; - is stdin
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Set the input format [default: detected from content and name]
    #[arg(long, value_enum)]
    format: Option<ImportFormat>,
    /// Store only posts from the subreddit NAME; repeatable
    ///
    /// For dumps, the default is the pipeline's subreddits.
    #[arg(help_heading = "Filters", long = "subreddit", value_name = "NAME")]
    subreddits: Vec<String>,
    /// Store posts from every subreddit in a dump
    #[arg(help_heading = "Filters", long, conflicts_with = "subreddits")]
    all_subreddits: bool,
    /// Store only posts, or only comments
    #[arg(help_heading = "Filters", long, value_enum)]
    kind: Option<Kind>,
    /// Store only posts from this day (UTC) or later
    #[arg(help_heading = "Filters", long, value_name = "YYYY-MM-DD")]
    from: Option<NaiveDate>,
    /// Store only posts from this day (UTC) or earlier
    #[arg(help_heading = "Filters", long, value_name = "YYYY-MM-DD")]
    to: Option<NaiveDate>,
    /// Read a field from the given column of a table; repeatable
    #[arg(help_heading = "Fields", long = "map", value_name = "FIELD=COLUMN")]
    columns: Vec<String>,
    /// Set the default value of a field; repeatable
    ///
    /// The value is used for posts without a value for the field.
    #[arg(help_heading = "Fields", long = "set", value_name = "FIELD=VALUE")]
    defaults: Vec<String>,
    /// Use the topic that lists the post's subreddit, even if the file names a different one
    #[arg(help_heading = "Fields", long)]
    topics_from_subreddits: bool,
    /// Read a dump from its start, even if it was imported before
    #[arg(hide_short_help = true, long)]
    again: bool,
    /// Store nothing, and print the first three posts of each file as they would be stored
    #[arg(long, conflicts_with = "run_json")]
    dry_run: bool,
    /// With --format ids, also look up posts that are already stored
    #[arg(help_heading = "Ids", hide_short_help = true, long)]
    refresh: bool,
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    record: RunFlags,
    #[command(flatten, next_help_heading = "Ids")]
    source: SourceFlag,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ImportFormat {
    /// One saved listing, as returned by Reddit's API
    Listing,
    /// One post on each line, with Reddit's field names
    Ndjson,
    /// An array of posts, or an object that contains one
    Json,
    /// A monthly dump of Reddit (posts: `RS_2024-01.zst`, comments: `RC_2024-01.zst`), compressed or not; running the
    /// same command again resumes an interrupted import and skips a finished one
    Dump,
    /// A table with column names in its first line
    Csv,
    /// A table with tabs between its values
    Tsv,
    /// A Parquet table
    Parquet,
    /// One id or fullname (`t3_…`, `t1_…` for a comment) on each line, as `export --format ids` writes them; the posts
    /// are requested from Reddit or Arctic Shift
    Ids,
}

impl ImportFormat {
    /// Returns the table format that this format is read as; `None` for ids.
    fn table_format(self) -> Option<TableFormat> {
        match self {
            Self::Listing | Self::Json => Some(TableFormat::Json),
            Self::Ndjson | Self::Dump => Some(TableFormat::Ndjson),
            Self::Csv => Some(TableFormat::Csv),
            Self::Tsv => Some(TableFormat::Tsv),
            Self::Parquet => Some(TableFormat::Parquet),
            Self::Ids => None,
        }
    }
}

impl Import {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let pipeline = app.pipeline(&self.pipeline)?;
        check_stdin(&self.files)?;
        if self.format == Some(ImportFormat::Ids) {
            return self.refill(app, &pipeline.topics).await;
        }
        if self.refresh || self.source.source.is_some() {
            let text = "--refresh and --source need --format ids";
            return Err(CliError::Usage(text.into()));
        }
        let column = |field, name| Column { field, name };
        let default = |field, value| DefaultValue { field, value };
        let reading = FileOptions {
            format: self.format.and_then(ImportFormat::table_format),
            is_dump: self.is_dump(),
            filter: self.filter(&pipeline.topics)?,
            columns: parse_assignments("--map", "COLUMN", &self.columns, column)?,
            defaults: parse_assignments("--set", "VALUE", &self.defaults, default)?,
        };
        // Unreadable files are rejected before anything is stored.
        let mut bytes = 0;
        for path in &self.files {
            bytes += dump::check(path, &reading)?;
        }
        if self.dry_run {
            return self.preview(app, &reading, &pipeline.topics).await;
        }
        let order = ImportOrder {
            files: &self.files,
            reading: &reading,
            topics: &pipeline.topics,
            topics_from_subreddits: self.topics_from_subreddits,
            store_author: app.settings().collect.store_author,
            again: self.again,
        };
        let import = async |context: &Context| {
            let bar = Progress::bytes("import", bytes);
            let imported = context.import(&order, &|n| bar.add(n)).await;
            drop(bar);
            let (done, status) = imported?;
            context.log_summary(|| self.log_result(&done));
            Ok(Exit::done_if(status == RunStatus::Done))
        };
        self.record.record(app, Access::Create, import).await
    }

    /// Logs the sum of several files, and why nothing was stored.
    fn log_result(&self, done: &ImportCounts) {
        if self.files.len() > 1 {
            log_counts(done);
        }
        if done.posts == 0 && done.left_out > 0 {
            tracing::warn!(
                left_out = done.left_out,
                "no post was stored, because none matched: check --subreddit, --all-subreddits, --from and --to, \
                 and the topics' `match`"
            );
        }
    }

    /// Returns the filter that the flags describe, with the pipeline's subreddits for dumps.
    fn filter(&self, topics: &[Topic]) -> Result<Filter, CliError> {
        let midnight = |day: Option<NaiveDate>| {
            let midnight = day?.and_hms_opt(0, 0, 0)?;
            Timestamp::from_epoch_secs(midnight.and_utc().timestamp())
        };
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from > to
        {
            let text = format!("--from {from} is later than --to {to}, so no post can match");
            return Err(CliError::Usage(text));
        }
        let names = self.subreddits.iter().map(|flag| subreddit_name(flag));
        let mut names: Vec<&str> = names.collect::<Result<_, _>>()?;
        if names.is_empty() && self.is_dump() && !self.all_subreddits {
            let topics = topics.iter().flat_map(|topic| &topic.subreddits);
            names.extend(topics.map(String::as_str));
            if names.is_empty() {
                let text = "the pipeline has no subreddits to select from the dump: name some with --subreddit, or \
                            use --all-subreddits";
                return Err(CliError::Usage(text.into()));
            }
        }
        let selected = (!names.is_empty()).then_some(names);
        // The end of the filter is exclusive, so it is the day after --to.
        let end = midnight(self.to.and_then(|day| day.succ_opt()));
        let filter = Filter::new(selected, midnight(self.from), end);
        Ok(filter.of_kind(self.kind.map(Kind::thing_kind)))
    }

    /// Returns true if the files are dumps of all of Reddit, according to the flag or their names.
    fn is_dump(&self) -> bool {
        let is_named = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("RS_") || name.starts_with("RC_")
        };
        match self.format {
            Some(format) => format == ImportFormat::Dump,
            None => self.files.iter().any(is_named),
        }
    }
}

/// Returns the name in a value of `--subreddit`, such as `/r/food`.
fn subreddit_name(flag: &str) -> Result<&str, CliError> {
    let name = flag.trim_start_matches('/');
    let name = name.strip_prefix("r/").unwrap_or(name);
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
    if name.is_empty() || !name.chars().all(is_valid) {
        let text = format!("--subreddit `{flag}` is not a subreddit name: use a name like `food`");
        return Err(CliError::Usage(text));
    }
    Ok(name)
}

/// Logs the counts, without zeros.
fn log_counts(done: &ImportCounts) {
    tracing::info!(
        posts = done.posts - done.comments,
        comments = nonzero(done.comments),
        new = done.stored.new,
        changed = nonzero(done.stored.changed),
        edited = nonzero(done.stored.edited),
        known = nonzero(done.known),
        deleted = nonzero(done.deleted),
        removed = nonzero(done.removed),
        missing = nonzero(done.missing),
        left_out = nonzero(done.left_out),
        purged = nonzero(done.stored.purged),
        tombstoned = nonzero(done.stored.tombstoned),
        unclear = nonzero(done.unclear),
        rejected = nonzero(done.rejected.total()),
        requests = nonzero(done.requests),
        "importing done"
    );
}

/// Parses assignments such as `title=headline`, and makes a value of both sides of each.
fn parse_assignments<T>(
    flag: &str,
    right_side: &str,
    assignments: &[String],
    make: impl Fn(&'static str, String) -> T,
) -> Result<Vec<T>, CliError> {
    let parse = |assignment: &String| {
        let (field, value) = assignment.split_once('=').unwrap_or((assignment, ""));
        match FIELDS.iter().find(|known| **known == field) {
            Some(field) if !value.is_empty() => Ok(make(field, value.to_owned())),
            _ => Err(CliError::Usage(format!(
                "{flag} `{assignment}` is not FIELD={right_side} with one of the fields {}",
                FIELDS.join(", ")
            ))),
        }
    };
    assignments.iter().map(parse).collect()
}
