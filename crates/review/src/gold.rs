//! Reads gold labels from a file or from annotators' answers and resolves them to labels in a label set.
//!
//! A gold label is the slug or the text of a label, in any case. An empty value, `none`, `other`, `none of these` or
//! null means that the post is out of scope.

mod agreement;
mod consensus;
mod labels;
mod resolve;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;

use topicmill_core::{
    FailureKind, Fullname, GoldSource, Label, LabelSet, SampleReason, TextHash, Timestamp,
};
use topicmill_store::StoreError;
use topicmill_tables::TableError;

pub use self::agreement::{Alpha, PairAgreement, agreement, alpha};
pub(crate) use self::consensus::remove_partly_offered;
pub use self::consensus::{Consensus, consensus, partly_offered};
pub use self::labels::{GoldLabels, TOPIC};
pub use self::resolve::resolve;
pub use self::table::read_rows;

/// Values that mean out of scope unless a label has that name.
const OUT_OF_SCOPE: [&str; 4] = ["", "none", "other", NONE_OF_THESE];
/// The choice that annotators are offered in addition to the labels.
pub const NONE_OF_THESE: &str = "none of these";

/// Maximum number of characters in an annotator's name: as long as an email address may be.
const NAME: usize = 254;
/// Maximum number of characters in a note.
pub const NOTE: usize = 500;

/// An error in gold labels.
#[derive(Debug, thiserror::Error)]
pub enum GoldError {
    /// The file cannot be read as a table.
    #[error(
        "cannot read the gold file `{path}`: {source}; provide a table with the columns `id` and `label`"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: TableError,
    },
    /// Columns or rows in the file are invalid.
    #[error("cannot read the gold file `{path}`: {details}")]
    Rows {
        /// The file.
        path: PathBuf,
        /// The problems, with line numbers.
        details: String,
    },
    /// The source has no rows.
    #[error(
        "cannot read the gold labels: there are no rows; provide a table with the columns `id` and `label`"
    )]
    Empty,
    /// Rows do not match the label sets or contradict each other.
    #[error("cannot read the gold labels: {0}")]
    Labels(String),
    /// No gold label can be used. Contains the reason and what to do.
    #[error("{0}")]
    Unusable(String),
    /// The database cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl GoldError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Store(error) => error.kind(),
            _ => FailureKind::Usage,
        }
    }
}

/// A row of a gold file, or an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldRow {
    /// Line number in the file.
    pub line: u64,
    /// Fullname of the post.
    pub id: Fullname,
    /// The label as written; empty for "none of these".
    pub label: String,
    /// Name of the annotator, if known.
    pub annotator: Option<String>,
    /// Time of the answer, if known.
    pub answered_at: Option<Timestamp>,
    /// The reason why the post was sampled.
    pub chosen: SampleReason,
    /// Origin of the label.
    pub source: GoldSource,
    /// Hash of the text that the annotator saw, if known.
    pub text_hash: Option<TextHash>,
    /// The annotator's note, if there is one.
    pub note: Option<String>,
    /// True if annotators disagree about the post and none of their answers decides: this row is one of several.
    pub is_tied: bool,
}

impl GoldRow {
    /// Returns a row of an imported file without optional fields.
    pub fn new(line: u64, id: Fullname, label: String) -> Self {
        Self {
            line,
            id,
            label,
            annotator: None,
            answered_at: None,
            chosen: SampleReason::Import,
            source: GoldSource::Import,
            text_hash: None,
            note: None,
            is_tied: false,
        }
    }
}

/// A post with its gold labels in one or more label sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldPost {
    /// Fullname of the post.
    pub id: Fullname,
    /// Line number of the post's first row.
    pub line: u64,
    /// The labels as written.
    pub words: Vec<String>,
    /// Positions of the labels, one list per label set; a list is empty if the post is out of scope.
    pub right: Vec<Vec<usize>>,
    /// The other answers if annotators disagree and none decides, each like `right`.
    pub ties: Vec<Vec<Vec<usize>>>,
}

impl GoldPost {
    /// Returns the other answers in a label set that differ from [`right`](Self::right).
    pub fn ties_in(&self, set: usize) -> Vec<Vec<usize>> {
        let others = self.ties.iter().map(|answer| answer[set].clone());
        others.filter(|answer| *answer != self.right[set]).collect()
    }
}

/// Gold labels resolved to labels in label sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvedGold {
    /// The posts, ordered by fullname.
    pub posts: Vec<GoldPost>,
    /// Number of rows that repeat an earlier row.
    pub duplicates: usize,
    /// Labels that are in no label set, with their row counts; their posts count as out of scope.
    pub unknown_labels: BTreeMap<String, usize>,
}

/// Cleans a note: removes control characters and truncates it to [`NOTE`] characters. Returns `None` if nothing is
/// left.
pub fn gold_note(text: &str) -> Option<String> {
    let is_kept = |c: &char| !c.is_control() || *c == '\n';
    let note: String = text.trim().chars().filter(is_kept).take(NOTE).collect();
    Some(note.trim().to_owned()).filter(|note| !note.is_empty())
}

