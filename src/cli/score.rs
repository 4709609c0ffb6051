//! `topicmill score`: labels texts from files and writes them to a file, without a database.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::app::{App, ModelFlags, PipelineFlags, SmallFlags, run_blocking};
use super::backlog::warn_about_identical_labels;
use super::output::counted;
use super::signals::BLOCKED_TIMEOUT;
use super::{CliError, Exit, check_stdin};
use crate::pipeline_file::background;
use crate::score_files::{
    self, FileJob, FilesError, Reading, ScoredRows, WINDOW_PAIRS, Writing, score_files,
};
use crate::telemetry::Progress;
use topicmill_core::{Background, Label, LabelSet};
use topicmill_score::LabelerError;
use topicmill_tables::{TableFormat, bytes};

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "a flag each")]
#[command(
    after_help = "Examples:
  topicmill score texts.csv scores.csv
  topicmill score posts.parquet out.parquet --text headline --text body
  topicmill score texts.ndjson out.ndjson --label cooking --label football
  topicmill score 'in/*.parquet' scores.parquet",
    override_usage = "topicmill score [OPTIONS] <INPUT>... <OUTPUT>"
)]
pub struct Score {
    /// Score the INPUT files and write the result to OUTPUT; - is stdin or stdout
    ///
    /// The formats are CSV, TSV, NDJSON, JSON, Parquet and .txt. INPUT may also be a folder of Parquet files, or a
    /// pattern such as 'in/*.parquet'.
    #[arg(required = true, num_args = 2.., value_names = ["INPUT", "OUTPUT"])]
    files: Vec<PathBuf>,
    /// Score LABEL; repeatable [default: the pipeline's labels]
    #[arg(
        help_heading = "Labels",
        long = "label",
        value_name = "LABEL",
        conflicts_with = "pipeline"
    )]
    labels: Vec<String>,
    /// Set the hypothesis template for --label; {} stands for the label
    #[arg(
        help_heading = "Labels",
        hide_short_help = true,
        long,
        value_name = "T",
        requires = "labels",
        default_value = "This text is about {}."
    )]
    template: String,
    /// Also compare each text with ordinary topics
    ///
    /// A text that fits no --label then gets no label. NAME is reddit, none, or a file like
    /// pipelines/background/reddit.toml [default: reddit for an embedding model, else none].
    #[arg(
        help_heading = "Labels",
        hide_short_help = true,
        long,
        value_name = "NAME",
        requires = "labels"
    )]
    background: Option<String>,
    /// Read the text from COLUMN; repeatable
    ///
    /// Several columns are joined [default: text, title with body, or a similar column].
    #[arg(help_heading = "Input", long, value_name = "COLUMN")]
    text: Vec<String>,
    /// Clean Reddit text: decode HTML entities, and remove Markdown, image URLs and zero-width characters
    #[arg(help_heading = "Input", hide_short_help = true, long)]
    reddit_text: bool,
    /// Read the id from COLUMN [default: id, or the row number]
    #[arg(
        help_heading = "Input",
        hide_short_help = true,
        long,
        value_name = "COLUMN"
    )]
    id: Option<String>,
    /// Set the input format; txt has one text per line [default: detected]
    #[arg(
        help_heading = "Input",
        long,
        value_parser = format(&["csv", "tsv", "ndjson", "json", "parquet", "txt"]),
        value_name = "FORMAT"
    )]
    format: Option<TableFormat>,
    /// Set the output format [default: the extension of OUTPUT, else ndjson]
    #[arg(
        help_heading = "Output",
        hide_short_help = true,
        long,
        value_parser = format(&["csv", "tsv", "ndjson", "json", "parquet"]),
        value_name = "FORMAT"
    )]
    output_format: Option<TableFormat>,
    /// Add a column with each label's score (CSV, TSV, Parquet)
    #[arg(help_heading = "Output", long)]
    label_scores: bool,
    /// Don't copy the other columns of the inputs
    #[arg(help_heading = "Output", hide_short_help = true, long)]
    drop_columns: bool,
    /// Replace OUTPUT if it exists
    #[arg(help_heading = "Output", long)]
    overwrite: bool,
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    model: ModelFlags,
    #[command(flatten)]
    small: SmallFlags,
}

