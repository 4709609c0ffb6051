//! Which columns of an input hold the text and the id.

use std::path::Path;
use std::sync::Arc;

use super::{FilesError, Reading, RowLabels};
use crate::domain::{is_placeholder, post_text};
use crate::tables::{Cell, Row};

/// Bodies that belong to a title, the likeliest first.
const BODIES: [&str; 6] = [
    "selftext",
    "body",
    "content",
    "description",
    "summary",
    "abstract",
];

/// Columns that are a text of their own where there is neither `text` nor `title`.
const TEXTS: [&str; 14] = [
    "body",
    "content",
    "comment",
    "message",
    "review",
    "selftext",
    "description",
    "sentence",
    "document",
    "tweet",
    "question",
    "headline",
    "summary",
    "abstract",
];

/// Where the text of a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Texts {
    /// In these columns, joined by a blank line.
    Joined(Vec<String>),
    /// In a title, and in a body if there is one.
    Post { title: String, body: Option<String> },
}

/// The columns of an input that mean something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Columns {
    texts: Texts,
    /// `None`: the rows are numbered.
    id: Option<String>,
    /// Where rows have labels of their own.
    labels: Option<RowLabels>,
    /// A column that looks as if it held labels, and was not asked for.
    unread_labels: Option<String>,
    /// Whether the next row may have its text elsewhere.
    loose: bool,
}

impl Columns {
    /// Finds them in a table with a line of names.
    pub(super) fn of_table(
        names: &[Arc<str>],
        reading: &Reading,
        path: &Path,
    ) -> Result<Self, FilesError> {
        if names.is_empty() {
            return Err(FilesError::NoColumns(path.to_owned()));
        }
        let labels = reading.labels.as_ref().map(|labels| &labels.column);
        for name in reading.text.iter().chain(&reading.id).chain(labels) {
            if !names.iter().any(|known| **known == **name) {
                return Err(no_column(path, name, names));
            }
        }
        let id = reading.id.clone().or_else(|| find(names, "id"));
        let texts = asked(reading).or_else(|| obvious(names)).or_else(|| {
            let known = [id.as_deref(), labels.map(String::as_str)];
            let mut others = names.iter().filter(|name| !known.contains(&Some(&***name)));
            let only = others.next().filter(|_| others.next().is_none())?;
            Some(Texts::Joined(vec![only.to_string()]))
        });
        let texts = texts.ok_or_else(|| FilesError::NoText {
            path: path.to_owned(),
            columns: listed(names),
        })?;
        Ok(Self {
            texts,
            id,
            labels: reading.labels.clone(),
            unread_labels: unread_labels(names, reading),
            loose: false,
        })
    }

    /// Finds them in the first object of an input; each may have others.
    pub(super) fn of_object(row: &Row, reading: &Reading) -> Self {
        let names: Vec<Arc<str>> = row.cells.iter().map(|(name, _)| name.clone()).collect();
        let broken = row.problem.is_some();
        let id = reading.id.clone();
        Self {
            texts: asked(reading)
                .or_else(|| obvious(&names))
                .unwrap_or_else(|| Texts::Joined(vec!["text".into()])),
            // A broken row does not show whether there is an id.
            id: id.or_else(|| Some("id".to_owned()).filter(|id| broken || row.cell(id).is_some())),
            labels: reading.labels.clone(),
            unread_labels: unread_labels(&names, reading),
            loose: reading.text.is_empty(),
        }
    }

    /// Names of the columns that hold the text.
    pub(super) fn texts(&self) -> Vec<&str> {
        match &self.texts {
            Texts::Joined(names) => names.iter().map(String::as_str).collect(),
            Texts::Post { title, body } => [Some(title), body.as_ref()]
                .into_iter()
                .flatten()
                .map(String::as_str)
                .collect(),
        }
    }

    /// Whether this column holds the id.
    pub(super) fn is_id(&self, name: &str) -> bool {
        self.id.as_deref() == Some(name)
    }

