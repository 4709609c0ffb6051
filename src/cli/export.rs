//! `topicmill export`: writes the labelled posts as a data set.

mod tasks;

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::labels::{LabelsFlags, no_labels_yet};
use super::share::parse_share;
use super::time_range::parse_times;
use super::{App, CliError, Exit, Kind, OutputFormat, output};
use crate::export::{self, Counts, DatasetFormat, Destination, Filters, Subject, Terms};
use crate::telemetry::Progress;
use topicmill_core::{Label, Mode};
use topicmill_review::evaluate::{Counted, Frame};
use topicmill_store::{Access, Store};
use topicmill_tables::bytes;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "a flag each")]
#[command(after_help = "Examples:
  topicmill export labelled.parquet
  topicmill export gaming.csv --label gaming --since 2026-11-01 --min-score 0.8
  topicmill export data-set")]
pub struct Export {
    /// Write the data set to OUT, in the format of its extension
    ///
    /// Without an extension, OUT becomes a folder of Parquet files with a data card, which `datasets.load_dataset`
    /// opens.
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Set the format, regardless of the extension
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// Export posts or comments
    #[arg(help_heading = "Filters", long, value_enum, default_value_t)]
    kind: Kind,
    /// Export only posts labelled LABEL; repeatable
    #[arg(help_heading = "Filters", long, value_name = "LABEL")]
    label: Vec<String>,
    /// Export only posts created at or after TIME
    ///
    /// TIME is a day (UTC) like 2026-11-20, a time like 2026-11-20T08:00:00+01:00, or an age like 36h, 1d or 2w.
    #[arg(help_heading = "Filters", long, value_name = "TIME")]
    since: Option<String>,
    /// Export only posts created before TIME; a day is included in full
    #[arg(help_heading = "Filters", long, value_name = "TIME")]
    until: Option<String>,
    /// Export only posts whose label has a score of at least SCORE, 0 to 1
    #[arg(help_heading = "Filters", long, value_name = "SCORE")]
    min_score: Option<f64>,
    /// Export only posts that match an SQL expression over the data set's columns
    #[arg(help_heading = "Filters", long = "where", value_name = "SQL")]
    expression: Option<String>,
    /// With --format label-studio, write N tasks [default: 200]
    #[arg(help_heading = "Label Studio", long, value_name = "N")]
    limit: Option<u32>,
    /// With --format label-studio, sample SHARE of the tasks at random [default: 0.2]
    ///
    /// Random posts give unbiased estimates; the rest are the closest calls.
    #[arg(help_heading = "Label Studio", long, value_name = "SHARE", value_parser = parse_share)]
    random_share: Option<f64>,
    /// Also export posts without a label
    #[arg(help_heading = "Filters", long, conflicts_with_all = ["label", "min_score"])]
    unlabelled: bool,
    /// Replace OUT if it exists
    #[arg(long)]
    overwrite: bool,
    /// Begin a CSV file with a byte order mark, for spreadsheets
    #[arg(help_heading = "CSV", long)]
    bom: bool,
    /// Write ' before CSV text that begins with = + - @
    ///
    /// Spreadsheets would otherwise run such text as a formula.
    #[arg(help_heading = "CSV", long)]
    safe_csv: bool,
    /// Add a `vector` column with the embedding model's vector of each text
    #[arg(long)]
    vectors: bool,
    /// Add the columns `in_random_sample` and `wave`, for estimates in R or Python
    ///
    /// Estimators such as R's dsl use them with `outcome` (the prediction) and `gold`.
    #[arg(long)]
    answers: bool,
    /// Allow --where as a PostgreSQL superuser, who can read the server's files
    #[arg(long)]
    allow_superuser: bool,
    /// Print a summary of the export as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    labels: LabelsFlags,
}

/// Values of `--format`.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ExportFormat {
    Csv,
    /// One JSON object per line; also called `ndjson`
    #[value(alias = "ndjson")]
    Jsonl,
    Parquet,
    /// Post ids only, without labels and text
    Ids,
    /// Parquet files in a folder, with a data card
    Folder,
    /// Tasks for Label Studio and a file with its labelling interface: closest calls and random posts
    LabelStudio,
}