/// Cleans an annotator's name: replaces control characters and repeated white space with one space. Returns `None` if
/// nothing is left.
///
/// # Errors
/// Returns a description of a name with more than [`NAME`] characters.
pub fn annotator_name(text: &str) -> Result<Option<String>, String> {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let name = words.join(" ");
    if name.chars().count() > NAME {
        let text = format!("the annotator's name has more than {NAME} characters");
        return Err(text);
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// Resolves a word: `Some(Some(label))` for a label, `Some(None)` for "none of these", `None` for an unknown word.
pub fn resolve_word<'a>(set: &'a LabelSet, word: &str) -> Option<Option<&'a Label>> {
    match place(set, word) {
        Some(found) => Some(Some(&set.labels[found])),
        None => is_out_of_scope(word).then_some(None),
    }
}

fn is_out_of_scope(word: &str) -> bool {
    let is_word = |known: &&str| word.eq_ignore_ascii_case(known);
    OUT_OF_SCOPE.iter().any(is_word)
}

/// Returns the position of the label that a word names. Exact slugs take precedence over slugs and label texts in any
/// case.
fn place(set: &LabelSet, word: &str) -> Option<usize> {
    let labels = || set.labels.iter();
    labels()
        .position(|label| label.slug == word)
        .or_else(|| labels().position(|label| label.slug.eq_ignore_ascii_case(word)))
        .or_else(|| labels().position(|label| label.label.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use topicmill_core::Mode;
    use topicmill_core::table;

    use super::*;

    fn read(text: &str, mode: Mode) -> Result<Vec<(String, Vec<usize>)>, String> {
        let label = |slug: &str, label: &str| Label {
            slug: slug.into(),
            label: label.into(),
            descriptions: vec![],
        };
        let set = LabelSet {
            name: "t".into(),
            template: "About {}.".into(),
            mode,
            threshold: 0.0,
            temperature: 1.0,
            labels: vec![label("food", "food and cooking"), label("none", "nothing")],
            background: None,
            fitted: None,
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let found = read_rows(file.path()).and_then(|rows| resolve(rows, &[&set], false));
        let posts = found.map_err(|error| error.to_string())?.posts.into_iter();
        Ok(posts
            .map(|post| (post.id.to_string(), post.right[0].clone()))
            .collect())
    }

    #[test]
    fn words_resolve_to_a_label_or_none_of_these() {
        let csv = "note,label,id\n\"a, b\",food,t3_a1\n,Food and Cooking, a2\n,,a3\n,none,a4\n";
        let json = "{\"id\": \"a1\", \"label\": \"food\"}\n\n{\"id\": \"t3_a2\", \"label\": \"food\", \"x\": 1}\n\
                    {\"id\": \"a3\", \"label\": null}\n{\"id\": \"a4\", \"label\": \"none\"}\n";
        // A label with the slug `none` takes precedence.
        let right: [(&str, &[usize]); 4] = [
            ("t3_a1", &[0]),
            ("t3_a2", &[0]),
            ("t3_a3", &[]),
            ("t3_a4", &[1]),
        ];
        let expected = right.map(|(id, right)| (id.to_owned(), right.to_vec()));
        assert_eq!(read(csv, Mode::Single).unwrap(), expected);
        assert_eq!(read(json, Mode::Single).unwrap(), expected);
    }

    #[test]
    fn invalid_rows_are_reported_with_their_lines() {
        for (text, expected) in table! {
            "id,topic\na1,food\n", "no column `label` (columns: id, topic)";
            "id,label\na1\n", "line 2: ";
            "{\"id\": \"a1\"}\n", "line 1: the row has no `label`";
            "{\"id\": 7, \"label\": \"\"}\n", "`id` is not text";
            "{\"id\": \"a1\", \"label\": \"\\ud83d\"}\n", "line 1: `label` is not text";
            "{\"id\": \"a1\", \"label.responses\": [7]}\n", "line 1: `label.responses` is not text";
            "id,label\na-1,food\na2,food\na-3,food\n", "(`t1_…`) nor the URL of one; line 4: `a-3`";
            "annotation_id,fullname,id,label\n1,t3_a1,7,food\n", "CSV and JSON-MIN are not supported";
        } {
            let error = read(text, Mode::Single).unwrap_err();
            assert!(error.contains(expected), "{text:?} gives {error}");
        }
    }

    #[test]
    fn a_post_may_have_several_labels_in_multi_mode_only() {
        let text = "id,label\na1,food\na1,none\na1,food\n";
        assert_eq!(
            read(text, Mode::Multi).unwrap(),
            [("t3_a1".to_owned(), vec![0, 1])]
        );
        let error = read(text, Mode::Single).unwrap_err();
        assert!(error.contains("1 row contradicts"), "{error}");
        let twice = "id,label\na1,food\na1,none\na1,none\n";
        let error = read(twice, Mode::Single).unwrap_err();
        assert!(error.contains("2 rows contradict"), "{error}");
        assert!(read("id,label\na1,\na1,food\n", Mode::Multi).is_err());
    }
}
