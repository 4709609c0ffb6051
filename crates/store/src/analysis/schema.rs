//! Describes tables, views and columns from the comments of the PostgreSQL schema, whose types are more precise than
//! SQLite's.
//!
//! A test compares the result with both databases.

use serde::Serialize;
use sqlx::Postgres;

use crate::dialect::Dialect;

/// PostgreSQL types with their displayed names. The first type that matches counts, so `DOUBLE PRECISION[]` comes
/// before `DOUBLE PRECISION`.
const TYPES: [(&str, &str); 10] = [
    ("TEXT", "text"),
    ("BIGINT", "integer"),
    ("DOUBLE PRECISION[]", "numbers"),
    ("DOUBLE PRECISION", "number"),
    ("REAL", "number"),
    ("BOOLEAN", "boolean"),
    ("topicmill_time", "time"),
    ("DATE", "day"),
    ("BYTEA", "bytes"),
    ("JSONB", "JSON"),
];
/// A table or a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Relation {
    /// Name in SQL.
    pub name: String,
    /// `view` or `table`.
    pub kind: &'static str,
    /// Meaning of a row.
    pub meaning: String,
    /// Its columns, in order.
    pub columns: Vec<Column>,
}

/// A column of a table or a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Column {
    /// Name in SQL.
    pub name: String,
    /// Displayed name of its type, the same for both databases.
    #[serde(rename = "type")]
    pub kind: String,
    /// True if it may be NULL.
    pub may_be_null: bool,
    /// Its meaning.
    pub meaning: String,
}

/// The error for an unknown table or view.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no table or view `{0}`; `topicmill sql --schema` lists all")]
pub struct UnknownRelation(String);

/// Returns all views, then all tables, both in schema order.
pub fn relations() -> Vec<Relation> {
    let mut relations: Vec<Relation> = Vec::new();
    for migration in Postgres::MIGRATIONS {
        read(migration.sql, &mut relations);
    }
    relations.sort_by_key(|relation| relation.kind == "table");
    relations
}

/// Returns a table or a view by name, ignoring case and a schema prefix (`public.`, `main.`).
///
/// # Errors
/// [`UnknownRelation`].
pub fn relation_named(name: &str) -> Result<Relation, UnknownRelation> {
    let unqualified = name.rsplit('.').next().unwrap_or(name);
    let bare = unqualified.trim_matches('"').to_lowercase();
    let mut relations = relations().into_iter();
    let named = relations.find(|relation| relation.name == bare);
    named.ok_or_else(|| UnknownRelation(name.to_owned()))
}

/// Appends the tables and views that a migration creates, with their columns.
fn read(sql: &str, relations: &mut Vec<Relation>) {
    let mut comments: Vec<&str> = Vec::new();
    let mut open: Option<Relation> = None;
    for line in sql.lines() {
        if let Some(relation) = &mut open {
            relation.columns.extend(match relation.kind {
                "view" => column_of_view(line),
                _ => column_of_table(line),
            });
            if line.starts_with(')') || line.ends_with(';') {
                relations.extend(open.take());
            }
        } else {
            open = relation_begun_by(line, &comments);
        }
        match line.strip_prefix("--") {
            Some(comment) => comments.push(comment.trim()),
            None => comments.clear(),
        }
    }
}

/// Returns the table or view that a line begins to create, without its columns. The first paragraph of the comments
/// above the line is its meaning.
fn relation_begun_by(line: &str, comments: &[&str]) -> Option<Relation> {
    let mut words = line.strip_prefix("CREATE ")?.split_whitespace();
    let kind = match words.next()? {
        "TABLE" => "table",
        "VIEW" => "view",
        _ => return None,
    };
    let paragraph = comments.split(|comment| comment.is_empty()).next();
    Some(Relation {
        name: words.next()?.to_owned(),
        kind,
        meaning: paragraph.unwrap_or_default().join(" "),
        columns: Vec::new(),
    })
}

/// Parses a line such as `fullname TEXT NOT NULL, -- the post`.
fn column_of_table(line: &str) -> Option<Column> {
    let (definition, meaning) = line.split_once(" -- ")?;
    let (name, kind) = definition.trim().split_once(' ')?;
    let kind = kind.trim_start();
    let (_, word) = TYPES
        .iter()
        .find(|(declared, _)| kind.starts_with(declared))?;
    Some(Column {
        name: name.to_owned(),
        kind: (*word).to_owned(),
        may_be_null: !kind.contains("NOT NULL") && !kind.contains("PRIMARY KEY"),
        meaning: meaning.to_owned(),
    })
}

/// Parses a line such as `p.url, -- text or NULL: what a link post points to`.
fn column_of_view(line: &str) -> Option<Column> {
    let (definition, (kind, meaning)) = line
        .split_once(" -- ")
        .and_then(|(definition, comment)| Some((definition, comment.split_once(": ")?)))?;
    let word = kind.strip_suffix(" or NULL").unwrap_or(kind);
    TYPES.iter().find(|(_, shown)| *shown == word)?;
    let name = definition.trim_end_matches(',').rsplit([' ', '.']).next()?;
    Some(Column {
        name: name.to_owned(),
        kind: word.to_owned(),
        may_be_null: word != kind,
        meaning: meaning.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_describe_tables_views_and_columns() {
        let mut all = Vec::new();
        let sql = "-- A row is one,\n-- or two.\n--\n-- For readers.\n\
                   CREATE TABLE a (\n    b TEXT PRIMARY KEY, -- key\n    c DOUBLE PRECISION[] -- some\n);\n-- New.\n\
                   CREATE VIEW v AS\nSELECT a.b, -- text: the new\n       a.d + 1 AS e -- integer or NULL: one \
                   more\n  FROM a -- no column: a table\n ;\n";
        read(sql, &mut all);
        let shown: Vec<String> = all
            .iter()
            .flat_map(|relation| {
                let columns = relation.columns.iter().map(|column| {
                    format!(
                        "{} {} {} {}",
                        column.name, column.kind, column.may_be_null, column.meaning
                    )
                });
                std::iter::once(format!(
                    "{} {}: {}",
                    relation.kind, relation.name, relation.meaning
                ))
                .chain(columns)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "table a: A row is one, or two.",
                "b text false key",
                "c numbers true some",
                "view v: New.",
                "b text false the new",
                "e integer true one more",
            ]
        );
    }

    #[test]
    fn names_match_as_in_sql() {
        for name in ["posts", "Posts", "public.posts", "main.\"posts\""] {
            assert_eq!(relation_named(name).unwrap().name, "posts");
        }
        let unknown = UnknownRelation("post".to_owned());
        assert_eq!(relation_named("post"), Err(unknown));
    }
}
