//! Claims: posts that wait, taken under a lease, and the logits that are stored of their texts.

use std::collections::HashMap;
use std::ops::Range;

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, QueryBuilder, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::{Claim, Claimant, ClaimedPost, Lease, Result, Target};
use super::{Doing, ROWS_A_STATEMENT, SqlStore, at, push_list};
use topicmill_core::{TextHash, Timestamp};
use topicmill_score::PairLogits;

/// Deaths of its workers after which a post is claimed alone, so that a further one can only be its own.
const ALONE_AFTER: u32 = 5;
/// What the backlog tells of a post whose text somebody changed by hand.
pub(super) const OTHER_TEXT: &str =
    "its text is not the one that its hash says: collect or import the post again";

/// Deaths of its workers after which a post is set aside: `max_attempts` of them with no other post to blame.
pub(super) fn most_deaths(max_attempts: u32) -> i64 {
    i64::from(max_attempts) + i64::from(ALONE_AFTER)
}

/// Most posts of a claim among those whose workers died this often: each death leaves a quarter of the
/// suspects, so that one text that kills its worker is soon alone, and its neighbours are scored.
fn window_of_suspects(deaths: i64) -> u32 {
    match u32::try_from(deaths) {
        Ok(0) => u32::MAX,
        Ok(deaths) if deaths < ALONE_AFTER => 1_024 >> (2 * deaths),
        _ => 1,
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn claim(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        limit: u32,
        now: Timestamp,
    ) -> Result<Claim> {
        let deaths = 0..most_deaths(claimant.max_attempts);
        self.claim_among(target, claimant, limit, now, &deaths)
            .await
    }

    pub async fn claim_clean(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        limit: u32,
        now: Timestamp,
    ) -> Result<Claim> {
        self.claim_among(target, claimant, limit, now, &(0..1))
            .await
    }

    pub async fn claim_suspects(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        limit: u32,
        now: Timestamp,
    ) -> Result<Claim> {
        let deaths = 1..most_deaths(claimant.max_attempts);
        self.claim_among(target, claimant, limit, now, &deaths)
            .await
    }

    /// Claims posts whose workers died so often.
    async fn claim_among(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        limit: u32,
        now: Timestamp,
        deaths: &Range<i64>,
    ) -> Result<Claim> {
        loop {
            // An empty claim would mean that nothing is left, so what only turned out to be labelled is tried
            // again. Each round takes rows out of the backlog, so the loop ends.
            let claimed = self.try_claim(target, claimant, limit, now, deaths).await?;
            if let Some(claim) = claimed {
                return Ok(claim);
            }
        }
    }

    /// `None`: everything that was picked turned out to be labelled; there may be more.
    pub(super) async fn try_claim(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        limit: u32,
        now: Timestamp,
        deaths: &Range<i64>,
    ) -> Result<Option<Claim>> {
        const WHAT: &str = "claim posts";
        let mut tx = self.begin().await?;
        let now = self.shared_time(&mut tx, at(now)).await?;
        // First, so that the posts of a worker that died are free for this very claim.
        Self::bury_expired(&mut tx, now).await?;
        // The least suspected first; the lock keeps others from taking the last of them until they are picked.
        let least = format!(
            "SELECT deaths FROM backlog WHERE model_id = $1 AND label_set_id = $2 AND lease_id IS NULL \
                AND deaths >= $4 AND deaths < $5 AND attempts < $3 ORDER BY deaths, attempts, fullname LIMIT 1 {}",
            DB::SKIP_LOCKED
        );
        let least: Option<i64> = sqlx::query_scalar::<DB, _>(AssertSqlSafe(least))
            .bind(target.model)
            .bind(target.label_set)
            .bind(i64::from(claimant.max_attempts))
            .bind(deaths.start)
            .bind(deaths.end)
            .fetch_optional(&mut *tx)
            .await
            .doing(WHAT)?;
        // Committed and not rolled back: leases may have been buried above.
        let Some(deaths) = least else {
            tx.commit().await.doing(WHAT)?;
            return Ok(Some(Claim::NOTHING));
        };
        // The lease comes before its posts, because `backlog.lease_id` refers to it.
        let id = Self::begin_lease(&mut tx, claimant, now).await?;
        // MATERIALIZED: the rows are picked once. If a planner ran the inner SELECT several times, it could pick
        // other rows each time, and the claim would take more posts than its limit. Only posts of one number of
        // deaths: that number decides how many of them may share a lease.
        let pick = format!(
            "WITH picked AS MATERIALIZED ( \
               SELECT fullname FROM backlog WHERE model_id = $2 AND label_set_id = $3 AND lease_id IS NULL \
                  AND deaths = $6 AND attempts < $4 ORDER BY attempts, fullname LIMIT $5 {}) \
             UPDATE backlog SET lease_id = $1 \
              WHERE model_id = $2 AND label_set_id = $3 AND fullname IN (SELECT fullname FROM picked)",
            DB::SKIP_LOCKED
        );
        let picked = sqlx::query::<DB>(AssertSqlSafe(pick))
            .bind(id)
            .bind(target.model)
            .bind(target.label_set)
            .bind(i64::from(claimant.max_attempts))
            .bind(i64::from(limit.min(window_of_suspects(deaths))))
            .bind(deaths)
            .execute(&mut *tx)
            .await
            .map(|done| DB::rows_affected(&done))
            .doing(WHAT)?;
        // Another worker may have labelled a post between the look that put it here and now. And what has no text
        // is not labelled.
        let done = sqlx::query::<DB>(
            "DELETE FROM backlog WHERE lease_id = $1 AND EXISTS ( \
               SELECT 1 FROM posts p LEFT JOIN classifications c \
                   ON c.model_id = $2 AND c.label_set_id = $3 AND c.fullname = p.fullname \
                WHERE p.fullname = backlog.fullname \
                  AND (c.text_hash = p.text_hash OR NOT p.has_text))",
        )
        .bind(id)
        .bind(target.model)
        .bind(target.label_set)
        .execute(&mut *tx)
        .await
        .map(|done| DB::rows_affected(&done))
        .doing(WHAT)?;
        // A lease without posts would lie in the table until its time is up.
        if picked == done {
            Self::end_lease(&mut tx, id).await?;
            tx.commit().await.doing(WHAT)?;
            return Ok(None);
        }
        let rows = sqlx::query::<DB>(
            "SELECT p.fullname, p.text_hash, p.title, p.selftext FROM backlog b \
               JOIN posts p ON p.fullname = b.fullname AND p.has_text \
              WHERE b.lease_id = $1 ORDER BY p.fullname",
        )
        .bind(id)
        .fetch_all(&mut *tx)
        .await
        .doing(WHAT)?;
        let posts: Vec<ClaimedPost> = rows.iter().map(Self::claimed_post).collect::<Result<_>>()?;
        // Logits are stored by the hash of a text. If a text had another hash, all posts that really have that
        // hash would get its logits.
        let (posts, odd): (Vec<_>, Vec<_>) = posts.into_iter().partition(ClaimedPost::is_whole);
        for post in &odd {
            Self::set_aside(
                &mut tx,
                id,
                &post.fullname,
                claimant.max_attempts,
                OTHER_TEXT,
            )
            .await?;
        }
        if posts.is_empty() {
            // All texts were taken between the statements, or are not what their hashes say.
            Self::end_lease(&mut tx, id).await?;
            tx.commit().await.doing(WHAT)?;
            return Ok(None);
        }
        tx.commit().await.doing(WHAT)?;
        Ok(Some(Claim {
            lease: Lease(id),
            posts,
        }))
    }

    async fn begin_lease(
        tx: &mut Transaction<'static, DB>,
        claimant: &Claimant<'_>,
        now: DateTime<Utc>,
    ) -> Result<i64> {
        sqlx::query_scalar::<DB, _>(
            "INSERT INTO leases (worker, run_id, claimed_at, expires_at) VALUES ($1, $2, $3, $4) RETURNING id",
        )
        .bind(claimant.worker)
        .bind(claimant.run.0)
        .bind(now)
        .bind(now + claimant.lease)
        .fetch_one(&mut **tx)
        .await
        .doing("begin a lease")
    }

    pub(super) async fn end_lease(tx: &mut Transaction<'static, DB>, id: i64) -> Result<()> {
        sqlx::query::<DB>("DELETE FROM leases WHERE id = $1")
            .bind(id)
            .execute(&mut **tx)
            .await
            .done("end a lease")
    }

    /// Lets nobody try a post again until its text changes, or somebody asks for it.
    async fn set_aside(
        tx: &mut Transaction<'static, DB>,
        lease: i64,
        fullname: &str,
        max_attempts: u32,
        error: &str,
    ) -> Result<()> {
        sqlx::query::<DB>(
            "UPDATE backlog SET lease_id = NULL, attempts = $3, error = $4 \
              WHERE lease_id = $1 AND fullname = $2",
        )
        .bind(lease)
        .bind(fullname)
        .bind(i64::from(max_attempts))
        .bind(error)
        .execute(&mut **tx)
        .await
        .done("set a post aside")
    }

    fn claimed_post(row: &DB::Row) -> Result<ClaimedPost> {
        const WHAT: &str = "read claimed posts";
        let fullname: String = row.try_get(0).doing(WHAT)?;
        Ok(ClaimedPost {
            text_hash: Self::text_hash(row, 1, &fullname)?,
            fullname,
            title: row.try_get(2).doing(WHAT)?,
            selftext: row.try_get(3).doing(WHAT)?,
        })
    }

    /// What is stored in `pair_logits`.
    pub(super) async fn stored_pairs(
        &self,
        model: i64,
        hypotheses: &[i64],
        texts: &[TextHash],
    ) -> Result<Vec<Vec<Option<PairLogits>>>> {
        const WHAT: &str = "read stored logits";
        // The database answers in any order, and not every pair is stored.
        let position: HashMap<i64, usize> = hypotheses.iter().copied().zip(0..).collect();
        let index: HashMap<&[u8], usize> = texts.iter().map(TextHash::as_bytes).zip(0..).collect();
        let mut found = vec![vec![None; hypotheses.len()]; texts.len()];
        // PostgreSQL knows no empty list.
        if hypotheses.is_empty() {
            return Ok(found);
        }
        for chunk in texts.chunks(ROWS_A_STATEMENT) {
            let mut select = QueryBuilder::<DB>::new(
                "SELECT text_hash, hypothesis_id, entailment, contradiction, neutral FROM pair_logits \
                  WHERE model_id = ",
            );
            select.push_bind(model).push(" AND text_hash IN (");
            push_list(&mut select, chunk.iter().map(TextHash::as_bytes));
            // A text may have been compared with more hypotheses than these. `+ 0`: one search for each text,
            // and not one for each pair.
            select.push(" AND hypothesis_id + 0 IN (");
            push_list(&mut select, hypotheses.iter().copied());
            let rows = select.build().fetch_all(&self.pool).await.doing(WHAT)?;
            for row in &rows {
                let hash: Vec<u8> = row.try_get(0).doing(WHAT)?;
                let compared: i64 = row.try_get(1).doing(WHAT)?;
                let logits = PairLogits {
                    entailment: row.try_get(2).doing(WHAT)?,
                    contradiction: row.try_get(3).doing(WHAT)?,
                    neutral: row.try_get(4).doing(WHAT)?,
                };
                found[index[hash.as_slice()]][position[&compared]] = Some(logits);
            }
        }
        Ok(found)
    }
}
