//! The steps from an empty database to the schema of this version, as `build.rs` found them in `migrations/`.

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// Version, description, and statements.
type File = (i64, &'static str, &'static str);

include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

pub(super) fn of(files: &[File]) -> Migrator {
    let migration = |(version, description, sql): &File| {
        let (description, sql) = ((*description).into(), SqlStr::from_static(sql));
        Migration::new(*version, description, MigrationType::Simple, sql, false)
    };
    Migrator::with_migrations(files.iter().map(migration).collect())
}
