//! The columns in a data set, and the SQL statement that reads them.

use super::{Filters, Subject};
use topicmill_core::ColumnKind::{Boolean, Hex, Integer, Number, Text, Time, Vector};
use topicmill_core::{ColumnKind, SHORT_HASH, ThingKind, Timestamp};
use topicmill_store::ColumnStatement;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatasetColumn {
    pub name: String,
    pub kind: ColumnKind,
    /// The column's meaning, for the data card.
    pub meaning: String,
}

impl DatasetColumn {
    fn new(name: &str, kind: ColumnKind, meaning: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            meaning: meaning.to_owned(),
        }
    }

    /// Returns the type name for the data card.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Text | Hex => "text",
            Integer => "integer",
            Number => "number",
            Boolean => "boolean",
            Time => "time",
            Vector => "list of numbers",
        }
    }
}

/// The column of embeddings, which is exported only on request.
const VECTOR: &str = "vector";
/// The column that is true for answered posts of the random sample; exported only on request.
const IN_SAMPLE: &str = "in_random_sample";
/// The column with the number of the post's wave; exported only on request.
const WAVE: &str = "wave";

/// The columns that only comments have, and those that only posts have.
const POST: &str = "post";
const PARENT: &str = "parent";
const OF_POSTS: [&str; 3] = ["title", "url", "num_comments"];

/// A column before the label scores.
struct FixedColumn {
    name: &'static str,
    kind: ColumnKind,
    meaning: &'static str,
}

/// A list of columns, one a line: the name, the kind and the meaning.
macro_rules! fixed_columns {
    ($($name:expr, $kind:expr, $meaning:expr;)+) => {
        &[$(FixedColumn { name: $name, kind: $kind, meaning: $meaning }),+]
    };
}

/// The columns before the label scores.
const FIXED: &[FixedColumn] = fixed_columns! {
    "fullname", Text, "Reddit's name for it";
    POST, Text, "the fullname of its post";
    PARENT, Text, "the fullname of what it replies to";
    "subreddit", Text, "where it was posted";
    "topic", Text, "the topic that it was last collected for";
    "title", Text, "its title";
    "selftext", Text, "its body; empty for a link post";
    "url", Text, "what a link post points to";
    "permalink", Text, "its path on Reddit";
    "text_purged", Boolean, "true if the retention time has passed: text and links are then empty";
    "created_at", Time, "when it was posted";
    "reddit_score", Integer, "upvotes less downvotes, when it was last seen";
    "num_comments", Integer, "number of comments, when it was last seen";
    "source", Text, "where topicmill read it";
    "label", Text, "the best label; empty if none fits well enough";
    "label_name", Text, "the label in words";
    "score", Number, "the score of the best label, 0 to 1";
    "margin", Number, "the best score less the second best";
    "abstained", Boolean, "true if no label fits well enough";
    "outcome", Text,
        "the label; `other` if a background topic fits better than every label, `unsure` if the score is too low";
    "gold", Text,
        "the label that more than half of the annotators chose; `other` for none of the labels; empty if there is none";
    "gold_by", Text, "the annotators who answered";
    IN_SAMPLE, Boolean, "true if the post has an answer and was drawn at random";
    WAVE, Integer,
        "1 if the post was stored before the first random sample was drawn, 2 if before the second, and so on";
    "classified_at", Time, "when it got its label";
    "model", Text, "the model";
    "number_format", Text, "the number format that the model computed with";
    "label_set", Text, "the label set";
    "label_set_version", Text, "the version of the label set";
    "text_hash", Hex, "equal texts have equal hashes: the first 16 bytes of SHA-256, in hex";
    VECTOR, Vector, "the model's embedding of the text, of length 1";
};

/// The outcome that an annotator chose.
const GOLD: &str = "COALESCE(g.label, 'other')";
/// The answers about the current text of a post, as in the `labeled_posts` view.
const FROM_GOLD: &str = "FROM gold g WHERE g.fullname = p.fullname AND g.text_hash = p.text_hash";

/// Returns the SQL expression for a fixed column; `key` is the fullname column in the table that drives the join.
fn expression(name: &str, key: &str, subject: &Subject) -> String {
    // A post without a label has NULL here. The subquery is not correlated, so the database evaluates it only once.
    let scalar = |column: &str, table: &str, id: i64| {
        format!(
            "CASE WHEN c.fullname IS NULL THEN NULL ELSE (SELECT {column} FROM {table} WHERE id = {id}) END"
        )
    };
    let (model, set) = (subject.target.model, subject.target.label_set);
    match name {
        "fullname" => key.to_owned(),
        "label" => "CASE WHEN c.abstained THEN NULL ELSE c.label END".to_owned(),
        "outcome" => {
            "CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END"
                .to_owned()
        }
        "label_name" => format!(
            "CASE WHEN c.abstained THEN NULL ELSE \
             (SELECT label_name FROM labels l WHERE l.label_set_id = {set} AND l.label = c.label) END"
        ),
        "gold" => format!(
            "(SELECT {GOLD} {FROM_GOLD} GROUP BY {GOLD} HAVING 2 * COUNT(*) > (SELECT COUNT(*) {FROM_GOLD}))"
        ),
        // Random samples contain posts only.
        IN_SAMPLE if subject.kind == ThingKind::Comment => "FALSE".to_owned(),
        WAVE if subject.kind == ThingKind::Comment => "CAST(NULL AS BIGINT)".to_owned(),
        IN_SAMPLE => format!("EXISTS (SELECT 1 {FROM_GOLD} AND g.in_random_sample)"),
        WAVE => wave(subject.waves.as_deref().unwrap_or_default()),
        "gold_by" => {
            format!("(SELECT string_agg(g.annotator, ', ' ORDER BY g.annotator) {FROM_GOLD})")
        }
        "text_purged" => "p.text_purged_at IS NOT NULL".to_owned(),
        "score" | "margin" | "abstained" | "classified_at" => format!("c.{name}"),
        "model" => scalar("name", "models", model.0),
        "number_format" => scalar("number_format", "models", model.0),
        "label_set" => scalar("name", "label_sets", set.0),
        "label_set_version" => scalar(
            &format!("substr(hash, 1, {SHORT_HASH})"),
            "label_sets",
            set.0,
        ),
        VECTOR => format!(
            "(SELECT v.vector FROM text_vectors v WHERE v.model_id = {model} AND v.text_hash = c.text_hash)"
        ),
        name => format!("p.{name}"),
    }
}

