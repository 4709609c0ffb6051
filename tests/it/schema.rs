//! Tests that the comments in the schema describe both databases: every table, view and column, its type and
//! nullability. packaging/datasette.yaml is generated from these comments. Also tests that SQLite reads the views from
//! their indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use topicmill_store::Store;
use topicmill_store::analysis::schema::relations;

use crate::support::engine::repository;
use crate::support::postgres::databases;
use crate::support::program::Program;

/// Returns the rows of a query as strings.
async fn rows(store: &Store, sql: &str) -> Vec<Vec<String>> {
    let rows = store.query(sql).await.unwrap().rows;
    let cell = |cell: &serde_json::Value| cell.as_str().map_or(cell.to_string(), str::to_owned);
    rows.iter()
        .map(|row| row.iter().map(cell).collect())
        .collect()
}

/// Returns table, column, declared type and nullability; the nullability of view columns is unknown.
async fn stored(store: &Store) -> Vec<Vec<String>> {
    let sql = match store {
        Store::Sqlite(_) => {
            "SELECT m.name, c.name, upper(c.type), \
                    CASE WHEN m.type = 'view' THEN '' WHEN c.\"notnull\" OR c.pk > 0 THEN 'NO' ELSE 'YES' END \
               FROM sqlite_master m, pragma_table_xinfo(m.name) c \
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

/// Returns the declared types that a displayed type stands for.
fn declared(kind: &str, store: &Store) -> &'static [&'static str] {
    match (kind, store) {
        ("number", _) => &["DOUBLE PRECISION", "REAL"],
        ("boolean", _) => &["BOOLEAN"],
        ("text", _) | ("time" | "day" | "JSON" | "numbers", Store::Sqlite(_)) => &["TEXT"],
        ("integer", Store::Sqlite(_)) => &["INTEGER", "BIGINT"],
        ("bytes", Store::Sqlite(_)) => &["BLOB"],
        ("integer", Store::Postgres(_)) => &["BIGINT"],
        ("time", Store::Postgres(_)) => &["TIMESTAMP WITH TIME ZONE"],
        ("day", Store::Postgres(_)) => &["DATE"],
        ("bytes", Store::Postgres(_)) => &["BYTEA"],
        ("JSON", Store::Postgres(_)) => &["JSONB"],
        ("numbers", Store::Postgres(_)) => &["ARRAY"],
        _ => &[],
    }
}

#[tokio::test]
async fn schema_comments_cover_every_column_of_both_databases() {
    let mut written = BTreeMap::new();
    for relation in relations() {
        assert!(!relation.meaning.is_empty(), "{}", relation.name);
        for column in relation.columns {
            let key = (relation.name.clone(), column.name);
            let twice = written.insert(key, (column.kind, column.may_be_null));
            assert!(twice.is_none(), "{twice:?}");
        }
    }
    for database in databases() {
        let store = database.open().await;
        let mut missing: BTreeSet<_> = written.keys().collect();
        for row in stored(&store).await {
            let [table, column, kind, null] = &row[..] else {
                panic!("{row:?}");
            };
            let at = format!("{table}.{column} ({})", database.url);
            let key = (table.clone(), column.clone());
            let (word, may_be_null) = written
                .get(&key)
                .unwrap_or_else(|| panic!("{at}: no comment"));
            missing.remove(&key);
            let types = declared(word, &store);
            // SQLite has no types for expressions in a view.
            let known = matches!(store, Store::Postgres(_)) || !null.is_empty();
            assert!(
                !known || types.contains(&kind.as_str()),
                "{at}: {kind} is not {word}"
            );
            assert!(
                null.is_empty() || (null == "YES") == *may_be_null,
                "{at}: nullability"
            );
        }
        assert!(missing.is_empty(), "{}: {missing:?}", database.url);
    }
}

/// Tables that Datasette lists. It hides the others, which are internal to topicmill or its views.
const LISTED: [&str; 5] = ["gold", "runs", "models", "label_sets", "labels"];

/// Returns the descriptions of views, tables and columns for Datasette.
fn datasette() -> String {
    let mut yaml = "# Descriptions of views, tables and columns for Datasette; docs/export.md says how to use them.\n\
                    # `make schema` generates this file from the comments in migrations/postgres.\n\
                    databases:\n  topicmill: # the name of the database file, without .db\n    tables:\n"
        .to_owned();
    // A JSON string is also a YAML string.
    let text = |comment: &str| {
        let mut parts = comment.split(" (docs/");
        let first = parts.next().unwrap_or_default().to_owned();
        let rest = parts.map(|part| part.split_once(')').unwrap().1);
        serde_json::Value::from(first + rest.collect::<String>().as_str())
    };
    for one in relations() {
        writeln!(
            yaml,
            "      {}:\n        description: {}",
            one.name,
            text(&one.meaning)
        )
        .unwrap();
        if one.kind == "table" && !LISTED.contains(&one.name.as_str()) {
            yaml += "        hidden: true\n";
        }
        if one.name == "labeled_posts" {
            yaml += "        facets: [outcome, topic, subreddit]\n        sort_desc: created_at\n";
        }
        yaml += "        columns:\n";
        for column in &one.columns {
            writeln!(yaml, "          {}: {}", column.name, text(&column.meaning)).unwrap();
        }
    }
    yaml + "      _sqlx_migrations:\n        hidden: true\n      sqlite_sequence:\n        hidden: true\n"
}

#[test]
fn the_datasette_file_matches_the_comments() {
    let path = repository("packaging/datasette.yaml");
    let made = datasette();
    if std::env::var_os("TOPICMILL_WRITE_SCHEMA").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let file = std::fs::read_to_string(&path).unwrap();
    assert_eq!(file, made, "run `make schema`");
}

#[test]
fn sql_shows_the_schema_without_a_database() {
    let program = Program::new();
    let show = "--database sqlite:no/such/folder/x.db sql --schema";
    let shown = program.ok(show).stdout;
    for name in [
        "labeled_posts_all",
        "post_scores_all",
        "sightings",
        "view",
        "table",
    ] {
        assert!(shown.contains(name), "{name}: {shown}");
    }
    let all = program.json(show);
    assert_eq!(all.as_array().unwrap().len(), relations().len());
    let posts = program.json(&format!("{show} Posts"));
    let column = |name: &str| {
        let mut columns = posts["columns"].as_array().unwrap().iter();
        columns.find(|column| column["name"] == name)
    };
    let score = column("reddit_score").unwrap();
    assert_eq!(score["type"], "integer");
    assert_eq!(score["may_be_null"], true);
    assert_eq!(column("score"), None);
    let unknown = program.run(&format!("{show} label_post"));
    unknown.expect_exit(2, "--schema");
    assert_eq!(unknown.stdout, "");
    program.run("sql --schema posts --list").expect_code(2);
}

#[test]
fn views_are_read_from_their_indexes_on_sqlite() {
    let program = Program::new();
    program.ok("db create");
    let plan = |select: &str| {
        let plan = program.rows(&format!("EXPLAIN QUERY PLAN {select}"));
        plan.to_string()
    };
    // The closest calls are read in order from their index, without a sort.
    let closest = plan("SELECT * FROM uncertain_posts LIMIT 20");
    assert!(
        closest.contains("INDEX classifications_uncertain"),
        "{closest}"
    );
    assert!(!closest.contains("TEMP B-TREE"), "{closest}");
    // The index on topics is used to count posts, but not to list them by time.
    let counted = plan("SELECT * FROM topic_agreement");
    let index = "things USING COVERING INDEX things_counted";
    assert!(counted.contains(index), "{counted}");
    let listed =
        plan("SELECT title FROM posts WHERE topic = 'food' ORDER BY created_at DESC LIMIT 20");
    assert!(listed.contains("INDEX things_created_at"), "{listed}");
    // Outcomes are counted without reading a post, and days without reading a label.
    let outcomes = plan("SELECT outcome, COUNT(*) FROM labeled_posts GROUP BY outcome");
    assert!(
        outcomes.contains("COVERING INDEX things_current"),
        "{outcomes}"
    );
    let days = plan("SELECT * FROM topic_daily");
    let index = "COVERING INDEX classifications_counted";
    assert!(days.contains(index), "{days}");
    // A join of posts and labels does not use the index on texts.
    let joined = plan(
        "SELECT COUNT(*) FROM things p JOIN classifications c ON c.model_id = 1 AND c.label_set_id = 1 \
            AND c.fullname = p.fullname AND c.text_hash = p.text_hash",
    );
    assert!(!joined.contains("classifications_text"), "{joined}");
}
