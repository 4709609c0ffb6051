//! Another slug for a topic, everywhere at once.

use sqlx::{AssertSqlSafe, Transaction};

use super::super::dialect::Dialect;
use super::super::{Renamed, Result, StoreError};
use super::{Doing, SqlStore};

const WHAT: &str = "rename the topic";
/// Under this key in `meta` stands another value after each renaming. No run writes one down, so nothing else tells a
/// reader of all posts that their topics are called otherwise.
pub(super) const RENAMED: &str = "topic_renamed";

/// Tables whose rows are of a topic.
const TOPICS: [&str; 4] = ["posts", "sightings", "watermarks", "gaps"];

impl<DB: Dialect> SqlStore<DB> {
    /// `versions` are the keys of the label sets that have the slug, each with its version under the new one.
    pub async fn rename_topic(
        &self,
        from: &str,
        to: &str,
        versions: &[(i64, String)],
    ) -> Result<Renamed> {
        let mut tx = self.begin().await?;
        for table in TOPICS {
            if Self::has(
                &mut tx,
                &format!("SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE topic = $1 LIMIT 1) o"),
                to,
            )
            .await?
            {
                return Err(StoreError::TopicIsThere(to.to_owned()));
            }
        }
        let mut renamed = Renamed::default();
        for (id, version) in versions {
            let clash = "SELECT COUNT(*) FROM label_sets WHERE hash = $1";
            if Self::has(&mut tx, clash, version).await? {
                return Err(StoreError::VersionIsThere(version.clone()));
            }
            sqlx::query::<DB>("UPDATE label_sets SET hash = $1 WHERE id = $2")
                .bind(version.as_str())
                .bind(*id)
                .execute(&mut *tx)
                .await
                .doing(WHAT)?;
            let of_set = [
                "UPDATE labels SET slug = $1 WHERE slug = $2 AND label_set_id = $3",
                "UPDATE gold SET label = $1 WHERE label = $2 AND label_set_id = $3",
                "UPDATE classifications SET label = $1 WHERE label = $2 AND model_id IN (SELECT id FROM models) \
                    AND label_set_id = $3",
            ];
            for (place, sql) in of_set.into_iter().enumerate() {
                let update = sqlx::query::<DB>(sql).bind(to).bind(from).bind(*id);
                let changed = DB::rows_affected(&update.execute(&mut *tx).await.doing(WHAT)?);
                match place {
                    0 => renamed.label_sets += changed,
                    1 => renamed.gold += changed,
                    _ => renamed.labels += changed,
                }
            }
        }
        renamed.gold += Self::update(
            &mut tx,
            "UPDATE gold SET label = $1 WHERE label = $2 AND label_set_id IS NULL",
            from,
            to,
        )
        .await?;
        for table in TOPICS {
            let sql = format!("UPDATE {table} SET topic = $1 WHERE topic = $2");
            let changed = Self::update(&mut tx, &sql, from, to).await?;
            match table {
                "posts" => renamed.posts = changed,
                "sightings" => renamed.sightings = changed,
                _ => renamed.watermarks += changed,
            }
        }
        if renamed == Renamed::default() {
            return Err(StoreError::NoTopic(from.to_owned()));
        }
        Self::note_anew(&mut tx, RENAMED).await.doing(WHAT)?;
        tx.commit().await.doing(WHAT)?;
        Ok(renamed)
    }

    async fn has(tx: &mut Transaction<'static, DB>, sql: &str, value: &str) -> Result<bool> {
        sqlx::query_scalar::<DB, i64>(AssertSqlSafe(sql.to_owned()))
            .bind(value)
            .fetch_one(&mut **tx)
            .await
            .map(|rows| rows > 0)
            .doing(WHAT)
    }

    async fn update(
        tx: &mut Transaction<'static, DB>,
        sql: &str,
        from: &str,
        to: &str,
    ) -> Result<u64> {
        sqlx::query::<DB>(AssertSqlSafe(sql.to_owned()))
            .bind(to)
            .bind(from)
            .execute(&mut **tx)
            .await
            .map(|done| DB::rows_affected(&done))
            .doing(WHAT)
    }
}
