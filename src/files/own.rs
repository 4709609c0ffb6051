//! Labels that a row brings itself: read from its cell, and made ready for the model.
//!
//! What enters are the cells of a column, what leaves is a label set a row: that of the run with other labels, so with the
//! same template, mode, threshold, temperature and background. A row without labels of its own has those of the run; one
//! whose labels cannot be used fails alone.

use std::collections::{HashMap, HashSet};

use super::FilesError;
use crate::tables::Cell;
use topicmill_score::labeler::{KnownVectors, Prepared};
use topicmill_score::{Label, LabelSet, Labeler, LabelerError};

/// More labels of one text are none that somebody wrote.
const MOST_LABELS: usize = 1_000;

/// A longer label is a text in the wrong column.
const LONGEST_LABEL: usize = 2_000;

/// Vectors of labels that are remembered: four windows of them. One takes 1.5 KiB with the default model.
const KNOWN_WINDOWS: usize = 4;

/// Where the labels of a row are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowLabels {
    /// The name of their column.
    pub column: String,
    /// What stands between labels that are one text.
    pub separator: char,
}

impl RowLabels {
    /// The labels in a cell, without blanks around them; `None` where it holds nothing, so that the row has the labels of
    /// the run.
    ///
    /// A list has one label an entry. A text is a list as JSON writes it where it begins with `[`, or else labels with
    /// separators between them.
    ///
    /// # Errors
    /// What is wrong with the row, without quoting it.
    pub fn of(&self, cell: Option<&Cell>) -> Result<Option<Vec<String>>, String> {
        let name = &self.column;
        let no_list = || {
            Err(format!(
                "has a `{name}` that is neither a list of texts nor a text"
            ))
        };
        let labels = match cell {
            None | Some(Cell::Null) => return Ok(None),
            Some(Cell::Text(text)) if text.trim().is_empty() => return Ok(None),
            Some(Cell::Text(text)) => self.of_text(text)?,
            Some(cell @ Cell::Json(json)) => match json.as_bytes().first() {
                Some(b'[') => match serde_json::from_str(json) {
                    Ok(labels) => labels,
                    Err(_) => return no_list(),
                },
                Some(b'"') => match cell.text() {
                    Some(text) => self.of_text(&text)?,
                    None => return no_list(),
                },
                _ => return no_list(),
            },
            Some(Cell::Bytes(_)) => return no_list(),
        };
        self.checked(labels).map(Some)
    }

    fn of_text(&self, text: &str) -> Result<Vec<String>, String> {
        let text = text.trim();
        if text.starts_with('[') {
            return serde_json::from_str(text).map_err(|_| {
                let name = &self.column;
                format!("has a `{name}` that begins with `[` and is no list of texts as JSON")
            });
        }
        let labels = text.split(self.separator).map(str::trim);
        let labels = labels.filter(|label| !label.is_empty());
        Ok(labels.map(str::to_owned).collect())
    }

    fn checked(&self, mut labels: Vec<String>) -> Result<Vec<String>, String> {
        let name = &self.column;
        if labels.is_empty() {
            return Err(format!("has no label in its `{name}`"));
        }
        if labels.len() > MOST_LABELS {
            return Err(format!(
                "has {} labels in its `{name}`, and {MOST_LABELS} are the most",
                labels.len()
            ));
        }
        let mut seen = HashSet::new();
        for (at, label) in (1..).zip(&mut labels) {
            if label.trim().len() < label.len() {
                *label = label.trim().to_owned();
            }
            if label.is_empty() {
                return Err(format!("has an empty label {at} in its `{name}`"));
            }
            if label.len() > LONGEST_LABEL {
                return Err(format!(
                    "has a label {at} in its `{name}` that is longer than {LONGEST_LABEL} bytes"
                ));
            }
            if !seen.insert(label.as_str()) {
                return Err(format!("has its label {at} twice in its `{name}`"));
            }
        }
        Ok(labels)
    }
}

/// A label set of a row, ready; or what is wrong with it.
type Ready = Result<(LabelSet, Prepared), String>;

/// The sets of a window's rows, each once.
#[derive(Default)]
pub(super) struct Sets {
    ready: Vec<Ready>,
    /// For each text the place of its set; `None` where that is the run's. None at all where all of them are.
    of_text: Vec<Option<usize>>,
}

impl Sets {
    /// The set of a text; `None` where that is the run's.
    pub(super) fn of(&self, text: usize) -> Option<&Ready> {
        let place = self.of_text.get(text).copied().flatten()?;
        Some(&self.ready[place])
    }
}

/// What is remembered of the labels of rows, from window to window.
pub(super) struct Own {
    known: KnownVectors,
}

impl Own {
    pub(super) fn new(window_rows: usize) -> Self {
        Self {
            known: KnownVectors::new(KNOWN_WINDOWS * window_rows.max(MOST_LABELS)),
        }
    }

    /// Makes the labels of a window's texts ready.
    pub(super) fn ready(
        &mut self,
        labeler: &mut Labeler,
        common: &LabelSet,
        labels: Vec<Option<Vec<String>>>,
    ) -> Result<Sets, FilesError> {
        let mut places: HashMap<Vec<String>, usize> = HashMap::new();
        let mut sets = Vec::new();
        let mut place_of = |labels: Vec<String>| {
            *places.entry(labels).or_insert_with_key(|labels| {
                sets.push(with_labels(common, labels));
                sets.len() - 1
            })
        };
        let of_text = labels
            .into_iter()
            .map(|own| own.map(&mut place_of))
            .collect();
        let prepared = labeler.prepare_each(&sets, &mut self.known)?;
        let ready = sets.into_iter().zip(prepared);
        let ready = ready.map(|(set, prepared)| match prepared {
            Ok(prepared) => Ok((set, prepared)),
            Err(error) => Err(unfit(error)),
        });
        Ok(Sets {
            ready: ready.collect(),
            of_text,
        })
    }
}

/// The run's label set with other labels.
fn with_labels(common: &LabelSet, labels: &[String]) -> LabelSet {
    let label = |text: &String| Label {
        slug: text.clone(),
        label: text.clone(),
        descriptions: Vec::new(),
    };
    LabelSet {
        labels: labels.iter().map(label).collect(),
        ..common.clone()
    }
}

/// What is wrong with the labels of a row, without quoting a long one.
fn unfit(error: LabelerError) -> String {
    match error {
        LabelerError::TooLong { tokens, window, .. } => format!(
            "has a label of {tokens} tokens with its template, which leaves no room in the model's window of {window}"
        ),
        LabelerError::Label { source, .. } => {
            format!("has a label that cannot be computed: {source}")
        }
        other => format!("has labels that cannot be used: {other}"),
    }
}

#[cfg(test)]
mod tests;
