//! Stores models, label sets with their fits, hypotheses, and the current target.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, QueryBuilder, Row};

use super::{ErrorContext, ROWS_A_STATEMENT, SqlStore};
use crate::dialect::Dialect;
use crate::versions::{CrossFitted, Prediction};
use crate::{HypothesisId, LabelSetId, ModelId, ModelRow, Result, Target};
use topicmill_core::{Background, Fullname, Label, LabelSet, TextHash, Timestamp};

/// Converts a value for a column.
fn json(value: &impl Serialize) -> Json<Value> {
    Json(serde_json::to_value(value).expect("strings and numbers can be written as JSON"))
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn ensure_model(&self, model: &ModelRow) -> Result<ModelId> {
        // DO UPDATE instead of DO NOTHING, because only inserted or updated rows are returned. The name may change when
        // a folder is renamed. Everything that affects scores is in the key.
        let ids = sqlx::query_scalar::<DB, _>(
            "INSERT INTO models (name, kind, manifest_hash, number_format, tokenizer_hash, max_tokens) \
             VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (manifest_hash, number_format, max_tokens) DO UPDATE SET name = excluded.name RETURNING id",
        )
        .bind(model.name.as_str())
        .bind(model.kind.as_str())
        .bind(model.manifest_hash.as_str())
        .bind(model.precision.as_str())
        .bind(model.tokenizer_hash.as_str())
        .bind(model.max_tokens)
        .fetch_all(&self.pool)
        .await;
        ids.context("record the model").map(|ids| ids[0])
    }

    pub async fn ensure_label_set(&self, set: &LabelSet, now: Timestamp) -> Result<LabelSetId> {
        let mut tx = self.begin().await?;
        let id = Self::ensure_label_set_in(&mut tx, set, now).await?;
        tx.commit().await.context("record the label set")?;
        Ok(id)
    }

    async fn ensure_label_set_in(
        tx: &mut DB::Connection,
        set: &LabelSet,
        now: Timestamp,
    ) -> Result<LabelSetId> {
        const WHAT: &str = "record the label set";
        let hash = set.hash();
        let background = set.background.as_ref();
        let id: LabelSetId = sqlx::query_scalar::<DB, _>(
            "INSERT INTO label_sets \
               (name, hash, template, mode, threshold, temperature, created_at, background, background_topics, fitted) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (hash) DO UPDATE SET name = excluded.name \
             RETURNING id",
        )
        .bind(set.name.as_str())
        .bind(hash.as_str())
        .bind(set.template.as_str())
        .bind(set.mode.as_str())
        .bind(set.threshold)
        .bind(set.temperature)
        .bind(now)
        .bind(background.map(Background::tag))
        .bind(background.map(json))
        .bind(set.fitted.as_ref().map(json))
        .fetch_one(&mut *tx)
        .await
        .context(WHAT)?;
        let labels: Vec<(i64, &Label)> = (0..).zip(&set.labels).collect();
        for chunk in labels.chunks(ROWS_A_STATEMENT) {
            let mut insert = QueryBuilder::<DB>::new(
                "INSERT INTO labels (label_set_id, position, label, label_name, hypothesis, descriptions) ",
            );
            insert.push_values(chunk, |mut row, (position, label)| {
                row.push_bind(id)
                    .push_bind(*position)
                    .push_bind(label.slug.as_str())
                    .push_bind(label.label.as_str())
                    .push_bind(set.hypothesis(label))
                    .push_bind(json(&label.descriptions));
            });
            // The hash of the set covers its labels, so existing labels are the same.
            insert.push(" ON CONFLICT DO NOTHING");
            insert.build().execute(&mut *tx).await.context(WHAT)?;
        }
        Ok(id)
    }

    pub async fn save_fit(
        &self,
        base: &LabelSet,
        set: &LabelSet,
        crossed: &[CrossFitted],
        now: Timestamp,
    ) -> Result<LabelSetId> {
        const WHAT: &str = "record the fit";
        let mut tx = self.begin().await?;
        Self::ensure_label_set_in(&mut tx, base, now).await?;
        let id = Self::ensure_label_set_in(&mut tx, set, now).await?;
        sqlx::query::<DB>("UPDATE label_sets SET fitted = $2 WHERE id = $1")
            .bind(id)
            .bind(set.fitted.as_ref().map(json))
            .execute(&mut *tx)
            .await
            .context(WHAT)?;
        sqlx::query::<DB>("DELETE FROM cross_fitted WHERE label_set_id = $1")
            .bind(id)
            .execute(&mut *tx)
            .await
            .context(WHAT)?;
        // Posts that were purged or edited during the fit are left out.
        let insert = format!(
            "INSERT INTO cross_fitted (label_set_id, fullname, text_hash, label, score, abstained) \
             SELECT $1, p.fullname, p.text_hash, $4, $5, $6 FROM things p \
              WHERE p.fullname = $2 AND p.text_hash = $3 {}",
            DB::SHARE_POSTS
        );
        // Posts are locked in order of fullname, to avoid deadlocks.
        let mut crossed: Vec<&CrossFitted> = crossed.iter().collect();
        crossed.sort_by(|a, b| a.fullname.cmp(&b.fullname));
        for post in crossed {
            sqlx::query::<DB>(AssertSqlSafe(insert.as_str()))
                .bind(id)
                .bind(post.fullname.as_str())
                .bind(post.text_hash.as_bytes())
                .bind(post.prediction.label.as_str())
                .bind(post.prediction.score)
                .bind(post.prediction.abstained)
                .execute(&mut *tx)
                .await
                .context(WHAT)?;
        }
        tx.commit().await.context(WHAT)?;
        Ok(id)
    }

    pub async fn cross_fitted(
        &self,
        label_set: LabelSetId,
    ) -> Result<HashMap<Fullname, Prediction>> {
        let decode = |row: DB::Row| {
            let fullname: Fullname = row.try_get(3)?;
            Ok((fullname, row_as!(Prediction: label, score, abstained)(row)?))
        };
        sqlx::query::<DB>(
            "SELECT x.label, x.score, x.abstained, x.fullname FROM cross_fitted x \
               JOIN things p ON p.fullname = x.fullname AND p.text_hash = x.text_hash WHERE x.label_set_id = $1",
        )
        .bind(label_set)
        .try_map(decode)
        .fetch_all(&self.pool)
        .await
        .map(HashMap::from_iter)
        .context("read the labels of cross-fitting")
    }

    pub async fn ensure_hypotheses(&self, texts: &[String]) -> Result<Vec<HypothesisId>> {
        const WHAT: &str = "record the hypotheses";
        let mut tx = self.begin().await?;
        let mut ids = vec![HypothesisId(0); texts.len()];
        // All writers use the same order, to avoid deadlocks.
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_unstable_by_key(|&i| &texts[i]);
        for i in order {
            let text = &texts[i];
            ids[i] = sqlx::query_scalar::<DB, _>(
                "INSERT INTO hypotheses (hash, text) VALUES ($1, $2) \
                 ON CONFLICT (hash) DO UPDATE SET text = excluded.text RETURNING id",
            )
            .bind(TextHash::new(text).as_bytes())
            .bind(text.as_str())
            .fetch_one(&mut *tx)
            .await
            .context(WHAT)?;
        }
        tx.commit().await.context(WHAT)?;
        Ok(ids)
    }

    pub async fn count_lost_labels(&self, target: Target) -> Result<u64> {
        sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM current_target t \
               JOIN classifications c ON c.model_id = t.model_id AND c.label_set_id = t.label_set_id \
               JOIN things p ON p.fullname = c.fullname AND p.text_hash = c.text_hash \
              WHERE p.text_purged_at IS NOT NULL AND NOT EXISTS ( \
                    SELECT 1 FROM classifications n WHERE n.model_id = $1 AND n.label_set_id = $2 \
                       AND n.fullname = p.fullname AND n.text_hash = p.text_hash) \
                AND NOT EXISTS ( \
                    SELECT 1 FROM text_vectors v WHERE v.model_id = $1 AND v.text_hash = p.text_hash)",
        )
        .bind(target.model)
        .bind(target.label_set)
        .fetch_one(&self.pool)
        .await
        .map(i64::unsigned_abs)
        .context("count labels of posts without text")
    }

    pub async fn set_current(&self, target: Target) -> Result<()> {
        let replace =
            "UPDATE SET model_id = excluded.model_id, label_set_id = excluded.label_set_id";
        self.insert_current(target, replace).await
    }

    pub async fn set_first_current(&self, target: Target) -> Result<()> {
        self.insert_current(target, "NOTHING").await
    }

    async fn insert_current(&self, target: Target, on_conflict: &str) -> Result<()> {
        let insert = format!(
            "INSERT INTO current_target (only_row, model_id, label_set_id) VALUES (TRUE, $1, $2) \
             ON CONFLICT (only_row) DO {on_conflict}"
        );
        sqlx::query::<DB>(AssertSqlSafe(insert))
            .bind(target.model)
            .bind(target.label_set)
            .execute(&self.pool)
            .await
            .map(drop)
            .context("set the current model and label set")
    }

    pub async fn replace_current(&self, former: Option<Target>, target: Target) -> Result<bool> {
        let Some(former) = former else {
            self.set_first_current(target).await?;
            return Ok(self.current_target().await? == Some(target));
        };
        sqlx::query::<DB>(
            "UPDATE current_target SET model_id = $1, label_set_id = $2 \
              WHERE (model_id = $3 AND label_set_id = $4) OR (model_id = $1 AND label_set_id = $2)",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(former.model)
        .bind(former.label_set)
        .execute(&self.pool)
        .await
        .map(|done| DB::rows_affected(&done) > 0)
        .context("replace the current model and label set")
    }
}
