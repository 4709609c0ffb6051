//! The migrations to this version's schema.

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr};

/// Version, description and SQL of a migration.
pub type File = (i64, &'static str, &'static str);

pub const SQLITE: &[File] = &[(
    1,
    "schema",
    include_str!("../../../../migrations/sqlite/0001_schema.sql"),
)];

pub const POSTGRES: &[File] = &[(
    1,
    "schema",
    include_str!("../../../../migrations/postgres/0001_schema.sql"),
)];

pub(crate) fn migrator(files: impl Iterator<Item = File>) -> Migrator {
    let migration = |(version, description, sql): File| {
        let statements = AssertSqlSafe(without_comments(sql)).into_sql_str();
        let kind = MigrationType::Simple;
        let mut migration = Migration::new(version, description.into(), kind, statements, false);
        // Comments are excluded from the checksum, so that they can be corrected later.
        migration.sql = SqlStr::from_static(sql);
        migration
    };
    Migrator::with_migrations(files.map(migration).collect())
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
            let listed = listed.map(|(n, name, _)| format!("{n:04}_{name}.sql"));
            assert!(files.into_iter().eq(listed), "{database}");
        }
    }

    #[test]
    fn the_checksum_ignores_comments() {
        let checksum = |sql| {
            migrator([(1, "x", sql)].into_iter())
                .iter()
                .next()
                .unwrap()
                .checksum
                .clone()
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
