//! Vectors of texts and of labels: stored beside labels, read in place of logits, forgotten with their texts.
//!
//! The vector of a text is written with its first label, under the same lease, and is all that another label needs: its
//! cosine with the label's vector is what a pair of the two would have stored.

use std::collections::HashMap;

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{
    ColumnIndex, Decode, Encode, Executor, IntoArguments, QueryBuilder, Row, Transaction, Type,
};

use super::super::bulk::{Insert, Values};
use super::super::dialect::Dialect;
use super::super::{Classified, Result, StoreError};
use super::{Doing, ROWS_A_STATEMENT, SqlStore, push_list};
use crate::domain::TextHash;
use topicmill_score::{LabelVector, PairLogits, TextVector};

impl<DB> SqlStore<DB>
where
    DB: Dialect,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB>,
    for<'q> i64: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> f64: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> f32: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Option<f32>: Encode<'q, DB> + Decode<'q, DB>,
    for<'q> bool: Encode<'q, DB> + Type<DB>,
    for<'q> DateTime<Utc>: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> &'q str: Encode<'q, DB> + Type<DB>,
    for<'q> String: Decode<'q, DB> + Type<DB>,
    for<'q> &'q [u8]: Encode<'q, DB> + Type<DB>,
    for<'q> Vec<u8>: Decode<'q, DB> + Type<DB>,
    usize: ColumnIndex<DB::Row>,
{
    pub(in crate::store) async fn label_vectors(
        &self,
        model: i64,
        hypotheses: &[i64],
    ) -> Result<Vec<Option<LabelVector>>> {
        const WHAT: &str = "read the vectors of labels";
        let mut found: HashMap<i64, LabelVector> = HashMap::new();
        for chunk in hypotheses.chunks(ROWS_A_STATEMENT) {
            let mut select = QueryBuilder::<DB>::new(
                "SELECT hypothesis_id, vector FROM label_vectors WHERE model_id = ",
            );
            select.push_bind(model).push(" AND hypothesis_id IN (");
            push_list(&mut select, chunk.iter().copied());
            for row in &select.build().fetch_all(&self.pool).await.doing(WHAT)? {
                let id: i64 = row.try_get(0).doing(WHAT)?;
                let bytes: Vec<u8> = row.try_get(1).doing(WHAT)?;
                let vector = LabelVector::from_bytes(&bytes);
                let vector = vector.ok_or_else(|| no_vector("label_vectors", id.to_string()))?;
                found.insert(id, vector);
            }
        }
        Ok(hypotheses.iter().map(|id| found.remove(id)).collect())
    }

    pub(in crate::store) async fn save_label_vectors(
        &self,
        model: i64,
        hypotheses: &[i64],
        vectors: &[LabelVector],
    ) -> Result<()> {
        const WHAT: &str = "store the vectors of labels";
        let bytes: Vec<Vec<u8>> = vectors.iter().map(LabelVector::to_bytes).collect();
        let mut rows: Vec<(i64, &[u8])> = hypotheses
            .iter()
            .copied()
            .zip(bytes.iter().map(Vec::as_slice))
            .collect();
        rows.sort_unstable();
        rows.dedup_by_key(|(id, _)| *id);
        let mut tx = self.begin().await?;
        let insert = Insert {
            table: "label_vectors",
            rows: rows.len(),
            columns: vec![
                ("model_id", Values::all(model, rows.len())),
                (
                    "hypothesis_id",
                    Values::Integer(rows.iter().map(|(id, _)| Some(*id)).collect()),
                ),
                (
                    "vector",
                    Values::Bytes(rows.iter().map(|(_, bytes)| *bytes).collect()),
                ),
            ],
            on_conflict: "ON CONFLICT DO NOTHING",
        };
        DB::insert(&mut tx, insert).await.doing(WHAT)?;
        tx.commit().await.doing(WHAT)
    }

    async fn text_vectors(
        &self,
        model: i64,
        texts: &[TextHash],
    ) -> Result<Vec<Option<TextVector>>> {
        const WHAT: &str = "read the vectors of texts";
        let index: HashMap<&[u8], usize> = texts.iter().map(TextHash::as_bytes).zip(0..).collect();
        let mut found = vec![None; texts.len()];
        for chunk in texts.chunks(ROWS_A_STATEMENT) {
            let mut select = QueryBuilder::<DB>::new(
                "SELECT text_hash, vector FROM text_vectors WHERE model_id = ",
            );
            select.push_bind(model).push(" AND text_hash IN (");
            push_list(&mut select, chunk.iter().map(TextHash::as_bytes));
            for row in &select.build().fetch_all(&self.pool).await.doing(WHAT)? {
                let hash: Vec<u8> = row.try_get(0).doing(WHAT)?;
                found[index[hash.as_slice()]] = Some(Self::text_vector(row, 1, &hash)?);
            }
        }
        Ok(found)
    }

    /// A column that holds the vector of a text.
    pub(super) fn text_vector(row: &DB::Row, column: usize, hash: &[u8]) -> Result<TextVector> {
        let bytes: Vec<u8> = row.try_get(column).doing("read the vector of a text")?;
        let vector = TextVector::from_bytes(bytes);
        vector.ok_or_else(|| no_vector("text_vectors", topicmill_score::hex(hash)))
    }

    pub(in crate::store) async fn vector_logits(
        &self,
        model: i64,
        labels: &[LabelVector],
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<PairLogits>>>> {
        let vectors = self.text_vectors(model, texts).await?.into_iter();
        let logits = |vector: TextVector| {
            let cosines = vector.cosines(labels)?;
            Some(cosines.into_iter().map(PairLogits::cosine).collect())
        };
        Ok(vectors.map(|vector| vector.and_then(logits)).collect())
    }

    pub(in crate::store) async fn stored_logits(
        &self,
        model: i64,
        hypotheses: &[i64],
        texts: &[TextHash],
    ) -> Result<Vec<Vec<Option<PairLogits>>>> {
        let labels = self.label_vectors(model, hypotheses).await?;
        let (places, labels): (Vec<usize>, Vec<LabelVector>) = (0..)
            .zip(labels)
            .filter_map(|(place, label)| Some((place, label?)))
            .unzip();
        if labels.is_empty() {
            return self.stored_pairs(model, hypotheses, texts).await;
        }
        let of_vectors = self.vector_logits(model, &labels, texts).await?;
        let without = texts.iter().zip(&of_vectors);
        let without: Vec<TextHash> = without
            .filter(|(_, logits)| logits.is_none())
            .map(|(text, _)| *text)
            .collect();
        // Labelled by a version that did not store vectors.
        let of_pairs = self.stored_pairs(model, hypotheses, &without).await?;
        let mut of_pairs = of_pairs.into_iter();
        let logits = |of_vector: Option<Vec<PairLogits>>| match of_vector {
            Some(of_vector) => {
                let mut logits = vec![None; hypotheses.len()];
                for (place, one) in places.iter().zip(of_vector) {
                    logits[*place] = Some(one);
                }
                logits
            }
            None => of_pairs.next().expect("one for each text without a vector"),
        };
        Ok(of_vectors.into_iter().map(logits).collect())
    }

    /// Stores the vectors that were computed for these labels.
    pub(super) async fn insert_vectors(
        tx: &mut Transaction<'static, DB>,
        done: &[&Classified],
    ) -> Result<()> {
        let mut rows: Vec<(i64, &TextHash, &TextVector)> = done
            .iter()
            .filter_map(|one| {
                let (model, vector) = one.vector.as_ref()?;
                Some((*model, &one.text_hash, vector))
            })
            .collect();
        rows.sort_unstable_by_key(|(model, hash, _)| (*model, **hash));
        rows.dedup_by_key(|(model, hash, _)| (*model, **hash));
        let insert = Insert {
            table: "text_vectors",
            rows: rows.len(),
            columns: vec![
                (
                    "model_id",
                    Values::Integer(rows.iter().map(|(model, ..)| Some(*model)).collect()),
                ),
                (
                    "text_hash",
                    Values::Bytes(rows.iter().map(|(_, hash, _)| hash.as_bytes()).collect()),
                ),
                (
                    "vector",
                    Values::Bytes(rows.iter().map(|(.., vector)| vector.as_bytes()).collect()),
                ),
            ],
            on_conflict: "ON CONFLICT DO NOTHING",
        };
        DB::insert(&mut *tx, insert).await.doing("store vectors")
    }
}

fn no_vector(table: &'static str, row: String) -> StoreError {
    StoreError::Corrupt {
        table,
        row,
        detail: "`vector` is no vector; delete the row, and the next `topicmill classify` computes it again".into(),
    }
}
