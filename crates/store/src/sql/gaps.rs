//! Records gaps and removes the parts of them that have been filled.

use sqlx::{AssertSqlSafe, Row};

use super::{ErrorContext, SqlStore, Tx};
use crate::dialect::Dialect;
use crate::{Gap, Result, RunId};
use topicmill_core::{SourceKind, Timestamp};

/// Inserts a gap. Of two gaps with the same start, the longer one is kept.
const INSERT_GAP: &str = "INSERT INTO gaps (source, topic, subreddit, from_at, until_at, run_id) \
             VALUES ($1, $2, $3, $4, $5, $6) \
             ON CONFLICT (source, topic, subreddit, from_at) DO UPDATE SET until_at = excluded.until_at \
             WHERE gaps.until_at < excluded.until_at";

/// Posts from the sample Reddit fill only its own gaps, and posts from all other sources fill only the other gaps.
const SAMPLE: SourceKind = SourceKind::Sample;

/// A gap that overlaps a filled range.
struct OverlappingGap {
    source: String,
    from_at: Timestamp,
    until_at: Timestamp,
    run: Option<RunId>,
}

impl OverlappingGap {
    /// Returns what remains of the gap.
    fn subtract(&self, filled: &Gap) -> Vec<(Timestamp, Timestamp)> {
        let before = (self.from_at, self.until_at.min(filled.from_at));
        let behind = (self.from_at.max(filled.until_at), self.until_at);
        let mut ranges = vec![before, behind];
        ranges.retain(|(from, until)| from < until);
        ranges
    }
}

impl<DB: Dialect> SqlStore<DB> {
    /// Gaps of the same source that overlap the new one become a part of it, so that no time is counted twice.
    pub async fn record_gap(&self, gap: &Gap, run: RunId) -> Result<()> {
        let mut tx = self.begin().await?;
        let (mut from_at, mut until_at) = (gap.from_at, gap.until_at);
        let mut overlapping = Self::overlapping_gaps(&mut tx, gap).await?;
        overlapping.retain(|other| other.source == gap.source.as_str());
        for other in overlapping {
            (from_at, until_at) = (from_at.min(other.from_at), until_at.max(other.until_at));
            Self::replace_gap(&mut tx, gap, &other, &[]).await?;
        }
        let whole = OverlappingGap {
            source: gap.source.to_string(),
            from_at,
            until_at,
            run: Some(run),
        };
        Self::replace_gap(&mut tx, gap, &whole, &[(from_at, until_at)]).await?;
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
        let overlapping = Self::overlapping_gaps(&mut tx, filled).await?;
        for gap in &overlapping {
            Self::replace_gap(&mut tx, filled, gap, &gap.subtract(filled)).await?;
        }
        tx.commit().await.context("remove filled gaps")
    }

    /// Replaces a gap of a topic's subreddit with time ranges. It is deleted and inserted again, because `from_at` is
    /// part of the key.
    async fn replace_gap(
        tx: &mut Tx<DB>,
        of: &Gap,
        gap: &OverlappingGap,
        ranges: &[(Timestamp, Timestamp)],
    ) -> Result<()> {
        const WHAT: &str = "write the gaps";
        sqlx::query::<DB>(
            "DELETE FROM gaps WHERE source = $1 AND topic = $2 AND subreddit = $3 AND from_at = $4",
        )
        .bind(gap.source.as_str())
        .bind(of.topic.as_str())
        .bind(of.subreddit.as_str())
        .bind(gap.from_at)
        .execute(&mut **tx)
        .await
        .context(WHAT)?;
        for (from_at, until_at) in ranges {
            sqlx::query::<DB>(INSERT_GAP)
                .bind(gap.source.as_str())
                .bind(of.topic.as_str())
                .bind(of.subreddit.as_str())
                .bind(*from_at)
                .bind(*until_at)
                .bind(gap.run.map(|run| run.0))
                .execute(&mut **tx)
                .await
                .context(WHAT)?;
        }
        Ok(())
    }

    /// Selects and locks the gaps that overlap a filled range. Includes gaps from other sources, because an archive may
    /// have posts that Reddit did not list.
    async fn overlapping_gaps(tx: &mut Tx<DB>, filled: &Gap) -> Result<Vec<OverlappingGap>> {
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
            .try_map(row_as!(OverlappingGap: source, from_at, until_at, run))
            .fetch_all(&mut **tx)
            .await
            .context("read the gaps")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_part_of_a_gap_leaves_the_remainder() {
        let time = |secs: i64| Timestamp::from_epoch_secs(secs).unwrap();
        let left = |from: i64, until: i64| -> Vec<(i64, i64)> {
            let overlapping = OverlappingGap {
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
            let left = overlapping.subtract(&filled).into_iter();
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
