//! Posts of which the right label is known, from a file. Pure but for the reading.
//!
//! A CSV with a header, or one JSON object a line; of each the fields `id` and `label` count. The label is a
//! slug or a candidate label of the label set; empty, `none` or null means none of these.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::domain::{Fullname, FullnameError};
use topicmill_score::{LabelSet, Mode};

/// Why a gold file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GoldError {
    /// It cannot be read.
    #[error("read the gold file `{path}`: {source}; give a CSV or NDJSON with `id` and `label`")]
    Read {
        /// As given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A CSV whose header lacks a column.
    #[error(
        "read the gold file `{path}`: it has no column `{column}` (it has {}); name the columns `id` and `label`",
        found.join(", ")
    )]
    Column {
        /// As given.
        path: PathBuf,
        /// The one that is not there.
        column: &'static str,
        /// Those that are.
        found: Vec<String>,
    },
    /// A row that says nothing.
    #[error("read the gold file `{path}`, row {row}: {detail}")]
    Row {
        /// As given.
        path: PathBuf,
        /// Number of the row, from 1, without the header.
        row: usize,
        /// What is wrong.
        detail: String,
    },
}

/// Why a row says nothing.
#[derive(Debug, thiserror::Error)]
enum RowError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Csv(#[from] csv::Error),
    #[error(transparent)]
    Id(#[from] FullnameError),
    #[error("it has no `{0}`")]
    Missing(&'static str),
    #[error(
        "the label set has no label `{found}`; it has {known}, or leave it empty for none of these"
    )]
    Label { found: String, known: String },
    #[error("`{0}` has another label in an earlier row; remove one")]
    Twice(Fullname),
}

/// Right labels by post: positions in the label set, none of them for none of these. In multi mode a post may
/// have several rows.
pub type Gold = BTreeMap<Fullname, Vec<usize>>;

/// Reads a gold file.
///
/// # Errors
/// See [`GoldError`].
pub fn read(path: &Path, set: &LabelSet) -> Result<Gold, GoldError> {
    let text = std::fs::read_to_string(path).map_err(|source| GoldError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&text, path, set)
}

fn parse(text: &str, path: &Path, set: &LabelSet) -> Result<Gold, GoldError> {
    let mut gold = Gold::new();
    let mut add = |row: usize, found: Result<(String, String), RowError>| {
        found
            .and_then(|(id, label)| insert(&mut gold, set, &id, &label))
            .map_err(|error| GoldError::Row {
                path: path.to_owned(),
                row,
                detail: error.to_string(),
            })
    };
    // Excel begins a CSV with a byte order mark.
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        for (i, line) in lines.enumerate() {
            add(i + 1, json_row(line))?;
        }
        return Ok(gold);
    }
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .flexible(true)
        .from_reader(text.as_bytes());
    let header: Vec<String> = reader
        .headers()
        .map(|header| header.iter().map(str::to_owned).collect())
        .unwrap_or_default();
    let column = |column: &'static str| {
        header
            .iter()
            .position(|name| name == column)
            .ok_or_else(|| GoldError::Column {
                path: path.to_owned(),
                column,
                found: header.clone(),
            })
    };
    let (id, label) = (column("id")?, column("label")?);
    for (i, record) in reader.records().enumerate() {
        let row = record.map_err(RowError::from).and_then(|record| {
            let field = |at: usize, name| record.get(at).ok_or(RowError::Missing(name));
            Ok((
                field(id, "id")?.to_owned(),
                field(label, "label")?.to_owned(),
            ))
        });
        add(i + 1, row)?;
    }
    Ok(gold)
}

fn json_row(line: &str) -> Result<(String, String), RowError> {
    let row: Value = serde_json::from_str(line)?;
    let text = |name| match row.get(name) {
        Some(Value::String(text)) => Ok(text.trim().to_owned()),
        Some(Value::Null) if name == "label" => Ok(String::new()),
        _ => Err(RowError::Missing(name)),
    };
    Ok((text("id")?, text("label")?))
}

fn insert(gold: &mut Gold, set: &LabelSet, id: &str, label: &str) -> Result<(), RowError> {
    let id: Fullname = id.parse()?;
    let right = position(set, label)?;
    let Some(known) = gold.get_mut(&id) else {
        gold.insert(id, right.into_iter().collect());
        return Ok(());
    };
    match right {
        Some(right) if known.contains(&right) => Ok(()),
        None if known.is_empty() => Ok(()),
        Some(right) if set.mode == Mode::Multi && !known.is_empty() => {
            known.push(right);
            Ok(())
        }
        _ => Err(RowError::Twice(id)),
    }
}

