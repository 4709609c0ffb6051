//! Claims: posts that wait, taken under a lease, and the logits that are stored of their texts.

use std::collections::HashMap;
use std::ops::Range;

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, QueryBuilder, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::{Claim, Claimant, ClaimedPost, Lease, Result, Suspicion, Target};
use super::{Doing, ROWS_A_STATEMENT, SqlStore, at, push_list};
use topicmill_core::{Fullname, TextHash, Timestamp};
use topicmill_score::PairLogits;
use topicmill_score::reddit::post_text;

/// Deaths of its workers after which a post is claimed alone, so that a further one can only be its own.
const ALONE_AFTER: u32 = 5;
/// Backlog error of a post whose text was changed by hand.
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

/// The posts that a claim may take.
struct Wanted {
    target: Target,
    /// Posts that failed this often are left alone.
    max_attempts: u32,
    /// The number of workers that crashed while they held them.
    deaths: Range<i64>,
    limit: u32,
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn claim(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        suspicion: Suspicion,
        limit: u32,
        now: Timestamp,
    ) -> Result<Claim> {
        let most = most_deaths(claimant.max_attempts);
        let deaths = match suspicion {
            Suspicion::Any => 0..most,
            Suspicion::Clear => 0..1,
            Suspicion::Suspect => 1..most,
        };
        let wanted = Wanted {
            target,
            max_attempts: claimant.max_attempts,
            deaths,
            limit,
        };
        loop {
            // An empty claim would mean that nothing is left, so what only turned out to be labelled is tried
            // again. Each round takes rows out of the backlog, so the loop ends.
            if let Some(claim) = self.try_claim(&wanted, claimant, now).await? {
                return Ok(claim);
            }
        }
    }

    /// `None`: everything that was picked turned out to be labelled; there may be more.
    async fn try_claim(
        &self,
        wanted: &Wanted,
        claimant: &Claimant<'_>,
        now: Timestamp,
    ) -> Result<Option<Claim>> {
        const WHAT: &str = "claim posts";
        let mut tx = self.begin().await?;
        let now = self.shared_time(&mut tx, at(now)).await?;
        // First, so that the posts of a worker that died are free for this very claim.
        Self::bury_expired(&mut tx, now).await?;
        let Some(deaths) = Self::least_deaths(&mut tx, wanted).await? else {
            // Committed and not rolled back: leases may have been buried above.
            tx.commit().await.doing(WHAT)?;
            return Ok(Some(Claim::NOTHING));
        };
        // The lease comes before its posts, because `backlog.lease_id` refers to it.
        let lease = Self::begin_lease(&mut tx, claimant, now).await?;
        let picked = Self::pick_posts(&mut tx, wanted, deaths, lease).await?;
        let done = Self::unpick_labelled(&mut tx, wanted.target, lease).await?;
        let mut posts = Vec::new();
        if picked > done {
            let claimed = Self::claimed_posts(&mut tx, lease).await?;
            // Logits are stored by the hash of a text. If a text had another hash, all posts that really have that
            // hash would get its logits.
            let is_whole = |post: &ClaimedPost| TextHash::new(&post.text) == post.text_hash;
            let (whole, odd): (Vec<_>, Vec<_>) = claimed.into_iter().partition(is_whole);
            for post in odd {
                Self::set_aside(&mut tx, lease, &post.fullname, wanted.max_attempts).await?;
            }
            posts = whole;
        }
        // A lease without posts would lie in the table until its time is up.
        if posts.is_empty() {
            Self::end_lease(&mut tx, lease).await?;
        }
        tx.commit().await.doing(WHAT)?;
        let lease = Lease(lease);
        Ok((!posts.is_empty()).then_some(Claim { lease, posts }))
    }

    /// Returns the number of deaths of the least suspected post; the lock keeps others from taking the last of them
    /// until they are picked.
    async fn least_deaths(
        tx: &mut Transaction<'static, DB>,
        wanted: &Wanted,
    ) -> Result<Option<i64>> {
        let least = format!(
            "SELECT deaths FROM backlog WHERE model_id = $1 AND label_set_id = $2 AND lease_id IS NULL \
                AND deaths >= $4 AND deaths < $5 AND attempts < $3 ORDER BY deaths, attempts, fullname LIMIT 1 {}",
            DB::SKIP_LOCKED
        );
        sqlx::query_scalar::<DB, _>(AssertSqlSafe(least))
            .bind(wanted.target.model)
            .bind(wanted.target.label_set)
            .bind(i64::from(wanted.max_attempts))
            .bind(wanted.deaths.start)
            .bind(wanted.deaths.end)
            .fetch_optional(&mut **tx)
            .await
            .doing("look for posts to claim")
    }

