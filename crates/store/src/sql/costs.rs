//! Estimates the cost of labelling under a model and a label set, which need not be stored yet. Writes nothing.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, Row};

use super::{ErrorContext, SqlStore};
use crate::dialect::Dialect;
use crate::{
    Cost, ExistingTarget, HypothesisId, LabelSetId, ModelId, ModelRow, Result, Target, WorkEstimate,
};
use topicmill_core::TextHash;
use topicmill_core::reddit::thing_text;

impl<DB: Dialect> SqlStore<DB> {
    pub async fn find_existing(
        &self,
        model: &ModelRow,
        label_set: &str,
        hypotheses: &[String],
    ) -> Result<ExistingTarget> {
        const WHAT: &str = "find the model and the label set";
        // Nothing is inserted, because a command that estimates costs must not write.
        let model = sqlx::query_scalar::<DB, _>(
            "SELECT id FROM models WHERE manifest_hash = $1 AND number_format = $2 AND max_tokens = $3",
        )
        .bind(model.manifest_hash.as_str())
        .bind(model.precision.as_str())
        .bind(model.max_tokens)
        .fetch_optional(&self.pool)
        .await
        .context(WHAT)?;
        let label_set = sqlx::query_scalar::<DB, _>("SELECT id FROM label_sets WHERE hash = $1")
            .bind(label_set)
            .fetch_optional(&self.pool)
            .await
            .context(WHAT)?;
        Ok(ExistingTarget {
            model,
            label_set,
            hypotheses: self.find_hypotheses(hypotheses).await?,
        })
    }

    pub async fn find_hypotheses(&self, texts: &[String]) -> Result<Vec<Option<HypothesisId>>> {
        const WHAT: &str = "find hypotheses";
        let hashes: Vec<TextHash> = texts.iter().map(|text| TextHash::new(text)).collect();
        let select = "SELECT hash, id FROM hypotheses WHERE hash IN (";
        let keys = hashes.iter().map(TextHash::as_bytes).collect();
        let mut ids: HashMap<Vec<u8>, HypothesisId> = HashMap::new();
        for row in self.rows_in(select, keys, WHAT).await? {
            ids.insert(row.try_get(0).context(WHAT)?, row.try_get(1).context(WHAT)?);
        }
        let id = |hash: &TextHash| ids.get(hash.as_bytes()).copied();
        Ok(hashes.iter().map(id).collect())
    }

    pub async fn count_labelled(&self, target: Target) -> Result<u64> {
        sqlx::query_scalar::<DB, _>(
            "SELECT COUNT(*) FROM classifications c JOIN things p ON p.fullname = c.fullname \
              WHERE c.model_id = $1 AND c.label_set_id = $2 AND c.text_hash = p.text_hash",
        )
        .bind(target.model)
        .bind(target.label_set)
        .fetch_one(&self.pool)
        .await
        .map(i64::unsigned_abs)
        .context("count labelled posts")
    }

