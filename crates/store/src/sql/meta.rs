//! Stores and reads values of `meta`: facts about the database, by key.

use sqlx::AssertSqlSafe;

use super::{ErrorContext, SqlStore, Tx};
use crate::dialect::Dialect;
use crate::maintenance::REWRITE_DUE;
use crate::{Result, StoreError};

/// Stores the value `$2` under the key `$1`.
pub(super) const SET_META: &str = "INSERT INTO meta (key, value) VALUES ($1, $2) \
     ON CONFLICT (key) DO UPDATE SET value = excluded.value";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn set_meta(&self, key: &str, value: &str) -> Result<()> {
        sqlx::query::<DB>(SET_META)
            .bind(key)
            .bind(value)
            .execute(&self.pool)
            .await
            .map(drop)
            .context("store a value")
    }

    /// Stores a new, unique value under a key in `meta`.
    pub(super) async fn set_unique_meta(tx: &mut Tx<DB>, key: &str) -> Result<(), sqlx::Error> {
        let note = format!(
            "INSERT INTO meta (key, value) VALUES ($1, {}) \
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            DB::TOKEN
        );
        sqlx::query::<DB>(AssertSqlSafe(note))
            .bind(key)
            .execute(&mut **tx)
            .await
            .map(drop)
    }

    pub async fn is_rewrite_due(&self) -> Result<bool> {
        self.meta(REWRITE_DUE).await.map(|due| due.is_some())
    }

    pub async fn meta(&self, key: &str) -> Result<Option<String>> {
        sqlx::query_scalar::<DB, _>("SELECT value FROM meta WHERE key = $1")
            .bind(key)
            .fetch_optional(&self.pool)
            .await
            .context("read a value")
    }

    pub async fn author_key(&self) -> Result<String> {
        self.meta("author_key")
            .await?
            // A row policy of roles.sql hides the key from users who may not store posts.
            .ok_or_else(|| {
                StoreError::Denied(
                    "permission denied for the key of author hashes, which purging by author needs"
                        .to_owned(),
                )
            })
    }
}
