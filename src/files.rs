//! Scores files into a file, without a database: the `score` command.
//!
//! Reads the rows in tables and writes a row for each input row that is not blank, in the same order, with the input
//! row's columns and the scores. Rows are processed in windows that use bounded memory: while the engine computes one,
//! a thread reads and tokenises the next. Results are appended as JSON lines to `OUTPUT.partial`, which becomes the
//! output at the end. The same command resumes a stopped run.

mod columnar;
mod columns;
mod convert;
mod error;
mod input;
mod kept_columns;
mod output;
mod partial;
mod run;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

pub use self::error::FilesError;
use self::error::write_error;
use self::input::Order;
pub use self::input::expand_paths;
use self::output::OutputLayout;
use self::partial::Partial;
use self::run::{Run, Sink, nothing_scored};
use topicmill_score::labeler::PreparedLabels;
use topicmill_score::{LabelSet, Models};
use topicmill_tables::TableFormat;

/// Default number of rows per window: enough for batches of texts of similar length, and few enough to compute again
/// after a run is stopped.
pub const WINDOW_ROWS: usize = 4096;

/// The files to score.
#[derive(Debug, Clone)]
pub struct FileJob {
    /// The input tables, read one after another; `-` is stdin. [`expand_paths`] resolves folders and patterns.
    pub inputs: Vec<PathBuf>,
    /// The output; `-` is for [`score_to`].
    pub output: PathBuf,
    /// Options for reading the inputs.
    pub reading: Reading,
    /// Options for writing the output.
    pub writing: Writing,
    /// True to replace an existing output.
    pub overwrite: bool,
    /// Rows per window; see [`WINDOW_ROWS`].
    pub window_rows: usize,
}

/// Options for reading tables; options that are not set are detected.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The format; `None` to detect it from the file extension or, failing that, from the first bytes.
    pub format: Option<TableFormat>,
    /// The delimiter; `None` to detect it from the header line.
    pub delimiter: Option<u8>,
    /// The id column; `None` for `id` or, if there is no such column, row numbers.
    pub id: Option<String>,
    /// The text columns, joined by a blank line; empty for `text`, `title` with a body, or a similar name.
    pub text: Vec<String>,
    /// True to convert text to what Reddit displays; see [`reddit_text`](topicmill_score::reddit::reddit_text).
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
    /// Rows in the output, including rows from an earlier run.
    pub lines: u64,
    /// Rows that an earlier run has written.
    pub resumed: u64,
    /// Rows in `lines` that contain an error instead of a label.
    pub failed: u64,
    /// True if the run was stopped; the same command resumes `OUTPUT.partial`.
    pub stopped: bool,
}

/// Checks inputs and output as far as possible before a model is loaded.
///
/// # Errors
/// See [`FilesError`].
pub fn check(job: &FileJob) -> Result<(), FilesError> {
    output::check(job)?;
    input::check(job)
}

