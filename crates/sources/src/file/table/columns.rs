//! Finds the columns of a table that contain the fields of posts, before the first row is read.

use std::sync::Arc;

use super::DefaultValue;
use crate::file::FileOptions;
use crate::file::names::{Column, FIELDS, KINDS, Layout, Names};
use topicmill_core::first_few;
use topicmill_tables::Rows;

/// Maximum number of columns that an error or a warning lists.
const MOST_SHOWN: usize = 40;

/// Groups of fields; a table must contain at least one field from each group.
const REQUIRED: [&[&str]; 4] = [
    // A table without titles contains comments.
    &["title", "kind", "parent", "parent_id", "link_id"],
    &["id", "name", "permalink", "url"],
    &["subreddit", "permalink", "url"],
    &["created_utc"],
];

/// A field and its column.
pub(super) struct Field {
    pub name: &'static str,
    /// Index among the columns that are read.
    pub index: usize,
    /// True if neither the column's name nor `--map` is certain to mean the field.
    pub is_guess: bool,
}

/// The columns of a table that are read.
pub(super) struct ReadColumns {
    pub fields: Vec<Field>,
    /// Indices of the columns in the table, ascending.
    pub columns: Vec<usize>,
    pub layout: Layout,
    /// See [`PostRows::caveat`](crate::file::row::PostRows::caveat).
    pub caveat: Option<String>,
}

/// Finds the fields' columns; a `nested` column cannot be used.
pub(super) fn find_columns(
    options: &FileOptions,
    table: &dyn Rows,
    nested: &[usize],
) -> Result<ReadColumns, String> {
    let (mapping, defaults) = (&options.columns, &options.defaults);
    let columns = table.names().unwrap_or_default();
    let names = Names::new(columns.iter().map(|column| &**column));
    let mut layout = names.layout();
    let mut fields = mapped_fields(mapping, columns, nested)?;
    for name in FIELDS.into_iter().chain(KINDS) {
        if mapping.iter().any(|column| column.field == name) {
            continue;
        }
        let is_free = |index: usize| {
            *columns[index] == *name || fields.iter().all(|field| field.index != index)
        };
        match names.find(name, is_free) {
            Some(index) if nested.contains(&index) => {
                tracing::warn!(
                    "ignoring the column `{}`, because it is nested",
                    columns[index]
                );
            }
            Some(index) => {
                layout.add(name, &columns[index]);
                fields.push(Field {
                    name,
                    index,
                    is_guess: *columns[index] != *name,
                });
            }
            None => {}
        }
    }
    check_fields(&fields, defaults, table)?;
    let read = renumber(&mut fields);
    let is_unread = |index: &usize| !read.contains(index) && !nested.contains(index);
    let unread = (0..columns.len()).filter(is_unread);
    let unread: Vec<Arc<str>> = unread.map(|index| columns[index].clone()).collect();
    // The columns that were not read may contain the bodies.
    let may_have_body = !is_known("selftext", &fields, defaults) && !unread.is_empty();
    Ok(ReadColumns {
        fields,
        layout,
        columns: read,
        caveat: may_have_body.then(|| no_body(&unread)),
    })
}

/// Changes the fields' indices, which count all columns, to count only those that are read. Returns the latter.
fn renumber(fields: &mut [Field]) -> Vec<usize> {
    let mut read: Vec<usize> = fields.iter().map(|field| field.index).collect();
    read.sort_unstable();
    read.dedup();
    for field in fields {
        field.index = read.partition_point(|column| *column < field.index);
    }
    read
}

/// Returns the warning about a table that seems to have no bodies.
fn no_body(unread: &[Arc<str>]) -> String {
    format!(
        "no column has the body, `selftext`: name it with `--map selftext=COLUMN`; the columns that were not read are \
         {}",
        first_few(unread, MOST_SHOWN)
    )
}

/// Returns the mapped fields, each with its column's index in the table.
fn mapped_fields(
    mapping: &[Column],
    columns: &[Arc<str>],
    nested: &[usize],
) -> Result<Vec<Field>, String> {
    let mut fields = Vec::new();
    for Column { field, name } in mapping {
        let index = columns.iter().position(|column| **column == **name);
        let index = index.ok_or_else(|| {
            let columns = first_few(columns, MOST_SHOWN);
            format!(
                "there is no column `{name}` to take `{field}` from; the file has the columns {columns}"
            )
        })?;
        if nested.contains(&index) {
            return Err(format!("the column `{name}` is nested: map a plain column"));
        }
        fields.push(Field {
            name: field,
            index,
            is_guess: false,
        });
    }
    Ok(fields)
}

/// Checks that no field's column is ambiguous, and that every required field has a column or a default value.
fn check_fields(
    fields: &[Field],
    defaults: &[DefaultValue],
    table: &dyn Rows,
) -> Result<(), String> {
    let columns = table.names().unwrap_or_default();
    let mut read = fields.iter().map(|field| &*columns[field.index]);
    if let Some(name) = read.find(|name| table.repeated().iter().any(|twice| twice == name)) {
        return Err(format!(
            "two columns are named `{name}`: rename one of them"
        ));
    }
    let missing: Vec<&str> = REQUIRED
        .iter()
        .filter(|names| !names.iter().any(|name| is_known(name, fields, defaults)))
        .map(|names| names[0])
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(missing_fields(&missing, columns))
    }
}

/// Returns true if a field has a column or a default value.
fn is_known(name: &str, fields: &[Field], defaults: &[DefaultValue]) -> bool {
    fields.iter().any(|field| field.name == name)
        || defaults.iter().any(|default| default.field == name)
}

/// Returns the error for required fields that no column has.
fn missing_fields(fields: &[&str], columns: &[Arc<str>]) -> String {
    let flags = fields.iter().map(|field| format!("--map {field}=COLUMN"));
    format!(
        "no column has `{}`: name a column with `{}`, or set the value of all rows with `--set FIELD=VALUE`; the file \
         has the columns {}",
        fields.join("`, `"),
        flags.collect::<Vec<_>>().join(" "),
        first_few(columns, MOST_SHOWN)
    )
}
