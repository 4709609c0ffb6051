//! Label sets and models taken out of the store, with all that was computed under them.
//!
//! Large tables are deleted in parts, each in a transaction of its own, so that others can write between them. The row
//! that everything belongs to is deleted last: after an interruption, run the same command again.

use sqlx::{AssertSqlSafe, QueryBuilder};

use super::super::dialect::Dialect;
use super::super::{Dropped, Hanging, Result};
use super::{Doing, SqlStore, at, push_list};
use topicmill_core::Timestamp;

/// Labels of one transaction.
const AT_ONCE: i64 = 10_000;

impl Dropped {
    /// The column by which rows belong to it, and its key.
    fn column(self) -> (&'static str, i64) {
        match self {
            Self::LabelSet(id) => ("label_set_id", id),
            Self::Model(id) => ("model_id", id),
        }
    }

    /// Rows of `classifications` that belong to it, by their key, which begins with the model.
    fn labels(self) -> &'static str {
        match self {
            Self::LabelSet(_) => "model_id IN (SELECT id FROM models) AND label_set_id = $1",
            Self::Model(_) => "model_id = $1",
        }
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn hanging(&self, what: Dropped, now: Timestamp) -> Result<Hanging> {
        const WHAT: &str = "count what belongs to it";
        let (column, id) = what.column();
        let beside = match what {
            Dropped::LabelSet(_) => "gold",
            Dropped::Model(_) => "text_vectors",
        };
        let mut tx = self.begin().await?;
        let now = self.shared_time(&mut tx, at(now)).await?;
        let counts = format!(
            "SELECT (SELECT COUNT(*) FROM classifications WHERE {labels}), \
                    (SELECT COUNT(*) FROM current_target WHERE {column} = $1), \
                    (SELECT COUNT(*) FROM {beside} WHERE {column} = $1), \
                    (SELECT COUNT(*) FROM backlog b JOIN leases l ON l.id = b.lease_id \
                      WHERE b.{column} = $1 AND l.expires_at > $2)",
            labels = what.labels()
        );
        let (labels, current, beside, held): (i64, i64, i64, i64) =
            sqlx::query_as::<DB, _>(AssertSqlSafe(counts))
                .bind(id)
                .bind(now)
                .fetch_one(&mut *tx)
                .await
                .doing(WHAT)?;
        let (gold, vectors) = match what {
            Dropped::LabelSet(_) => (beside, 0),
            Dropped::Model(_) => (0, beside),
        };
        Ok(Hanging {
            labels: labels.unsigned_abs(),
            is_current: current > 0,
            gold: gold.unsigned_abs(),
            vectors: vectors.unsigned_abs(),
            held: held.unsigned_abs(),
        })
    }

    pub async fn drop_labels(&self, what: Dropped) -> Result<u64> {
        const WHAT: &str = "drop labels";
        let (column, id) = what.column();
        let mut tx = self.begin().await?;
        // Whoever holds such posts still, after the end of their lease, writes no label of them any more.
        sqlx::query::<DB>(AssertSqlSafe(format!(
            "DELETE FROM leases WHERE id IN (SELECT lease_id FROM backlog WHERE {column} = $1 AND lease_id IS NOT NULL)"
        )))
        .bind(id)
        .execute(&mut *tx)
        .await
        .doing(WHAT)?;
        // And nobody begins with what is about to go.
        sqlx::query::<DB>(AssertSqlSafe(format!(
            "DELETE FROM backlog WHERE {column} = $1"
        )))
        .bind(id)
        .execute(&mut *tx)
        .await
        .doing(WHAT)?;
        let deleted = sqlx::query::<DB>(AssertSqlSafe(format!(
            "DELETE FROM classifications WHERE (model_id, label_set_id, fullname) IN ( \
               SELECT model_id, label_set_id, fullname FROM classifications WHERE {} LIMIT {AT_ONCE})",
            what.labels()
        )))
        .bind(id)
        .execute(&mut *tx)
        .await
        .map(|done| DB::rows_affected(&done))
        .doing(WHAT)?;
        tx.commit().await.doing(WHAT)?;
        Ok(deleted)
    }

    pub async fn drop_logits(
        &self,
        model: Option<i64>,
        hypotheses: &[i64],
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
            // Hashes are spread evenly over their first byte.
            let bounds = [first, first.saturating_add(1)].map(|byte| [byte]);
            delete.push(" AND text_hash >= ").push_bind(&bounds[0][..]);
            if first < u8::MAX {
                delete.push(" AND text_hash < ").push_bind(&bounds[1][..]);
            }
            if model.is_none() {
                delete.push(" AND hypothesis_id IN (");
                push_list(&mut delete, hypotheses.iter().copied());
            }
            let done = delete.build().execute(&mut *tx).await.doing(WHAT)?;
            deleted += DB::rows_affected(&done);
        }
        tx.commit().await.doing(WHAT)?;
        Ok(deleted)
    }

    pub async fn drop_rest(&self, what: Dropped, hypotheses: &[i64]) -> Result<()> {
        const WHAT: &str = "drop what is left";
        let mut tx = self.begin().await?;
        if !hypotheses.is_empty() {
            let mut delete = QueryBuilder::<DB>::new("DELETE FROM hypotheses WHERE id IN (");
            push_list(&mut delete, hypotheses.iter().copied());
            delete.build().execute(&mut *tx).await.doing(WHAT)?;
        }
        // What a worker stored meanwhile goes by its foreign keys.
        let (delete, id) = match what {
            Dropped::LabelSet(id) => ("DELETE FROM label_sets WHERE id = $1", id),
            Dropped::Model(id) => ("DELETE FROM models WHERE id = $1", id),
        };
        let deleted = sqlx::query::<DB>(delete).bind(id).execute(&mut *tx).await;
        deleted.doing(WHAT)?;
        tx.commit().await.doing(WHAT)
    }
}
