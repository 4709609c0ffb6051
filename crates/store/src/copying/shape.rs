//! The tables that are copied, as PostgreSQL describes them.
//!
//! Nothing here names a table but those that stand apart, so a table of a later schema is copied like the others.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::PgConnection;

use super::super::failure::Doing;
use super::super::{Result, StoreError};

const WHAT: &str = "read which tables there are";

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

/// A key that the database gives itself.
pub(super) struct Identity {
    pub(super) table: String,
    pub(super) sequence: String,
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl TableShape {
    /// True if a new database has rows in it, which are replaced.
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
        // What lingers in the files of one database does not in those of the other.
        let only = if self.is_seeded() {
            " WHERE key <> 'rewrite_due'"
        } else {
            ""
        };
        format!("SELECT {} FROM {}{only}", columns.join(", "), self.quoted())
    }

    /// The rows as whole numbers, numbers, texts and bytes; times are texts.
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

    /// The same; times are microseconds.
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

/// The tables, each behind those that its rows belong to.
pub(super) async fn shapes(connection: &mut PgConnection) -> Result<Vec<TableShape>> {
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT c.table_name::text, c.column_name::text, c.data_type::text \
           FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name) \
          WHERE c.table_schema = current_schema() AND t.table_type = 'BASE TABLE' AND c.table_name <> '_sqlx_migrations' AND c.is_generated = 'NEVER' \
          ORDER BY c.table_name, c.ordinal_position",
    )
    .fetch_all(&mut *connection)
    .await
    .doing(WHAT)?;
    // SQLite has two keys that PostgreSQL does without.
    let belongs: Vec<(String, String)> = sqlx::query_as(
        "SELECT DISTINCT child.relname::text, parent.relname::text FROM pg_constraint k \
           JOIN pg_class child ON child.oid = k.conrelid JOIN pg_class parent ON parent.oid = k.confrelid \
          WHERE k.contype = 'f' AND child.relnamespace = quote_ident(current_schema())::regnamespace AND k.conrelid <> k.confrelid \
          UNION SELECT 'sightings', 'posts' UNION SELECT 'sightings', 'runs'",
    )
    .fetch_all(connection)
    .await
    .doing(WHAT)?;
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
                return Err(StoreError::Foreign {
                    table,
                    detail: format!("its column `{column}` has the type {other}"),
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
        // Keys of the schema never go in a circle; where somebody added one that does, the database says which.
        let next = tables.keys().find(ready).or_else(|| tables.keys().next());
        let name = next.cloned().expect("there is one left");
        let columns = tables.remove(&name).expect("it was just found");
        placed.insert(name.clone());
        ordered.push(TableShape { name, columns });
    }
    ordered
}

/// The tables whose keys the database gives.
pub(super) async fn identities(connection: &mut PgConnection) -> Result<Vec<Identity>> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT c.relname::text, pg_get_serial_sequence(quote_ident(c.relname), a.attname) \
           FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
          WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' AND a.attidentity <> '' \
          ORDER BY 1",
    )
    .fetch_all(connection)
    .await
    .doing(WHAT)?;
    let identity = |(table, sequence)| Identity { table, sequence };
    Ok(rows.into_iter().map(identity).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_comes_behind_those_that_it_belongs_to() {
        let tables = ["a", "b", "c"].map(|name| (name.to_owned(), Vec::new()));
        let belongs = [("a", "c"), ("b", "a")].map(|(x, y)| (x.to_owned(), y.to_owned()));
        let ordered = in_order(tables.into(), &belongs);
        let names: Vec<&str> = ordered.iter().map(|shape| shape.name.as_str()).collect();
        assert_eq!(names, ["c", "a", "b"]);
    }
}