    pub async fn cost(
        &self,
        model: Option<ModelId>,
        label_set: Option<LabelSetId>,
        hypotheses: &[Option<HypothesisId>],
    ) -> Result<Cost> {
        let target = target_or_none(model, label_set);
        let labelled = self.count_labelled(target).await?;
        let (model, labels) = (target.model, hypotheses.len());
        // `IN ()` is invalid in PostgreSQL, so the list always has at least one key.
        let stored = std::iter::once(&HypothesisId::NONE).chain(hypotheses.iter().flatten());
        let stored: Vec<String> = stored.map(HypothesisId::to_string).collect();
        // A text with a vector needs no inference for any label, so all its pairs count as stored. In PostgreSQL, the
        // sum of `BIGINT`s is a `NUMERIC`, which cannot be read as an `i64`.
        let select = format!(
            "WITH todo AS ( \
               SELECT p.text_hash, COUNT(*) AS posts FROM things p WHERE {} GROUP BY p.text_hash), \
             known AS ( \
               SELECT t.text_hash, t.posts, \
                      CASE WHEN EXISTS (SELECT 1 FROM text_vectors v \
                                         WHERE v.text_hash = t.text_hash AND v.model_id = {model}) \
                           THEN {labels} ELSE COUNT(l.hypothesis_id) END AS pairs \
                 FROM todo t LEFT JOIN pair_logits l ON l.text_hash = t.text_hash AND l.model_id = {model} \
                  AND l.hypothesis_id IN ({}) \
                GROUP BY t.text_hash, t.posts) \
             SELECT COUNT(*), CAST(COALESCE(SUM(posts), 0) AS BIGINT), \
                    CAST(COALESCE(SUM(pairs), 0) AS BIGINT), \
                    CAST(COALESCE(SUM(CASE WHEN pairs = {labels} THEN posts ELSE 0 END), 0) AS BIGINT) \
               FROM known",
            unlabelled(target),
            stored.join(", ")
        );
        let counts: (i64, i64, i64, i64) = sqlx::query_as::<DB, _>(AssertSqlSafe(select))
            .fetch_one(&self.pool)
            .await
            .context("estimate the work")?;
        let [texts, posts, pairs_stored, posts_without_inference] =
            <[i64; 4]>::from(counts).map(i64::unsigned_abs);
        Ok(Cost {
            labelled,
            posts,
            texts,
            posts_without_inference,
            pairs_stored,
            pairs_missing: (texts * hypotheses.len() as u64).saturating_sub(pairs_stored),
        })
    }

    pub async fn estimate_work(
        &self,
        sought: &ExistingTarget,
        sample: u32,
    ) -> Result<WorkEstimate> {
        const WHAT: &str = "read a sample of unlabelled texts";
        let cost = self.cost(sought.model, sought.label_set, &sought.hypotheses);
        let cost = cost.await?;
        let target = target_or_none(sought.model, sought.label_set);
        // Hashes are random, so the lowest ones are a reproducible random sample.
        let select = format!(
            "WITH open AS (SELECT p.text_hash, MIN(p.fullname) AS fullname FROM things p WHERE {} \
               GROUP BY p.text_hash ORDER BY p.text_hash LIMIT {sample}) \
             SELECT p.fullname, o.text_hash, p.title, p.selftext FROM open o \
               JOIN things p ON p.fullname = o.fullname ORDER BY o.text_hash",
            unlabelled(target)
        );
        let rows = sqlx::query::<DB>(AssertSqlSafe(select))
            .fetch_all(&self.pool)
            .await;
        let rows = rows.context(WHAT)?;
        let decode = |row: &DB::Row| {
            let (fullname, hash) = Self::fullname_and_hash(row, 0)?;
            let title: String = row.try_get(2).context(WHAT)?;
            let selftext: String = row.try_get(3).context(WHAT)?;
            Ok((hash, thing_text(&fullname, &title, &selftext)))
        };
        Ok(WorkEstimate {
            cost,
            sample: rows.iter().map(decode).collect::<Result<_>>()?,
        })
    }
}

/// Returns a target, in which a model or a label set that is not stored has a key that no row has.
fn target_or_none(model: Option<ModelId>, label_set: Option<LabelSetId>) -> Target {
    Target {
        model: model.unwrap_or(ModelId::NONE),
        label_set: label_set.unwrap_or(LabelSetId::NONE),
    }
}

/// Returns the condition for posts without a label under a target that can get one: they have text, or a vector of it.
fn unlabelled(Target { model, label_set }: Target) -> String {
    format!(
        "(p.has_text OR EXISTS (SELECT 1 FROM text_vectors v WHERE v.text_hash = p.text_hash AND v.model_id = {model})) \
         AND NOT EXISTS (SELECT 1 FROM classifications c WHERE c.model_id = {model} AND c.label_set_id = {label_set} \
                            AND c.fullname = p.fullname AND c.text_hash = p.text_hash)"
    )
}
