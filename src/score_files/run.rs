//! Scores windows of texts and writes one line per row, in order.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc::Receiver;

use super::input::{Entry, TextWindow};
use super::output::{self, OutputLayout};
use super::{FileJob, FileReport, FilesError, write_error};
use topicmill_core::LabelSet;
use topicmill_score::labeler::{Completion, Pairs, PreparedLabels};
use topicmill_score::{Labeler, Shortlist, TextError, TextResult};

/// Maximum number of failed rows that are logged.
const LOGGED_FAILURES: usize = 3;

/// A run fails once this many rows have been tried and none could be scored.
const MAX_FAILED_ROWS: u64 = 1_000;

/// The destination for lines.
pub(super) struct Sink<'a> {
    pub(super) to: Box<dyn Write + 'a>,
    pub(super) path: &'a Path,
    /// Failed rows before the first scored one. They are written to a pipe only if a row can be scored.
    pub(super) held: Option<Vec<String>>,
}

impl Sink<'_> {
    fn write(&mut self, line: String, is_scored: bool) -> Result<(), FilesError> {
        if !is_scored && let Some(held) = &mut self.held {
            held.push(line);
            return Ok(());
        }
        let mut lines = self.held.take().into_iter().flatten().chain([line]);
        let written = lines.try_for_each(|line| writeln!(self.to, "{line}"));
        written.map_err(write_error(self.path))
    }

    fn flush(&mut self) -> Result<(), FilesError> {
        self.to.flush().map_err(write_error(self.path))
    }
}

/// A run over all windows.
pub(super) struct FileRun<'a> {
    pub(super) job: &'a FileJob,
    pub(super) labeler: &'a mut Labeler,
    pub(super) set: &'a LabelSet,
    pub(super) layout: &'a OutputLayout,
    pub(super) prepared: &'a PreparedLabels,
    /// The model that shortlists labels for the large one, with its prepared labels.
    pub(super) shortlist: Option<(PreparedLabels, &'a mut Shortlist)>,
    pub(super) sink: Sink<'a>,
    pub(super) report: FileReport,
    /// Number of failed rows logged so far.
    pub(super) logged: usize,
    /// Where and why the first row failed.
    pub(super) first_failure: Option<String>,
    /// True while every row has a text.
    pub(super) all_have_text: bool,
}

type Scored = Result<TextResult, String>;

impl FileRun<'_> {
    /// Scores all windows. Takes `windows` by value: dropping it ends the reader.
    pub(super) fn score_windows(
        &mut self,
        windows: Receiver<Result<TextWindow, FilesError>>,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), FilesError> {
        for window in windows {
            if stop() || self.score_window(window?, stop, progress)? == Completion::Cancelled {
                self.report.stopped = true;
                break;
            }
        }
        Ok(())
    }

    fn score_window(
        &mut self,
        window: TextWindow,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Completion, FilesError> {
        let mut outcomes: Vec<Option<Scored>> = vec![None; window.texts.len()];
        let mut done = self.report.lines;
        let mut finish = |text: usize, outcome: Scored| {
            done += 1;
            outcomes[text] = Some(outcome);
            progress(done);
        };
        // Texts for the large model: their index in the window, and the labels on the shortlist.
        let (mut indices, mut texts, mut pairs) = (Vec::new(), Vec::new(), Vec::new());
        match &mut self.shortlist {
            None => {
                indices.extend(0..window.texts.len());
                texts = window.texts;
                pairs.resize(texts.len(), Pairs::new());
            }
            Some((prepared, small)) => {
                let Some(orders) = small.order(prepared, &window.plain, &[], stop)? else {
                    return Ok(Completion::Cancelled);
                };
                for (index, (text, order)) in window.texts.into_iter().zip(orders).enumerate() {
                    match order {
                        Ok(order) => {
                            indices.push(index);
                            texts.push(text);
                            pairs.push(small.pairs(&order, self.set.labels.len(), self.prepared));
                        }
                        Err(error) => finish(index, Err(error.to_string())),
                    }
                }
            }
        }
        let mut finish_scored = |text: usize, outcome: Result<_, TextError>| {
            finish(indices[text], outcome.map_err(|error| error.to_string()));
        };
        let ended = self
            .labeler
            .score(self.prepared, &texts, &pairs, stop, &mut finish_scored)?;
        if ended == Completion::Cancelled {
            // Lines are written in order, so a stopped window is discarded.
            return Ok(ended);
        }
        self.write(&window.entries, outcomes)?;
        progress(self.report.lines);
        Ok(ended)
    }

    /// Writes a window's lines. `outcomes` contains one entry for each row with text.
    fn write(&mut self, rows: &[Entry], outcomes: Vec<Option<Scored>>) -> Result<(), FilesError> {
        let mut outcomes = outcomes.into_iter();
        for entry in rows {
            let scored = match &entry.problem {
                None => {
                    let outcome = outcomes.next().flatten();
                    outcome
                        .expect("each row without a problem has a text, and the labeler reports it")
                }
                Some(problem) => {
                    self.all_have_text = false;
                    Err(problem.clone())
                }
            };
            let line = match &scored {
                Ok(result) => self.layout.result_line(&entry.kept, self.set, result),
                Err(problem) => self.failure(entry, problem),
            };
            self.sink.write(line, scored.is_ok())?;
            self.report.lines += 1;
            let FileReport { lines, failed, .. } = self.report;
            if failed == lines && lines >= MAX_FAILED_ROWS {
                return Err(self.nothing_scored());
            }
        }
        // The reader of a pipe gets each window as soon as it is scored.
        self.sink.flush()
    }

    fn failure(&mut self, entry: &Entry, problem: &str) -> String {
        self.report.failed += 1;
        // If there is only one input, its name is omitted.
        let input = (self.job.inputs.len() > 1).then(|| self.job.inputs[entry.input].as_path());
        let message = format!("{} {problem}", output::place(input, entry.line));
        if self.logged < LOGGED_FAILURES {
            self.logged += 1;
            tracing::warn!("a row cannot be scored: {message}");
        }
        self.first_failure.get_or_insert(message);
        self.layout
            .failure_line(&entry.kept, input, entry.line, problem)
    }

    /// Returns the error for inputs in which no row could be scored.
    pub(super) fn nothing_scored(&mut self) -> FilesError {
        FilesError::NothingScored {
            inputs: self.job.inputs.clone(),
            rows: self.report.lines,
            reason: self.first_failure.take().unwrap_or_default(),
            by_model: self.all_have_text,
        }
    }
}
