//! Detects the text and id columns of an input.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

use super::{FilesError, Reading};
use crate::config::toml_text::nearest;
use topicmill_core::reddit;
use topicmill_tables::{Cell, Row};

/// Names to try for the body column that accompanies a title column, most likely first.
const BODIES: &str = "selftext body content description summary abstract";

/// Names to try for the text column when there is neither `text` nor `title`, most likely first.
const TEXTS: &str = "body content comment message review selftext description sentence document tweet question \
                     headline summary abstract";

/// The location of a row's text.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Texts {
    /// Text columns whose values are joined by a blank line.
    Joined(Vec<String>),
    /// A title column, and a body column if there is one.
    Post { title: String, body: Option<String> },
}

/// The text and id columns of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InputColumns {
    texts: Texts,
    /// The id column; `None` if row numbers serve as ids.
    id: Option<String>,
    /// True if the text columns are detected in each row because rows may have different columns.
    is_per_row: bool,
    /// True to convert text to what Reddit displays.
    reddit_text: bool,
}

impl InputColumns {
    /// Detects the columns in a table with a header line.
    pub(super) fn from_names(
        names: &[Arc<str>],
        reading: &Reading,
        path: &Path,
    ) -> Result<Self, FilesError> {
        if names.is_empty() {
            let why = "the file has no columns; choose a different file".to_owned();
            return Err(FilesError::Input(path.to_owned(), why));
        }
        for name in reading.text.iter().chain(&reading.id) {
            if !names.iter().any(|known| **known == **name) {
                return Err(no_column(path, name, names));
            }
        }
        let id = reading.id.clone().or_else(|| find(names, "id"));
        let texts = match requested_texts(reading) {
            Some(texts) => texts,
            None => detect_texts(names, id.as_deref())
                .map_err(|why| FilesError::Input(path.to_owned(), why))?,
        };
        Ok(Self {
            texts,
            id,
            is_per_row: false,
            reddit_text: reading.reddit_text,
        })
    }

    /// Detects the columns in the first object in an input; later objects may have different ones.
    pub(super) fn from_row(row: &Row, reading: &Reading) -> Self {
        let names: Vec<Arc<str>> = row.cells.iter().map(|(name, _)| name.clone()).collect();
        // An invalid row does not show whether there is an id.
        let may_have_id = row.problem.is_some() || row.cell("id").is_some();
        let default_id = || may_have_id.then(|| "id".to_owned());
        Self {
            texts: requested_texts(reading)
                .or_else(|| guess_texts(&names))
                .unwrap_or_else(|| Texts::Joined(vec!["text".into()])),
            id: reading.id.clone().or_else(default_id),
            is_per_row: reading.text.is_empty(),
            reddit_text: reading.reddit_text,
        }
    }

    fn text_columns(&self) -> Vec<&str> {
        match &self.texts {
            Texts::Joined(names) => names.iter().map(String::as_str).collect(),
            Texts::Post { title, body } => {
                let columns = [title].into_iter().chain(body);
                columns.map(String::as_str).collect()
            }
        }
    }

    /// Returns the columns that are needed to score.
    pub(super) fn needed(&self) -> Vec<&str> {
        let mut needed = self.text_columns();
        needed.extend(self.id.as_deref());
        needed
    }

    /// Returns true if rows are identified by number because there is no id column.
    pub(super) fn has_row_numbers(&self) -> bool {
        self.id.is_none()
    }

    /// Logs the detected columns.
    pub(super) fn log(&self, path: &Path, format: &str) {
        let id = match &self.id {
            Some(id) => format!("`{id}`"),
            None => "the row number".to_owned(),
        };
        let (path, text) = (path.display(), self.text_columns().join("`, `"));
        tracing::info!("reading {path} as {format}: the text is `{text}`, the id is {id}");
    }

    /// Returns the id of a row as JSON if it has one, or an error message.
    pub(super) fn id(&self, row: &Row) -> Result<Option<String>, String> {
        self.id.as_ref().map(|name| id_of(row, name)).transpose()
    }

    /// Returns the text of a row, or an error message.
    pub(super) fn text(&self, row: &Row) -> Result<String, String> {
        let row_texts;
        let texts = if self.is_per_row {
            let names: Vec<Arc<str>> = row.cells.iter().map(|(name, _)| name.clone()).collect();
            row_texts = guess_texts(&names).ok_or("has neither `text` nor `title`")?;
            &row_texts
        } else {
            &self.texts
        };
        match texts {
            Texts::Joined(names) => self.text_of_columns(row, names),
            Texts::Post { title, body } => {
                let body = body.as_ref().map(|body| cell_text(row, body)).transpose()?;
                let parts = [cell_text(row, title)?, body.flatten()];
                self.join_parts(&parts.map(Option::unwrap_or_default), "title")
            }
        }
    }

    fn text_of_columns(&self, row: &Row, names: &[String]) -> Result<String, String> {
        let mut parts = Vec::new();
        for name in names {
            if row.cell(name).is_none() {
                return Err(format!("has no `{name}`"));
            }
            parts.push(cell_text(row, name)?);
        }
        if let ([name], [part]) = (names, parts.as_slice()) {
            let text = part.as_ref().ok_or_else(|| format!("has no `{name}`"))?;
            let has_words = !text.trim().is_empty() && !reddit::is_placeholder(text);
            // A single text is scored as it is, including white space at its ends.
            if has_words && !self.reddit_text {
                return Ok(text.clone());
            }
        }
        let present: Vec<String> = parts.into_iter().flatten().collect();
        self.join_parts(&present, &names.join("`, `"))
    }

