//! docs/schema.md says what both databases have: every table, view and column, its type, whether it may be NULL,
//! and which column refers to which table.

use std::collections::{BTreeMap, BTreeSet};

use topicmill::store::Store;

use crate::support::engine::repository;
use crate::support::postgres::databases;

/// A column as the page writes it: its type in the page's words, and whether it may be NULL.
type Column = (String, bool);
/// By table or view, and name.
type Columns = BTreeMap<(String, String), Column>;

fn page() -> String {
    std::fs::read_to_string(repository("docs/schema.md")).unwrap()
}

/// The columns that the page lists under the heading of each table and view.
fn written(page: &str) -> Columns {
    let mut columns = Columns::new();
    for part in page.split("\n### `").skip(1) {
        let (table, rest) = part.split_once('`').unwrap();
        let rows = rest.lines().filter(|line| line.starts_with("| `"));
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').splitn(3, " | ").collect();
            let [name, kind, meaning] = cells[..] else {
                panic!("docs/schema.md: not three cells: {row}");
            };
            assert!(!meaning.trim().is_empty(), "docs/schema.md: {row}");
            let (kind, null) = match kind.trim().strip_suffix(" or NULL") {
                Some(kind) => (kind, true),
                None => (kind.trim(), false),
            };
            let key = (table.to_owned(), name.trim_matches([' ', '`']).to_owned());
            let twice = columns.insert(key, (kind.to_owned(), null));
            assert!(twice.is_none(), "docs/schema.md has this row twice: {row}");
        }
    }
    columns
}

/// Rows of words.
async fn rows(store: &Store, sql: &str) -> Vec<Vec<String>> {
    let rows = store.query(sql).await.unwrap().rows;
    let cell = |cell: &serde_json::Value| cell.as_str().map_or(cell.to_string(), str::to_owned);
    rows.iter()
        .map(|row| row.iter().map(cell).collect())
        .collect()
}

/// Table, column, type as declared, and whether it may be NULL; of views nobody knows the last.
async fn stored(store: &Store) -> Vec<Vec<String>> {
    let sql = match store {
        Store::Sqlite(_) => {
            "SELECT m.name, c.name, upper(c.type), \
                    CASE WHEN m.type = 'view' THEN '' WHEN c.\"notnull\" OR c.pk > 0 THEN 'NO' ELSE 'YES' END \
               FROM sqlite_master m, pragma_table_info(m.name) c \
              WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite%' AND m.name NOT LIKE '_sqlx%'"
        }
        Store::Postgres(_) => {
            "SELECT c.table_name, c.column_name, upper(c.data_type), \
                    CASE WHEN t.table_type = 'VIEW' THEN '' ELSE c.is_nullable END \
               FROM information_schema.columns c \
               JOIN information_schema.tables t USING (table_schema, table_name) \
              WHERE c.table_schema = 'public' AND c.table_name NOT LIKE '_sqlx%'"
        }
    };
    rows(store, sql).await
}

/// The declared types that a type of the page stands for.
fn declared(kind: &str, postgres: bool) -> &'static [&'static str] {
    match (kind, postgres) {
        ("text", _) | ("time" | "day" | "JSON" | "numbers", false) => &["TEXT"],
        ("integer", false) => &["INTEGER", "BIGINT"],
        ("integer", true) => &["BIGINT"],
        ("number", _) => &["DOUBLE PRECISION", "REAL"],
        ("boolean", _) => &["BOOLEAN"],
        ("time", true) => &["TIMESTAMP WITH TIME ZONE"],
        ("day", true) => &["DATE"],
        ("bytes", false) => &["BLOB"],
        ("bytes", true) => &["BYTEA"],
        ("JSON", true) => &["JSONB"],
        ("numbers", true) => &["ARRAY"],
        _ => &[],
    }
}

#[tokio::test]
async fn the_page_on_the_schema_names_every_column_of_both_databases_and_no_other() {
    let page = page();
    let written = written(&page);
    assert!(written.len() > 150, "{}", written.len());
    for database in databases() {
        let store = database.open().await;
        let postgres = matches!(store, Store::Postgres(_));
        let mut missing: BTreeSet<_> = written.keys().collect();
        for row in stored(&store).await {
            let [table, column, kind, null] = &row[..] else {
                panic!("{row:?}");
            };
            let at = format!("docs/schema.md, {table}.{column} ({})", database.url);
            let key = (table.clone(), column.clone());
            let (word, may_be_null) = written.get(&key).unwrap_or_else(|| panic!("{at}: no row"));
            missing.remove(&key);
            let types = declared(word, postgres);
            assert!(!types.is_empty(), "{at}: `{word}` is no type of the page");
            // SQLite has no types for what a view computes.
            let known = postgres || !null.is_empty();
            assert!(
                !known || types.contains(&kind.as_str()),
                "{at}: {kind} is no {word}"
            );
            assert!(
                null.is_empty() || (null == "YES") == *may_be_null,
                "{at}: may it be NULL?"
            );
        }
        assert!(
            missing.is_empty(),
            "docs/schema.md lists what {} does not have: {missing:?}",
            database.url
        );
    }
}

#[tokio::test]
async fn the_picture_of_the_schema_has_every_foreign_key_and_no_other() {
    let page = page();
    let (_, picture) = page.split_once("erDiagram\n").unwrap();
    let (picture, _) = picture.split_once("```").unwrap();
    let drawn: BTreeSet<Vec<String>> = picture
        .lines()
        .map(|line| {
            let (ends, columns) = line.split_once(" : ").unwrap();
            let ends: Vec<&str> = ends.split_whitespace().collect();
            let columns = columns.trim_matches('"').split(", ");
            let columns: BTreeSet<&str> = columns.collect();
            let columns: Vec<&str> = columns.into_iter().collect();
            [ends[0], ends[2], &columns.join(", ")]
                .map(str::to_owned)
                .to_vec()
        })
        .collect();
    let sqlite = &databases()[0];
    let store = sqlite.open().await;
    assert!(matches!(store, Store::Sqlite(_)));
    let sql = "SELECT f.\"table\", m.name, group_concat(f.\"from\", ', ' ORDER BY f.\"from\") \
                 FROM sqlite_master m, pragma_foreign_key_list(m.name) f \
                WHERE m.type = 'table' GROUP BY m.name, f.id";
    let keys: BTreeSet<Vec<String>> = rows(&store, sql).await.into_iter().collect();
    assert_eq!(drawn, keys);
}