    /// Puts posts under a lease, and returns how many.
    ///
    /// MATERIALIZED: the rows are picked once. If a planner ran the inner SELECT several times, it could pick other
    /// rows each time, and the claim would take more posts than its limit. Only posts of one number of deaths: that
    /// number decides how many of them may share a lease.
    async fn pick_posts(
        tx: &mut Transaction<'static, DB>,
        wanted: &Wanted,
        deaths: i64,
        lease: i64,
    ) -> Result<u64> {
        let pick = format!(
            "WITH picked AS MATERIALIZED ( \
               SELECT fullname FROM backlog WHERE model_id = $2 AND label_set_id = $3 AND lease_id IS NULL \
                  AND deaths = $6 AND attempts < $4 ORDER BY attempts, fullname LIMIT $5 {}) \
             UPDATE backlog SET lease_id = $1 \
              WHERE model_id = $2 AND label_set_id = $3 AND fullname IN (SELECT fullname FROM picked)",
            DB::SKIP_LOCKED
        );
        sqlx::query::<DB>(AssertSqlSafe(pick))
            .bind(lease)
            .bind(wanted.target.model)
            .bind(wanted.target.label_set)
            .bind(i64::from(wanted.max_attempts))
            .bind(i64::from(wanted.limit.min(window_of_suspects(deaths))))
            .bind(deaths)
            .execute(&mut **tx)
            .await
            .map(|done| DB::rows_affected(&done))
            .doing("pick posts")
    }

    /// Takes posts out of a lease and the backlog that another worker labelled between the look that put them there and
    /// now, and those that have no text; returns how many.
    async fn unpick_labelled(
        tx: &mut Transaction<'static, DB>,
        target: Target,
        lease: i64,
    ) -> Result<u64> {
        sqlx::query::<DB>(
            "DELETE FROM backlog WHERE lease_id = $1 AND EXISTS ( \
               SELECT 1 FROM posts p LEFT JOIN classifications c \
                   ON c.model_id = $2 AND c.label_set_id = $3 AND c.fullname = p.fullname \
                WHERE p.fullname = backlog.fullname \
                  AND (c.text_hash = p.text_hash OR NOT p.has_text))",
        )
        .bind(lease)
        .bind(target.model)
        .bind(target.label_set)
        .execute(&mut **tx)
        .await
        .map(|done| DB::rows_affected(&done))
        .doing("leave out posts that are labelled")
    }

    async fn claimed_posts(
        tx: &mut Transaction<'static, DB>,
        lease: i64,
    ) -> Result<Vec<ClaimedPost>> {
        const WHAT: &str = "read claimed posts";
        let rows = sqlx::query::<DB>(
            "SELECT p.fullname, p.text_hash, p.title, p.selftext FROM backlog b \
               JOIN posts p ON p.fullname = b.fullname AND p.has_text \
              WHERE b.lease_id = $1 ORDER BY p.fullname",
        )
        .bind(lease)
        .fetch_all(&mut **tx)
        .await
        .doing(WHAT)?;
        let post = |row: &DB::Row| {
            let (title, selftext): (String, String) =
                (row.try_get(2).doing(WHAT)?, row.try_get(3).doing(WHAT)?);
            let fullname: Fullname = row.try_get(0).doing(WHAT)?;
            Ok(ClaimedPost {
                text_hash: Self::text_hash(row, 1, &fullname)?,
                fullname,
                text: post_text(&title, &selftext),
            })
        };
        rows.iter().map(post).collect()
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

    /// Lets nobody try a post with another text than its hash says until its text changes, or somebody asks for it.
    async fn set_aside(
        tx: &mut Transaction<'static, DB>,
        lease: i64,
        fullname: &Fullname,
        max_attempts: u32,
    ) -> Result<()> {
        sqlx::query::<DB>(
            "UPDATE backlog SET lease_id = NULL, attempts = $3, error = $4 \
              WHERE lease_id = $1 AND fullname = $2",
        )
        .bind(lease)
        .bind(fullname.as_str())
        .bind(i64::from(max_attempts))
        .bind(OTHER_TEXT)
        .execute(&mut **tx)
        .await
        .done("set a post aside")
    }

    pub async fn pair_logits(
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
