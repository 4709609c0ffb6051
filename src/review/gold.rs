//! Posts of which the right label is known, from a file or from what people answered.
//!
//! A label is a slug or the words of a label of the label set, in upper or lower case; empty, `none`, `other` or null means
//! none of these: the post is out of scope.

mod stored;
mod table;
mod understand;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::domain::{Chosen, Fullname, GoldSource, TextHash, Timestamp};
use crate::tables::TableError;
use topicmill_score::{Label, LabelSet};

pub use self::stored::{Agreed, Disagreement, agreed, without_unasked};
pub use self::table::rows;
pub use self::understand::understand;

/// Words that mean that a post is out of scope, unless a label is called so.
const OUT_OF_SCOPE: [&str; 4] = ["", "none", "other", NONE_OF_THESE];
/// What people are offered beside the labels.
pub const NONE_OF_THESE: &str = "none of these";

/// Why a gold file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GoldError {
    /// It cannot be read.
    #[error(
        "read the gold file `{path}`: {source}; give a table with the columns `id` and `label`"
    )]
    Read {
        /// As given.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: TableError,
    },
    /// A table that lacks a column.
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
    /// Rows that say nothing.
    #[error("read the gold file `{path}`: {details}; correct these lines, or take them out")]
    Rows {
        /// As given.
        path: PathBuf,
        /// The numbers of their lines, from 1, each with what is wrong.
        details: String,
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

/// What one row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldRow {
    /// The line of the file, from 1.
    pub line: u64,
    /// The post.
    pub id: Fullname,
    /// The word for its label.
    pub label: String,
    /// Who said it, where the file tells.
    pub reviewer: Option<String>,
    /// When, where the file tells.
    pub answered_at: Option<Timestamp>,
    /// Why this post.
    pub chosen: Chosen,
    /// Where it was said.
    pub source: GoldSource,
    /// Of the text that the person saw, where the file tells.
    pub text_hash: Option<TextHash>,
}

impl GoldRow {
    /// A row that tells nothing else.
    pub fn new(line: u64, id: Fullname, label: String) -> Self {
        Self {
            line,
            id,
            label,
            reviewer: None,
            answered_at: None,
            chosen: Chosen::Import,
            source: GoldSource::Import,
            text_hash: None,
        }
    }
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

/// What a word says under a label set: a label, or `Some(None)` for none of these; `None` where it says nothing.
pub fn meaning<'a>(set: &'a LabelSet, word: &str) -> Option<Option<&'a Label>> {
    match place(set, word) {
        Some(found) => Some(Some(&set.labels[found])),
        None => is_out_of_scope(word).then_some(None),
    }
}

