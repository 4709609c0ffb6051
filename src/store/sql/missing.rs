//! What a label set under a model still costs: read only, for those who want to know before.

use sqlx::{ColumnIndex, Decode, Encode, Executor, IntoArguments, QueryBuilder, Row, Type};

use super::super::dialect::Dialect;
use super::super::{Missing, ModelRow, Result, Sought, StoreError};
use super::{Doing, SqlStore, count, push_list};
use crate::domain::TextHash;

impl<DB> SqlStore<DB>
where
    DB: Dialect,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    DB::Arguments: IntoArguments<DB>,
    for<'q> i64: Encode<'q, DB> + Decode<'q, DB> + Type<DB>,
    for<'q> Option<i64>: Encode<'q, DB>,
    for<'q> &'q str: Encode<'q, DB> + Type<DB>,
    for<'q> String: Decode<'q, DB> + Type<DB>,
    for<'q> &'q [u8]: Encode<'q, DB> + Type<DB>,
    for<'q> Vec<u8>: Decode<'q, DB> + Type<DB>,
    usize: ColumnIndex<DB::Row>,
{
    pub(in crate::store) async fn seek(
        &self,
        model: &ModelRow,
        label_set: &str,
        hypotheses: &[String],
    ) -> Result<Sought> {
        const WHAT: &str = "look for the model and the label set";
        let model = sqlx::query::<DB>(
            "SELECT id FROM models WHERE manifest_hash = $1 AND precision = $2 AND max_tokens = $3",
        )
        .bind(model.manifest_hash.as_str())
        .bind(model.precision.as_str())
        .bind(model.max_tokens)
        .fetch_optional(&self.pool)
        .await
        .and_then(|row| row.map(|row| row.try_get(0)).transpose())
        .doing(WHAT)?;
        let label_set = sqlx::query::<DB>("SELECT id FROM label_sets WHERE hash = $1")
            .bind(label_set)
            .fetch_optional(&self.pool)
            .await
            .and_then(|row| row.map(|row| row.try_get(0)).transpose())
            .doing(WHAT)?;
        let mut known = Vec::with_capacity(hypotheses.len());
        for text in hypotheses {
            let id = sqlx::query::<DB>("SELECT id FROM hypotheses WHERE hash = $1")
                .bind(TextHash::of(text).as_bytes())
                .fetch_optional(&self.pool)
                .await
                .and_then(|row| row.map(|row| row.try_get(0)).transpose())
                .doing(WHAT)?;
            known.push(id);
        }
        Ok(Sought {
            model,
            label_set,
            hypotheses: known,
        })
    }

    pub(in crate::store) async fn missing(&self, sought: &Sought, sample: u32) -> Result<Missing> {
        const WHAT: &str = "count what is missing";
        let mut totals = Self::open_posts(sought, "COUNT(*) AS posts", "");
        totals.push(") SELECT COUNT(*), COALESCE(CAST(SUM(posts) AS BIGINT), 0) FROM open");
        let row = totals.build().fetch_one(&self.pool).await.doing(WHAT)?;
        let (texts, posts): (i64, i64) = (row.try_get(0).doing(WHAT)?, row.try_get(1).doing(WHAT)?);

        let known_hypotheses: Vec<i64> = sought.hypotheses.iter().flatten().copied().collect();
        let known = match sought.model {
            Some(model) if !known_hypotheses.is_empty() => {
                let mut known = Self::open_posts(sought, "COUNT(*) AS posts", "");
                known
                    .push(") SELECT COUNT(*) FROM open o JOIN pair_logits l ON l.text_hash = o.text_hash AND l.model_id = ")
                    .push_bind(model)
                    .push(" AND l.hypothesis_id IN (");
                push_list(&mut known, known_hypotheses);
                let row = known.build().fetch_one(&self.pool).await.doing(WHAT)?;
                row.try_get::<i64, _>(0).doing(WHAT)?
            }
            _ => 0,
        };

        // Hashes are random, so the lowest of them are a sample that comes out the same every time.
        let mut some = Self::open_posts(
            sought,
            "MIN(p.fullname) AS fullname",
            " ORDER BY p.text_hash LIMIT ",
        );
        some.push_bind(i64::from(sample));
        some.push(
            ") SELECT o.text_hash, p.title, p.selftext FROM open o JOIN posts p ON p.fullname = o.fullname \
             ORDER BY o.text_hash",
        );
        let rows = some.build().fetch_all(&self.pool).await.doing(WHAT)?;
        let decode = |row: &DB::Row| {
            let hash: Vec<u8> = row.try_get(0).doing(WHAT)?;
            let hash = TextHash::try_from(hash.as_slice()).map_err(|_| StoreError::Corrupt {
                table: "posts",
                row: row.try_get(1).unwrap_or_default(),
                detail: "`text_hash` has not 16 bytes".into(),
            })?;
            Ok((
                hash,
                row.try_get(1).doing(WHAT)?,
                row.try_get(2).doing(WHAT)?,
            ))
        };
        let labels = count(sought.hypotheses.len() as u64);
        let unsigned = i64::unsigned_abs;
        Ok(Missing {
            posts: unsigned(posts),
            texts: unsigned(texts),
            pairs: unsigned(texts * labels - known),
            known: unsigned(known),
            sample: rows.iter().map(decode).collect::<Result<_>>()?,
        })
    }

    /// The beginning of a statement over `open`: one row a text that has posts without a valid classification.
    fn open_posts(sought: &Sought, columns: &str, end: &str) -> QueryBuilder<DB> {
        let mut query = QueryBuilder::<DB>::new("WITH open AS (SELECT p.text_hash, ");
        query
            .push(columns)
            .push(" FROM posts p WHERE p.text_purged_at IS NULL AND NOT EXISTS (SELECT 1 FROM classifications c WHERE c.model_id = ")
            .push_bind(sought.model)
            .push(" AND c.label_set_id = ")
            .push_bind(sought.label_set)
            .push(" AND c.fullname = p.fullname AND c.text_hash = p.text_hash) GROUP BY p.text_hash")
            .push(end);
        query
    }
}
