//! Stores and reads vectors of texts and labels, and reads logits. The vector of a text is deleted with the text,
//! unless retention keeps it: it then labels the post for further label sets.
//!
//! The vector of a text is written with the first label of a post, under the same lease, and is used for all other
//! label sets: the logit of a text and a label is the cosine of their vectors.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, Row};

use super::{ErrorContext, SqlStore};
use crate::bulk::{Insert, Keys, Values};
use crate::dialect::Dialect;
use crate::{HypothesisId, ModelId, Result, StoreError, Target, UnlabelledText};
use topicmill_core::{Fullname, LabelVector, PairLogits, TextHash, TextVector};

/// Condition for posts after `$3` whose current text has no label under a target. A scalar subquery is an index lookup
/// for each post. In a join, PostgreSQL's planner would consider the table of labels empty while labels are being
/// written, and would read the whole table repeatedly.
const UNLABELLED: &str = "p.fullname > $3 AND (SELECT c.text_hash FROM classifications c WHERE c.model_id = $1 \
    AND c.label_set_id = $2 AND c.fullname = p.fullname) IS DISTINCT FROM p.text_hash";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn label_vectors(
        &self,
        model: ModelId,
        hypotheses: &[HypothesisId],
    ) -> Result<Vec<Option<LabelVector>>> {
        const WHAT: &str = "read the vectors of labels";
        let mut vectors: HashMap<HypothesisId, LabelVector> = HashMap::new();
        let select = format!(
            "SELECT hypothesis_id, vector FROM label_vectors WHERE model_id = {model} AND hypothesis_id IN ("
        );
        for row in self.rows_in(&select, hypotheses.to_vec(), WHAT).await? {
            let id: HypothesisId = row.try_get(0).context(WHAT)?;
            let bytes: Vec<u8> = row.try_get(1).context(WHAT)?;
            let vector = LabelVector::from_bytes(&bytes);
            let vector = vector.ok_or_else(|| no_vector("label_vectors", id.to_string()))?;
            vectors.insert(id, vector);
        }
        Ok(hypotheses.iter().map(|id| vectors.remove(id)).collect())
    }

    pub async fn save_label_vectors(
        &self,
        model: ModelId,
        hypotheses: &[HypothesisId],
        vectors: &[LabelVector],
    ) -> Result<()> {
        const WHAT: &str = "store the vectors of labels";
        let bytes: Vec<Vec<u8>> = vectors.iter().map(LabelVector::to_bytes).collect();
        let bytes = bytes.iter().map(Vec::as_slice);
        let mut rows: Vec<(HypothesisId, &[u8])> = hypotheses.iter().copied().zip(bytes).collect();
        // All writers use the same order, to avoid deadlocks. Two labels with the same text share a hypothesis, and
        // keys must be distinct within an INSERT.
        rows.sort_unstable();
        rows.dedup_by_key(|(id, _)| *id);
        let mut tx = self.begin().await?;
        let ids = rows.iter().map(|(id, _)| Some(id.0)).collect();
        let vectors = rows.iter().map(|(_, bytes)| *bytes).collect();
        let insert = Insert {
            table: "label_vectors",
            rows: rows.len(),
            columns: vec![
                ("model_id", Values::repeat(model.0, rows.len())),
                ("hypothesis_id", Values::Integer(ids)),
                ("vector", Values::Bytes(vectors)),
            ],
            keys: Keys::MayExist("ON CONFLICT DO NOTHING"),
        };
        DB::insert(&mut tx, insert).await.context(WHAT)?;
        tx.commit().await.context(WHAT)
    }

    pub async fn has_vectors(&self, model: ModelId) -> Result<bool> {
        sqlx::query::<DB>("SELECT 1 FROM text_vectors WHERE model_id = $1 LIMIT 1")
            .bind(model)
            .fetch_optional(&self.pool)
            .await
            .map(|row| row.is_some())
            .context("check for vectors of texts")
    }

    pub async fn text_vectors(
        &self,
        model: ModelId,
        texts: &[TextHash],
    ) -> Result<Vec<Option<TextVector>>> {
        const WHAT: &str = "read the vectors of texts";
        let text_index = index_of_texts(texts);
        let mut vectors = vec![None; texts.len()];
        let select = format!(
            "SELECT text_hash, vector FROM text_vectors WHERE model_id = {model} AND text_hash IN ("
        );
        let hashes = texts.iter().map(TextHash::as_bytes).collect();
        for row in self.rows_in(&select, hashes, WHAT).await? {
            let hash: Vec<u8> = row.try_get(0).context(WHAT)?;
            vectors[text_index[hash.as_slice()]] = Some(Self::text_vector(&row, 1, &hash)?);
        }
        Ok(vectors)
    }

    /// Decodes the vector of a text.
    pub(super) fn text_vector(row: &DB::Row, column: usize, hash: &[u8]) -> Result<TextVector> {
        let bytes: Vec<u8> = row.try_get(column).context("read the vector of a text")?;
        let vector = TextVector::from_bytes(bytes);
        vector.ok_or_else(|| no_vector("text_vectors", topicmill_core::hex(hash)))
    }

    pub async fn pair_logits(
        &self,
        model: ModelId,
        hypotheses: &[HypothesisId],
        texts: &[TextHash],
    ) -> Result<Vec<Vec<Option<PairLogits>>>> {
        const WHAT: &str = "read stored logits";
        // The database returns pairs in any order, and not every pair is stored.
        let mut stored = vec![vec![None; hypotheses.len()]; texts.len()];
        // `IN ()` is invalid in PostgreSQL.
        if hypotheses.is_empty() {
            return Ok(stored);
        }
        let text_index = index_of_texts(texts);
        let hypothesis_index: HashMap<HypothesisId, usize> =
            hypotheses.iter().copied().zip(0..).collect();
        let ids: Vec<String> = hypotheses.iter().map(HypothesisId::to_string).collect();
        // `+ 0` makes the database search once per text instead of once per pair. A text may have logits for more
        // hypotheses than these. An NLI model's pair without `contradiction` is unusable, so it is computed again.
        let select = format!(
            "SELECT text_hash, hypothesis_id, entailment, contradiction, neutral FROM pair_logits \
              WHERE model_id = {model} AND hypothesis_id + 0 IN ({}) \
                AND (contradiction IS NOT NULL OR (SELECT kind FROM models WHERE id = model_id) <> 'nli') \
                AND text_hash IN (",
            ids.join(", ")
        );
        let hashes = texts.iter().map(TextHash::as_bytes).collect();
        for row in self.rows_in(&select, hashes, WHAT).await? {
            let hash: Vec<u8> = row.try_get(0).context(WHAT)?;
            let id: HypothesisId = row.try_get(1).context(WHAT)?;
            let logits = PairLogits {
                entailment: row.try_get(2).context(WHAT)?,
                contradiction: row.try_get(3).context(WHAT)?,
                neutral: row.try_get(4).context(WHAT)?,
            };
            stored[text_index[hash.as_slice()]][hypothesis_index[&id]] = Some(logits);
        }
        Ok(stored)
    }

    pub async fn unlabelled_vectors(
        &self,
        target: Target,
        after: &str,
        limit: u32,
    ) -> Result<Vec<UnlabelledText>> {
        // Omits leased posts. The cross join makes SQLite scan the posts; otherwise it would read every vector for each
        // page.
        let rows = sqlx::query::<DB>(AssertSqlSafe(format!(
            "SELECT p.fullname, p.text_hash, v.vector FROM things p CROSS JOIN text_vectors v \
              WHERE v.model_id = $1 AND v.text_hash = p.text_hash AND {UNLABELLED} \
                AND (SELECT b.lease_id FROM backlog b WHERE b.model_id = $1 AND b.label_set_id = $2 \
                        AND b.fullname = p.fullname) IS NULL \
              ORDER BY p.fullname LIMIT $4"
        )))
        .bind(target.model)
        .bind(target.label_set)
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .context("read the vectors of unlabelled texts")?;
        let text = |row: &DB::Row| {
            let (fullname, text_hash) = Self::fullname_and_hash(row, 0)?;
            Ok(UnlabelledText {
                vector: Self::text_vector(row, 2, text_hash.as_bytes())?,
                fullname,
                text_hash,
            })
        };
        rows.iter().map(text).collect()
    }

    pub async fn unlabelled_without_text(
        &self,
        target: Target,
        after: &str,
        limit: u32,
    ) -> Result<Vec<(Fullname, TextHash)>> {
        let rows = sqlx::query::<DB>(AssertSqlSafe(format!(
            "SELECT p.fullname, p.text_hash FROM things p WHERE p.text_purged_at IS NOT NULL AND {UNLABELLED} \
              ORDER BY p.fullname LIMIT $4"
        )))
        .bind(target.model)
        .bind(target.label_set)
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .context("read unlabelled posts without text")?;
        let pairs = rows.iter().map(|row| Self::fullname_and_hash(row, 0));
        pairs.collect()
    }
}

fn index_of_texts(texts: &[TextHash]) -> HashMap<&[u8], usize> {
    texts.iter().map(TextHash::as_bytes).zip(0..).collect()
}

fn no_vector(table: &'static str, row: String) -> StoreError {
    StoreError::Corrupt {
        table,
        row,
        detail: "`vector` is not a vector; delete the row, and the next `topicmill classify` computes it again".into(),
    }
}