    /// Names of the columns that are needed to score.
    pub(super) fn needed(&self) -> Vec<&str> {
        let labels = self.labels.as_ref().map(|labels| &*labels.column);
        let others = self.id.as_deref().into_iter().chain(labels);
        self.texts().into_iter().chain(others).collect()
    }

    /// Whether the rows are numbered, because no column holds an id.
    pub(super) fn numbers(&self) -> bool {
        self.id.is_none()
    }

    /// Says which columns are read.
    pub(super) fn tell(&self, path: &Path, format: &str) {
        let text = match &self.texts {
            Texts::Joined(names) => names.join("`, `"),
            Texts::Post { title, body } => match body {
                Some(body) => format!("{title}`, `{body}"),
                None => title.clone(),
            },
        };
        let id = match &self.id {
            Some(id) => format!("`{id}`"),
            None => "the number of the row".to_owned(),
        };
        let path = path.display();
        let labels = match &self.labels {
            Some(labels) => format!(", the labels of a row are `{}`", labels.column),
            None => String::new(),
        };
        tracing::info!("reading {path} as {format}: the text is `{text}`, the id is {id}{labels}");
        if let Some(unread) = &self.unread_labels {
            tracing::info!(
                "the column `{unread}` is not read: if it holds the labels of each row, use `--labels-column {unread}`"
            );
        }
    }

    /// The labels that a row brings, if it does; or what is wrong with them.
    pub(super) fn labels(&self, row: &Row) -> Result<Option<Vec<String>>, String> {
        match &self.labels {
            Some(labels) => labels.of(row.cell(&labels.column)),
            None => Ok(None),
        }
    }

    /// The id of a row as JSON, where it has one; or what is wrong with it.
    pub(super) fn id(&self, row: &Row) -> Result<Option<String>, String> {
        let id = self.id.as_ref().map(|name| id_of(row, name));
        id.transpose()
    }

    /// The text of a row; or what is wrong with it.
    pub(super) fn text(&self, row: &Row) -> Result<String, String> {
        let elsewhere = self.loose.then(|| {
            let names: Vec<Arc<str>> = row.cells.iter().map(|(name, _)| name.clone()).collect();
            obvious(&names).ok_or("has neither `text` nor `title`")
        });
        let texts = elsewhere.transpose()?;
        match texts.as_ref().unwrap_or(&self.texts) {
            Texts::Joined(names) => joined(row, names),
            Texts::Post { title, body } => {
                let body = body.as_ref().map(|body| cell_text(row, body)).transpose()?;
                let body = body.flatten().unwrap_or_default();
                let title = cell_text(row, title)?.unwrap_or_default();
                if title.trim().is_empty() {
                    filled(body, "title")
                } else {
                    Ok(post_text(&title, &body))
                }
            }
        }
    }
}

/// A column that may hold labels of rows, where nobody said so.
fn unread_labels(names: &[Arc<str>], reading: &Reading) -> Option<String> {
    if reading.labels.is_some() {
        return None;
    }
    ["labels", "candidate_labels"]
        .iter()
        .find_map(|wanted| find(names, wanted))
        .filter(|name| !reading.text.contains(name) && reading.id.as_ref() != Some(name))
}

fn asked(reading: &Reading) -> Option<Texts> {
    let names = Some(reading.text.clone());
    names.filter(|names| !names.is_empty()).map(Texts::Joined)
}

/// A column of this name, however it is capitalised.
fn find(names: &[Arc<str>], wanted: &str) -> Option<String> {
    let exact = names.iter().find(|name| ***name == *wanted);
    let alike = || names.iter().find(|name| name.eq_ignore_ascii_case(wanted));
    exact.or_else(alike).map(ToString::to_string)
}

