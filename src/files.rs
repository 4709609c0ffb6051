//! Files in, files out: what the `score` command does, without a database.
//!
//! Lines of JSON go in and, in the same order, lines of JSON come out, one for each input line that is not
//! blank. Files of any size pass in windows: while the engine computes one, a thread reads and tokenises the
//! next. Output grows as `OUTPUT.partial` and gets its name when it is whole; a run that was stopped goes on
//! from there when the same command is given again.

mod input;
mod output;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use self::input::{Entry, Window};
use self::output::Partial;
use topicmill_score::labeler::{Ended, Pairs, Prepared};
use topicmill_score::text::EncodedText;
use topicmill_score::{Cascade, LabelSet, Labeler, LabelerError, Shortlist, TextError, TextResult};

/// Rows that a window holds unless told otherwise: enough to sort by length, and not more work than one
/// wants to lose when it is stopped.
pub const WINDOW_ROWS: usize = 4096;

/// Why files cannot be scored.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// There is no such input.
    #[error("read `{0}`: there is no such file; correct the path")]
    Missing(PathBuf),
    /// An input is a folder.
    #[error("read `{0}`: it is a folder; name the files in it, such as `{0}/*.ndjson`")]
    Folder(PathBuf),
    /// An input cannot be read.
    #[error("read `{path}`: {source}; check the file and its permissions")]
    Read {
        /// The input.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is nothing to do.
    #[error("find a text to score: {} holds no line; each line must be a JSON object with `id` and `text`", list(.0))]
    Empty(Vec<PathBuf>),
    /// The output is there already.
    #[error("write `{0}`: it exists already; remove it, name another file, or use `--overwrite`")]
    Exists(PathBuf),
    /// An input would be overwritten.
    #[error("write `{0}`: it is one of the inputs; name another file")]
    IsInput(PathBuf),
    /// Somebody else writes it.
    #[error("write `{0}`: another run is writing it; wait for it, or name another file")]
    Busy(PathBuf),
    /// No room left.
    #[error(
        "write `{0}`: the disk is full; free some space and give the same command again, it goes on where it was"
    )]
    Full(PathBuf),
    /// The output cannot be written.
    #[error("write `{path}`: {source}; check that its folder exists and may be written to")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The model, the labels or the engine.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
}

