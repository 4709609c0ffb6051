//! Files in, files out: what the `score` command does, without a database.
//!
//! Rows of a table go in and, in the same order, rows of a table come out, one for each that is not blank, with the
//! columns that they came with and with what was scored. Files of any size pass in windows: while the engine computes
//! one, a thread reads and tokenises the next. Output grows as lines of JSON in `OUTPUT.partial`, and is made of them
//! when they are whole; a run that was stopped goes on from there when the same command is given again.

mod columnar;
mod columns;
mod convert;
mod error;
mod filter;
mod input;
pub mod inputs;
mod journal;
mod kept;
mod output;
mod own;
mod run;
mod selected;
pub mod shards;
pub mod shelf;
mod stream;
mod wanted;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

pub use self::error::FilesError;
use self::error::write_error;
pub use self::filter::{Filter, FilterError};
use self::input::Order;
use self::inputs::Segment;
pub use self::inputs::read_error;
use self::output::{Partial, Shape};
use self::own::Own;
pub use self::own::RowLabels;
use self::run::{Run, Sink, hopeless};
use crate::tables::Format;
use topicmill_score::labeler::Prepared;
use topicmill_score::{Cascade, LabelSet, Labeler, SmallModel};

/// Rows that a window holds unless told otherwise: enough to sort by length, and not more work than one
/// wants to lose when it is stopped.
pub const WINDOW_ROWS: usize = 4096;

/// Which files to score.
#[derive(Debug, Clone)]
pub struct FileJob {
    /// Tables, read one after another; `-` is stdin.
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
    pub format: Option<Format>,
    /// What stands between values. `None`: as the line of names says.
    pub delimiter: Option<u8>,
    /// Name of the id's column. `None`: `id`, or else the rows are numbered.
    pub id: Option<String>,
    /// Names of the text's columns, joined by a blank line. None: `text`, `title` with a body, or another that is
    /// obviously the text.
    pub text: Vec<String>,
    /// Where a row has labels of its own. `None`: every text is scored against the same labels.
    pub labels: Option<RowLabels>,
}

/// How the output is written.
#[derive(Debug, Clone, Default)]
pub struct Writing {
    /// Its format. `None`: as its ending says, or else NDJSON.
    pub format: Option<Format>,
    /// A column with the score of each label, in formats that have columns; where rows have labels of their own, one
    /// column with all scores of the row as JSON.
    pub label_scores: bool,
    /// Leave out the columns of the inputs but the id.
    pub drop_columns: bool,
    /// Which rows are written; `None` for all.
    pub filter: Option<Filter>,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct FileReport {
    /// Rows that were dealt with, those of an earlier run included.
    pub lines: u64,
    /// How many of them an earlier run left that was stopped.
    pub resumed: u64,
    /// Of `lines`, those that say what was wrong with their input.
    pub failed: u64,
    /// Of `lines`, those that the condition left out.
    pub left_out: u64,
    /// Stopped before the end: `OUTPUT.partial` waits for the same command to be given again.
    pub stopped: bool,
}

/// Checks what can be known of inputs and output before a model is loaded.
///
/// # Errors
/// See [`FilesError`].
pub fn check(job: &FileJob) -> Result<(), FilesError> {
    output::check(job)?;
    input::check(job)
}

/// What scores, and who asks for it.
pub struct Scoring<'a> {
    /// The models.
    pub cascade: &'a mut Cascade,
    /// The labels.
    pub set: &'a LabelSet,
    /// Asked between batches.
    pub stop: &'a dyn Fn() -> bool,
    /// Called with the number of texts done and failed so far, once for each.
    pub progress: &'a mut dyn FnMut(u64, u64),
}