fn is_out_of_scope(word: &str) -> bool {
    OUT_OF_SCOPE
        .iter()
        .any(|none| word.eq_ignore_ascii_case(none))
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
    use topicmill_score::Mode;

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

    /// A file of these bytes, whose name says nothing.
    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        use std::io::Write;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn rows(bytes: impl AsRef<[u8]>) -> Result<Vec<GoldRow>, String> {
        let file = file(bytes.as_ref());
        super::rows(file.path()).map_err(|error| error.to_string())
    }

    fn read(text: &str, mode: Mode) -> Result<Vec<(String, Vec<usize>)>, String> {
        let found = understand(rows(text)?, &[&set(mode)], false);
        let posts = found.map_err(|error| error.to_string())?.posts.into_iter();
        Ok(posts
            .map(|post| (post.id.to_string(), post.right[0].clone()))
            .collect())
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
            ("", "there are none"),
            (
                "id,label\na1,food\na2,sport\n",
                "the label set has no label `sport` (1 row)",
            ),
            ("id,label\na-1,food\n", "line 2: `a-1` is not the fullname"),
            ("id,label\na1\n", "line 2: it "),
            ("{\"id\": \"a1\"}\n", "line 1: it has no `label`"),
            (
                "{\"id\": 7, \"label\": \"\"}\n",
                "line 1: its `id` is no text",
            ),
            (
                "id,label\na-1,food\na2,food\na-3,food\n",
                "line 2: `a-1` is not the fullname of a post (`t3_` and a base-36 id); line 4: `a-3`",
            ),
            ("{broken\n", "line 1: "),
            (
                "id,label\na1,food\nt3_a1,\n",
                "`t3_a1` is `food` in line 2 and none of these in line 3",
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
        understand(rows(text)?, sets, others).map_err(|error| error.to_string())
    }

    #[test]
    fn spreadsheets_and_arrays_say_the_same_as_csv() {
        let csv = "ID,Label\na1,FOOD\na2,\n";
        let utf16 = |text: &str| -> Vec<u8> {
            let units = std::iter::once(0xFEFF).chain(text.encode_utf16());
            units.flat_map(u16::to_le_bytes).collect()
        };
        let expected = rows(csv).unwrap();
        assert_eq!(expected.len(), 2);
        for same in [
            csv.replace(',', "\t").into_bytes(),
            csv.replace(',', ";").into_bytes(),
            utf16(&csv.replace(',', "\t")),
            csv.replace('\n', "\r\n").into_bytes(),
        ] {
            assert_eq!(rows(same).unwrap(), expected);
        }
        let array = "[{\"id\": \"a1\", \"label\": \"FOOD\"},\n {\"id\": \"a2\", \"label\": null}]";
        let found = rows(array).unwrap();
        assert_eq!((found[1].line, &found[1].label), (2, &String::new()));
        assert!(
            rows(b"PAR1....PAR1")
                .unwrap_err()
                .contains("no Parquet file")
        );
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

    /// What is said of a row: post, word, who, why this post.
    fn said(text: &str) -> Vec<(String, String, String, Chosen)> {
        let one = |row: GoldRow| {
            let who = row.reviewer.unwrap_or_default();
            (row.id.to_string(), row.label, who, row.chosen)
        };
        rows(text).unwrap().into_iter().map(one).collect()
    }

    fn expected(rows: &[(&str, &str, &str, Chosen)]) -> Vec<(String, String, String, Chosen)> {
        let one =
            |row: &(&str, &str, &str, Chosen)| (row.0.into(), row.1.into(), row.2.into(), row.3);
        rows.iter().map(one).collect()
    }

    #[test]
    fn what_label_studio_exports_is_understood() {
        let choice = |word: &str| {
            format!(
                r#"[{{"type": "choices", "from_name": "label", "value": {{"choices": ["{word}"]}}}}]"#
            )
        };
        let whole = format!(
            r#"[{{"id": 7, "data": {{"fullname": "t3_a1", "chosen": "random"}}, "annotations": [
                 {{"result": {food}, "completed_by": {{"id": 2, "email": "ada@example.org"}}, "updated_at": "2026-11-20T08:00:00.5Z"}},
                 {{"result": {none}, "completed_by": 3}},
                 {{"result": {food}, "completed_by": 4, "was_cancelled": true}}, {{"result": [], "completed_by": 5}}]}},
                {{"id": 8, "data": {{"fullname": "t3_a2"}}, "annotations": []}}]"#,
            food = choice("food and cooking"),
            none = choice(NONE_OF_THESE)
        );
        let from_studio = expected(&[
            (
                "t3_a1",
                "food and cooking",
                "ada@example.org",
                Chosen::Random,
            ),
            ("t3_a1", NONE_OF_THESE, "label-studio:3", Chosen::Random),
        ]);
        assert_eq!(said(&whole), from_studio);
        assert_eq!(rows(&whole).unwrap()[0].source, GoldSource::LabelStudio);
        assert!(rows(&whole).unwrap()[0].answered_at.is_some());
        let short = "annotation_id,annotator,chosen,fullname,id,label\n1,ada,random,t3_a1,7,food\n";
        assert!(
            rows(short)
                .unwrap_err()
                .contains("export the project as JSON")
        );
    }
}