fn list(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| format!("`{}`", path.display()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Which files to score.
#[derive(Debug, Clone)]
pub struct FileJob {
    /// Files of JSON lines, read one after another. A line is an object with `id` (a string or an integer)
    /// and a text.
    pub inputs: Vec<PathBuf>,
    /// Where the result goes.
    pub output: PathBuf,
    /// Name of the text's field. `None`: `text`, or else `title` and `selftext` as of a post.
    pub text_column: Option<String>,
    /// Replace an output that exists.
    pub overwrite: bool,
    /// Rows in a window, see [`WINDOW_ROWS`].
    pub window_rows: usize,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct FileReport {
    /// Lines of the output, those of an earlier run included.
    pub lines: u64,
    /// How many of them an earlier run left that was stopped.
    pub resumed: u64,
    /// Of `lines`, those that say what was wrong with their input.
    pub failed: u64,
    /// Stopped before the end: `OUTPUT.partial` waits for the same command to be given again.
    pub stopped: bool,
}

/// Scores files. `progress` is called with the number of texts done and failed so far, once for each; `stop`
/// is asked between batches.
///
/// # Errors
/// See [`FilesError`]. What was written until then stays in `OUTPUT.partial`.
pub fn score_files(
    job: &FileJob,
    cascade: &mut Cascade,
    set: &LabelSet,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FileReport, FilesError> {
    input::check(&job.inputs)?;
    output::check(job)?;
    let prepared = cascade.large.prepare(set)?;
    let fingerprint = output::fingerprint(job, &cascade.identity().1, set);
    let picking = match &mut cascade.small {
        Some(small) => Some((small.prepare(set)?, small)),
        None => None,
    };
    let mut partial = Partial::open(&job.output, fingerprint)?;
    let mut report = FileReport {
        lines: partial.lines,
        resumed: partial.lines,
        failed: partial.failed,
        stopped: false,
    };

    let rows = prepared.rows_per_text();
    let rows = picking.as_ref().map_or(rows, |(of_small, small)| {
        small.picked_of(rows).max(of_small.rows_per_text())
    });
    let texts = (job.window_rows / rows).max(1);
    let plain = picking.is_some();
    let encoder = cascade.large.encoder();
    thread::scope(|scope| {
        // One window waits while one is computed and one is read: memory is bounded.
        let (sender, windows) = mpsc::sync_channel(1);
        let skip = report.resumed;
        scope.spawn(move || input::read(job, &encoder, (skip, texts), plain, &sender));
        let mut run = Run {
            job,
            labeler: &mut cascade.large,
            set,
            prepared: &prepared,
            picking,
            partial: &mut partial,
            report: &mut report,
        };
        run.score_windows(windows, stop, progress)
    })?;
    if report.lines == 0 && !report.stopped {
        partial.discard()?;
        return Err(FilesError::Empty(job.inputs.clone()));
    }
    if report.stopped {
        partial.keep()?;
    } else {
        partial.finish()?;
    }
    Ok(report)
}

struct Run<'a> {
    job: &'a FileJob,
    labeler: &'a mut Labeler,
    set: &'a LabelSet,
    prepared: &'a Prepared,
    /// The small model, with the labels made ready for it.
    picking: Option<(Prepared, &'a mut Shortlist)>,
    partial: &'a mut Partial,
    report: &'a mut FileReport,
}

/// Texts that are scored, with the labels that a shortlist picked for them.
#[derive(Default)]
struct Picked {
    /// Where each is in the window; none where all of it is here.
    places: Vec<usize>,
    texts: Vec<EncodedText>,
    pairs: Vec<Pairs>,
}

impl Picked {
    fn push(&mut self, place: usize, text: EncodedText, pairs: Pairs) {
        self.places.push(place);
        self.texts.push(text);
        self.pairs.push(pairs);
    }
}

type Outcome = Result<TextResult, TextError>;

impl Run<'_> {
    /// Takes `windows` by value: the reader ends when nobody receives any more.
    fn score_windows(
        &mut self,
        windows: Receiver<Result<Window, FilesError>>,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), FilesError> {
        for window in windows {
            if stop() || self.score_window(window?, stop, progress)? == Ended::Stopped {
                self.report.stopped = true;
                break;
            }
        }
        Ok(())
    }

    fn score_window(
        &mut self,
        window: Window,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Ended, FilesError> {
        let mut outcomes: Vec<Option<Outcome>> = vec![None; window.texts.len()];
        let (mut done, mut failed) = (self.report.lines, self.report.failed);
        let mut tell = |text: usize, outcome: Outcome| {
            done += 1;
            failed += u64::from(outcome.is_err());
            outcomes[text] = Some(outcome);
            progress(done, failed);
        };
        let mut picked = Picked::default();
        match &mut self.picking {
            None => picked.texts = window.texts,
            Some((prepared, small)) => {
                let Some(orders) = small.order(prepared, &window.plain, stop)? else {
                    return Ok(Ended::Stopped);
                };
                for (place, (text, order)) in window.texts.into_iter().zip(orders).enumerate() {
                    match order {
                        Ok(order) => {
                            let pairs = small.pairs(&order, self.set.labels.len(), self.prepared);
                            picked.push(place, text, pairs);
                        }
                        Err(error) => tell(place, Err(error)),
                    }
                }
            }
        }
        let Picked {
            places,
            texts,
            pairs,
        } = picked;
        let ended =
            self.labeler
                .score(self.prepared, &texts, &pairs, stop, &mut |text, outcome| {
                    tell(places.get(text).copied().unwrap_or(text), outcome);
                })?;
        if ended == Ended::Stopped {
            // Lines are written in order, so what is done of this window is lost with it.
            return Ok(ended);
        }
        let mut outcomes = outcomes
            .into_iter()
            .map(|outcome| outcome.expect("the labeler reports every text"));
        for entry in &window.entries {
            let line = match &entry.id {
                Ok(id) => match outcomes.next().expect("every entry with an id has a text") {
                    Ok(result) => output::result_line(id, self.set, &result),
                    Err(error) => self.failure(id, entry, &error.to_string()),
                },
                Err(problem) => self.failure(&serde_json::Value::Null, entry, problem),
            };
            self.partial.write(&line)?;
            self.report.lines += 1;
        }
        self.partial.flush()?;
        progress(self.report.lines, self.report.failed);
        Ok(ended)
    }

    fn failure(
        &mut self,
        id: &serde_json::Value,
        entry: &Entry,
        problem: &str,
    ) -> serde_json::Value {
        self.report.failed += 1;
        // With one input its name goes without saying.
        let input = (self.job.inputs.len() > 1).then(|| self.job.inputs[entry.input].as_path());
        output::failure_line(id, input, entry.line, problem)
    }
}

/// An error of writing, told from a full disk.
fn write_error(path: &Path) -> impl Fn(io::Error) -> FilesError + '_ {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            FilesError::Full(path.to_owned())
        }
        _ => FilesError::Write {
            path: path.to_owned(),
            source,
        },
    }
}

#[cfg(test)]
mod tests;
