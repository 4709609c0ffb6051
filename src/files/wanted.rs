//! Which columns a condition asks for, and whether there are such.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::columns::listed;
use super::filter::{Filter, inside};
use super::kept::RENAMED;
use super::output::ADDED;
use super::{FileJob, FilesError};

/// Whether a column of the output, or what is within it, comes from this column of the input, which may have another name
/// there.
pub(super) fn is_from(column: &str, name: &str) -> bool {
    let own = column.trim_start_matches(RENAMED);
    [column, own]
        .into_iter()
        .any(|column| column == name || inside(column, name).is_some())
}

/// Whether a table with these names can have each column that the condition reads, as far as that is known before a model
/// is loaded.
pub(super) fn check_names(job: &FileJob, names: &[Arc<str>]) -> Result<(), FilesError> {
    let Some(filter) = &job.writing.filter else {
        return Ok(());
    };
    let is_there = |column: &str| is_ours(column) || names.iter().any(|name| is_from(column, name));
    match filter
        .columns()
        .into_iter()
        .find(|column| !is_there(column))
    {
        None => Ok(()),
        Some(column) => {
            let ours = ADDED.iter().map(|name| Arc::from(*name));
            let all: Vec<Arc<str>> = names.iter().cloned().chain(ours).collect();
            Err(FilesError::NoFilterColumn {
                name: column.to_owned(),
                columns: listed(&all),
            })
        }
    }
}

/// Whether a column may be one that the output gets, whatever its format.
fn is_ours(column: &str) -> bool {
    let of_labels = ["score_", "scores.", "logits."];
    let others = ["id", "error", "scores", "logits", "input", "line"];
    ADDED.contains(&column)
        || others.contains(&column)
        || of_labels.iter().any(|begin| column.starts_with(begin))
}

/// Whether there is each column that a condition reads.
pub(super) fn check_columns(filter: &Filter, all: &BTreeSet<String>) -> Result<(), FilesError> {
    let is_there = |column: &str| {
        all.contains(column) || all.iter().any(|name| inside(column, name).is_some())
    };
    let columns = filter.columns();
    match columns.into_iter().find(|column| !is_there(column)) {
        None => Ok(()),
        Some(column) => {
            let names: Vec<Arc<str>> = all.iter().map(|name| name.as_str().into()).collect();
            Err(FilesError::NoFilterColumn {
                name: column.to_owned(),
                columns: listed(&names),
            })
        }
    }
}
