//! Opens and closes databases: checks that a database is topicmill's own and has the schema of this program, and creates
//! or migrates it if the caller allows that.

use std::cmp::Ordering;
use std::sync::Arc;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection};

use super::{ErrorContext, SqlStore};
use crate::dialect::{Dialect, Migration, migrator_from};
use crate::lock_wait::repeat;
use crate::{Access, Result, StoreError};
use topicmill_core::redact_url;

/// The tables, each after the tables that it refers to.
pub const TABLES: [&str; 24] = [
    "scheduled_runs",
    "runs",
    "things",
    "sightings",
    "watermarks",
    "gaps",
    "topic_keywords",
    "imports",
    "tombstones",
    "quotas",
    "models",
    "label_sets",
    "labels",
    "current_target",
    "hypotheses",
    "pair_logits",
    "text_vectors",
    "label_vectors",
    "classifications",
    "packed_scores",
    "gold",
    "cross_fitted",
    "leases",
    "backlog",
];

/// Other relations in the schema: views, and internal tables.
const OTHER_RELATIONS: &str = "posts comments labeled_things labeled_comments labeled_posts uncertain_posts post_scores \
                               topic_agreement topic_daily labeled_posts_all post_scores_all label_scores meta \
                               _sqlx_migrations";

impl<DB: Dialect> SqlStore<DB> {
    pub(crate) async fn open(url: &str, access: Access, more: &[Migration]) -> Result<Self> {
        Self::try_open(url, access, more)
            .await
            .map_err(|error| match error {
                StoreError::Damaged { message, .. } => StoreError::Damaged {
                    what: format!("the database `{}`", redact_url(url)),
                    message,
                },
                error => error,
            })
    }

    async fn try_open(url: &str, access: Access, more: &[Migration]) -> Result<Self> {
        let migrator = migrator_from(DB::MIGRATIONS.iter().chain(more).copied());
        // Read before the file is opened, so that a file that is replaced in between is noticed.
        let options = url.parse::<<DB::Connection as Connection>::Options>().ok();
        let file = options.and_then(|options| DB::file_id(&options));
        let pool = DB::open(url, access).await?;
        let store = Self {
            // A new file exists only now.
            file: file.or_else(|| DB::file_id(&pool.connect_options())),
            pool,
            url: redact_url(url),
            uses_caller_time: false,
            reads_titles: false,
            waits: Arc::default(),
        };
        if access != Access::AnySchema {
            store.prepare_schema(&migrator, access).await?;
        }
        Ok(store)
    }

    /// Checks the schema. With [`Access::Create`], creates it or migrates it to the latest version.
    async fn prepare_schema(&self, migrator: &Migrator, access: Access) -> Result<()> {
        let found = match repeat!(self, self.schema()) {
            // A user who may read only the views has all the privileges that queries need.
            Err(StoreError::Denied(_)) if access == Access::ReadOnly => return Ok(()),
            found => found?,
        };
        if found == 0
            && let Some(has_place) = DB::HAS_CURRENT_SCHEMA
            && self.number(has_place, "check the search path").await? == 0
        {
            return Err(StoreError::NoSchema(self.url.clone()));
        }
        if found > 0 && self.is_earlier_build(migrator).await? {
            return Err(StoreError::EarlierBuild(self.url.clone()));
        }
        let versions = migrator.iter().map(|migration| migration.version);
        let known = versions.max().unwrap_or(0);
        if found >= known || access != Access::Create {
            return self.check_schema(found, known);
        }
        if found > 0 {
            tracing::warn!(
                from = found, to = known, url = %self.url,
                "upgrading the database to the schema of this version; earlier versions can no longer use it"
            );
        } else {
            if let Some(is_utf8) = DB::IS_UTF8
                && self
                    .number(is_utf8, "read the encoding of the database")
                    .await?
                    == 0
            {
                return Err(StoreError::Encoding(self.url.clone()));
            }
            self.check_names_free().await?;
        }
        self.migrate(migrator).await?;
        if found > 0 {
            tracing::warn!(schema = known, "upgraded the database");
        }
        Ok(())
    }