/// Which label of a set a word means; `None` for none of these.
fn position(set: &LabelSet, word: &str) -> Result<Option<usize>, RowError> {
    let labels = || set.labels.iter();
    let found = labels()
        .position(|label| label.slug == word)
        .or_else(|| labels().position(|label| label.label.eq_ignore_ascii_case(word)));
    match found {
        None if ["", "none", "other"]
            .iter()
            .any(|none| word.eq_ignore_ascii_case(none)) =>
        {
            Ok(None)
        }
        Some(found) => Ok(Some(found)),
        None => {
            let known: Vec<&str> = labels().map(|label| label.slug.as_str()).collect();
            Err(RowError::Label {
                found: word.to_owned(),
                known: known.join(", "),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_score::Label;

    fn set(mode: Mode) -> LabelSet {
        let label = |slug: &str, label: &str| Label {
            slug: slug.into(),
            label: label.into(),
            descriptions: vec![],
        };
        LabelSet {
            name: "t".into(),
            template: "About {}.".into(),
            mode,
            threshold: 0.0,
            temperature: 1.0,
            labels: vec![label("food", "food and cooking"), label("none", "nothing")],
            background: None,
        }
    }

    fn read(text: &str, mode: Mode) -> Result<Vec<(String, Vec<usize>)>, String> {
        let gold = parse(text, Path::new("gold"), &set(mode)).map_err(|error| error.to_string())?;
        let rows = gold.into_iter();
        Ok(rows.map(|(id, right)| (id.to_string(), right)).collect())
    }

    #[test]
    fn both_forms_say_the_same() {
        let csv = "note,label,id\n\"a, b\",food,t3_a1\n,Food and Cooking, a2\n,,a3\n,none,a4\n";
        let json = "{\"id\": \"a1\", \"label\": \"food\"}\n\n{\"id\": \"t3_a2\", \"label\": \"food\", \"x\": 1}\n\
                    {\"id\": \"a3\", \"label\": null}\n{\"id\": \"a4\", \"label\": \"none\"}\n";
        let expected: Vec<(String, Vec<usize>)> = [
            ("t3_a1", vec![0]),
            ("t3_a2", vec![0]),
            ("t3_a3", vec![]),
            ("t3_a4", vec![1]),
        ]
        .map(|(id, right)| (id.to_owned(), right))
        .to_vec();
        assert_eq!(
            read(csv, Mode::Single).unwrap(),
            expected,
            "a slug goes before the word none"
        );
        assert_eq!(read(json, Mode::Single).unwrap(), expected);
        assert_eq!(
            read(&format!("\u{feff}{csv}"), Mode::Single).unwrap(),
            expected
        );
    }

    #[test]
    fn what_says_nothing_is_told_with_its_row() {
        for (text, said) in [
            (
                "id,topic\na1,food\n",
                "no column `label` (it has id, topic)",
            ),
            ("", "no column `id`"),
            (
                "id,label\na1,food\na2,sport\n",
                "row 2: the label set has no label `sport`; it has food, none",
            ),
            ("id,label\na-1,food\n", "row 1: `a-1` is not the fullname"),
            ("id,label\na1\n", "row 1: it has no `label`"),
            ("{\"id\": \"a1\"}\n", "row 1: it has no `label`"),
            ("{\"id\": 7, \"label\": \"\"}\n", "row 1: it has no `id`"),
            ("{broken\n", "row 1: "),
            (
                "id,label\na1,food\nt3_a1,\n",
                "row 2: `t3_a1` has another label",
            ),
        ] {
            let error = read(text, Mode::Single).unwrap_err();
            assert!(error.contains(said), "{text:?} gives {error}");
        }
    }

    #[test]
    fn a_post_may_have_several_labels_in_multi_mode_only() {
        let text = "id,label\na1,food\na1,none\na1,food\n";
        assert_eq!(
            read(text, Mode::Multi).unwrap(),
            [("t3_a1".to_owned(), vec![0, 1])]
        );
        assert!(read(text, Mode::Single).is_err());
        assert!(read("id,label\na1,\na1,food\n", Mode::Multi).is_err());
    }
}
