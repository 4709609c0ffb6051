//! The rows of a gold file: a post's id, the word for its label, and the line that says so.
//!
//! A table of any format with the columns `id` and `label`, and who said it when, where it tells. What Label Studio
//! exports is understood as well: see `tools`.

use std::path::Path;

use super::cells::{cell, text, time};
use super::tools::{self, Answer};
use super::{GoldError, GoldRow};
use crate::domain::{Chosen, Fullname, GoldSource};
use crate::tables::{Row, Rows, TableError, open};

/// Names of the columns for who said it and when, as `labels gold export` writes them.
const REVIEWER: &str = "reviewer";
const ANSWERED_AT: &str = "answered_at";
const CHOSEN: &str = "chosen";
const SOURCE: &str = "source";
const TEXT_HASH: &str = "text_hash";
/// Lines with something wrong that are told; more of them are counted.
const TOLD: usize = 20;

/// Reads the rows, in their order.
pub(super) fn rows(path: &Path) -> Result<Vec<GoldRow>, GoldError> {
    let failed = |source: TableError| GoldError::Read {
        path: path.to_owned(),
        source,
    };
    let Some(mut table) = open(path).map_err(failed)? else {
        return Err(GoldError::Empty);
    };
    columns(&*table, path)?;
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    while let Some(row) = table.next_row().map_err(failed)? {
        match understood(&row) {
            Ok(answers) => rows.extend(answers),
            Err(detail) => wrong.push(format!("line {}: {detail}", row.line)),
        }
    }
    if wrong.is_empty() {
        return Ok(rows);
    }
    let count = wrong.len();
    wrong.truncate(TOLD);
    if count > TOLD {
        wrong.push(format!("and {} more lines", count - TOLD));
    }
    Err(GoldError::Rows {
        path: path.to_owned(),
        details: wrong.join("; "),
    })
}

/// A table that names its columns must have the two.
fn columns(table: &dyn Rows, path: &Path) -> Result<(), GoldError> {
    let Some(names) = table.names() else {
        return Ok(());
    };
    if names.iter().any(|name| tools::is_of_a_tool(name)) {
        return Ok(());
    }
    for column in ["id", "label"] {
        let has = |sought: &str| {
            names
                .iter()
                .any(|name| name.trim().eq_ignore_ascii_case(sought))
        };
        let is_there = has(column) || column == "id" && has("fullname");
        if !is_there {
            return Err(GoldError::Column {
                path: path.to_owned(),
                column,
                found: names.iter().map(ToString::to_string).collect(),
            });
        }
    }
    Ok(())
}

/// What a row says: a row of a table one answer, one of a tool any number.
fn understood(row: &Row) -> Result<Vec<GoldRow>, String> {
    if let Some(problem) = &row.problem {
        return Err(format!("it {problem}"));
    }
    if let Some((source, id, answers)) = tools::answers(row)? {
        let id: Fullname = id.parse().map_err(told)?;
        let one = |answer: Answer| GoldRow {
            line: row.line,
            id: id.clone(),
            label: answer.label,
            reviewer: answer.reviewer,
            answered_at: answer.answered_at,
            chosen: answer.chosen.unwrap_or(Chosen::Import),
            source,
            text_hash: answer.text_hash,
        };
        return Ok(answers.into_iter().map(one).collect());
    }
    let id = text(row, "fullname")?.or(text(row, "id")?);
    let id = id.filter(|id| !id.is_empty()).ok_or("it has no `id`")?;
    let label = match cell(row, "label") {
        None => return Err("it has no `label`".to_owned()),
        Some(_) => text(row, "label")?.unwrap_or_default(),
    };
    let answered_at = text(row, ANSWERED_AT)?.filter(|at| !at.is_empty());
    let word = |name| text(row, name).map(|word| word.filter(|word| !word.is_empty()));
    Ok(vec![GoldRow {
        line: row.line,
        id: id.parse().map_err(told)?,
        label,
        reviewer: word(REVIEWER)?.or(word("who")?),
        answered_at: answered_at.as_deref().map(time).transpose()?,
        chosen: match word(CHOSEN)? {
            Some(chosen) => chosen.parse().map_err(told)?,
            None => Chosen::Import,
        },
        source: match word(SOURCE)? {
            // A column of this name may mean anything in the files of others.
            Some(source) => source.parse().unwrap_or(GoldSource::Import),
            None => GoldSource::Import,
        },
        // So may this one.
        text_hash: word(TEXT_HASH)?.and_then(|hash| hash.parse().ok()),
    }])
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
