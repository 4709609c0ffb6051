//! `topicmill score`: files to a file, without a database.

use std::path::PathBuf;

use clap::Args;

use super::classify::warn_of_twins;
use super::setup::{ModelFlags, PipelineFlags, Setup, ShortlistFlags};
use super::{CliError, Exit};
use crate::files::{FileJob, WINDOW_ROWS, score_files};
use crate::telemetry::Progress;
use topicmill_score::Cascade;
use topicmill_score::{Label, LabelSet, Mode};

/// Flags of `score`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:\n\
\x20 topicmill score texts.ndjson scores.ndjson\n\
\x20 topicmill score texts.ndjson out.ndjson --label cooking --label football")]
pub struct Score {
    /// Read these files, with one JSON object on each line (id and text), and write the last one
    #[arg(required = true, num_args = 2.., value_names = ["INPUT", "OUTPUT"])]
    files: Vec<PathBuf>,
    /// Score this label; give it several times for several labels [default: the pipeline's labels]
    #[arg(long = "label", value_name = "LABEL", conflicts_with = "pipeline")]
    labels: Vec<String>,
    /// Use this hypothesis template for --label, with {} where the label goes
    #[arg(
        long,
        value_name = "T",
        requires = "labels",
        default_value = "This text is about {}."
    )]
    template: String,
    /// Read the text from this field [default: text, else title and selftext]
    #[arg(long, value_name = "FIELD")]
    text: Option<String>,
    /// Replace OUTPUT if it exists
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    pipeline: PipelineFlags,
    #[command(flatten)]
    model: ModelFlags,
    #[command(flatten)]
    shortlist: ShortlistFlags,
}

impl Score {
    pub async fn run(mut self, setup: &Setup) -> Result<Exit, CliError> {
        let set = setup.label_set(&self.model, self.label_set(setup)?)?;
        let output = self.files.pop().expect("clap asks for two files or more");
        let job = FileJob {
            inputs: self.files,
            output,
            text_column: self.text,
            overwrite: self.overwrite,
            window_rows: WINDOW_ROWS,
        };
        let mut cascade = setup.cascade(&self.model)?;
        warn_of_twins(cascade.large.folder(), &set);
        let one = std::slice::from_mut(&mut cascade);
        setup.shortlisted(one, &self.shortlist, &self.model, &set)?;
        let stop = setup.stop.clone();
        // Scoring blocks its thread; the signal handler must not be on it.
        let scored =
            tokio::task::spawn_blocking(move || run(&job, cascade, &set, &|| stop.is_cancelled()));
        scored
            .await
            .map_err(|error| CliError::Usage(format!("the scoring thread ended: {error}")))?
    }

    fn label_set(&self, setup: &Setup) -> Result<LabelSet, CliError> {
        if self.labels.is_empty() {
            return Ok(setup.pipeline(&self.pipeline)?.label_set);
        }
        let label = |text: &String| Label {
            slug: text.clone(),
            label: text.clone(),
            descriptions: Vec::new(),
        };
        Ok(LabelSet {
            name: "command line".into(),
            template: self.template.clone(),
            mode: Mode::Single,
            threshold: 0.0,
            temperature: 1.0,
            labels: self.labels.iter().map(label).collect(),
            background: None,
        })
    }
}

fn run(
    job: &FileJob,
    mut cascade: Cascade,
    set: &LabelSet,
    stop: &dyn Fn() -> bool,
) -> Result<Exit, CliError> {
    let bar = Progress::counter("score", "texts");
    let mut shown = 0;
    let report = score_files(job, &mut cascade, set, stop, &mut |done, _| {
        bar.add(done.saturating_sub(shown));
        shown = done;
    })?;
    drop(bar);
    let output = job.output.display();
    if report.stopped {
        tracing::warn!(
            done = report.lines,
            "stopped: give the same command again to go on; so far it is in {output}.partial"
        );
    } else {
        tracing::info!(
            texts = report.lines,
            failed = report.failed,
            resumed = report.resumed,
            "written to {output}"
        );
    }
    Ok(if report.failed > 0 {
        Exit::Partial
    } else {
        Exit::Done
    })
}
