//! Statements for people who look: how far the work is, what database this is.

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, ColumnIndex, Decode, Encode, Executor, IntoArguments, Row, Type};

use super::super::dialect::Dialect;
use super::super::{Info, Result, Standing, Target};
use super::{Doing, SqlStore, TABLES, count};
use crate::domain::Timestamp;

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
    pub(in crate::store) async fn standing(
        &self,
        max_attempts: u32,
        now: Timestamp,
    ) -> Result<Standing> {
        const WHAT: &str = "read how far the labelling is";
        let posts = self.number("SELECT COUNT(*) FROM posts", WHAT).await?;
        let unchecked = self
            .number("SELECT COUNT(*) FROM posts WHERE checked_at IS NULL", WHAT)
            .await?;
        let reconciled_at = self.reconciled_at().await?;
        let target = sqlx::query::<DB>(
            "SELECT t.model_id, t.label_set_id, m.name, s.name, s.hash FROM current_target t \
               JOIN models m ON m.id = t.model_id JOIN label_sets s ON s.id = t.label_set_id",
        )
        .fetch_optional(&self.pool)
        .await
        .doing(WHAT)?;
        // Nothing was labelled yet. The posts still count, because this is what a first `status` shows.
        let Some(target) = target else {
            let open = sqlx::query::<DB>(
                "SELECT COUNT(*), MIN(collected_at) FROM posts WHERE text_purged_at IS NULL",
            )
            .fetch_one(&self.pool)
            .await
            .doing(WHAT)?;
            let unlabelled: i64 = open.try_get(0).doing(WHAT)?;
            let oldest: Option<DateTime<Utc>> = open.try_get(1).doing(WHAT)?;
            return Ok(Standing {
                posts,
                labelled: 0,
                none_of_these: 0,
                other: 0,
                unsure: 0,
                unlabelled,
                set_aside: 0,
                claimed: 0,
                text_purged: posts - unlabelled,
                unchecked,
                reconciled_at,
                oldest_unlabelled: oldest.map(Timestamp::from),
                model: None,
                label_set: None,
                label_set_hash: None,
            });
        };
        let (model_id, label_set_id): (i64, i64) = (
            target.try_get(0).doing(WHAT)?,
            target.try_get(1).doing(WHAT)?,
        );
        let open = sqlx::query::<DB>(
            "SELECT COUNT(*), COUNT(p.text_purged_at), \
                    MIN(CASE WHEN p.text_purged_at IS NULL THEN p.collected_at END) \
               FROM posts p WHERE NOT EXISTS ( \
               SELECT 1 FROM classifications c WHERE c.model_id = $1 AND c.label_set_id = $2 \
                  AND c.fullname = p.fullname AND c.text_hash = p.text_hash)",
        )
        .bind(model_id)
        .bind(label_set_id)
        .fetch_one(&self.pool)
        .await
        .doing(WHAT)?;
        let target_ids = Target {
            model: model_id,
            label_set: label_set_id,
        };
        let none = sqlx::query::<DB>(
            "SELECT COUNT(*), COALESCE(SUM(CASE WHEN c.other THEN 1 ELSE 0 END), 0) FROM classifications c JOIN posts p ON p.fullname = c.fullname \
              WHERE c.model_id = $1 AND c.label_set_id = $2 AND c.abstained AND c.text_hash = p.text_hash",
        )
        .bind(model_id)
        .bind(label_set_id)
        .fetch_one(&self.pool)
        .await
        .doing(WHAT)?;
        let (none, other): (i64, i64) =
            (none.try_get(0).doing(WHAT)?, none.try_get(1).doing(WHAT)?);
        let waiting = self.waiting(target_ids, max_attempts, now).await?;
        let (without, text_purged): (i64, i64) =
            (open.try_get(0).doing(WHAT)?, open.try_get(1).doing(WHAT)?);
        Ok(Standing {
            posts,
            labelled: posts - without,
            none_of_these: none,
            other,
            unsure: none - other,
            unlabelled: without - text_purged,
            text_purged,
            unchecked,
            reconciled_at,
            set_aside: count(waiting.set_aside),
            claimed: count(waiting.held),
            oldest_unlabelled: open
                .try_get::<Option<DateTime<Utc>>, _>(2)
                .doing(WHAT)?
                .map(Timestamp::from),
            model: target.try_get(2).doing(WHAT)?,
            label_set: target.try_get(3).doing(WHAT)?,
            label_set_hash: target.try_get(4).doing(WHAT)?,
        })
    }

    pub(in crate::store) async fn info(&self) -> Result<Info> {
        const WHAT: &str = "read what database this is";
        let server = sqlx::query::<DB>(DB::SERVER)
            .fetch_one(&self.pool)
            .await
            .and_then(|row| row.try_get(0));
        let mut rows = Vec::with_capacity(TABLES.len());
        for table in TABLES {
            let sql = AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}"));
            let count = sqlx::query::<DB>(sql)
                .fetch_one(&self.pool)
                .await
                .and_then(|row| row.try_get(0));
            rows.push((table.to_owned(), count.doing(WHAT)?));
        }
        Ok(Info {
            backend: DB::BACKEND,
            url: self.url.clone(),
            server: server.doing(WHAT)?,
            schema: self.schema().await?,
            latest: Self::latest(),
            bytes: self.number(DB::BYTES, WHAT).await?,
            rows,
        })
    }
}
