//! Stretches of time of which posts are missing: recorded, and taken away again as far as the posts came.

use sqlx::{AssertSqlSafe, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::{Gap, Result, RunId, StoreError};
use super::{Doing, SqlStore};
use topicmill_core::{SourceKind, Timestamp, UnknownVariant};

/// If two begin at the same time, the longer one stays.
const RECORD: &str = "INSERT INTO gaps (source, topic, subreddit, from_at, until_at, run_id) \
             VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (source, topic, subreddit, from_at) DO UPDATE SET until_at = excluded.until_at \
             WHERE gaps.until_at < excluded.until_at";

/// What the sample Reddit lacks nobody else has, and the other way round.
const SAMPLE: SourceKind = SourceKind::Sample;

/// A gap that posts came into.
struct Met {
    source: String,
    from_at: Timestamp,
    until_at: Timestamp,
    run: Option<i64>,
}

impl Met {
    /// The rest of it.
    fn without(&self, filled: &Gap) -> Vec<(Timestamp, Timestamp)> {
        let before = (self.from_at, self.until_at.min(filled.from_at));
        let behind = (self.from_at.max(filled.until_at), self.until_at);
        let left = [before, behind];
        left.into_iter()
            .filter(|(from, until)| from < until)
            .collect()
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn record_gap(&self, gap: &Gap, run: RunId) -> Result<()> {
        sqlx::query::<DB>(RECORD)
            .bind(gap.source.as_str())
            .bind(gap.topic.as_str())
            .bind(gap.subreddit.as_str())
            .bind(gap.from_at)
            .bind(gap.until_at)
            .bind(run.0)
            .execute(&self.pool)
            .await
            .done("record a gap")
    }

    pub async fn gaps(&self) -> Result<Vec<Gap>> {
        let rows: Vec<(String, String, String, Timestamp, Timestamp)> = sqlx::query_as::<DB, _>(
            "SELECT source, topic, subreddit, from_at, until_at FROM gaps ORDER BY until_at DESC, topic",
        )
        .fetch_all(&self.pool)
        .await
        .doing("read the gaps")?;
        let gap = |(source, topic, subreddit, from_at, until_at): (String, String, _, _, _)| {
            let source = source.parse();
            let source = source.map_err(|error: UnknownVariant| StoreError::Corrupt {
                table: "gaps",
                row: topic.clone(),
                detail: error.to_string(),
            })?;
            Ok(Gap {
                source,
                topic,
                subreddit,
                from_at,
                until_at,
            })
        };
        rows.into_iter().map(gap).collect()
    }

    pub async fn fill_gaps(&self, filled: &Gap) -> Result<()> {
        again!(self.try_fill_gaps(filled))
    }

    async fn try_fill_gaps(&self, filled: &Gap) -> Result<()> {
        const WHAT: &str = "take gaps away";
        let mut tx = self.begin().await?;
        let met = Self::met(&mut tx, filled).await?;
        for gap in &met {
            sqlx::query::<DB>(
                "DELETE FROM gaps WHERE source = $1 AND topic = $2 AND subreddit = $3 AND from_at = $4",
            )
            .bind(gap.source.as_str())
            .bind(filled.topic.as_str())
            .bind(filled.subreddit.as_str())
            .bind(gap.from_at)
            .execute(&mut *tx)
            .await
            .doing(WHAT)?;
            // Deleted and recorded anew: `from_at` is a part of the key, and what is left may be two pieces.
            for (from_at, until_at) in gap.without(filled) {
                sqlx::query::<DB>(RECORD)
                    .bind(gap.source.as_str())
                    .bind(filled.topic.as_str())
                    .bind(filled.subreddit.as_str())
                    .bind(from_at)
                    .bind(until_at)
                    .bind(gap.run)
                    .execute(&mut *tx)
                    .await
                    .doing(WHAT)?;
            }
        }
        tx.commit().await.doing(WHAT)
    }

    /// The gaps that posts came into. An archive may have what Reddit did not list.
    async fn met(tx: &mut Transaction<'static, DB>, filled: &Gap) -> Result<Vec<Met>> {
        let select = format!(
            "SELECT source, from_at, until_at, run_id FROM gaps WHERE topic = $1 AND subreddit = $2 \
                AND from_at < $4 AND until_at > $3 AND (source = '{SAMPLE}') = $5 ORDER BY source, from_at {}",
            DB::FOR_UPDATE
        );
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(filled.topic.as_str())
            .bind(filled.subreddit.as_str())
            .bind(filled.from_at)
            .bind(filled.until_at)
            .bind(filled.source == SAMPLE)
            .try_map(row_as!(Met: source, from_at, until_at, run))
            .fetch_all(&mut **tx)
            .await
            .doing("read the gaps")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_goes_and_the_rest_of_a_gap_stays() {
        let time = |secs: i64| Timestamp::from_epoch_secs(secs).unwrap();
        let left = |from: i64, until: i64| -> Vec<(i64, i64)> {
            let met = Met {
                source: "reddit".into(),
                from_at: time(100),
                until_at: time(200),
                run: None,
            };
            let filled = Gap {
                source: SourceKind::Reddit,
                topic: "t".into(),
                subreddit: "s".into(),
                from_at: time(from),
                until_at: time(until),
            };
            let left = met.without(&filled).into_iter();
            let secs = |time: Timestamp| time.as_datetime().timestamp();
            left.map(|(from, until)| (secs(from), secs(until)))
                .collect()
        };
        assert_eq!(left(50, 250), []);
        assert_eq!(left(100, 200), []);
        assert_eq!(left(150, 250), [(100, 150)]);
        assert_eq!(left(50, 150), [(150, 200)]);
        assert_eq!(left(120, 180), [(100, 120), (180, 200)]);
    }
}