/// Parses a format by its name, which is also its file extension.
fn format(names: &'static [&'static str]) -> impl TypedValueParser<Value = TableFormat> {
    PossibleValuesParser::new(names.iter().copied()).map(|name| {
        let format = TableFormat::from_path(format!("x.{name}").as_ref());
        format.expect("every name is the extension of a format")
    })
}

impl Score {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let set = app.label_set(&self.model, self.label_set(app)?)?;
        let background = match &set.background {
            Some(background) => format!("the background {}", background.tag()),
            None => "no background".to_owned(),
        };
        let labels = counted(set.labels.len() as u64, "label");
        tracing::info!("comparing each text with {labels} and {background}");
        let job = self.job()?;
        app.check_not_database(&job.output)?;
        // Unreadable files are rejected before the model is loaded.
        score_files::check(&job)?;
        let mut models = app.models(&self.model)?;
        warn_about_identical_labels(models.large.folder(), &set);
        let all_models = std::slice::from_mut(&mut models);
        app.add_small_model(all_models, &self.small, &self.model, &set)?;
        let (scored_job, stop) = (job.clone(), app.stop.clone());
        let scoring = run_blocking(move || {
            let bar = Progress::counter("score", "texts");
            let mut shown = 0;
            let mut on_progress = |done: u64| {
                bar.add(done.saturating_sub(shown));
                shown = done;
            };
            let stop = || stop.is_cancelled();
            Ok(score_files(
                &scored_job,
                &mut models,
                &set,
                &stop,
                &mut on_progress,
            ))
        });
        let stopped_for_long = async {
            app.stop.cancelled().await;
            app.clock.sleep(BLOCKED_TIMEOUT).await;
        };
        let scored = tokio::select! {
            scored = scoring => scored?,
            () = stopped_for_long => {
                tracing::warn!("stopped while waiting for input or computing: nothing was written");
                return Ok(Exit::Done);
            }
        };
        // A signal no longer interrupts the writing, so that it leaves no temporary file.
        run_blocking(move || finish(&job, scored)).await
    }

    /// Finds the files to read and to write.
    fn job(&self) -> Result<FileJob, CliError> {
        let files = self.files.split_last();
        let (output, files) = files.expect("clap requires two or more files");
        check_stdin(files)?;
        let mut inputs = Vec::new();
        for path in files {
            inputs.extend(score_files::expand_paths(path)?);
        }
        Ok(FileJob {
            inputs,
            output: output.clone(),
            reading: Reading {
                format: self.format,
                id: self.id.clone(),
                text: self.text.clone(),
                reddit_text: self.reddit_text,
            },
            writing: Writing {
                format: self.output_format,
                label_scores: self.label_scores,
                drop_columns: self.drop_columns,
            },
            overwrite: self.overwrite,
            window_pairs: WINDOW_PAIRS,
        })
    }

    fn label_set(&self, app: &App) -> Result<LabelSet, CliError> {
        if let Some((model, head)) = app.classifier(&self.model)
            && !self.labels.is_empty()
        {
            let own = head.label_list() + head.nli_advice();
            return Err(LabelerError::OwnLabels { model, own }.into());
        }
        if self.labels.is_empty() {
            return Ok(app.pipeline(&self.pipeline)?.label_set);
        }
        let labels = self.labels.iter().map(|text| Label::new(text)).collect();
        Ok(LabelSet {
            background: match (&self.background, app.model_kind(&self.model)) {
                (Some(name), _) => background(name, Path::new(""))
                    .map_err(|error| CliError::Usage(format!("--background `{name}`: {error}")))?,
                (None, Some((_, kind))) => Background::default_for(&kind),
                (None, None) => None,
            },
            ..LabelSet::new("command line".into(), self.template.clone(), labels)
        })
    }
}

/// Writes the scored rows and logs the result.
fn finish(job: &FileJob, scored: Result<ScoredRows, FilesError>) -> Result<Exit, CliError> {
    let report = match scored.and_then(|scored| scored.write(job)) {
        Err(FilesError::Write { source, .. })
            if bytes::is_stdin(&job.output) && source.kind() == io::ErrorKind::BrokenPipe =>
        {
            return Err(CliError::ClosedPipe);
        }
        report => report?,
    };
    let (texts, failed) = (report.lines, report.failed);
    if report.stopped {
        tracing::warn!(texts, "stopped before the end of the input");
    } else {
        tracing::info!(texts, failed, "wrote {}", job.output.display());
    }
    Ok(Exit::done_if(failed == 0))
}
