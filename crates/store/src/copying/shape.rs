//! The tables to copy, as PostgreSQL describes them.
//!
//! Only special tables are named here so that tables from later schemas are copied too.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::PgConnection;

use super::super::driver_error::ErrorContext;
use super::super::{Result, StoreError};

const WHAT: &str = "list the tables";

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SqlKind {
    Integer,
    Real,
    Flag,
    Text,
    Time,
    Bytes,
    Json,
    Reals,
}

/// A table and its columns.
#[derive(Debug, Clone)]
pub(super) struct TableShape {
    pub(super) name: String,
    pub(super) columns: Vec<(String, SqlKind)>,
}

/// An identity column.
pub(super) struct Identity {
    pub(super) table: String,
    pub(super) sequence: String,
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl TableShape {
    /// Returns true if a new database already has rows in this table, which the copy replaces.
    pub(super) fn is_seeded(&self) -> bool {
        self.name == "meta"
    }

    pub(super) fn quoted(&self) -> String {
        quoted(&self.name)
    }

    pub(super) fn names(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|(name, _)| quoted(name)).collect();
        names.join(", ")
    }

    fn select(&self, of: impl Fn(&str, SqlKind) -> String) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|(name, kind)| of(&quoted(name), *kind))
            .collect();
        // A pending rewrite is not copied: it applies only to the source database's own files.
        let only = if self.is_seeded() {
            " WHERE key <> 'rewrite_due'"
        } else {
            ""
        };
        format!("SELECT {} FROM {}{only}", columns.join(", "), self.quoted())
    }

    /// Returns the SELECT for SQLite, which casts each value to an integer, a float, a string or bytes. Times are text.
    pub(super) fn select_sqlite(&self) -> String {
        self.select(|name, kind| {
            let to = match kind {
                SqlKind::Integer | SqlKind::Flag => "INTEGER",
                SqlKind::Real => "REAL",
                SqlKind::Bytes => "BLOB",
                SqlKind::Text | SqlKind::Time | SqlKind::Json | SqlKind::Reals => "TEXT",
            };
            format!("CAST({name} AS {to})")
        })
    }

    /// Returns the SELECT for PostgreSQL. Times are microseconds since 1970.
    pub(super) fn select_postgres(&self) -> String {
        self.select(|name, kind| match kind {
            SqlKind::Integer => format!("{name}::bigint"),
            SqlKind::Flag => format!("{name}::int::bigint"),
            SqlKind::Real => format!("{name}::float8"),
            SqlKind::Bytes => name.to_owned(),
            SqlKind::Text | SqlKind::Json => format!("{name}::text"),
            SqlKind::Time => format!("(EXTRACT(EPOCH FROM {name}) * 1000000)::bigint"),
            SqlKind::Reals => format!("'[' || array_to_string({name}, ',') || ']'"),
        })
    }
}

/// Returns the tables, each after the tables that it refers to.
pub(super) async fn shapes(connection: &mut PgConnection) -> Result<Vec<TableShape>> {
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT c.table_name::text, c.column_name::text, c.data_type::text \
           FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name) \
          WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' \
          AND c.table_name <> '_sqlx_migrations' AND c.is_generated = 'NEVER' \
          ORDER BY c.table_name, c.ordinal_position",
    )
    .fetch_all(&mut *connection)
    .await
    .context(WHAT)?;
    // The UNION adds two foreign keys that exist only in the SQLite schema.
    let belongs: Vec<(String, String)> = sqlx::query_as(
        "SELECT DISTINCT child.relname::text, parent.relname::text FROM pg_constraint k \
           JOIN pg_class child ON child.oid = k.conrelid JOIN pg_class parent ON parent.oid = k.confrelid \
          WHERE k.contype = 'f' AND child.relnamespace = quote_ident(current_schema())::regnamespace \
          AND k.conrelid <> k.confrelid \
          UNION SELECT 'sightings', 'posts' UNION SELECT 'sightings', 'runs'",
    )
    .fetch_all(connection)
    .await
    .context(WHAT)?;
    let mut tables: BTreeMap<String, Vec<(String, SqlKind)>> = BTreeMap::new();
    for (table, column, kind) in columns {
        let kind = match kind.as_str() {
            "bigint" | "integer" | "smallint" => SqlKind::Integer,
            "double precision" | "real" => SqlKind::Real,
            "boolean" => SqlKind::Flag,
            "text" => SqlKind::Text,
            "timestamp with time zone" => SqlKind::Time,
            "bytea" => SqlKind::Bytes,
            "jsonb" | "json" => SqlKind::Json,
            "ARRAY" => SqlKind::Reals,
            other => {
                return Err(StoreError::NotCopyable {
                    table,
                    detail: format!("its column `{column}` has the unsupported type {other}"),
                });
            }
        };
        tables.entry(table).or_default().push((column, kind));
    }
    Ok(in_order(tables, &belongs))
}

fn in_order(
    mut tables: BTreeMap<String, Vec<(String, SqlKind)>>,
    belongs: &[(String, String)],
) -> Vec<TableShape> {
    let mut ordered = Vec::with_capacity(tables.len());
    let mut placed = BTreeSet::new();
    while !tables.is_empty() {
        let ready = |table: &&String| {
            belongs
                .iter()
                .all(|(child, parent)| child != *table || placed.contains(parent))
        };
        // The schema's foreign keys form no cycles; if a user has added a key that does, the database reports an error.
        let next = tables.keys().find(ready).or_else(|| tables.keys().next());
        let name = next.cloned().expect("there is one left");
        let columns = tables.remove(&name).expect("it was just found");
        placed.insert(name.clone());
        ordered.push(TableShape { name, columns });
    }
    ordered
}

/// Returns the identity columns.
pub(super) async fn identities(connection: &mut PgConnection) -> Result<Vec<Identity>> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT c.relname::text, pg_get_serial_sequence(quote_ident(c.relname), a.attname) \
           FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
          WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' \
          AND a.attidentity <> '' \
          ORDER BY 1",
    )
    .fetch_all(connection)
    .await
    .context(WHAT)?;
    let identity = |(table, sequence)| Identity { table, sequence };
    Ok(rows.into_iter().map(identity).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_is_listed_after_the_tables_it_refers_to() {
        let tables = ["a", "b", "c"].map(|name| (name.to_owned(), Vec::new()));
        let belongs = [("a", "c"), ("b", "a")].map(|(x, y)| (x.to_owned(), y.to_owned()));
        let ordered = in_order(tables.into(), &belongs);
        let names: Vec<&str> = ordered.iter().map(|shape| shape.name.as_str()).collect();
        assert_eq!(names, ["c", "a", "b"]);
    }
}
