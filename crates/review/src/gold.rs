//! Posts of which the right label is known, from a file or from what people answered.
//!
//! A label is a slug or the words of a label of the label set, in upper or lower case; empty, `none`, `other` or null means
//! none of these: the post is out of scope.

mod consensus;
mod resolve;
mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;

use topicmill_core::{Fullname, GoldSource, SampleReason, TextHash, Timestamp};
use topicmill_score::{Label, LabelSet};
use topicmill_tables::TableError;

pub use self::consensus::{Consensus, consensus, remove_partly_offered};
pub use self::resolve::resolve;
pub use self::table::read_rows;

/// Words that mean that a post is out of scope, unless a label is called so.
const OUT_OF_SCOPE: [&str; 4] = ["", "none", "other", NONE_OF_THESE];
/// What people are offered beside the labels.
pub const NONE_OF_THESE: &str = "none of these";

/// Why a gold file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GoldError {
    #[error(
        "read the gold file `{path}`: {source}; give a table with the columns `id` and `label`"
    )]
    Read {
        path: PathBuf,
        #[source]
        source: TableError,
    },
    /// What the file says is no gold label.
    #[error("read the gold file `{path}`: {details}")]
    Rows { path: PathBuf, details: String },
    /// It has a header, or nothing, and no row.
    #[error("read the gold labels: there are none; give rows with `id` and `label`")]
    Empty,
    /// Label sets and rows do not fit.
    #[error("read the gold labels: {0}")]
    Labels(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldRow {
    pub line: u64,
    pub id: Fullname,
    pub label: String,
    /// Who said it, where the file tells.
    pub reviewer: Option<String>,
    pub answered_at: Option<Timestamp>,
    /// Why this post.
    pub chosen: SampleReason,
    pub source: GoldSource,
    /// Of the text that the person saw, where the file tells.
    pub text_hash: Option<TextHash>,
}

impl GoldRow {
    pub fn new(line: u64, id: Fullname, label: String) -> Self {
        Self {
            line,
            id,
            label,
            reviewer: None,
            answered_at: None,
            chosen: SampleReason::Import,
            source: GoldSource::Import,
            text_hash: None,
        }
    }
}

/// A post with its right labels under one label set or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoldPost {
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
pub struct ResolvedGold {
    /// By post, each once.
    pub posts: Vec<GoldPost>,
    /// Rows that say again what an earlier one said.
    pub duplicates: usize,
    /// Words that no label set has, with their rows: counted as out of scope.
    pub unknown_labels: BTreeMap<String, usize>,
}

/// What a word says under a label set: a label, or `Some(None)` for none of these; `None` where it says nothing.
pub fn resolve_word<'a>(set: &'a LabelSet, word: &str) -> Option<Option<&'a Label>> {
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
    use topicmill_score::Mode;

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
    fn a_word_means_a_label_or_none_of_these() {
        let csv = "note,label,id\n\"a, b\",food,t3_a1\n,Food and Cooking, a2\n,,a3\n,none,a4\n";
        let json = "{\"id\": \"a1\", \"label\": \"food\"}\n\n{\"id\": \"t3_a2\", \"label\": \"food\", \"x\": 1}\n\
                    {\"id\": \"a3\", \"label\": null}\n{\"id\": \"a4\", \"label\": \"none\"}\n";
        // A slug goes before the word none.
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
    fn what_says_nothing_is_told_with_its_line() {
        for (text, said) in [
            (
                "id,topic\na1,food\n",
                "no column `label` (it has id, topic)",
            ),
            ("id,label\na1\n", "line 2: it "),
            ("{\"id\": \"a1\"}\n", "line 1: it has no `label`"),
            ("{\"id\": 7, \"label\": \"\"}\n", "its `id` is no text"),
            (
                "id,label\na-1,food\na2,food\na-3,food\n",
                "line 2: `a-1` is neither the fullname of a post (`t3_` and a base-36 id) nor the URL of one; line 4: `a-3`",
            ),
            (
                "annotation_id,fullname,id,label\n1,t3_a1,7,food\n",
                "export the project as JSON",
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