fn obvious(names: &[Arc<str>]) -> Option<Texts> {
    if let Some(text) = find(names, "text") {
        return Some(Texts::Joined(vec![text]));
    }
    if let Some(title) = find(names, "title") {
        let body = BODIES.iter().find_map(|body| find(names, body));
        return Some(Texts::Post { title, body });
    }
    let text = TEXTS.iter().find_map(|text| find(names, text))?;
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
    // Another number would not come out as it went in.
    let is_whole = || json.parse::<i64>().is_ok() || json.parse::<u64>().is_ok();
    if json.starts_with('"') || is_whole() {
        Ok(json)
    } else {
        Err(format!(
            "has an `{name}` that is neither a string nor a 64-bit integer"
        ))
    }
}

/// The text of a cell; `None` where there is none.
fn cell_text(row: &Row, name: &str) -> Result<Option<String>, String> {
    match row.cell(name) {
        None | Some(Cell::Null) => Ok(None),
        Some(cell) => match (cell.text(), cell) {
            // The reader took it for JSON, and only half of a surrogate pair makes a string of JSON that is no text.
            (None, Cell::Json(json)) if json.starts_with('"') => Err(format!(
                "has a `{name}` with half of a surrogate pair (such as `\\ud83d`), which is no Unicode"
            )),
            (None, Cell::Bytes(bytes)) => Err(not_utf8(name, bytes)),
            (None, _) => Err(format!("has a `{name}` that is not a string")),
            (text, _) => Ok(text),
        },
    }
}

/// What is wrong with bytes that are to be a text.
fn not_utf8(name: &str, bytes: &[u8]) -> String {
    let valid = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let at = valid + 1;
    format!("is not UTF-8 (`{name}` at byte {at}): write the column as text")
}

fn filled(text: String, name: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err(format!("has an empty `{name}`"))
    } else {
        Ok(text)
    }
}

fn joined(row: &Row, names: &[String]) -> Result<String, String> {
    if let [name] = names {
        let text = cell_text(row, name)?.ok_or_else(|| format!("has no `{name}`"))?;
        // A table cannot tell an empty text from none; JSON can, and means it.
        return match row.cell(name) {
            Some(Cell::Text(_)) => filled(text, name),
            _ => Ok(text),
        };
    }
    let mut parts = Vec::new();
    for name in names {
        if row.cell(name).is_none() {
            return Err(format!("has no `{name}`"));
        }
        let text = cell_text(row, name)?.unwrap_or_default();
        let text = text.trim();
        if !text.is_empty() && !is_placeholder(text) {
            parts.push(text.to_owned());
        }
    }
    filled(parts.join("\n\n"), &names.join("`, `"))
}

