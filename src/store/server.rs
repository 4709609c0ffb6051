//! What a restore must know of the server's database that it writes to.

use sqlx::Postgres;

use super::dialect::grants;
use super::failure::Doing;
use super::sql::SqlStore;
use super::{Result, Store};

/// A database on a server, as a restore finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerState {
    /// The server's major version.
    pub version: u32,
    /// The schema that tables are in.
    pub schema: String,
    /// The names of the tables in it.
    pub tables: Vec<String>,
    /// The names of the views in it.
    pub views: Vec<String>,
    /// The functions of topicmill's in it, with their arguments.
    pub functions: Vec<String>,
    /// Statements that let others than the owner use what is there.
    pub grants: Vec<String>,
    /// The latest schema version that this program has.
    pub known: i64,
}

impl Store {
    /// What a restore must know of a server's database; `None` where the database is a file.
    ///
    /// # Errors
    /// See [`super::StoreError`].
    pub async fn server_state(&self) -> Result<Option<ServerState>> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Postgres(store) => store.server_state().await.map(Some),
        }
    }

    /// Whether other processes of topicmill have this database open on its server; false for a file.
    ///
    /// # Errors
    /// See [`super::StoreError`].
    pub async fn others_are_here(&self) -> Result<bool> {
        match self {
            Self::Sqlite(_) => Ok(false),
            Self::Postgres(store) => Ok(store.sessions().await? > i64::from(store.pool.size())),
        }
    }

    /// The schema version of the database, and the latest that this program has.
    ///
    /// # Errors
    /// See [`super::StoreError`].
    pub async fn schema_versions(&self) -> Result<(i64, i64)> {
        Ok(match self {
            Self::Sqlite(store) => (store.schema().await?, SqlStore::<sqlx::Sqlite>::latest()),
            Self::Postgres(store) => (store.schema().await?, SqlStore::<Postgres>::latest()),
        })
    }

    /// Whether one of some tables has a row.
    ///
    /// # Errors
    /// See [`super::StoreError`].
    pub async fn any_rows(&self, tables: &[String]) -> Result<bool> {
        for table in tables {
            let name = table.replace('"', "\"\"");
            let sql = format!(
                "SELECT CAST(COUNT(*) AS BIGINT) FROM (SELECT 1 FROM \"{name}\" LIMIT 1) one"
            );
            let found = self.query(&sql).await?;
            if found
                .rows
                .iter()
                .flatten()
                .any(|cell| cell.as_i64() != Some(0))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl SqlStore<Postgres> {
    async fn server_version(&self) -> Result<u32> {
        let number: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::int")
            .fetch_one(&self.pool)
            .await
            .doing("ask for the server's version")?;
        Ok(number.unsigned_abs() / 10_000)
    }

    /// Sessions of topicmill in this database.
    async fn sessions(&self) -> Result<i64> {
        sqlx::query_scalar(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'topicmill'",
        )
        .fetch_one(&self.pool)
        .await
        .doing("look who else uses the database")
    }

    async fn server_state(&self) -> Result<ServerState> {
        const WHAT: &str = "look what the database holds";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let schema: Option<String> = sqlx::query_scalar("SELECT current_schema()::text")
            .fetch_one(&mut *connection)
            .await
            .doing(WHAT)?;
        let relations: Vec<(String, bool)> = sqlx::query_as(
            "SELECT c.relname::text, c.relkind = 'v' FROM pg_class c \
              WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind IN ('r', 'p', 'v') ORDER BY 1",
        )
        .fetch_all(&mut *connection)
        .await
        .doing(WHAT)?;
        let functions: Vec<String> = sqlx::query_scalar(
            "SELECT format('%I.%I(%s)', current_schema(), proname, pg_get_function_identity_arguments(oid)) FROM pg_proc \
              WHERE pronamespace = quote_ident(current_schema())::regnamespace AND proname LIKE 'topicmill\\_%' AND prokind = 'f'",
        )
        .fetch_all(&mut *connection)
        .await
        .doing(WHAT)?;
        let grants = grants(&mut connection).await.doing(WHAT)?;
        let of = |views: bool| {
            let of_kind = relations
                .iter()
                .filter(move |(_, is_view)| *is_view == views);
            of_kind.map(|(name, _)| name.clone()).collect()
        };
        Ok(ServerState {
            version: self.server_version().await?,
            schema: schema.unwrap_or_else(|| "public".to_owned()),
            tables: of(false),
            views: of(true),
            functions,
            grants: grants
                .into_iter()
                .map(|(statement, _, _)| statement)
                .collect(),
            known: Self::latest(),
        })
    }
}