/// Scores files. Calls `progress` with the number of finished and failed texts, once for each text; checks `stop`
/// between batches.
///
/// # Errors
/// See [`FilesError`]. Finished rows remain in `OUTPUT.partial`; if there are none, the file is deleted.
pub fn score_files(
    job: &FileJob,
    models: &mut Models,
    set: &LabelSet,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FileReport, FilesError> {
    let layout = choose_layout(job, set)?;
    let fingerprint = partial::fingerprint(job, &layout, &models.identity().1, set);
    // An invalid label set fails before a file is created.
    let prepared = prepare(models, set)?;
    let mut partial = Partial::open(&job.output, fingerprint.as_deref())?;
    let mut sink = Sink::File(&mut partial);
    let report = match score_rows(
        job,
        models,
        set,
        prepared,
        &layout,
        &mut sink,
        (stop, progress),
    ) {
        Err(error) => {
            let is_useless = matches!(
                error,
                FilesError::NothingScored { .. } | FilesError::Empty(_)
            );
            // The file contains nothing to resume, and it would block the next attempt.
            if is_useless || partial.is_empty() {
                partial.discard()?;
            }
            return Err(error);
        }
        Ok(report) => report,
    };
    if report.stopped {
        partial.flush()?;
    } else if layout.is_lines() {
        partial.finish()?;
    } else {
        partial.convert(|lines, to| convert::convert(lines, to, &layout, &job.inputs))?;
    }
    Ok(report)
}

/// Scores files to a pipe: NDJSON is streamed, other formats are written when complete.
///
/// # Errors
/// See [`FilesError`].
pub fn score_to(
    to: &mut (dyn Write + '_),
    job: &FileJob,
    models: &mut Models,
    set: &LabelSet,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FileReport, FilesError> {
    let layout = choose_layout(job, set)?;
    if layout.is_lines() {
        let prepared = prepare(models, set)?;
        let mut sink = Sink::Pipe {
            to,
            held: Some(Vec::new()),
        };
        return score_rows(
            job,
            models,
            set,
            prepared,
            &layout,
            &mut sink,
            (stop, progress),
        );
    }
    let failed = write_error(Path::new("stdout"));
    let folder = tempfile::tempdir().map_err(&failed)?;
    let mut inside = job.clone();
    inside.output = folder.path().join("output");
    inside.writing.format = Some(layout.format);
    let report = score_files(&inside, models, set, stop, progress)?;
    if !report.stopped {
        let made = std::fs::File::open(&inside.output);
        let copied = made.and_then(|mut made| io::copy(&mut made, to));
        copied.and_then(|_| to.flush()).map_err(&failed)?;
    }
    Ok(report)
}

/// Checks the job and returns its output layout.
fn choose_layout(job: &FileJob, set: &LabelSet) -> Result<OutputLayout, FilesError> {
    check(job)?;
    let is_parquet = |path: &PathBuf| {
        let (named, _) = TableFormat::from_path(path);
        job.reading.format.or(named) == Some(TableFormat::Parquet)
    };
    let copied = job.inputs.iter().all(is_parquet) && columnar::have_same_schema(&job.inputs);
    let delimiter = input::delimiter(job);
    Ok(OutputLayout::new(job, set, delimiter, copied))
}

/// The labels, prepared for the large model and for the small one.
type BothPrepared = (PreparedLabels, Option<PreparedLabels>);

fn prepare(models: &mut Models, set: &LabelSet) -> Result<BothPrepared, FilesError> {
    let large = models.large.prepare(set)?;
    let small = models.small.as_mut().map(|small| small.prepare(set));
    Ok((large, small.transpose()?))
}

fn score_rows(
    job: &FileJob,
    models: &mut Models,
    set: &LabelSet,
    (prepared, small): BothPrepared,
    layout: &OutputLayout,
    sink: &mut Sink<'_>,
    (stop, progress): (&dyn Fn() -> bool, &mut dyn FnMut(u64, u64)),
) -> Result<FileReport, FilesError> {
    let picking = small.zip(models.small.as_mut());
    let report = sink.earlier();
    let rows = prepared.rows_per_text();
    let rows = picking.as_ref().map_or(rows, |(of_small, small)| {
        small.labels().min(rows).max(of_small.rows_per_text())
    });
    let encoder = models.large.encoder();
    let order = Order {
        job,
        encoder: &encoder,
        layout,
        skip: report.lines,
        size: (job.window_rows / rows).max(1),
        plain: picking.is_some(),
    };
    let mut run = Run {
        job,
        labeler: &mut models.large,
        set,
        layout,
        prepared: &prepared,
        picking,
        sink,
        report,
        shown: 0,
        reason: String::new(),
    };
    thread::scope(|scope| {
        // At most one window is waiting, one is being computed and one is being read, so memory is bounded.
        let (sender, windows) = mpsc::sync_channel(1);
        let order = &order;
        scope.spawn(move || input::read(order, &sender));
        run.score_windows(windows, stop, progress)
    })?;
    let (report, reason) = (run.report, run.reason);
    if report.lines == 0 && !report.stopped {
        return Err(FilesError::Empty(job.inputs.clone()));
    }
    if report.failed == report.lines && !report.stopped {
        return Err(nothing_scored(job, &report, reason));
    }
    Ok(report)
}
