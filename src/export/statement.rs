//! The one statement that reads a data set.

use std::fmt::Write;

use topicmill_score::LabelSet;

use super::columns::FIXED;
use crate::domain::Timestamp;
use crate::store::{ColumnType, Target};

/// Under which model and label set posts are exported.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// The rows of both.
    pub target: Target,
    /// The label set.
    pub set: LabelSet,
}

/// Which posts are exported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filters {
    /// Slugs: posts with one of these labels, unless there are none.
    pub labels: Vec<String>,
    /// Posted at this time or later.
    pub since: Option<Timestamp>,
    /// Posted before this time.
    pub until: Option<Timestamp>,
    /// The best label has this score or a higher one.
    pub min_score: Option<f64>,
    /// Posts without a label, too.
    pub unlabelled: bool,
    /// An expression over the columns of the data set, as the user wrote it.
    pub expression: Option<String>,
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