    /// Checks that the database has the latest schema.
    fn check_schema(&self, found: i64, known: i64) -> Result<()> {
        match found.cmp(&known) {
            Ordering::Equal => Ok(()),
            Ordering::Less if found == 0 => Err(StoreError::NoTables(self.url.clone())),
            Ordering::Less => Err(StoreError::NotMigrated(self.url.clone())),
            Ordering::Greater => Err(StoreError::Newer {
                url: self.url.clone(),
                found,
                known,
            }),
        }
    }

    /// Checks that no relation of another program has the name of one of topicmill's relations.
    async fn check_names_free(&self) -> Result<()> {
        let names = TABLES.into_iter().chain(OTHER_RELATIONS.split(' '));
        let ours: Vec<String> = names.map(|name| format!("'{name}'")).collect();
        let ours = ours.join(", ");
        let first = format!("{} IN ({ours}) ORDER BY 1 LIMIT 1", DB::RELATIONS_NAMED);
        let taken = sqlx::query_scalar::<DB, String>(AssertSqlSafe(first))
            .fetch_optional(&self.pool)
            .await
            .context("check the names of relations")?;
        let Some(name) = taken else {
            return Ok(());
        };
        // Another process may have created topicmill's relations in between.
        if self.schema().await? > 0 {
            return Ok(());
        }
        Err(StoreError::NameTaken {
            url: self.url.clone(),
            name,
            advice: DB::NAME_TAKEN_ADVICE,
        })
    }

    /// Returns the latest schema version of this program.
    pub(crate) fn latest() -> i64 {
        DB::MIGRATIONS
            .last()
            .map_or(0, |migration| migration.version)
    }

    /// Returns true if the first migration of the database differs from this program's.
    async fn is_earlier_build(&self, migrator: &Migrator) -> Result<bool> {
        let first = migrator.iter().next().expect("a migration exists");
        sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM _sqlx_migrations WHERE version = 1 AND checksum <> $1",
        )
        .bind(&first.checksum[..])
        .fetch_one(&self.pool)
        .await
        .map(|rows| rows > 0)
        .context("read the schema version")
    }

    /// Returns the schema version of the database; 0 if it has none.
    pub(crate) async fn schema(&self) -> Result<i64> {
        const WHAT: &str = "read the schema version";
        if self.number(DB::HAS_SCHEMA, WHAT).await? == 0 {
            return Ok(0);
        }
        let latest = "SELECT COALESCE(MAX(version), 0) FROM _sqlx_migrations WHERE success";
        self.number(latest, WHAT).await
    }

    async fn migrate(&self, migrator: &Migrator) -> Result<()> {
        repeat!(self, async {
            match DB::migrate(&self.pool, migrator).await {
                Err(MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _)) => {
                    Err(source).context("migrate the database")
                }
                ended => ended.map_err(StoreError::Migrate),
            }
        })
    }

    pub async fn check_usable(&self) -> Result<()> {
        match self.schema().await {
            // A user who may read only the views has all the privileges that the pages need.
            Err(StoreError::Denied(_)) => Ok(()),
            found => self.check_schema(found?, Self::latest()),
        }
    }

    /// Returns who holds the lock that a statement of this process is waiting for, if that is known.
    pub(crate) async fn lock_holder(&self) -> Option<String> {
        DB::lock_holder(&self.pool, None).await
    }

    pub(crate) async fn close(&self) -> Result<()> {
        self.pool.close().await;
        self.check_same_file()
    }

    /// Checks that the database's name still refers to the opened file: SQLite keeps writing to a file that was moved
    /// or deleted.
    pub(crate) fn check_same_file(&self) -> Result<()> {
        // A database in memory has no file.
        if self.file.is_none() || DB::file_id(&self.pool.connect_options()) == self.file {
            return Ok(());
        }
        Err(StoreError::Replaced(self.url.clone()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sqlx::Sqlite;

    use super::*;

    #[tokio::test]
    async fn the_lists_of_relations_match_the_schema() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let store = SqlStore::<Sqlite>::open(&url, Access::Create, &[])
            .await
            .unwrap();
        let found: Vec<String> = sqlx::query_scalar(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~'",
        )
        .fetch_all(&store.pool)
        .await
        .unwrap();
        let known = TABLES.into_iter().chain(OTHER_RELATIONS.split(' '));
        let known: BTreeSet<String> = known.map(str::to_owned).collect();
        assert_eq!(BTreeSet::from_iter(found), known);
    }
}
