//! The migrations to this version's schema.

use sqlx::migrate::{self, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// A step from one schema version to the next.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// The schema version after it.
    pub version: i64,
    /// Its name, the same as in the name of its file.
    pub description: &'static str,
    /// Its statements, with comments.
    pub sql: &'static str,
}

pub const SQLITE: &[Migration] = &[Migration {
    version: 1,
    description: "schema",
    sql: include_str!("../../../../migrations/sqlite/0001_schema.sql"),
}];

pub const POSTGRES: &[Migration] = &[Migration {
    version: 1,
    description: "schema",
    sql: include_str!("../../../../migrations/postgres/0001_schema.sql"),
}];

/// Returns sqlx's form of migrations.
pub(crate) fn migrator(migrations: impl Iterator<Item = Migration>) -> Migrator {
    Migrator::with_migrations(migrations.map(to_sqlx).collect())
}

fn to_sqlx(migration: Migration) -> migrate::Migration {
    // Comments are excluded from the checksum, so that they can be corrected later.
    let statements = AssertSqlSafe(without_comments(migration.sql)).into_sql_str();
    let mut converted = migrate::Migration::new(
        migration.version,
        migration.description.into(),
        MigrationType::Simple,
        statements,
        false,
    );
    converted.sql = SqlStr::from_static(migration.sql);
    converted
}

fn without_comments(sql: &str) -> String {
    let lines = sql.lines().map(|line| match line.split_once("--") {
        Some((statement, _)) => statement.trim(),
        None => line.trim(),
    });
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_is_listed_in_order() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations");
        for (database, listed) in [("sqlite", SQLITE), ("postgres", POSTGRES)] {
            let mut files: Vec<String> = std::fs::read_dir(format!("{folder}/{database}"))
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
            files.sort();
            let listed = listed.iter();
            let listed = listed.map(|file| format!("{:04}_{}.sql", file.version, file.description));
            assert!(files.into_iter().eq(listed), "{database}");
        }
    }

    #[test]
    fn the_checksum_ignores_comments() {
        let checksum = |sql| {
            let (version, description) = (1, "x");
            to_sqlx(Migration {
                version,
                description,
                sql,
            })
            .checksum
        };
        assert_eq!(
            checksum("-- A table.\nCREATE TABLE a (\n    b TEXT -- c\n);"),
            checksum("CREATE TABLE a (\n  b TEXT\n);\n")
        );
        assert_ne!(
            checksum("CREATE TABLE a (b TEXT);"),
            checksum("CREATE TABLE a (b BLOB);")
        );
    }
}
