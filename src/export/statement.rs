//! The one statement that reads a data set.

use std::fmt::Write;

use topicmill_score::LabelSet;

use super::columns::FIXED;
use crate::domain::Timestamp;
use crate::store::Target;

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

/// The statement: the fixed columns, then the packed scores as text.
pub(super) fn statement(subject: &Subject, filters: &Filters) -> String {
    let Subject { target, .. } = subject;
    let columns: Vec<String> = FIXED
        .iter()
        .map(|(name, _, expression, _)| format!("{expression} AS {name}"))
        .collect();
    let join = if filters.unlabelled {
        "LEFT JOIN"
    } else {
        "JOIN"
    };
    let mut sql = format!(
        "SELECT {columns}, CAST(k.scores AS TEXT) AS packed_scores \
           FROM posts p \
           {join} classifications c ON c.model_id = {model} AND c.label_set_id = {set} \
                AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
           LEFT JOIN packed_scores k ON k.model_id = c.model_id AND k.label_set_id = c.label_set_id \
                AND k.fullname = c.fullname \
           LEFT JOIN models m ON m.id = c.model_id \
           LEFT JOIN label_sets s ON s.id = c.label_set_id \
          WHERE p.text_purged_at IS NULL",
        columns = columns.join(", "),
        model = target.model,
        set = target.label_set,
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
    match &filters.expression {
        None => sql + " ORDER BY p.fullname",
        // The line break ends a comment of the user's.
        Some(expression) => {
            format!("SELECT * FROM ({sql}) AS exported WHERE (\n{expression}\n) ORDER BY fullname")
        }
    }
}