impl Export {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        if bytes::is_stdin(&self.out) {
            return Err(CliError::Usage(
                "an export cannot go to stdout: use a file or a folder instead of `-`; `topicmill sql --format csv` \
                 prints rows"
                    .into(),
            ));
        }
        app.check_not_database(&self.out)?;
        if matches!(self.format, Some(ExportFormat::LabelStudio)) {
            return self.export_tasks(app).await;
        }
        let format = self.dataset_format()?;
        let store = app.store(Access::ReadOnly).await?;
        let subject = self.subject(app, &store).await?;
        let filters = self.filters(app, &subject)?;
        let destination = Destination {
            path: self.out.clone(),
            format,
            overwrite: self.overwrite,
            bom: self.bom,
            safe_csv: self.safe_csv,
        };
        let terms = Terms {
            allow_superuser: self.allow_superuser || app.settings().database.allow_superuser,
            stop: app.stop.clone(),
        };
        let progress = Progress::counter("export", "posts");
        let on_rows = move |rows| progress.add(rows);
        let purged = store.purging().count_purged().await?;
        let exported = export::export(&store, &subject, &filters, destination, terms, on_rows);
        let counts = match exported.await {
            // The exit code reports the signal.
            Err(export::ExportError::Stopped) => return Ok(Exit::Done),
            exported => exported?,
        };
        // Counted after the data set is in place, so that a purge during the export is not missed.
        let purged_since = match store.purging().count_purged().await {
            Ok(now) => Some(now.saturating_sub(purged)),
            Err(error) => {
                tracing::warn!(
                    "could not check whether posts were purged during the export: {error}"
                );
                None
            }
        };
        self.print_result(&counts, purged_since)
    }

    /// Returns the format of the data set; an error if a flag needs a different one.
    fn dataset_format(&self) -> Result<Option<DatasetFormat>, CliError> {
        if self.limit.is_some() || self.random_share.is_some() {
            return Err(CliError::Usage(
                "--limit and --random-share need --format label-studio: choose posts of a data set with --where, \
                 --since or --label"
                    .into(),
            ));
        }
        let format = self.format()?;
        if format != Some(DatasetFormat::Csv) && (self.bom || self.safe_csv) {
            let usage = "--bom and --safe-csv need CSV: leave them out, or add --format csv";
            return Err(CliError::Usage(usage.to_owned()));
        }
        Ok(format)
    }

    /// Returns the format of the file, or `None` for a folder.
    fn format(&self) -> Result<Option<DatasetFormat>, CliError> {
        let extension = self.out.extension().and_then(OsStr::to_str);
        let extension = extension.map(str::to_ascii_lowercase);
        Ok(match (self.format, extension.as_deref()) {
            (Some(ExportFormat::Csv), _) | (None, Some("csv")) => Some(DatasetFormat::Csv),
            (Some(ExportFormat::Jsonl), _) | (None, Some("jsonl" | "ndjson")) => {
                Some(DatasetFormat::Ndjson)
            }
            (Some(ExportFormat::Parquet), _) | (None, Some("parquet")) => {
                Some(DatasetFormat::Parquet)
            }
            (Some(ExportFormat::Ids), _) => Some(DatasetFormat::Ids),
            // Label Studio tasks were handled earlier.
            (Some(ExportFormat::Folder | ExportFormat::LabelStudio), _) | (None, None) => None,
            (None, Some(other)) => {
                return Err(CliError::Usage(format!(
                    "`{}`: `.{other}` is not a known format: use .parquet, .csv or .jsonl, or add --format",
                    self.out.display()
                )));
            }
        })
    }

    /// Returns the label set and the model to export.
    async fn subject(&self, app: &App, store: &Store) -> Result<Subject, CliError> {
        let labels = self.labels.selected(app, store).await?;
        let (target, set) = labels.ok_or_else(no_labels_yet)?;
        if self.vectors && !store.computed().has_vectors(target.model).await? {
            return Err(CliError::Usage(
                "--vectors needs labels from an embedding model, and this label set has none: leave it out, or name a \
                 model with --label-set and --model"
                    .to_owned(),
            ));
        }
        let mut subject = Subject {
            kind: self.kind.thing_kind(),
            target,
            set,
            vectors: self.vectors,
            waves: None,
        };
        if self.answers {
            let answers = store.gold().answers().await?;
            let sampled = std::iter::empty();
            let frame = Frame::find(store, target, &answers, sampled, Counted::IfWaves).await?;
            subject.waves = Some(frame.ends().to_vec());
        }
        Ok(subject)
    }

    /// Returns the filters that the flags describe.
    fn filters(&self, app: &App, subject: &Subject) -> Result<Filters, CliError> {
        let labels = &subject.set.labels;
        let mut slugs = Vec::new();
        for word in &self.label {
            let is_named =
                |label: &&Label| label.slug == *word || label.label.eq_ignore_ascii_case(word);
            let Some(label) = labels.iter().find(is_named) else {
                let known: Vec<_> = labels.iter().map(|label| label.slug.as_str()).collect();
                return Err(CliError::Usage(format!(
                    "the label set has no label `{word}`; it has {}",
                    known.join(", ")
                )));
            };
            slugs.push(label.slug.clone());
        }
        if let Some(score) = self.min_score
            && !(0.0..=1.0).contains(&score)
            && !(subject.set.mode == Mode::Raw && score.is_finite())
        {
            return Err(CliError::Usage(format!(
                "--min-score {score} is not a score: use a number from 0 to 1"
            )));
        }
        let now = app.clock.now();
        let [since, until] = parse_times(self.since.as_deref(), self.until.as_deref(), now)?;
        Ok(Filters {
            labels: slugs,
            since,
            until,
            min_score: self.min_score,
            unlabelled: self.unlabelled,
            expression: self.expression.clone(),
        })
    }

    /// Prints or logs the result. `purged` is the number of posts that were purged during the export, if known.
    fn print_result(&self, counts: &Counts, purged: Option<u64>) -> Result<Exit, CliError> {
        let path = self.out.display();
        if self.json {
            let value = json!({
                "path": self.out, "rows": counts.rows, "bytes": counts.bytes,
                "other": counts.other, "unsure": counts.unsure, "unlabelled": counts.unlabelled,
                "labels": counts.labels, "topics": counts.topics,
                "first": counts.first, "last": counts.last,
                "purged_meanwhile": purged,
            });
            output::print_json(&value, OutputFormat::Json)?;
        } else if counts.rows == 0 {
            let kind = self.kind.thing_kind();
            tracing::warn!("no {kind} matches the filters: `{path}` has no rows");
        } else {
            let (rows, bytes) = (counts.rows, counts.bytes);
            tracing::info!(rows, bytes, "wrote the data set to `{path}`");
        }
        if let Some(posts @ 1..) = purged {
            tracing::warn!(
                posts,
                "posts were purged during the export, and `{path}` may contain them: delete it, or export again with \
                 --overwrite"
            );
        }
        Ok(Exit::Done)
    }
}
