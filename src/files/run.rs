//! Windows of texts into lines: scored, in order, and written to a file or a pipe.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc::Receiver;

use super::input::{Entry, Window};
use super::journal::Journal;
use super::output::{self, Shape};
use super::own::{Own, Sets};
use super::shelf::Hold;
use super::stream::{self, Stream};
use super::{FileJob, FileReport, FilesError, write_error};
use topicmill_score::labeler::{Ended, Pairs, Prepared};
use topicmill_score::text::EncodedText;
use topicmill_score::{LabelSet, Labeler, Shortlist, TextError, TextResult};

/// Rows that failed whose reasons are shown.
const SHOWN_REASONS: usize = 3;

/// After so many rows of which none could be scored, nobody expects the next one to be better.
const HOPELESS_ROWS: u64 = 1_000;

/// Where lines go.
pub(super) enum Sink<'a> {
    File(&'a mut Journal),
    Shard {
        journal: &'a mut Journal,
        hold: &'a mut dyn Hold,
    },
    Pipe {
        shape: &'a Shape,
        /// Rows that failed before one was scored: nothing is written while there may be nothing to write.
        held: Vec<String>,
        to: Option<&'a mut (dyn Write + 'a)>,
        stream: Option<Stream<&'a mut (dyn Write + 'a)>>,
    },
}

impl Sink<'_> {
    /// What an earlier run wrote.
    pub(super) fn earlier(&self) -> FileReport {
        match self {
            Self::File(journal) | Self::Shard { journal, .. } => FileReport {
                lines: journal.lines,
                resumed: journal.lines,
                failed: journal.failed,
                left_out: journal.left_out,
                stopped: false,
            },
            Self::Pipe { .. } => FileReport::default(),
        }
    }

    /// `left_out`: what stands for the row in `OUTPUT.partial`, if it is not written.
    fn write(
        &mut self,
        line: String,
        is_scored: bool,
        left_out: Option<&str>,
    ) -> Result<(), FilesError> {
        let failed = write_error(Path::new("stdout"));
        match self {
            Self::File(journal) | Self::Shard { journal, .. } => {
                journal.write(left_out.unwrap_or(&line))
            }
            Self::Pipe {
                stream: None, held, ..
            } if !is_scored => {
                // A row that failed lacks columns, so the line of names waits for the first row that was scored.
                held.extend(left_out.is_none().then_some(line));
                Ok(())
            }
            Self::Pipe {
                shape,
                held,
                to,
                stream,
            } => {
                if let Some(to) = to.take() {
                    // A row that was scored has all columns.
                    let names = || {
                        let added = shape.added();
                        let members = stream::members(&line).map_err(&failed)?.0;
                        let names = members.into_iter().map(|(name, _)| name);
                        let theirs = names.filter(|name| !added.contains(name));
                        Ok(theirs.chain(added.iter().cloned()).collect())
                    };
                    *stream = Some(Stream::new(to, shape, names)?);
                }
                let stream = stream.as_mut().expect("it was made before the first row");
                for line in held.drain(..) {
                    stream.write(&line).map_err(&failed)?;
                }
                if left_out.is_some() {
                    return Ok(());
                }
                stream.write(&line).map_err(&failed)
            }
        }
    }

    fn flush(&mut self) -> Result<(), FilesError> {
        let failed = write_error(Path::new("stdout"));
        match self {
            Self::File(journal) => journal.flush().map(drop),
            Self::Shard { journal, hold } => {
                let bytes = journal.flush()?;
                hold.keep(bytes, false)
            }
            Self::Pipe { stream, .. } => match stream {
                Some(stream) => stream.flush().map_err(failed),
                None => Ok(()),
            },
        }
    }
}