/// Returns the SQL expression for the number of a post's wave. `ends` are the times before which the posts of each wave
/// but the last were stored.
fn wave(ends: &[Timestamp]) -> String {
    let mut sql = String::from("CAST(CASE");
    for (wave, end) in (1..).zip(ends) {
        sql.extend([format!(" WHEN p.collected_at < {} THEN {wave}", time(*end))]);
    }
    // A CASE needs a condition.
    sql + &format!(" WHEN 1 = 0 THEN 0 ELSE {} END AS BIGINT)", ends.len() + 1)
}

/// Prefix for the score column of a label.
const SCORE_OF: &str = "score_";

/// Columns with mostly unique values, for which a dictionary is useless.
pub(super) const UNIQUE: [&str; 7] = [
    "fullname",
    "title",
    "selftext",
    "url",
    "permalink",
    "created_at",
    "text_hash",
];

/// Returns the columns before the label scores: those of [`FIXED`] that are always exported, or are requested.
fn fixed(subject: &Subject) -> impl Iterator<Item = &'static FixedColumn> {
    let (vectors, answers) = (subject.vectors, subject.waves.is_some());
    let is_comment = subject.kind == ThingKind::Comment;
    FIXED.iter().filter(move |column| match column.name {
        VECTOR => vectors,
        IN_SAMPLE | WAVE => answers,
        POST | PARENT => is_comment,
        name if OF_POSTS.contains(&name) => !is_comment,
        _ => true,
    })
}

/// Returns all columns in a data set.
pub(super) fn columns(subject: &Subject) -> Vec<DatasetColumn> {
    let fixed =
        fixed(subject).map(|column| DatasetColumn::new(column.name, column.kind, column.meaning));
    let labels = subject.set.labels.iter().map(|label| {
        let meaning = format!("the score of the label \"{}\", 0 to 1", label.label);
        // A name without hyphens needs no quotes in SQL, and works as an attribute in pandas.
        let name = format!("{SCORE_OF}{}", label.slug.replace('-', "_"));
        DatasetColumn::new(&name, Number, &meaning)
    });
    fixed.chain(labels).collect()
}

/// Returns the literal for a time.
fn time(time: Timestamp) -> String {
    literal(&time.as_datetime().to_rfc3339())
}

/// Quotes a string literal for both databases.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Builds the statement: the fixed columns, then the packed scores.
pub(super) fn statement(subject: &Subject, filters: &Filters) -> ColumnStatement {
    let fixed = fixed(subject).map(|column| (column.name, column.kind));
    let (names, kinds): (Vec<&str>, _) = fixed.unzip();
    let condition = match &filters.expression {
        // The line break ends a comment in the user's expression.
        Some(expression) => format!("WHERE (\n{expression}\n) "),
        None => String::new(),
    };
    let sql = format!(
        "SELECT {}, packed_scores FROM ({}) AS exported {condition}ORDER BY fullname",
        names.join(", "),
        rows(subject, filters)
    );
    let list = subject.set.labels.len();
    ColumnStatement { sql, kinds, list }
}

/// Builds the subquery with all columns and all filters except the user's expression.
fn rows(subject: &Subject, filters: &Filters) -> String {
    let Subject { target, .. } = subject;
    // Labels are stored in fullname order, so driving the join by them avoids a sort.
    let (join, key) = if filters.unlabelled {
        ("LEFT JOIN", "p.fullname")
    } else {
        ("JOIN", "c.fullname")
    };
    let (model, set) = (target.model, target.label_set);
    let columns: Vec<String> = FIXED
        .iter()
        .map(|&FixedColumn { name, .. }| format!("{} AS {name}", expression(name, key, subject)))
        .collect();
    let mut sql = format!(
        "SELECT {columns}, k.scores AS packed_scores \
           FROM things p \
           {join} classifications c ON c.model_id = {model} AND c.label_set_id = {set} \
                AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
           LEFT JOIN packed_scores k ON k.model_id = c.model_id AND k.label_set_id = c.label_set_id \
                AND k.fullname = c.fullname \
          WHERE p.kind = '{kind}' AND (p.has_text OR c.fullname IS NOT NULL)",
        kind = subject.kind,
        columns = columns.join(", "),
    );
    if !filters.labels.is_empty() {
        let labels: Vec<String> = filters.labels.iter().map(|slug| literal(slug)).collect();
        let labels = labels.join(", ");
        sql.extend([format!(" AND NOT c.abstained AND c.label IN ({labels})")]);
    }
    if let Some(since) = filters.since {
        sql.extend([format!(" AND p.created_at >= {}", time(since))]);
    }
    if let Some(until) = filters.until {
        sql.extend([format!(" AND p.created_at < {}", time(until))]);
    }
    if let Some(least) = filters.min_score {
        sql.extend([format!(" AND NOT c.abstained AND c.score >= {least:?}")]);
    }
    sql
}
