//! Records gaps and removes the parts of them that have been filled.

use sqlx::{AssertSqlSafe, Row};

use super::{ErrorContext, SqlStore, Tx};
use crate::dialect::Dialect;
use crate::{Gap, Result, RunId};
use topicmill_core::SourceKind;

/// Posts from the sample Reddit fill only its own gaps, and posts from all other sources fill only the other gaps.
const SAMPLE: SourceKind = SourceKind::Sample;

/// A stored gap, with the run that found it.
struct StoredGap {
    gap: Gap,
    run: Option<RunId>,
}

/// Returns the parts of a gap before and after a filled range.
fn subtract(gap: &Gap, filled: &Gap) -> Vec<Gap> {
    let before = Gap {
        until_at: gap.until_at.min(filled.from_at),
        ..gap.clone()
    };
    let after = Gap {
        from_at: gap.from_at.max(filled.until_at),
        ..gap.clone()
    };
    let mut parts = vec![before, after];
    parts.retain(|part| part.from_at < part.until_at);
    parts
}

impl<DB: Dialect> SqlStore<DB> {
    /// Gaps of the same source that overlap the new one become a part of it, so that no time is counted twice.
    pub async fn record_gap(&self, gap: &Gap, run: RunId) -> Result<()> {
        let mut tx = self.begin().await?;
        let mut union = gap.clone();
        for StoredGap { gap: other, .. } in Self::overlapping_gaps(&mut tx, gap).await? {
            if other.source == gap.source {
                union.from_at = union.from_at.min(other.from_at);
                union.until_at = union.until_at.max(other.until_at);
                Self::delete_gap(&mut tx, &other).await?;
            }
        }
        Self::insert_gap(&mut tx, &union, Some(run)).await?;
        tx.commit().await.context("record a gap")
    }

    pub async fn gaps(&self) -> Result<Vec<Gap>> {
        sqlx::query::<DB>(
            "SELECT source, topic, subreddit, from_at, until_at FROM gaps ORDER BY until_at DESC, topic",
        )
        .try_map(row_as!(Gap: source, topic, subreddit, from_at, until_at))
        .fetch_all(&self.pool)
        .await
        .context("read the gaps")
    }

    pub async fn fill_gaps(&self, filled: &Gap) -> Result<()> {
        let mut tx = self.begin().await?;
        for StoredGap { gap, run } in Self::overlapping_gaps(&mut tx, filled).await? {
            // Deleted and inserted again, because `from_at` is part of the key.
            Self::delete_gap(&mut tx, &gap).await?;
            for part in subtract(&gap, filled) {
                Self::insert_gap(&mut tx, &part, run).await?;
            }
        }
        tx.commit().await.context("remove filled gaps")
    }

    async fn delete_gap(tx: &mut Tx<DB>, gap: &Gap) -> Result<()> {
        sqlx::query::<DB>(
            "DELETE FROM gaps WHERE source = $1 AND topic = $2 AND subreddit = $3 AND from_at = $4",
        )
        .bind(gap.source.as_str())
        .bind(gap.topic.as_str())
        .bind(gap.subreddit.as_str())
        .bind(gap.from_at)
        .execute(&mut **tx)
        .await
        .map(drop)
        .context("write the gaps")
    }

    /// Inserts a gap. Of two gaps with the same start, the longer one is kept.
    async fn insert_gap(tx: &mut Tx<DB>, gap: &Gap, run: Option<RunId>) -> Result<()> {
        sqlx::query::<DB>(
            "INSERT INTO gaps (source, topic, subreddit, from_at, until_at, run_id) \
             VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (source, topic, subreddit, from_at) DO UPDATE SET until_at = excluded.until_at \
             WHERE gaps.until_at < excluded.until_at",
        )
        .bind(gap.source.as_str())
        .bind(gap.topic.as_str())
        .bind(gap.subreddit.as_str())
        .bind(gap.from_at)
        .bind(gap.until_at)
        .bind(run.map(|run| run.0))
        .execute(&mut **tx)
        .await
        .map(drop)
        .context("write the gaps")
    }

    /// Selects and locks the gaps that overlap a range. Includes gaps from other sources, because an archive may
    /// have posts that Reddit did not list.
    async fn overlapping_gaps(tx: &mut Tx<DB>, range: &Gap) -> Result<Vec<StoredGap>> {
        let select = format!(
            "SELECT source, topic, subreddit, from_at, until_at, run_id FROM gaps \
              WHERE topic = $1 AND subreddit = $2 AND from_at < $4 AND until_at > $3 \
                AND (source = '{SAMPLE}') = $5 ORDER BY source, from_at {}",
            DB::FOR_UPDATE
        );
        let decode = |row: DB::Row| {
            let run = row.try_get(5)?;
            let gap = row_as!(Gap: source, topic, subreddit, from_at, until_at)(row)?;
            Ok(StoredGap { gap, run })
        };
        sqlx::query::<DB>(AssertSqlSafe(select))
            .bind(range.topic.as_str())
            .bind(range.subreddit.as_str())
            .bind(range.from_at)
            .bind(range.until_at)
            .bind(range.source == SAMPLE)
            .try_map(decode)
            .fetch_all(&mut **tx)
            .await
            .context("read the gaps")
    }
}

#[cfg(test)]
mod tests {
    use topicmill_core::Timestamp;

    use super::*;

    #[test]
    fn filling_part_of_a_gap_leaves_the_remainder() {
        let time = |secs: i64| Timestamp::from_epoch_secs(secs).unwrap();
        let gap = |from: i64, until: i64| Gap {
            source: SourceKind::Reddit,
            topic: "t".into(),
            subreddit: "s".into(),
            from_at: time(from),
            until_at: time(until),
        };
        let left = |from: i64, until: i64| -> Vec<(i64, i64)> {
            let secs = |time: Timestamp| time.as_datetime().timestamp();
            subtract(&gap(100, 200), &gap(from, until))
                .iter()
                .map(|part| (secs(part.from_at), secs(part.until_at)))
                .collect()
        };
        assert_eq!(left(50, 250), []);
        assert_eq!(left(100, 200), []);
        assert_eq!(left(150, 250), [(100, 150)]);
        assert_eq!(left(50, 150), [(150, 200)]);
        assert_eq!(left(120, 180), [(100, 120), (180, 200)]);
    }
}