/// A run over all windows.
pub(super) struct Run<'a, 's> {
    pub(super) job: &'a FileJob,
    pub(super) labeler: &'a mut Labeler,
    pub(super) set: &'a LabelSet,
    pub(super) shape: &'a Shape,
    pub(super) prepared: &'a Prepared,
    /// The small model, with the labels made ready for it.
    pub(super) picking: Option<(Prepared, &'a mut Shortlist)>,
    /// The labels that rows bring.
    pub(super) own: &'a mut Own,
    pub(super) sink: &'a mut Sink<'s>,
    pub(super) report: &'a mut FileReport,
    /// Whether a run gives up where no row of many can be scored.
    pub(super) gives_up: bool,
    /// How many reasons were shown.
    pub(super) shown: usize,
    /// The first of them.
    pub(super) reason: &'a mut String,
}

/// Texts that are scored, with the labels that a shortlist picked for them. A shortlist and labels of rows do not go
/// together.
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

type Outcome = Result<TextResult, String>;

fn said(outcome: Result<TextResult, TextError>) -> Outcome {
    outcome.map_err(|error| error.to_string())
}

impl Run<'_, '_> {
    /// Takes `windows` by value: the reader ends when nobody receives any more.
    pub(super) fn score_windows(
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
        let sets = if window.labels.iter().any(Option::is_some) {
            self.own.ready(self.labeler, self.set, window.labels)?
        } else {
            Sets::default()
        };
        let mut picked = Picked::default();
        match &mut self.picking {
            None => {
                for (place, text) in window.texts.into_iter().enumerate() {
                    match sets.of(place) {
                        Some(Err(problem)) => tell(place, Err(problem.clone())),
                        _ => picked.push(place, text, Pairs::new()),
                    }
                }
            }
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
                        Err(error) => tell(place, Err(error.to_string())),
                    }
                }
            }
        }
        let Picked {
            places,
            texts,
            pairs,
        } = picked;
        let prepared = |text: usize| match sets.of(places[text]) {
            Some(Ok((_, prepared))) => prepared,
            _ => self.prepared,
        };
        let ended =
            self.labeler
                .score_each(&prepared, &texts, &pairs, stop, &mut |text, outcome| {
                    tell(places[text], said(outcome));
                })?;
        if ended == Ended::Stopped {
            // Lines are written in order, so what is done of this window is lost with it.
            return Ok(ended);
        }
        self.write(&window.entries, outcomes, &sets)?;
        progress(self.report.lines, self.report.failed);
        Ok(ended)
    }

    /// Writes the lines of a window. `outcomes`: of the rows that have a text.
    fn write(
        &mut self,
        entries: &[Entry],
        outcomes: Vec<Option<Outcome>>,
        sets: &Sets,
    ) -> Result<(), FilesError> {
        let mut outcomes = outcomes
            .into_iter()
            .map(|outcome| outcome.expect("the labeler reports every text"))
            .enumerate();
        for entry in entries {
            let scored = match &entry.problem {
                None => outcomes.next().expect("a row without a problem has a text"),
                Some(problem) => (0, Err(problem.clone())),
            };
            let line = match &scored {
                (text, Ok(result)) => {
                    let set = match sets.of(*text) {
                        Some(Ok((set, _))) => set,
                        _ => self.set,
                    };
                    self.shape.result_line(&entry.kept, set, result)
                }
                (_, Err(problem)) => self.failure(entry, problem),
            };
            let is_scored = scored.1.is_ok();
            let left_out = self.shape.left_out(&entry.seen, &line, is_scored)?;
            self.sink.write(line, is_scored, left_out)?;
            self.report.lines += 1;
            self.report.left_out += u64::from(left_out.is_some());
            let is_hopeless =
                self.report.failed == self.report.lines && self.report.lines >= HOPELESS_ROWS;
            if self.gives_up && is_hopeless {
                let reason = std::mem::take(self.reason);
                return Err(hopeless(self.job, self.report, reason));
            }
        }
        // After each window, so that a run that is killed loses one window at most.
        self.sink.flush()
    }

    fn failure(&mut self, entry: &Entry, problem: &str) -> String {
        self.report.failed += 1;
        // With one input its name goes without saying.
        let input = (self.job.inputs.len() > 1).then(|| self.job.inputs[entry.input].as_path());
        let told = format!("{} {problem}", output::place(input, entry.line));
        if self.shown < SHOWN_REASONS {
            self.shown += 1;
            tracing::warn!("a row cannot be scored: {told}");
        }
        if self.reason.is_empty() {
            *self.reason = told;
        }
        self.shape
            .failure_line(&entry.kept, input, entry.line, problem)
    }
}

/// The error of files of which not one row could be scored.
pub(super) fn hopeless(job: &FileJob, report: &FileReport, reason: String) -> FilesError {
    FilesError::Hopeless {
        inputs: job.inputs.clone(),
        rows: report.lines,
        reason,
    }
}