/// Scores files. `progress` is called with the number of texts done and failed so far, once for each; `stop`
/// is asked between batches.
///
/// # Errors
/// See [`FilesError`]. What was written until then stays in `OUTPUT.partial`; without a row there is no such file.
pub fn score_files(
    job: &FileJob,
    cascade: &mut Cascade,
    set: &LabelSet,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FileReport, FilesError> {
    let scoring = Scoring {
        cascade,
        set,
        stop,
        progress,
    };
    let shape = shape_of(job, set, scoring.cascade)?;
    let ready = Ready::of(scoring.cascade, set)?;
    let fingerprint = output::fingerprint(job, &shape, &scoring.cascade.identity().1, set);
    let mut partial = Partial::open(&job.output, fingerprint)?;
    let report = {
        let mut sink = Sink::File(&mut partial.journal);
        scored(job, None, scoring, ready, &shape, &mut sink)
    };
    let report = match report {
        Err(error) => {
            let is_useless = matches!(
                error,
                FilesError::Hopeless { .. }
                    | FilesError::Empty(_)
                    | FilesError::NoFilterColumn { .. }
            );
            // Nothing in it is worth going on with, and it would be in the way of the next try.
            if is_useless || partial.journal.is_empty() {
                partial.discard()?;
            }
            return Err(error);
        }
        Ok(report) => report,
    };
    if report.stopped {
        partial.keep()?;
    } else if shape.is_lines() {
        partial.finish()?;
    } else {
        partial.convert(|lines, to| convert::convert(lines, to, &shape, &job.inputs))?;
    }
    Ok(report)
}

/// Scores files and writes the result to a pipe as it comes; formats that need all rows are made in a file first.
///
/// # Errors
/// See [`FilesError`].
pub fn score_to(
    to: &mut (dyn Write + '_),
    job: &FileJob,
    scoring: Scoring<'_>,
) -> Result<FileReport, FilesError> {
    let shape = shape_of(job, scoring.set, scoring.cascade)?;
    let named = || {
        let (named, _) = Format::of_name(&job.inputs[0]);
        let format = job.reading.format.or(named);
        matches!(format, Some(Format::Csv | Format::Tsv | Format::Parquet))
    };
    let at_once = match shape.format {
        Format::Parquet => false,
        Format::Csv | Format::Tsv => job.inputs.len() == 1 && named(),
        Format::Ndjson | Format::Json => true,
    };
    let failed = write_error(Path::new("stdout"));
    if at_once {
        let mut sink = Sink::Pipe {
            shape: &shape,
            held: Vec::new(),
            to: Some(to),
            stream: None,
        };
        let ready = Ready::of(scoring.cascade, scoring.set)?;
        let report = scored(job, None, scoring, ready, &shape, &mut sink)?;
        if let Sink::Pipe {
            stream: Some(stream),
            ..
        } = sink
        {
            stream.finish().map_err(&failed)?;
        }
        return Ok(report);
    }
    // A pipe takes bytes in order, and this format is known only at its end: first into a file, then into the pipe.
    let folder = tempfile::tempdir().map_err(&failed)?;
    let inside = FileJob {
        output: folder.path().join("output"),
        writing: Writing {
            format: Some(shape.format),
            ..job.writing.clone()
        },
        ..job.clone()
    };
    let report = score_files(
        &inside,
        scoring.cascade,
        scoring.set,
        scoring.stop,
        scoring.progress,
    )?;
    if !report.stopped {
        let made = std::fs::File::open(&inside.output);
        let copied = made.and_then(|mut made| io::copy(&mut made, to));
        copied.and_then(|_| to.flush()).map_err(&failed)?;
    }
    Ok(report)
}

/// Checks the job, and says how its output is written.
fn shape_of(job: &FileJob, set: &LabelSet, cascade: &Cascade) -> Result<Shape, FilesError> {
    check(job)?;
    let is_parquet = |path: &PathBuf| {
        let (named, _) = Format::of_name(path);
        job.reading.format.or(named) == Some(Format::Parquet)
    };
    let copied = job.inputs.iter().all(is_parquet) && columnar::are_alike(&job.inputs);
    let delimiter = input::delimiter(job);
    Ok(Shape::of(job, set, deciders(cascade), delimiter, copied))
}

/// What the large and the small model are called, where either may decide.
fn deciders(cascade: &Cascade) -> Option<(String, String)> {
    let keeps = |small: &&SmallModel| small.task().keep.is_some();
    let small = cascade.small.as_ref().filter(keeps)?;
    let name = |labeler: &Labeler| labeler.folder().name.clone();
    Some((name(&cascade.large), name(small.labeler())))
}

/// The labels made ready for the models.
struct Ready {
    large: Prepared,
    small: Option<Prepared>,
}

impl Ready {
    fn of(cascade: &mut Cascade, set: &LabelSet) -> Result<Self, FilesError> {
        let large = cascade.large.prepare(set)?;
        let small = cascade.small.as_mut().map(|small| small.prepare(set));
        let small = small.transpose()?;
        Ok(Self { large, small })
    }
}

/// `segments`: the parts of the inputs that are read, where these are not all of them. A part may have no row, or none
/// that can be scored.
fn scored(
    job: &FileJob,
    segments: Option<&[Segment]>,
    scoring: Scoring<'_>,
    ready: Ready,
    shape: &Shape,
    sink: &mut Sink<'_>,
) -> Result<FileReport, FilesError> {
    let Scoring {
        cascade,
        set,
        stop,
        progress,
    } = scoring;
    let prepared = ready.large;
    let picking = ready.small.zip(cascade.small.as_mut());
    let mut report = sink.earlier();
    let lines = report.lines;
    let rows = prepared.rows_per_text();
    let rows = picking.as_ref().map_or(rows, |(of_small, small)| {
        small.picked_of(rows).max(of_small.rows_per_text())
    });
    let encoder = cascade.large.encoder();
    let order = Order {
        job,
        encoder: &encoder,
        shape,
        segments,
        skip: lines,
        size: (job.window_rows / rows).max(1),
        plain: picking.is_some(),
    };
    let mut own = Own::new(job.window_rows);
    let mut reason = String::new();
    thread::scope(|scope| {
        // One window waits while one is computed and one is read: memory is bounded.
        let (sender, windows) = mpsc::sync_channel(1);
        let order = &order;
        scope.spawn(move || input::read(order, &sender));
        let mut run = Run {
            job,
            labeler: &mut cascade.large,
            set,
            shape,
            prepared: &prepared,
            picking,
            own: &mut own,
            sink,
            report: &mut report,
            gives_up: segments.is_none(),
            shown: 0,
            reason: &mut reason,
        };
        run.score_windows(windows, stop, progress)
    })?;
    if segments.is_some() {
        return Ok(report);
    }
    if report.lines == 0 && !report.stopped {
        return Err(FilesError::Empty(job.inputs.clone()));
    }
    if report.failed == report.lines && !report.stopped {
        return Err(hopeless(job, &report, reason));
    }
    Ok(report)
}

#[cfg(test)]
mod tests;
