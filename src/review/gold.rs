//! Posts of which the right label is known, from a file or another list. Pure but for the reading.
//!
//! Of a file (see `table`) the fields `id` and `label` count. The label is a slug or a candidate label of the label
//! set, in upper or lower case; empty, `none`, `other` or null means none of these: the post is out of scope.

mod table;
mod understand;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::domain::{Fullname, FullnameError};
use topicmill_score::{LabelSet, Mode};

pub use self::understand::understand;

/// Words that mean that a post is out of scope, unless a label is called so.
const OUT_OF_SCOPE: [&str; 3] = ["", "none", "other"];
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
    /// A format that is not read here.
    #[error(
        "read the gold file `{0}`: it is Parquet; write it as CSV or NDJSON with `id` and `label`"
    )]
    Parquet(PathBuf),
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
    #[error("read the gold file `{path}`, line {line}: {detail}")]
    Row {
        /// As given.
        path: PathBuf,
        /// Number of the line, from 1; of a JSON array the number of the object.
        line: u64,
        /// What is wrong.
        detail: String,
    },
    /// It has a header, or nothing, and no row.
    #[error("read the gold labels: there are none; give rows with `id` and `label`")]
    Empty,
    /// Labels that no label set has.
    #[error(
        "read the gold labels: the label set has no label {labels}; correct them, or count their posts as out of scope \
         with --others-out-of-scope; the labels are {known}"
    )]
    Labels {
        /// Each with its rows and the label that it may mean.
        labels: String,
        /// Those that there are.
        known: String,
    },
    /// Rows with another label for a post where a post has one.
    #[error(
        "read the gold labels: rows that give a post another label than before: {rows}: {examples}; remove all but one"
    )]
    Twice {
        /// How many.
        rows: usize,
        /// The first of them, with their lines.
        examples: String,
    },
}

/// Why a row says nothing.
#[derive(Debug, thiserror::Error)]
enum RowError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Id(#[from] FullnameError),
    #[error("it has no `{0}`")]
    Missing(&'static str),
    #[error(
        "the label set has no label `{found}`; it has {known}, or leave it empty for none of these"
    )]
    Label { found: String, known: String },
    #[error("`{0}` has another label in an earlier line; remove one")]
    Twice(Fullname),
}

/// What one row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldRow {
    /// The line of the file, from 1.
    pub line: u64,
    /// The post.
    pub id: Fullname,
    /// The word for its label.
    pub label: String,
}

/// A post with its right labels under one label set or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldPost {
    /// The post.
    pub id: Fullname,
    /// Its first line.
    pub line: u64,
    /// The words for its labels, as the rows have them.
    pub words: Vec<String>,
    /// For each label set the positions of the right labels; none of them where the post is out of scope.
    pub right: Vec<Vec<usize>>,
}

/// Gold labels as label sets understand them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Understood {
    /// By post, each once.
    pub posts: Vec<GoldPost>,
    /// Rows that say again what an earlier one said.
    pub repeated: usize,
    /// Words that no label set has, with their rows: counted as out of scope.
    pub foreign: BTreeMap<String, usize>,
}

/// Right labels by post: positions in the label set, none of them for none of these. In multi mode a post may
/// have several rows.
pub type Gold = BTreeMap<Fullname, Vec<usize>>;

/// Reads a gold file for a label set.
///
/// # Errors
/// See [`GoldError`].
pub fn read(path: &Path, set: &LabelSet) -> Result<Gold, GoldError> {
    strict(rows(path)?, path, set)
}

/// Reads the rows of a gold file.
///
/// # Errors
/// See [`GoldError`].
pub fn rows(path: &Path) -> Result<Vec<GoldRow>, GoldError> {
    let bytes = std::fs::read(path).map_err(|source| GoldError::Read {
        path: path.to_owned(),
        source,
    })?;
    table::rows(bytes, path)
}

fn strict(rows: Vec<GoldRow>, path: &Path, set: &LabelSet) -> Result<Gold, GoldError> {
    let mut gold = Gold::new();
    for row in rows {
        insert(&mut gold, set, row.id, &row.label).map_err(|error| GoldError::Row {
            path: path.to_owned(),
            line: row.line,
            detail: error.to_string(),
        })?;
    }
    Ok(gold)
}

fn is_out_of_scope(word: &str) -> bool {
    OUT_OF_SCOPE
        .iter()
        .any(|none| word.eq_ignore_ascii_case(none))
}

fn insert(gold: &mut Gold, set: &LabelSet, id: Fullname, label: &str) -> Result<(), RowError> {
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
    match place(set, word) {
        Some(found) => Ok(Some(found)),
        None if is_out_of_scope(word) => Ok(None),
        None => {
            let known: Vec<&str> = set.labels.iter().map(|label| label.slug.as_str()).collect();
            Err(RowError::Label {
                found: word.to_owned(),
                known: known.join(", "),
            })
        }
    }
}

