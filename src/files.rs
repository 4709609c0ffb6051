//! Scores files into a file, without a database: the `score` command.
//!
//! Reads rows of tables and writes, in the same order, a row for each that is not blank, with the columns that it came
//! with and its scores. Files of any size pass in windows: while the engine computes one, a thread reads and tokenises
//! the next. Results grow as lines of JSON in `OUTPUT.partial`, which becomes the output at the end; a run that was
//! stopped continues from there when the same command is given again.

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
use topicmill_score::labeler::Prepared;
use topicmill_score::{LabelSet, Models};
use topicmill_tables::TableFormat;

/// Rows that a window holds unless message otherwise: enough to sort by length, and not more work than one
/// wants to lose when it is stopped.
pub const WINDOW_ROWS: usize = 4096;

/// Which files to score.
#[derive(Debug, Clone)]
pub struct FileJob {
    /// Tables, read one after another; `-` is stdin. See [`expand_paths`] for folders and patterns.
    pub inputs: Vec<PathBuf>,
    /// Where the result goes; `-` is for [`score_to`].
    pub output: PathBuf,
    /// How the inputs are read.
    pub reading: Reading,
    /// How the output is written.
    pub writing: Writing,
    /// Replace an output that exists.
    pub overwrite: bool,
    /// Rows in a window, see [`WINDOW_ROWS`].
    pub window_rows: usize,
}

/// How tables are read; what is not said is looked for.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// Their format. `None`: as their endings say, or else their first bytes.
    pub format: Option<TableFormat>,
    /// The character between values. `None`: as the line of names says.
    pub delimiter: Option<u8>,
    /// Name of the id's column. `None`: `id`, or else the rows are numbered.
    pub id: Option<String>,
    /// Names of the text's columns, joined by a blank line. None: `text`, `title` with a body, or another that is
    /// obviously the text.
    pub text: Vec<String>,
    /// Read texts as readers of Reddit see them, see [`reddit_text`](topicmill_score::reddit::reddit_text).
    pub reddit_text: bool,
}

/// How the output is written.
#[derive(Debug, Clone, Default)]
pub struct Writing {
    /// Its format. `None`: as its ending says, or else NDJSON.
    pub format: Option<TableFormat>,
    /// A column with the score of each label, in formats that have columns.
    pub label_scores: bool,
    /// Leave out the columns of the inputs but the id.
    pub drop_columns: bool,
}

/// Counts of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileReport {
    /// Rows that are written, those of an earlier run included.
    pub lines: u64,
    /// Rows that an earlier run wrote before it was stopped.
    pub resumed: u64,
    /// Of `lines`, those that say what was wrong with their input.
    pub failed: u64,
    /// Stopped before the end: `OUTPUT.partial` waits for the same command to be given again.
    pub stopped: bool,
}

/// Checks inputs and output as far as that is possible before a model is loaded.
///
/// # Errors
/// See [`FilesError`].
pub fn check(job: &FileJob) -> Result<(), FilesError> {
    output::check(job)?;
    input::check(job)
}

/// Scores files. `progress` is called with the number of texts done and failed so far, once for each; `stop`
/// is asked between batches.
///
/// # Errors
/// See [`FilesError`]. What was written until then stays in `OUTPUT.partial`; without a row there is no such file.
pub fn score_files(
    job: &FileJob,
    models: &mut Models,
    set: &LabelSet,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FileReport, FilesError> {
    let layout = layout_of(job, set)?;
    let fingerprint = partial::fingerprint(job, &layout, &models.identity().1, set);
    // A set that the model cannot use is message before a file is made.
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
            // Nothing in it is worth continuing with, and it would be in the way of the next try.
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

/// Scores files and writes the result to a pipe: NDJSON as it comes, any other format once it is whole.
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
    let layout = layout_of(job, set)?;
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

/// Checks the job, and says how its output is written.
fn layout_of(job: &FileJob, set: &LabelSet) -> Result<OutputLayout, FilesError> {
    check(job)?;
    let is_parquet = |path: &PathBuf| {
        let (named, _) = TableFormat::from_path(path);
        job.reading.format.or(named) == Some(TableFormat::Parquet)
    };
    let copied = job.inputs.iter().all(is_parquet) && columnar::have_same_schema(&job.inputs);
    let delimiter = input::delimiter(job);
    Ok(OutputLayout::of(job, set, delimiter, copied))
}

/// The labels, ready for the large model and the small one.
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
        // One window waits while one is computed and one is read: memory is bounded.
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
