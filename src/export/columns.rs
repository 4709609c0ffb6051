//! The columns of a data set, and the statement that reads them.

use std::fmt::Write;

use topicmill_score::LabelSet;

use super::{Filters, Subject};
use crate::domain::Timestamp;
use crate::store::ColumnType;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// UTF-8.
    Text,
    /// Bytes, as their hexadecimal text.
    Hex,
    /// 64-bit integers.
    Integer,
    /// Double precision.
    Number,
    /// True or false.
    Boolean,
    /// A point in time, in UTC.
    Time,
}

impl Kind {
    /// As the data card writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text | Self::Hex => "text",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Time => "time",
        }
    }

    /// As the database is asked for it.
    pub(super) const fn in_the_database(self) -> ColumnType {
        match self {
            Self::Text => ColumnType::Text,
            Self::Hex => ColumnType::Hex,
            Self::Integer => ColumnType::Integer,
            Self::Number => ColumnType::Number,
            Self::Boolean => ColumnType::Boolean,
            Self::Time => ColumnType::Time,
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
    /// What it means, for the data card.
    pub meaning: String,
}

/// The columns before those of the labels: name, kind, expression, meaning.
const FIXED: [(&str, Kind, &str, &str); 22] = [
    ("fullname", Kind::Text, "{key}", "Reddit's name of the post"),
    (
        "subreddit",
        Kind::Text,
        "p.subreddit",
        "where it was posted",
    ),
    (
        "topic",
        Kind::Text,
        "p.topic",
        "the topic that it was last collected for",
    ),
    ("title", Kind::Text, "p.title", "its title"),
    (
        "selftext",
        Kind::Text,
        "p.selftext",
        "its body; empty for links",
    ),
    ("url", Kind::Text, "p.url", "what a link post points to"),
    ("permalink", Kind::Text, "p.permalink", "its path on Reddit"),
    (
        "created_at",
        Kind::Time,
        "p.created_at",
        "when it was posted",
    ),
    (
        "reddit_score",
        Kind::Integer,
        "p.reddit_score",
        "upvotes less downvotes, when it was last seen",
    ),
    (
        "num_comments",
        Kind::Integer,
        "p.num_comments",
        "number of comments, when it was last seen",
    ),
    ("source", Kind::Text, "p.source", "where topicmill read it"),
    (
        "label",
        Kind::Text,
        "CASE WHEN c.abstained THEN NULL ELSE c.label END",
        "the best label, by its short name; empty if the post gets none",
    ),
    (
        "score",
        Kind::Number,
        "c.score",
        "the score of the best label, 0 to 1",
    ),
    (
        "margin",
        Kind::Number,
        "c.margin",
        "the best score less the second best",
    ),
    (
        "abstained",
        Kind::Boolean,
        "c.abstained",
        "true if no label fits well enough",
    ),
    (
        "outcome",
        Kind::Text,
        "CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END",
        "the label; `other` if a topic of the background fits better than every label, `unsure` if the score is too low",
    ),
    (
        "classified_at",
        Kind::Time,
        "c.classified_at",
        "when it got its label",
    ),
    // Without a label there is none of these. A subquery that names nothing of the row is answered once.
    (
        "model",
        Kind::Text,
        "CASE WHEN c.fullname IS NULL THEN NULL ELSE (SELECT name FROM models WHERE id = {model}) END",
        "the model",
    ),
    (
        "number_format",
        Kind::Text,
        "CASE WHEN c.fullname IS NULL THEN NULL ELSE (SELECT number_format FROM models WHERE id = {model}) END",
        "the number format that the model computed with",
    ),
    (
        "label_set",
        Kind::Text,
        "CASE WHEN c.fullname IS NULL THEN NULL ELSE (SELECT name FROM label_sets WHERE id = {set}) END",
        "the label set",
    ),
    (
        "label_set_version",
        Kind::Text,
        "CASE WHEN c.fullname IS NULL THEN NULL ELSE (SELECT substr(hash, 1, 12) FROM label_sets WHERE id = {set}) END",
        "the version of the label set",
    ),
    (
        "text_hash",
        Kind::Hex,
        "p.text_hash",
        "equal texts have equal hashes: the first 16 bytes of SHA-256, in hex",
    ),
];
/// The name of the column of a label's score begins with it.
const SCORE_OF: &str = "score_";

/// The column of a split in a file.
const SPLIT: &str = "split";
/// Columns of text in which hardly any two rows are the same: a dictionary of them is built for nothing.
pub(super) const UNIQUE: [&str; 7] = [
    "fullname",
    "title",
    "selftext",
    "url",
    "permalink",
    "created_at",
    "text_hash",
];

/// Which of the columns is the hash of the text.
pub(super) fn place_of_hash() -> usize {
    let found = FIXED.iter().position(|(name, ..)| *name == "text_hash");
    found.expect("every data set has it")
}

/// All columns of a data set; of a file that is split, with the part of each row.
pub fn columns(set: &LabelSet, is_split: bool) -> Vec<Column> {
    let fixed = FIXED.iter().map(|(name, kind, _, meaning)| Column {
        name: (*name).to_owned(),
        kind: *kind,
        meaning: (*meaning).to_owned(),
    });
    let labels = set.labels.iter().map(|label| Column {
        name: format!("{SCORE_OF}{}", label.slug),
        kind: Kind::Number,
        meaning: format!("the score of the label \"{}\", 0 to 1", label.label),
    });
    let split = is_split.then(|| Column {
        name: SPLIT.to_owned(),
        kind: Kind::Text,
        meaning: "the part that the post is in: train, validation or test".to_owned(),
    });
    fixed.chain(labels).chain(split).collect()
}

/// A text as a literal of both databases.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// What is read of each post; the rows are the same, in the same order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// The fixed columns, then the packed scores.
    Everything,
    /// What tells the parts of a split: [`FOR_A_SPLIT`].
    ForASplit,
}