/// The label that a word names: a slug goes before the words of a label, and the exact spelling before others.
fn place(set: &LabelSet, word: &str) -> Option<usize> {
    let labels = || set.labels.iter();
    labels()
        .position(|label| label.slug == word)
        .or_else(|| labels().position(|label| label.slug.eq_ignore_ascii_case(word)))
        .or_else(|| labels().position(|label| label.label.eq_ignore_ascii_case(word)))
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
        let path = Path::new("gold");
        let gold = table::rows(text.into(), path).and_then(|rows| strict(rows, path, &set(mode)));
        let rows = gold.map_err(|error| error.to_string())?.into_iter();
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
    fn what_says_nothing_is_told_with_its_line() {
        for (text, said) in [
            (
                "id,topic\na1,food\n",
                "no column `label` (it has id, topic)",
            ),
            ("", "no column `id`"),
            (
                "id,label\na1,food\na2,sport\n",
                "line 3: the label set has no label `sport`; it has food, none",
            ),
            ("id,label\na-1,food\n", "line 2: `a-1` is not the fullname"),
            ("id,label\na1\n", "line 2: it has no `label`"),
            ("{\"id\": \"a1\"}\n", "line 1: it has no `label`"),
            ("{\"id\": 7, \"label\": \"\"}\n", "line 1: it has no `id`"),
            ("{broken\n", "line 1: "),
            (
                "id,label\na1,food\nt3_a1,\n",
                "line 3: `t3_a1` has another label",
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

    fn understood(text: &str, sets: &[&LabelSet], others: bool) -> Result<Understood, String> {
        let rows = table::rows(text.into(), Path::new("gold")).unwrap();
        understand(rows, sets, others).map_err(|error| error.to_string())
    }

    #[test]
    fn spreadsheets_and_arrays_say_the_same_as_csv() {
        let csv = "ID,Label\na1,FOOD\na2,\n";
        let utf16 = |text: &str| -> Vec<u8> {
            let units = std::iter::once(0xFEFF).chain(text.encode_utf16());
            units.flat_map(u16::to_le_bytes).collect()
        };
        let expected = table::rows(csv.into(), Path::new("gold")).unwrap();
        assert_eq!(expected.len(), 2);
        for same in [
            csv.replace(',', "\t").into_bytes(),
            csv.replace(',', ";").into_bytes(),
            utf16(&csv.replace(',', "\t")),
            csv.replace('\n', "\r\n").into_bytes(),
        ] {
            assert_eq!(table::rows(same, Path::new("gold")).unwrap(), expected);
        }
        let array = "[{\"id\": \"a1\", \"label\": \"FOOD\"},\n {\"id\": \"a2\", \"label\": null}]";
        let rows = table::rows(array.into(), Path::new("gold")).unwrap();
        assert_eq!((rows[1].line, &rows[1].label), (2, &String::new()));
        let parquet = table::rows(b"PAR1....PAR1".to_vec(), Path::new("gold.parquet"));
        assert!(parquet.unwrap_err().to_string().contains("is Parquet"));
    }

    #[test]
    fn labels_that_do_not_exist_are_refused_with_the_nearest_or_counted() {
        let set = set(Mode::Single);
        let text =
            "id,label\na1,food\na2,foods\na3,foods\na4,sailing\na5,other\na6,Food And Cooking\n";
        let error = understood(text, &[&set], false).unwrap_err();
        for said in [
            "`foods` (2 rows; did you mean `food`?), `sailing` (1 row)",
            "--others-out-of-scope",
            "the labels are food, none",
        ] {
            assert!(error.contains(said), "{said}: {error}");
        }
        let found = understood(text, &[&set], true).unwrap();
        assert_eq!(found.foreign["foods"], 2);
        let right: Vec<usize> = found.posts.iter().map(|post| post.right[0].len()).collect();
        assert_eq!(right, [1, 0, 0, 0, 0, 1]);
        assert!(
            understood("id,label\n", &[&set], true)
                .unwrap_err()
                .contains("none")
        );
    }

    #[test]
    fn a_post_with_two_labels_is_told_with_its_lines_and_the_same_label_counts_once() {
        let set = set(Mode::Single);
        let text = "id,label\na1,food\nt3_a1,Food\n a1,food and cooking\na2,food\na2,\n";
        let error = understood(text, &[&set], false).unwrap_err();
        assert!(
            error.contains(
                "another label than before: 1: `t3_a2` is `food` in line 5 and none of these in line 6"
            ),
            "{error}"
        );
        let found = understood(text.trim_end_matches("a2,\n"), &[&set], false).unwrap();
        assert_eq!((found.posts.len(), found.repeated), (2, 2));
    }

    #[test]
    fn a_word_of_one_set_is_out_of_scope_under_the_other() {
        let mut other = set(Mode::Single);
        other.labels.truncate(1);
        let mut one = set(Mode::Single);
        one.labels[1].slug = "sailing".into();
        let found = understood("id,label\na1,sailing\na2,food\n", &[&one, &other], false).unwrap();
        assert_eq!(found.posts[0].right, [vec![1], vec![]]);
        assert_eq!(found.posts[1].right, [vec![0], vec![0]]);
    }
}