    /// Joins a row's text parts; returns an error message about the columns `names` if there is nothing to score.
    fn join_parts(&self, parts: &[String], names: &str) -> Result<String, String> {
        let joined = if self.reddit_text {
            // `import` reads files as HTML-escaped as well.
            let displayed =
                |part: &String| reddit::reddit_text(&reddit::decode_entities(part)).into_owned();
            reddit::join_parts(parts.iter().map(displayed))
        } else {
            reddit::join_parts(parts.iter())
        };
        if !joined.is_empty() {
            Ok(joined)
        } else if parts.iter().any(|part| reddit::is_placeholder(part)) {
            Err(format!(
                "has only a placeholder for removed text in `{names}`"
            ))
        } else {
            Err(format!("has an empty `{names}`"))
        }
    }
}

/// Returns true if the name of the only column looks like text, which would be lost if it were treated as a header.
fn is_prose(name: &str) -> bool {
    name.split_whitespace().nth(2).is_some() || name.ends_with(['.', '!', '?', '…'])
}

fn requested_texts(reading: &Reading) -> Option<Texts> {
    (!reading.text.is_empty()).then(|| Texts::Joined(reading.text.clone()))
}

/// Returns the text columns of a table with a header line, or an error message.
fn detect_texts(names: &[Arc<str>], id: Option<&str>) -> Result<Texts, String> {
    if let [only] = names
        && is_prose(only)
    {
        return Err(format!(
            "its first line looks like text, not like the name of a column; if there is no header line, add \
             `--format txt`, otherwise name the column with `--text '{only}'`"
        ));
    }
    if let Some(texts) = guess_texts(names) {
        return Ok(texts);
    }
    let mut others = names.iter().filter(|name| id != Some(&***name));
    if let (Some(only), None) = (others.next(), others.next()) {
        return Ok(Texts::Joined(vec![only.to_string()]));
    }
    let columns = listed(names);
    Err(format!(
        "name the text column with `--text COLUMN`; the file has {columns}"
    ))
}

/// Finds a column by name, preferring an exact match over a case-insensitive one.
fn find(names: &[Arc<str>], wanted: &str) -> Option<String> {
    let exact = names.iter().find(|name| ***name == *wanted);
    let alike = || names.iter().find(|name| name.eq_ignore_ascii_case(wanted));
    exact.or_else(alike).map(ToString::to_string)
}

fn guess_texts(names: &[Arc<str>]) -> Option<Texts> {
    if let Some(text) = find(names, "text") {
        return Some(Texts::Joined(vec![text]));
    }
    if let Some(title) = find(names, "title") {
        let body = BODIES.split(' ').find_map(|body| find(names, body));
        return Some(Texts::Post { title, body });
    }
    let text = TEXTS.split(' ').find_map(|text| find(names, text))?;
    Some(Texts::Joined(vec![text]))
}

fn id_of(row: &Row, name: &str) -> Result<String, String> {
    let mut json = String::new();
    match row.cell(name) {
        None => return Err(format!("has no `{name}`")),
        Some(Cell::Text(text)) if text.trim().is_empty() => {
            return Err(format!("has an empty `{name}`"));
        }
        Some(cell) => cell.write_json(&mut json),
    }
    // Other numbers would not round-trip.
    let is_whole = || json.parse::<i64>().is_ok() || json.parse::<u64>().is_ok();
    if json.starts_with('"') || is_whole() {
        Ok(json)
    } else {
        Err(format!(
            "has an `{name}` that is neither a string nor a 64-bit integer"
        ))
    }
}

/// Returns the text of a cell; `None` if it is empty.
fn cell_text(row: &Row, name: &str) -> Result<Option<String>, String> {
    match row.cell(name) {
        None | Some(Cell::Null) => Ok(None),
        Some(cell) => match (cell.text(), cell) {
            // Only an unpaired surrogate makes a JSON string that is not valid text.
            (None, Cell::Json(json)) if json.starts_with('"') => Err(format!(
                "has a `{name}` with an unpaired surrogate (such as `\\ud83d`), which is not valid Unicode"
            )),
            (None, Cell::Bytes(bytes)) => Err(not_utf8(name, bytes)),
            (None, _) => Err(format!("has a `{name}` that is not a string")),
            (text, _) => Ok(text),
        },
    }
}

/// Returns the error message for bytes that are not UTF-8.
fn not_utf8(name: &str, bytes: &[u8]) -> String {
    let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let at = valid + 1;
    format!(
        "is not UTF-8 (`{name}` at byte {at}): store the column as text when you create the file"
    )
}

/// Formats at most 40 column names for a message.
fn listed(names: &[Arc<str>]) -> String {
    let shown: Vec<&str> = names.iter().take(40).map(AsRef::as_ref).collect();
    let more = if names.len() > shown.len() {
        format!(" and {} more", names.len() - shown.len())
    } else {
        String::new()
    };
    let s = if names.len() == 1 { "" } else { "s" };
    format!("the column{s} `{}`{more}", shown.join("`, `"))
}

fn no_column(path: &Path, name: &str, names: &[Arc<str>]) -> FilesError {
    let meant = nearest(name, names.iter().map(|known| &**known));
    let meant = meant.map_or(String::new(), |meant| format!(" (did you mean `{meant}`?)"));
    let columns = listed(names);
    let why = format!("there is no `{name}` column{meant}; the file has {columns}");
    FilesError::Input(path.to_owned(), why)
}
