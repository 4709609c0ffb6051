//! Reads models and the versions of label sets, and compares the labels under two of them.

use std::fmt::Display;

use serde_json::Value;
use sqlx::Row;
use sqlx::types::Json;

use super::{ErrorContext, SqlStore};
use crate::dialect::Dialect;
use crate::versions::{ComparedPost, LabelSetRow, Prediction};
use crate::{LabelSetId, ModelId, ModelRow, Result, StoreError, Target};
use topicmill_core::{Fitted, Label, LabelSet, short_hash};

/// Returns the error for a label set whose fit cannot be read, with the commands that drop the label set.
pub(super) fn damaged_fit(id: LabelSetId, name: &str, hash: &str, error: &str) -> StoreError {
    let version = short_hash(hash);
    StoreError::Corrupt {
        table: "label_sets",
        row: id.to_string(),
        detail: format!(
            "the fit of the label set `{name}` (version {version}) was edited or damaged: {error}; make another label \
             set current with `topicmill labels use`, then run `topicmill labels drop {version}`"
        ),
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn label_sets(&self) -> Result<Vec<LabelSetRow>> {
        sqlx::query::<DB>("SELECT id, name, hash, created_at FROM label_sets ORDER BY id DESC")
            .try_map(row_as!(LabelSetRow: id, name, hash, created_at))
            .fetch_all(&self.pool)
            .await
            .context("read the label sets")
    }

    pub async fn label_set(&self, id: LabelSetId) -> Result<LabelSet> {
        let unfitted = self.unfitted_label_set(id).await?;
        let (fitted, hash): (Option<Json<Value>>, String) =
            sqlx::query_as::<DB, _>("SELECT fitted, hash FROM label_sets WHERE id = $1")
                .bind(id)
                .fetch_one(&self.pool)
                .await
                .context("read a label set")?;
        let Some(Json(fitted)) = fitted else {
            return Ok(unfitted);
        };
        let damaged =
            |error: &dyn Display| damaged_fit(id, &unfitted.name, &hash, &error.to_string());
        let fitted: Fitted = serde_json::from_value(fitted).map_err(|error| damaged(&error))?;
        fitted
            .validate(unfitted.labels.len())
            .map_err(|error| damaged(&error))?;
        Ok(LabelSet {
            fitted: Some(fitted),
            ..unfitted
        })
    }

    pub async fn unfitted_label_set(&self, id: LabelSetId) -> Result<LabelSet> {
        const WHAT: &str = "read a label set";
        let corrupt = |detail: String| StoreError::Corrupt {
            table: "label_sets",
            row: id.to_string(),
            detail,
        };
        let head = sqlx::query::<DB>(
            "SELECT name, template, mode, threshold, temperature, background_topics FROM label_sets \
              WHERE id = $1",
        )
        .bind(id)
        .fetch_one(&self.pool)
        .await
        .context(WHAT)?;
        let rows = sqlx::query::<DB>(
            "SELECT label, label_name, descriptions FROM labels WHERE label_set_id = $1 ORDER BY position",
        )
        .bind(id)
        .fetch_all(&self.pool)
        .await
        .context(WHAT)?;
        let mut labels = Vec::with_capacity(rows.len());
        for row in &rows {
            let descriptions: Json<Value> = row.try_get(2).context(WHAT)?;
            labels.push(Label {
                slug: row.try_get(0).context(WHAT)?,
                label: row.try_get(1).context(WHAT)?,
                descriptions: serde_json::from_value(descriptions.0)
                    .map_err(|error| corrupt(error.to_string()))?,
            });
        }
        let mode: String = head.try_get(2).context(WHAT)?;
        let topics: Option<Json<Value>> = head.try_get(5).context(WHAT)?;
        let background = topics
            .map(|topics| serde_json::from_value(topics.0))
            .transpose()
            .map_err(|error| corrupt(error.to_string()))?;
        Ok(LabelSet {
            name: head.try_get(0).context(WHAT)?,
            template: head.try_get(1).context(WHAT)?,
            mode: mode.parse().map_err(|error| corrupt(format!("{error}")))?,
            threshold: head.try_get(3).context(WHAT)?,
            temperature: head.try_get(4).context(WHAT)?,
            labels,
            background,
            fitted: None,
        })
    }

    pub async fn models(&self) -> Result<Vec<(ModelId, ModelRow)>> {
        let decode = |row: DB::Row| {
            let id = row.try_get(6)?;
            let model =
                row_as!(ModelRow: name, kind, manifest_hash, precision, tokenizer_hash, max_tokens);
            Ok((id, model(row)?))
        };
        sqlx::query::<DB>(
            "SELECT name, kind, manifest_hash, number_format, tokenizer_hash, max_tokens, id \
               FROM models ORDER BY id DESC",
        )
        .try_map(decode)
        .fetch_all(&self.pool)
        .await
        .context("read the models")
    }

    pub async fn current_target(&self) -> Result<Option<Target>> {
        sqlx::query::<DB>("SELECT model_id, label_set_id FROM current_target")
            .try_map(row_as!(Target: model, label_set))
            .fetch_optional(&self.pool)
            .await
            .context("read the current model and label set")
    }

    pub async fn current(&self) -> Result<Option<(Target, LabelSet)>> {
        let Some(target) = self.current_target().await? else {
            return Ok(None);
        };
        Ok(Some((target, self.label_set(target.label_set).await?)))
    }

    pub async fn models_with_labels(&self, label_set: LabelSetId) -> Result<Vec<ModelId>> {
        sqlx::query_scalar::<DB, _>(
            "SELECT m.id FROM models m WHERE EXISTS ( \
               SELECT 1 FROM classifications c WHERE c.model_id = m.id AND c.label_set_id = $1) ORDER BY m.id DESC",
        )
        .bind(label_set)
        .fetch_all(&self.pool)
        .await
        .context("read the models with labels")
    }

    pub async fn compare_labels(
        &self,
        from: Target,
        to: Target,
    ) -> Result<Vec<(Option<String>, Option<String>, u64)>> {
        let decode = |row: DB::Row| {
            let posts: i64 = row.try_get(2)?;
            Ok((row.try_get(0)?, row.try_get(1)?, posts.unsigned_abs()))
        };
        sqlx::query::<DB>(
            "SELECT from_label, to_label, COUNT(*) FROM ( \
               SELECT CASE WHEN a.abstained THEN NULL ELSE a.label END AS from_label, \
                      CASE WHEN b.abstained THEN NULL ELSE b.label END AS to_label \
                 FROM classifications a \
                 JOIN classifications b ON b.fullname = a.fullname AND b.text_hash = a.text_hash \
                WHERE a.model_id = $1 AND a.label_set_id = $2 AND b.model_id = $3 AND b.label_set_id = $4) AS both_of \
              GROUP BY from_label, to_label",
        )
        .bind(from.model)
        .bind(from.label_set)
        .bind(to.model)
        .bind(to.label_set)
        .try_map(decode)
        .fetch_all(&self.pool)
        .await
        .context("compare labels")
    }

    pub async fn compared_posts(
        &self,
        targets: [Option<Target>; 2],
        after: &str,
        limit: u32,
    ) -> Result<Vec<ComparedPost>> {
        const WHAT: &str = "read labelled posts";
        let [a, b] = targets.map(|target| target.unwrap_or(Target::NONE));
        // The posts are limited before the joins: without recent statistics, the planner would join every label of both
        // targets for each window.
        let rows = sqlx::query::<DB>(
            "SELECT p.fullname, p.text_hash, p.title, a.label, a.score, a.abstained, b.label, b.score, b.abstained, \
                    p.has_text \
               FROM (SELECT fullname, text_hash, title, has_text FROM things \
                      WHERE fullname > $5 ORDER BY fullname LIMIT $6) p \
               LEFT JOIN classifications a ON a.model_id = $1 AND a.label_set_id = $2 \
                AND a.fullname = p.fullname AND a.text_hash = p.text_hash \
               LEFT JOIN classifications b ON b.model_id = $3 AND b.label_set_id = $4 \
                AND b.fullname = p.fullname AND b.text_hash = p.text_hash \
              ORDER BY p.fullname",
        )
        .bind(a.model)
        .bind(a.label_set)
        .bind(b.model)
        .bind(b.label_set)
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .context(WHAT)?;
        let label = |row: &DB::Row, first: usize| -> Result<Option<Prediction>, sqlx::Error> {
            let Some(label) = row.try_get(first)? else {
                return Ok(None);
            };
            Ok(Some(Prediction {
                label,
                score: row.try_get(first + 1)?,
                abstained: row.try_get(first + 2)?,
            }))
        };
        let decode = |row: &DB::Row| -> Result<ComparedPost> {
            let (fullname, text_hash) = Self::fullname_and_hash(row, 0)?;
            Ok(ComparedPost {
                fullname,
                text_hash,
                title: row.try_get(2).context(WHAT)?,
                labels: [label(row, 3).context(WHAT)?, label(row, 6).context(WHAT)?],
                has_text: row.try_get(9).context(WHAT)?,
            })
        };
        rows.iter().map(decode).collect()
    }
}
