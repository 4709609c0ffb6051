//! Scores files into a file, without a database: the `score` command.
//!
//! Reads the rows in tables and writes a row for each, in the same order, with the input row's columns and the scores,
//! or with the reason why it has none. Blank lines are not rows. Rows are processed in windows that use bounded memory:
//! while the engine computes one, a thread reads and tokenises the next. Results are kept as JSON lines in a temporary
//! file and converted at the end.

mod columnar;
mod columns;
mod convert;
mod error;
mod input;
mod json_lines;
mod kept_columns;
mod output;
mod output_path;
mod paths;
mod run;

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

pub use self::error::FilesError;
use self::error::write_error;
use self::input::ReadOrder;
use self::output::OutputLayout;
pub use self::paths::expand_paths;
use self::run::{FileRun, Sink};
use crate::atomic_file::{self, IfExists, folder_of};
use topicmill_core::LabelSet;
use topicmill_score::Models;
use topicmill_tables::{TableFormat, bytes};

/// Default number of pairs per window: enough for batches of texts of similar length, and few enough to hold in memory.
pub const WINDOW_PAIRS: usize = 4096;

/// The files to score.
#[derive(Debug, Clone)]
pub struct FileJob {
    /// The input tables, read one after another; `-` is stdin. [`expand_paths`] resolves folders and patterns.
    pub inputs: Vec<PathBuf>,
    /// The output; `-` is stdout.
    pub output: PathBuf,
    /// Options for reading the inputs.
    pub reading: Reading,
    /// Options for writing the output.
    pub writing: Writing,
    /// True to replace an existing output.
    pub overwrite: bool,
    /// Maximum number of pairs of a text and a label that a model computes per window; see [`WINDOW_PAIRS`]. Some
    /// models compute all labels of a text at once, which counts as one pair.
    pub window_pairs: usize,
}

/// Options for reading tables; options that are not set are detected.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The format; `None` to detect it from the file extension or, failing that, from the first bytes.
    pub format: Option<TableFormat>,
    /// The id column; `None` for `id` or, if there is no such column, row numbers.
    pub id: Option<String>,
    /// The text columns, joined by a blank line; empty for `text`, `title` with a body, or a similar name.
    pub text: Vec<String>,
    /// True to convert text to what Reddit displays; see [`reddit_text`](topicmill_core::reddit::reddit_text).
    pub reddit_text: bool,
}

/// Options for writing the output.
#[derive(Debug, Clone, Default)]
pub struct Writing {
    /// The format; `None` to derive it from the file extension. The default is NDJSON.
    pub format: Option<TableFormat>,
    /// True to add a column with the score for each label, in tabular formats.
    pub label_scores: bool,
    /// True to drop the input columns except the id.
    pub drop_columns: bool,
}

/// Counts for a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileReport {
    /// Rows in the output.
    pub lines: u64,
    /// Rows in `lines` that contain an error instead of a label.
    pub failed: u64,
    /// True if the run was stopped; only NDJSON on stdout then has rows.
    pub stopped: bool,
}

/// Checks inputs and output as far as possible before a model is loaded.
///
/// # Errors
/// See [`FilesError`].
pub fn check(job: &FileJob) -> Result<(), FilesError> {
    output_path::check(job)?;
    input::check(job)
}

/// Scored rows that are not written yet. Dropping them leaves no file.
#[derive(Debug)]
pub struct ScoredRows {
    report: FileReport,
    layout: OutputLayout,
    /// The rows as JSON lines, in a file without a name, so that it is deleted even if the process is killed. `None` if
    /// the rows are on stdout already.
    lines: Option<File>,
}

