//! Watches a database file for writes by other connections.

use std::time::Duration;

use sqlx::Sqlite;
use sqlx::pool::PoolConnection;

use crate::Result;
use crate::dialect::watching;
use crate::sql::SqlStore;

/// Poll interval of a watch.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Detects writes by other connections, using a SQLite counter.
pub struct FileWatch {
    // SQLite compares the counter per connection, so the watch keeps one connection.
    connection: PoolConnection<Sqlite>,
    version: i64,
    store: SqlStore<Sqlite>,
}

impl FileWatch {
    /// Begins a watch, with a connection of its own.
    pub(crate) async fn new(store: &SqlStore<Sqlite>) -> Result<Self> {
        let mut connection = store.pool.acquire().await.map_err(watching)?;
        let version = data_version(&mut connection).await?;
        Ok(Self {
            connection,
            version,
            store: store.clone(),
        })
    }

    /// Returns at the next write by another connection.
    #[expect(clippy::disallowed_methods, reason = "other processes take real time")]
    pub(crate) async fn changed(&mut self) -> Result<()> {
        loop {
            self.store.check_same_file()?;
            let version = data_version(&mut self.connection).await?;
            if version != self.version {
                self.version = version;
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

async fn data_version(connection: &mut PoolConnection<Sqlite>) -> Result<i64> {
    sqlx::query_scalar("PRAGMA data_version")
        .fetch_one(&mut **connection)
        .await
        .map_err(watching)
}
