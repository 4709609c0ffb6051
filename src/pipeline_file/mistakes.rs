//! Mistakes in a pipeline file: collects all of them with their positions, so that they can be fixed at once.

use std::fmt;

use crate::config::toml_text::line_and_column;
pub(super) use crate::config::toml_text::{nearest, quoted};

/// Maximum number of mistakes shown, because a file of a different kind may have one per line.
const MOST_SHOWN: usize = 20;

/// A mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Its line, from 1.
    pub line: usize,
    /// Its column in characters, from 1.
    pub column: usize,
    /// The error, and what to do.
    pub text: String,
}

/// The mistakes in a file in order; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes {
    shown: Vec<Mistake>,
    more: usize,
}

impl Mistakes {
    /// Returns the first mistakes.
    pub fn as_slice(&self) -> &[Mistake] {
        &self.shown
    }
}

impl fmt::Display for Mistakes {
    /// Continues a message after the file name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([Mistake { line, column, text }], 0) = (self.shown.as_slice(), self.more) {
            return write!(f, ", line {line}, column {column}: {text}");
        }
        write!(f, " has {} mistakes:", self.shown.len() + self.more)?;
        for Mistake { line, column, text } in &self.shown {
            write!(f, "\n  line {line}, column {column}: {text}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

/// Collects mistakes while a file is parsed.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

#[derive(Debug)]
struct Finding {
    /// Byte offset in the file.
    at: usize,
    text: String,
    kind: MistakeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MistakeKind {
    /// Invalid TOML.
    Syntax,
    /// A missing key or value.
    Missing,
    /// An invalid key or value.
    Wrong,
}

impl Findings {
    pub fn syntax(&mut self, at: usize, text: impl Into<String>) {
        self.add(at, text, MistakeKind::Syntax);
    }

    pub fn missing(&mut self, at: usize, text: impl Into<String>) {
        self.add(at, text, MistakeKind::Missing);
    }

    pub fn wrong(&mut self, at: usize, text: impl Into<String>) {
        self.add(at, text, MistakeKind::Wrong);
    }

    fn add(&mut self, at: usize, text: impl Into<String>, kind: MistakeKind) {
        let text = text.into();
        self.0.push(Finding { at, text, kind });
    }

    /// Returns the mistakes in the order of the text.
    ///
    /// After a syntax error the rest of the line is not parsed: only the first mistake of such a line counts, and
    /// missing keys are not reported, because they may be in the unparsed part.
    pub fn mistakes(self, text: &str) -> Option<Mistakes> {
        let broken = self.0.iter().any(|found| found.kind == MistakeKind::Syntax);
        let mut found = self.0;
        found.retain(|found| !(broken && found.kind == MistakeKind::Missing));
        found.sort_by_key(|found| found.at);
        let breaks: Vec<usize> = memchr::memchr_iter(b'\n', text.as_bytes()).collect();
        let line_of = |at: usize| 1 + breaks.partition_point(|line_break| *line_break < at);
        let mut placed: Vec<(usize, Finding)> = found
            .into_iter()
            .map(|found| (line_of(found.at), found))
            .collect();
        placed.sort_by_key(|(line, found)| (*line, found.kind != MistakeKind::Syntax));
        let mut broken_line = 0;
        placed.retain(|(line, found)| {
            let is_repeated = *line == broken_line;
            if found.kind == MistakeKind::Syntax {
                broken_line = *line;
            }
            !is_repeated
        });
        let more = placed.len().saturating_sub(MOST_SHOWN);
        let shown = placed.into_iter().take(MOST_SHOWN);
        let shown: Vec<Mistake> = shown
            .map(|(line, found)| Mistake {
                line,
                column: line_and_column(text, found.at).1,
                text: found.text,
            })
            .collect();
        Some(Mistakes { shown, more }).filter(|found| !found.shown.is_empty())
    }
}