/// Names of columns for people, the first of them.
pub(super) fn listed(names: &[Arc<str>]) -> String {
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
    let likeness = |other: &str| {
        let (a, b) = (name.to_lowercase(), other.to_lowercase());
        strsim::jaro_winkler(&a, &b)
    };
    let nearest = names
        .iter()
        .map(|other| (likeness(other), other))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    FilesError::NoColumn {
        path: path.to_owned(),
        name: name.to_owned(),
        meant: nearest.map_or(String::new(), |(_, name)| {
            format!(" (did you mean `{name}`?)")
        }),
        columns: listed(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::json;
    use serde_json::value::RawValue;

    fn names(of: &[&str]) -> Vec<Arc<str>> {
        of.iter().map(|name| (*name).into()).collect()
    }

    fn table(of: &[&str], reading: &Reading) -> Result<Columns, FilesError> {
        Columns::of_table(&names(of), reading, Path::new("t.csv"))
    }

    fn needed(of: &[&str]) -> Vec<String> {
        let columns = table(of, &Reading::default()).unwrap();
        columns.needed().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_obvious_columns_are_found() {
        assert_eq!(needed(&["title", "ID", "Text"]), ["Text", "ID"]);
        assert_eq!(
            needed(&["id", "Title", "body", "selftext"]),
            ["Title", "selftext", "id"]
        );
        assert_eq!(needed(&["a", "review"]), ["review"]);
        assert_eq!(needed(&["id", "whatever"]), ["whatever", "id"]);
        assert_eq!(needed(&["whatever"]), ["whatever"]);
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let asked = |text: &str| Reading {
            text: vec![text.to_owned()],
            ..Reading::default()
        };
        let error = table(&["id", "Headline", "b"], &asked("headlin")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("`headlin` (did you mean `Headline`?)") && error.contains("`b`"),
            "{error}"
        );
        let error = table(&["a", "b"], &Reading::default()).unwrap_err();
        assert!(
            error.to_string().contains("--text") && error.to_string().contains("`a`, `b`"),
            "{error}"
        );
        for reading in [Reading::default(), asked("text")] {
            let error = table(&[], &reading).unwrap_err();
            assert!(error.to_string().contains("has no columns"), "{error}");
        }
    }

    fn object(json: &str) -> Row {
        let members: json::Members = serde_json::from_str(json).unwrap();
        let cell = |(name, value): (String, Box<RawValue>)| (name.into(), Cell::of_raw(&value));
        Row {
            line: 1,
            cells: members.0.into_iter().map(cell).collect(),
            problem: None,
        }
    }

    fn parse(json: &str, text: &[&str]) -> Result<(String, String), String> {
        let reading = Reading {
            id: Some("id".into()),
            text: text.iter().map(ToString::to_string).collect(),
            ..Reading::default()
        };
        let row = object(json);
        let columns = Columns::of_object(&row, &reading);
        Ok((columns.id(&row)?.unwrap(), columns.text(&row)?))
    }

    #[test]
    fn an_object_is_an_id_and_a_text_in_one_of_three_forms() {
        let ok = |json: &str, text: &[&str]| parse(json, text).unwrap();
        assert_eq!(
            ok(r#"{"id":"a","text":"T"}"#, &[]),
            ("\"a\"".into(), "T".into())
        );
        assert_eq!(
            ok(r#"{"id":18446744073709551615,"body":""}"#, &["body"]),
            (u64::MAX.to_string(), String::new())
        );
        assert_eq!(
            ok(r#"{"id":1,"title":"T","selftext":"[removed]"}"#, &[]).1,
            "T"
        );
        assert_eq!(
            ok(r#"{"id":1,"title":"T","selftext":"B"}"#, &[]).1,
            "T\n\nB"
        );
        assert_eq!(ok(r#"{"id":1,"title":"T","selftext":null}"#, &[]).1, "T");
        assert_eq!(ok(r#"{"id":1,"text":"X","title":"T"}"#, &[]).1, "X");
        assert_eq!(
            ok(
                r#"{"id":1,"a":" A ","b":null,"c":"[deleted]","d":"D"}"#,
                &["d", "a", "b", "c"]
            )
            .1,
            "D\n\nA"
        );
    }

    #[test]
    fn what_is_wrong_with_an_object_is_said_without_quoting_it() {
        for (json, text, problem) in [
            (r#"{"text":"secret"}"#, &[][..], "no `id`"),
            (r#"{"id":null,"text":"secret"}"#, &[], "neither a string"),
            (r#"{"id":1.5,"text":"secret"}"#, &[], "neither a string"),
            (
                r#"{"id":123456789012345678901234567890,"text":"secret"}"#,
                &[],
                "neither a string",
            ),
            (r#"{"id":1}"#, &[], "neither `text` nor `title`"),
            (r#"{"id":1,"text":7}"#, &[], "`text` that is not a string"),
            (
                r#"{"id":1,"text":"\ud83d secret"}"#,
                &[],
                "`text` with half of a surrogate pair",
            ),
            (r#"{"id":1,"text":"secret"}"#, &["body"], "no `body`"),
            (r#"{"id":1,"a":"","b":"x"}"#, &["a", "c"], "no `c`"),
        ] {
            let found = parse(json, text).unwrap_err();
            assert!(
                found.contains(problem) && !found.contains("secret"),
                "{json}: {found}"
            );
        }
    }
}
