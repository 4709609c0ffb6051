//! Drops label sets and models with everything computed under them.
//!
//! Rows of large tables are deleted in parts, each in its own transaction, so that others can write in between. The
//! label set's or model's own row is deleted last, so that the same command can continue after an interruption.

use sqlx::{AssertSqlSafe, QueryBuilder};

use super::{ErrorContext, SqlStore, Tx, at, push_list};
use crate::dialect::Dialect;
use crate::{Dependents, DropTarget, HypothesisId, ModelId, Result, StoreError};
use topicmill_core::Timestamp;

/// Labels deleted per transaction.
const BATCH: i64 = 10_000;
const DROP_LOGITS: &str = "drop logits";

impl DropTarget {
    /// Returns the column that refers to the label set or model.
    fn column(self) -> &'static str {
        match self {
            Self::LabelSet(_) => "label_set_id",
            Self::Model(_) => "model_id",
        }
    }

    fn key(self) -> i64 {
        match self {
            Self::LabelSet(id) => id.0,
            Self::Model(id) => id.0,
        }
    }

    /// Returns the condition for its `classifications` rows. The condition starts with the model, as the primary key
    /// does.
    fn labels(self) -> &'static str {
        match self {
            Self::LabelSet(_) => "model_id IN (SELECT id FROM models) AND label_set_id = $1",
            Self::Model(_) => "model_id = $1",
        }
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn dependents(&self, what: DropTarget, now: Timestamp) -> Result<Dependents> {
        const WHAT: &str = "count dependent rows";
        let column = what.column();
        let now = self.database_time(&self.pool, at(now)).await?;
        let mut tx = self.begin().await?;
        // Deletes nothing: checks the privilege before some of the rows are gone.
        sqlx::query::<DB>("DELETE FROM label_sets WHERE 1 = 0")
            .execute(&mut *tx)
            .await
            .context(WHAT)
            .map_err(|error| match error {
                StoreError::Denied(_) => StoreError::Denied(
                    "only the owner of the tables may drop labels and models".to_owned(),
                ),
                error => error,
            })?;
        let table = match what {
            DropTarget::LabelSet(_) => "gold",
            DropTarget::Model(_) => "text_vectors",
        };
        let counts = format!(
            "SELECT (SELECT COUNT(*) FROM classifications WHERE {labels}), \
                    (SELECT COUNT(*) FROM current_target WHERE {column} = $1), \
                    (SELECT COUNT(*) FROM {table} WHERE {column} = $1), \
                    (SELECT COUNT(*) FROM backlog b JOIN leases l ON l.id = b.lease_id \
                      WHERE b.{column} = $1 AND l.expires_at > $2)",
            labels = what.labels()
        );
        let (labels, current, others, claimed): (i64, i64, i64, i64) =
            sqlx::query_as::<DB, _>(AssertSqlSafe(counts))
                .bind(what.key())
                .bind(now)
                .fetch_one(&mut *tx)
                .await
                .context(WHAT)?;
        let (gold, vectors) = match what {
            DropTarget::LabelSet(_) => (others, 0),
            DropTarget::Model(_) => (0, others),
        };
        Ok(Dependents {
            labels: labels.unsigned_abs(),
            is_current: current > 0,
            gold: gold.unsigned_abs(),
            vectors: vectors.unsigned_abs(),
            claimed: claimed.unsigned_abs(),
        })
    }

    pub async fn drop_labels(&self, what: DropTarget) -> Result<u64> {
        const WHAT: &str = "drop labels";
        let (column, key) = (what.column(), what.key());
        let mut tx = self.begin().await?;
        // Without its lease, a worker that has claimed posts under the dropped label set or model cannot write labels.
        sqlx::query::<DB>(AssertSqlSafe(format!(
            "DELETE FROM leases WHERE id IN (SELECT lease_id FROM backlog WHERE {column} = $1 AND lease_id IS NOT NULL)"
        )))
        .bind(key)
        .execute(&mut *tx)
        .await
        .context(WHAT)?;
        // Without rows in the backlog, no worker can claim posts under the dropped label set or model.
        let delete = format!("DELETE FROM backlog WHERE {column} = $1");
        let delete = sqlx::query::<DB>(AssertSqlSafe(delete)).bind(key);
        delete.execute(&mut *tx).await.context(WHAT)?;
        let deleted = sqlx::query::<DB>(AssertSqlSafe(format!(
            "DELETE FROM classifications WHERE (model_id, label_set_id, fullname) IN ( \
               SELECT model_id, label_set_id, fullname FROM classifications WHERE {} LIMIT {BATCH})",
            what.labels()
        )))
        .bind(key)
        .execute(&mut *tx)
        .await
        .map(|done| DB::rows_affected(&done))
        .context(WHAT)?;
        tx.commit().await.context(WHAT)?;
        Ok(deleted)
    }

    pub async fn drop_logits(
        &self,
        model: Option<ModelId>,
        hypotheses: &[HypothesisId],
        first: u8,
    ) -> Result<u64> {
        let mut tx = self.begin().await?;
        let mut deleted = 0;
        if let Some(model) = model {
            for table in ["pair_logits", "text_vectors"] {
                let mut delete =
                    QueryBuilder::<DB>::new(format!("DELETE FROM {table} WHERE model_id = "));
                delete.push_bind(model);
                deleted += Self::delete_texts_of_byte(&mut tx, delete, first).await?;
            }
        } else {
            let mut delete = QueryBuilder::<DB>::new(
                "DELETE FROM pair_logits WHERE model_id IN (SELECT id FROM models) AND hypothesis_id IN (",
            );
            push_list(&mut delete, hypotheses.iter().copied());
            deleted += Self::delete_texts_of_byte(&mut tx, delete, first).await?;
        }
        tx.commit().await.context(DROP_LOGITS)?;
        Ok(deleted)
    }

    /// Completes and runs a DELETE: only for the texts whose hash begins with the byte `first`. Hashes are uniformly
    /// distributed over their first byte.
    async fn delete_texts_of_byte(
        tx: &mut Tx<DB>,
        mut delete: QueryBuilder<DB>,
        first: u8,
    ) -> Result<u64> {
        delete.push(" AND text_hash >= ").push_bind(&[first][..]);
        if let Some(next) = first.checked_add(1) {
            delete.push(" AND text_hash < ").push_bind(&[next][..]);
        }
        let done = delete.build().execute(&mut **tx).await;
        done.map(|done| DB::rows_affected(&done))
            .context(DROP_LOGITS)
    }

    pub async fn drop_rest(&self, what: DropTarget, hypotheses: &[HypothesisId]) -> Result<()> {
        const WHAT: &str = "drop the remaining rows";
        let mut tx = self.begin().await?;
        if !hypotheses.is_empty() {
            let mut delete = QueryBuilder::<DB>::new("DELETE FROM hypotheses WHERE id IN (");
            push_list(&mut delete, hypotheses.iter().copied());
            delete.build().execute(&mut *tx).await.context(WHAT)?;
        }
        // Foreign keys also delete rows that a worker has stored in the meantime.
        let delete = match what {
            DropTarget::LabelSet(_) => "DELETE FROM label_sets WHERE id = $1",
            DropTarget::Model(_) => "DELETE FROM models WHERE id = $1",
        };
        let delete = sqlx::query::<DB>(delete).bind(what.key());
        delete.execute(&mut *tx).await.context(WHAT)?;
        tx.commit().await.context(WHAT)
    }
}
