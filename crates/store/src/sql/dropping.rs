//! Drops label sets and models with everything computed under them.
//!
//! Rows of large tables are deleted in parts, each in its own transaction, so that others can write in between. The
//! label set's or model's own row is deleted last, so that the same command can continue after an interruption.

use sqlx::{AssertSqlSafe, QueryBuilder};

use super::{ErrorContext, SqlStore, at, push_list};
use crate::dialect::Dialect;
use crate::{Dependents, DropTarget, HypothesisId, ModelId, Result, StoreError};
use topicmill_core::Timestamp;

/// Labels deleted per transaction.
const BATCH: i64 = 10_000;

impl DropTarget {
    /// Returns the column that refers to the label set or model, and its key.
    fn column(self) -> (&'static str, i64) {
        match self {
            Self::LabelSet(id) => ("label_set_id", id.0),
            Self::Model(id) => ("model_id", id.0),
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
        let (column, id) = what.column();
        let now = self.database_time(at(now)).await?;
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
                .bind(id)
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
        let (column, id) = what.column();
        let mut tx = self.begin().await?;
        // Without its lease, a worker that has claimed posts under the dropped label set or model cannot write labels.
        sqlx::query::<DB>(AssertSqlSafe(format!(
            "DELETE FROM leases WHERE id IN (SELECT lease_id FROM backlog WHERE {column} = $1 AND lease_id IS NOT NULL)"
        )))
        .bind(id)
        .execute(&mut *tx)
        .await
        .context(WHAT)?;
        // Without rows in the backlog, no worker can claim posts under the dropped label set or model.
        sqlx::query::<DB>(AssertSqlSafe(format!(
            "DELETE FROM backlog WHERE {column} = $1"
        )))
        .bind(id)
        .execute(&mut *tx)
        .await
        .context(WHAT)?;
        let deleted = sqlx::query::<DB>(AssertSqlSafe(format!(
            "DELETE FROM classifications WHERE (model_id, label_set_id, fullname) IN ( \
               SELECT model_id, label_set_id, fullname FROM classifications WHERE {} LIMIT {BATCH})",
            what.labels()
        )))
        .bind(id)
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
        const WHAT: &str = "drop logits";
        let mut tx = self.begin().await?;
        let mut deleted = 0;
        for table in ["pair_logits", "text_vectors"] {
            if table == "text_vectors" && model.is_none() {
                continue;
            }
            let mut delete =
                QueryBuilder::<DB>::new(format!("DELETE FROM {table} WHERE model_id "));
            match model {
                Some(model) => delete.push("= ").push_bind(model),
                None => delete.push("IN (SELECT id FROM models)"),
            };
            // Hashes are uniformly distributed over their first byte.
            let bounds = [first, first.saturating_add(1)].map(|byte| [byte]);
            delete.push(" AND text_hash >= ").push_bind(&bounds[0][..]);
            if first < u8::MAX {
                delete.push(" AND text_hash < ").push_bind(&bounds[1][..]);
            }
            if model.is_none() {
                delete.push(" AND hypothesis_id IN (");
                push_list(&mut delete, hypotheses.iter().copied());
            }
            let done = delete.build().execute(&mut *tx).await.context(WHAT)?;
            deleted += DB::rows_affected(&done);
        }
        tx.commit().await.context(WHAT)?;
        Ok(deleted)
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
        let (_, id) = what.column();
        let deleted = sqlx::query::<DB>(delete).bind(id).execute(&mut *tx).await;
        deleted.context(WHAT)?;
        tx.commit().await.context(WHAT)
    }
}