/// Scores files. Calls `progress` with the number of finished texts, once for each text; checks `stop` between batches.
/// NDJSON for stdout is written as it is scored; everything else by [`ScoredRows::write`].
///
/// # Errors
/// See [`FilesError`].
pub fn score_files(
    job: &FileJob,
    models: &mut Models,
    set: &LabelSet,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<ScoredRows, FilesError> {
    check(job)?;
    let is_parquet = |path: &PathBuf| {
        let format = job.reading.format.or_else(|| TableFormat::from_path(path));
        format == Some(TableFormat::Parquet)
    };
    let is_copied = job.inputs.iter().all(is_parquet) && columnar::have_same_schema(&job.inputs);
    let layout = OutputLayout::new(job, set, input::delimiter(job), is_copied);
    let to_stdout = bytes::is_stdin(&job.output);
    let is_streamed = to_stdout && layout.is_lines();
    let failed = write_error(&job.output);
    let lines = if is_streamed {
        None
    } else if to_stdout {
        Some(tempfile::tempfile().map_err(&failed)?)
    } else {
        Some(tempfile::tempfile_in(folder_of(&job.output)).map_err(&failed)?)
    };
    let to: Box<dyn Write> = match &lines {
        Some(file) => Box::new(BufWriter::with_capacity(1 << 16, file)),
        None => Box::new(BufWriter::with_capacity(1 << 16, io::stdout().lock())),
    };
    let sink = Sink {
        to,
        path: &job.output,
        held: is_streamed.then(Vec::new),
    };
    let report = score_rows(job, models, set, &layout, sink, stop, progress)?;
    Ok(ScoredRows {
        report,
        layout,
        lines,
    })
}

impl ScoredRows {
    /// Writes the rows in the format of the output and renames the file into place, unless the run was stopped.
    ///
    /// # Errors
    /// See [`FilesError`]. The output is then unchanged.
    pub fn write(self, job: &FileJob) -> Result<FileReport, FilesError> {
        let lines = match self.lines {
            Some(lines) if !self.report.stopped => lines,
            _ => return Ok(self.report),
        };
        let failed = write_error(&job.output);
        let convert = |to| convert::convert(&lines, to, &self.layout, job);
        if bytes::is_stdin(&job.output) {
            let mut converted = convert(tempfile::tempfile().map_err(&failed)?)?;
            let mut out = io::stdout().lock();
            converted
                .rewind()
                .and_then(|()| io::copy(&mut converted, &mut out))
                .and_then(|_| out.flush())
                .map_err(&failed)?;
            return Ok(self.report);
        }
        let part = atomic_file::temp_file(&job.output).map_err(&failed)?;
        convert(part.reopen().map_err(&failed)?)?;
        let if_exists = IfExists::from_overwrite(job.overwrite);
        atomic_file::persist(part, &job.output, if_exists).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => output_path::exists(&job.output),
            _ => failed(error),
        })?;
        Ok(self.report)
    }
}

fn score_rows(
    job: &FileJob,
    models: &mut Models,
    set: &LabelSet,
    layout: &OutputLayout,
    sink: Sink<'_>,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<FileReport, FilesError> {
    let prepared = models.large.prepare(set)?;
    let mut pairs_per_text = models.rows_per_text(&prepared, set.labels.len());
    let shortlist = match &mut models.small {
        Some(small) => {
            let labels = small.prepare(set)?;
            pairs_per_text = pairs_per_text.max(labels.rows_per_text());
            Some((labels, small))
        }
        None => None,
    };
    let encoder = models.large.encoder();
    let order = ReadOrder {
        job,
        encoder: &encoder,
        layout,
        size: (job.window_pairs / pairs_per_text).max(1),
        plain: shortlist.is_some(),
    };
    let mut run = FileRun {
        job,
        labeler: &mut models.large,
        set,
        layout,
        prepared: &prepared,
        shortlist,
        sink,
        report: FileReport::default(),
        logged: 0,
        first_failure: None,
        all_have_text: true,
    };
    thread::scope(|scope| {
        // At most one window is waiting, one is being computed and one is being read, so memory is bounded.
        let (sender, windows) = mpsc::sync_channel(1);
        let order = &order;
        scope.spawn(move || input::read(order, &sender));
        run.score_windows(windows, stop, progress)
    })?;
    let report = run.report;
    if report.lines == 0 && !report.stopped {
        return Err(FilesError::Empty(job.inputs.clone()));
    }
    if report.failed == report.lines && !report.stopped {
        return Err(run.nothing_scored());
    }
    Ok(report)
}