/// The columns of [`Asked::ForASplit`].
pub(super) const FOR_A_SPLIT: [&str; 5] =
    ["title", "selftext", "created_at", "outcome", "text_hash"];

/// The statement, and the types of what it answers.
pub(super) fn statement(
    subject: &Subject,
    filters: &Filters,
    asked: Asked,
) -> (String, Vec<ColumnType>) {
    let is_asked = |name: &str| match asked {
        Asked::Everything => true,
        Asked::ForASplit => FOR_A_SPLIT.contains(&name),
    };
    let mut names: Vec<&str> = Vec::new();
    let mut kinds = Vec::new();
    for (name, kind, _, _) in FIXED.iter().filter(|(name, ..)| is_asked(name)) {
        names.push(name);
        kinds.push(kind.in_the_database());
    }
    if asked == Asked::Everything {
        names.push("packed_scores");
        kinds.push(ColumnType::Numbers(subject.set.labels.len()));
    }
    let names = names.join(", ");
    let rows = rows(subject, filters);
    let statement = match &filters.expression {
        None => format!("SELECT {names} FROM ({rows}) AS exported ORDER BY fullname"),
        // The line break ends a comment of the user's.
        Some(expression) => format!(
            "SELECT {names} FROM ({rows}) AS exported WHERE (\n{expression}\n) ORDER BY fullname"
        ),
    };
    (statement, kinds)
}

/// The rows, but for what the user's expression leaves out, with every column.
fn rows(subject: &Subject, filters: &Filters) -> String {
    let Subject { target, .. } = subject;
    // Labels lie in the order of their posts: whoever begins with them sorts nothing.
    let (join, key) = if filters.unlabelled {
        ("LEFT JOIN", "p.fullname")
    } else {
        ("JOIN", "c.fullname")
    };
    let (model, set) = (target.model.to_string(), target.label_set.to_string());
    let columns: Vec<String> = FIXED
        .iter()
        .map(|(name, _, expression, _)| {
            let expression = expression
                .replace("{key}", key)
                .replace("{model}", &model)
                .replace("{set}", &set);
            format!("{expression} AS {name}")
        })
        .collect();
    let mut sql = format!(
        "SELECT {columns}, k.scores AS packed_scores \
           FROM posts p \
           {join} classifications c ON c.model_id = {model} AND c.label_set_id = {set} \
                AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
           LEFT JOIN packed_scores k ON k.model_id = c.model_id AND k.label_set_id = c.label_set_id \
                AND k.fullname = c.fullname \
          WHERE p.text_purged_at IS NULL",
        columns = columns.join(", "),
    );
    let mut and = |condition: &str| {
        write!(sql, " AND {condition}").expect("a string takes what is written");
    };
    if !filters.labels.is_empty() {
        let labels: Vec<String> = filters.labels.iter().map(|slug| literal(slug)).collect();
        and(&format!(
            "NOT c.abstained AND c.label IN ({})",
            labels.join(", ")
        ));
    }
    let time = |time: Timestamp| literal(&time.as_datetime().to_rfc3339());
    if let Some(since) = filters.since {
        and(&format!("p.created_at >= {}", time(since)));
    }
    if let Some(until) = filters.until {
        and(&format!("p.created_at < {}", time(until)));
    }
    if let Some(least) = filters.min_score {
        and(&format!("NOT c.abstained AND c.score >= {least:?}"));
    }
    sql
}
