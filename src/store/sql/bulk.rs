//! The two inserts of many short rows, sixteen a post and more, each in the form that its database takes
//! fastest: PostgreSQL gets a column an array, SQLite a list of values.

use sqlx::{PgConnection, Postgres, QueryBuilder, Sqlite, SqliteConnection};

use super::super::Target;
use super::ROWS_A_STATEMENT;
use crate::domain::PairLogits;

/// Rows of `pair_logits` of one model: (hash of the text, hypothesis, logits), sorted by their key.
pub struct LogitRows<'a> {
    pub model: i64,
    pub rows: Vec<(&'a [u8], i64, PairLogits)>,
}

/// Rows of `label_scores`: (fullname, position of the label, score).
pub struct ScoreRows<'a> {
    pub target: Target,
    pub rows: Vec<(&'a str, i64, f64)>,
}

/// A database that stores them.
pub trait Bulk: sqlx::Database {
    /// Adds those that are not there.
    fn insert_logits(
        connection: &mut Self::Connection,
        logits: &LogitRows<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Stores scores in the place of older ones.
    fn upsert_scores(
        connection: &mut Self::Connection,
        scores: &ScoreRows<'_>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
}

impl Bulk for Sqlite {
    async fn insert_logits(
        connection: &mut SqliteConnection,
        logits: &LogitRows<'_>,
    ) -> Result<(), sqlx::Error> {
        for chunk in logits.rows.chunks(ROWS_A_STATEMENT) {
            let mut insert = QueryBuilder::<Self>::new(
                "INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment, contradiction, neutral) ",
            );
            insert.push_values(chunk, |mut row, (hash, hypothesis, pair)| {
                row.push_bind(logits.model)
                    .push_bind(*hash)
                    .push_bind(*hypothesis)
                    .push_bind(pair.entailment)
                    .push_bind(pair.contradiction)
                    .push_bind(pair.neutral);
            });
            insert.push(" ON CONFLICT DO NOTHING");
            insert.build().execute(&mut *connection).await?;
        }
        Ok(())
    }

    async fn upsert_scores(
        connection: &mut SqliteConnection,
        scores: &ScoreRows<'_>,
    ) -> Result<(), sqlx::Error> {
        for chunk in scores.rows.chunks(ROWS_A_STATEMENT) {
            let mut insert = QueryBuilder::<Self>::new(
                "INSERT INTO label_scores (fullname, model_id, label_set_id, position, score) ",
            );
            insert.push_values(chunk, |mut row, (fullname, position, score)| {
                row.push_bind(*fullname)
                    .push_bind(scores.target.model)
                    .push_bind(scores.target.label_set)
                    .push_bind(*position)
                    .push_bind(*score);
            });
            insert.push(
                " ON CONFLICT (model_id, label_set_id, fullname, position) DO UPDATE SET score = excluded.score",
            );
            insert.build().execute(&mut *connection).await?;
        }
        Ok(())
    }
}

impl Bulk for Postgres {
    async fn insert_logits(
        connection: &mut PgConnection,
        logits: &LogitRows<'_>,
    ) -> Result<(), sqlx::Error> {
        let column = |of: fn(&PairLogits) -> Option<f32>| -> Vec<Option<f32>> {
            logits.rows.iter().map(|(_, _, pair)| of(pair)).collect()
        };
        let hashes: Vec<&[u8]> = logits.rows.iter().map(|(hash, ..)| *hash).collect();
        let hypotheses: Vec<i64> = logits.rows.iter().map(|(_, id, _)| *id).collect();
        sqlx::query::<Self>(
            "INSERT INTO pair_logits (model_id, text_hash, hypothesis_id, entailment, contradiction, neutral) \
             SELECT $1, * FROM UNNEST($2::bytea[], $3::bigint[], $4::real[], $5::real[], $6::real[]) \
             ON CONFLICT DO NOTHING",
        )
        .bind(logits.model)
        .bind(hashes)
        .bind(hypotheses)
        .bind(column(|pair| Some(pair.entailment)))
        .bind(column(|pair| pair.contradiction))
        .bind(column(|pair| pair.neutral))
        .execute(connection)
        .await?;
        Ok(())
    }

    async fn upsert_scores(
        connection: &mut PgConnection,
        scores: &ScoreRows<'_>,
    ) -> Result<(), sqlx::Error> {
        let fullnames: Vec<&str> = scores.rows.iter().map(|(fullname, ..)| *fullname).collect();
        let positions: Vec<i64> = scores
            .rows
            .iter()
            .map(|(_, position, _)| *position)
            .collect();
        let values: Vec<f64> = scores.rows.iter().map(|(.., score)| *score).collect();
        sqlx::query::<Self>(
            "INSERT INTO label_scores (fullname, model_id, label_set_id, position, score) \
             SELECT fullname, $1, $2, position, score \
               FROM UNNEST($3::text[], $4::bigint[], $5::double precision[]) AS new (fullname, position, score) \
             ON CONFLICT (model_id, label_set_id, fullname, position) DO UPDATE SET score = excluded.score",
        )
        .bind(scores.target.model)
        .bind(scores.target.label_set)
        .bind(fullnames)
        .bind(positions)
        .bind(values)
        .execute(connection)
        .await?;
        Ok(())
    }
}
