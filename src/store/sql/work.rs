//! The backlog, the leases on parts of it, and writing labels under one.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{
    AssertSqlSafe, ColumnIndex, Decode, Encode, Executor, IntoArguments, QueryBuilder, Row,
    Transaction, Type,
};

use super::super::bulk::{Insert, Values};
use super::super::dialect::Dialect;
use super::super::failure::is_taken;
use super::super::{
    Claim, Claimant, ClaimedPost, Classified, Lease, Result, RunId, StoreError, StoredLabels,
    Target, Waiting, Written,
};
use super::{Doing, POSTS_A_STATEMENT, ROWS_A_STATEMENT, SqlStore, at, push_list};
use crate::domain::{TextHash, Timestamp};
use topicmill_score::{Mode, PairLogits, Scores, TextVector};

/// What is common to labels that are stored together.
struct Labels {
    target: Target,
    mode: Mode,
    run: RunId,
    now: Timestamp,
    /// Whether many logits are stored as fast as the database takes them: then one that is there is an error.
    apart: bool,
}

/// Posts that change a backlog so much that the planner must hear of it.
const MANY: u64 = 1_000;
/// Deaths of its workers after which a post is claimed alone, so that a further one can only be its own.
const ALONE_AFTER: u32 = 5;
/// What the backlog tells of a post whose text somebody changed by hand.
pub(super) const OTHER_TEXT: &str =
    "its text is not the one that its hash says: collect or import the post again";
/// What the backlog tells of a post that was taken back.
const DIED: &str = "the worker that held it died, or stood still for longer than its lease";

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
    pub(in crate::store) async fn enqueue_missing(&self, target: Target) -> Result<u64> {
        // The hash is compared, too, so an edited post comes back by itself. The posts are held in the order of
        // their names, so that retention cannot take a text between this SELECT and the row of the backlog. Two
        // workers may look at once: the second one finds the row and does nothing.
        let insert = format!(
            "INSERT INTO backlog (model_id, label_set_id, fullname) \
             SELECT $1, $2, p.fullname FROM posts p WHERE p.text_purged_at IS NULL AND NOT EXISTS ( \
               SELECT 1 FROM classifications c WHERE c.model_id = $1 AND c.label_set_id = $2 \
                  AND c.fullname = p.fullname AND c.text_hash = p.text_hash) \
              ORDER BY p.fullname {} ON CONFLICT DO NOTHING",
            DB::HOLD_POSTS
        );
        let added = sqlx::query::<DB>(AssertSqlSafe(insert))
            .bind(target.model)
            .bind(target.label_set)
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done))
            .doing("find unlabelled posts")?;
        // Only after a big look: ANALYZE reads a part of the table, which would be too much after each small
        // page.
        if added >= MANY
            && let Some(count) = DB::COUNT_BACKLOG
        {
            sqlx::query::<DB>(count)
                .execute(&self.pool)
                .await
                .doing("count the backlog")?;
        }
        Ok(added)
    }

    pub(in crate::store) async fn waiting(
        &self,
        target: Target,
        max_attempts: u32,
        now: Timestamp,
    ) -> Result<Waiting> {
        const WHAT: &str = "count the backlog";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let now = self.shared_time(&mut connection, at(now)).await?;
        // An expired lease does not count as held, because the next claim takes its posts over. A SUM over no
        // rows is NULL.
        let row = sqlx::query::<DB>(
            "SELECT COUNT(*), \
                    COALESCE(SUM(CASE WHEN l.expires_at > $4 THEN 1 ELSE 0 END), 0), \
                    COALESCE(SUM(CASE WHEN b.attempts >= $3 OR b.deaths >= $5 THEN 1 ELSE 0 END), 0) \
               FROM backlog b LEFT JOIN leases l ON l.id = b.lease_id \
              WHERE b.model_id = $1 AND b.label_set_id = $2",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(i64::from(max_attempts))
        .bind(now)
        .bind(most_deaths(max_attempts))
        .fetch_one(&mut *connection)
        .await
        .doing(WHAT)?;
        let number = |column: usize| {
            row.try_get::<i64, _>(column)
                .map(i64::unsigned_abs)
                .doing(WHAT)
        };
        let (all, held, set_aside) = (number(0)?, number(1)?, number(2)?);
        Ok(Waiting {
            // Workers may run with different `max_attempts`, so that a post is held by one and set aside for
            // another.
            claimable: all.saturating_sub(held + set_aside),
            held,
            set_aside,
        })
    }

    pub(in crate::store) async fn claim(
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

    pub(in crate::store) async fn claim_clean(
        &self,
        target: Target,
        claimant: &Claimant<'_>,
        limit: u32,
        now: Timestamp,
    ) -> Result<Claim> {
        self.claim_among(target, claimant, limit, now, &(0..1))
            .await
    }

    pub(in crate::store) async fn claim_suspects(
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
        let least: Option<i64> = sqlx::query::<DB>(AssertSqlSafe(least))
            .bind(target.model)
            .bind(target.label_set)
            .bind(i64::from(claimant.max_attempts))
            .bind(deaths.start)
            .bind(deaths.end)
            .fetch_optional(&mut *tx)
            .await
            .and_then(|row| row.map(|row| row.try_get(0)).transpose())
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
                  AND (c.text_hash = p.text_hash OR p.text_purged_at IS NOT NULL))",
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
               JOIN posts p ON p.fullname = b.fullname AND p.text_purged_at IS NULL \
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
        sqlx::query::<DB>(
            "INSERT INTO leases (worker, run_id, claimed_at, expires_at) VALUES ($1, $2, $3, $4) RETURNING id",
        )
        .bind(claimant.worker)
        .bind(claimant.run.0)
        .bind(now)
        .bind(now + claimant.lease)
        .fetch_one(&mut **tx)
        .await
        .and_then(|row| row.try_get(0))
        .doing("begin a lease")
    }

    async fn end_lease(tx: &mut Transaction<'static, DB>, id: i64) -> Result<()> {
        sqlx::query::<DB>("DELETE FROM leases WHERE id = $1")
            .bind(id)
            .execute(&mut **tx)
            .await
            .doing("end a lease")?;
        Ok(())
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
        .doing("set a post aside")?;
        Ok(())
    }

    fn claimed_post(row: &DB::Row) -> Result<ClaimedPost> {
        const WHAT: &str = "read claimed posts";
        let fullname: String = row.try_get(0).doing(WHAT)?;
        let hash: Vec<u8> = row.try_get(1).doing(WHAT)?;
        let text_hash = TextHash::try_from(hash.as_slice()).map_err(|_| StoreError::Corrupt {
            table: "posts",
            row: fullname.clone(),
            detail: "`text_hash` has not 16 bytes".into(),
        })?;
        Ok(ClaimedPost {
            fullname,
            text_hash,
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

    pub(in crate::store) async fn renew(
        &self,
        lease_id: Lease,
        now: Timestamp,
        lease: Duration,
    ) -> Result<bool> {
        const WHAT: &str = "renew a lease";
        let mut connection = self.pool.acquire().await.doing(WHAT)?;
        let now = self.shared_time(&mut connection, at(now)).await?;
        // Also a lease whose time is up: as long as nobody took it over, its row is there, and the row alone
        // decides.
        sqlx::query::<DB>("UPDATE leases SET expires_at = $2 WHERE id = $1")
            .bind(lease_id.0)
            .bind(now + lease)
            .execute(&mut *connection)
            .await
            .map(|done| DB::rows_affected(&done) == 1)
            .doing(WHAT)
    }

    pub(in crate::store) async fn complete(
        &self,
        lease_id: Lease,
        target: Target,
        mode: Mode,
        run: RunId,
        now: Timestamp,
        done: &[Classified],
    ) -> Result<Written> {
        let mut labels = Labels {
            target,
            mode,
            run,
            now,
            apart: true,
        };
        loop {
            match self.try_complete(lease_id, &labels, done).await {
                // Another worker stored what the model said of one of the texts meanwhile.
                Err(error) if labels.apart && is_taken(&error) => labels.apart = false,
                written => return written,
            }
        }
    }

    async fn try_complete(
        &self,
        lease_id: Lease,
        labels: &Labels,
        done: &[Classified],
    ) -> Result<Written> {
        const WHAT: &str = "store labels";
        let &Labels {
            target,
            mode,
            run,
            now,
            apart,
        } = labels;
        let mut tx = self.begin_labels().await?;
        if !Self::hold_lease(&mut tx, lease_id).await? {
            // Somebody else has these posts now. Dropping the transaction rolls it back.
            return Ok(Written::LeaseLost);
        }
        let slugs = Self::slugs(&mut tx, target.label_set).await?;
        let mut stored = StoredLabels::default();
        let mut done: Vec<&Classified> = done.iter().collect();
        // In the order in which everybody locks posts.
        done.sort_unstable_by(|one, two| one.fullname.cmp(&two.fullname));
        for chunk in done.chunks(POSTS_A_STATEMENT) {
            // A post that was edited meanwhile stays in the backlog, and is scored again; what is not there under
            // this lease any more (deleted, say) is not ours to write.
            let mut chunk = Self::hold_texts(&mut tx, chunk).await?;
            if chunk.is_empty() {
                continue;
            }
            let held = Self::take_out_of_backlog(&mut tx, lease_id, target, &chunk).await?;
            chunk.retain(|one| held.contains(&one.fullname));
            if chunk.is_empty() {
                continue;
            }
            stored.add(&chunk);
            Self::insert_logits(&mut tx, &chunk, apart).await?;
            Self::insert_vectors(&mut tx, &chunk).await?;
            Self::upsert_classifications(&mut tx, target, mode, run, now, &slugs, &chunk).await?;
            Self::upsert_scores(&mut tx, target, &chunk).await?;
        }
        tx.commit().await.doing(WHAT)?;
        Ok(Written::Stored(stored))
    }

    /// Those whose posts have the text that was scored; it stays so until the transaction ends.
    pub(super) async fn hold_texts<'c>(
        tx: &mut Transaction<'static, DB>,
        done: &[&'c Classified],
    ) -> Result<Vec<&'c Classified>> {
        const WHAT: &str = "look whether texts are as they were";
        let mut select = QueryBuilder::<DB>::new(
            "SELECT p.fullname, p.text_hash FROM posts p WHERE p.text_purged_at IS NULL AND p.fullname IN (",
        );
        push_list(&mut select, done.iter().map(|one| one.fullname.as_str()));
        select.push(" ORDER BY p.fullname ").push(DB::HOLD_POSTS);
        let texts: HashMap<String, Vec<u8>> = select
            .build()
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| {
                rows.iter()
                    .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
                    .collect()
            })
            .doing(WHAT)?;
        let is_same = |one: &&Classified| {
            let text = texts.get(&one.fullname);
            text.is_some_and(|text| text == one.text_hash.as_bytes())
        };
        Ok(done.iter().copied().filter(is_same).collect())
    }

    /// Locks a lease, which goes before any lock on its posts; false if it is not there. Whoever takes over
    /// an expired lease deletes its row, so the row alone decides.
    pub(super) async fn hold_lease(
        tx: &mut Transaction<'static, DB>,
        lease: Lease,
    ) -> Result<bool> {
        let live = format!("SELECT 1 FROM leases WHERE id = $1 {}", DB::FOR_UPDATE);
        sqlx::query::<DB>(AssertSqlSafe(live))
            .bind(lease.0)
            .fetch_optional(&mut **tx)
            .await
            .map(|row| row.is_some())
            .doing("check the lease")
    }

    pub(super) async fn slugs(
        tx: &mut Transaction<'static, DB>,
        label_set: i64,
    ) -> Result<Vec<String>> {
        sqlx::query::<DB>("SELECT slug FROM labels WHERE label_set_id = $1 ORDER BY position")
            .bind(label_set)
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing("read the labels")
    }

    pub(super) async fn take_out_of_backlog(
        tx: &mut Transaction<'static, DB>,
        lease: Lease,
        target: Target,
        done: &[&Classified],
    ) -> Result<HashSet<String>> {
        let mut delete = QueryBuilder::<DB>::new("DELETE FROM backlog WHERE lease_id = ");
        delete
            .push_bind(lease.0)
            .push(" AND model_id = ")
            .push_bind(target.model);
        delete
            .push(" AND label_set_id = ")
            .push_bind(target.label_set)
            .push(" AND fullname IN (");
        push_list(&mut delete, done.iter().map(|one| one.fullname.as_str()));
        delete.push(" RETURNING fullname");
        delete
            .build()
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing("take posts out of the backlog")
    }

    pub(super) async fn insert_logits(
        tx: &mut Transaction<'static, DB>,
        done: &[&Classified],
        apart: bool,
    ) -> Result<()> {
        let mut rows: Vec<_> = done
            .iter()
            .flat_map(|one| {
                one.logits
                    .iter()
                    .map(move |(model, id, logits)| (*model, &one.text_hash, *id, logits))
            })
            .collect();
        // In PostgreSQL, an insert waits for another transaction that inserts the same key. In one order for
        // everybody, two workers that score the same text never wait in a circle.
        rows.sort_unstable_by_key(|(model, hash, hypothesis, _)| (*model, **hash, *hypothesis));
        // Several posts may have one text.
        rows.dedup_by_key(|(model, hash, hypothesis, _)| (*model, **hash, *hypothesis));
        let real = |of: fn(&PairLogits) -> Option<f32>| {
            Values::Short(rows.iter().map(|(.., logits)| of(logits)).collect())
        };
        let insert = Insert {
            table: "pair_logits",
            rows: rows.len(),
            columns: vec![
                (
                    "model_id",
                    Values::Integer(rows.iter().map(|(model, ..)| Some(*model)).collect()),
                ),
                (
                    "text_hash",
                    Values::Bytes(rows.iter().map(|(_, hash, ..)| hash.as_bytes()).collect()),
                ),
                (
                    "hypothesis_id",
                    Values::Integer(rows.iter().map(|(_, _, id, _)| Some(*id)).collect()),
                ),
                ("entailment", real(|logits| Some(logits.entailment))),
                ("contradiction", real(|logits| logits.contradiction)),
                ("neutral", real(|logits| logits.neutral)),
            ],
            // What is stored for a text and a hypothesis was computed by the same model, so there is nothing to
            // replace.
            on_conflict: "ON CONFLICT DO NOTHING",
        };
        let stored = if DB::LOGITS_APART && apart && insert.rows >= DB::MANY_NEW {
            DB::insert_new(&mut *tx, insert).await
        } else {
            DB::insert(&mut *tx, insert).await
        };
        stored.doing("store logits")
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
        // In one order for everybody, as the logits are. Several posts may have one text, and an INSERT may have
        // a key once.
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

    pub(super) async fn upsert_classifications(
        tx: &mut Transaction<'static, DB>,
        target: Target,
        mode: Mode,
        run: RunId,
        now: Timestamp,
        slugs: &[String],
        done: &[&Classified],
    ) -> Result<()> {
        let n = done.len();
        let real = |of: fn(&Scores) -> f64| {
            Values::Real(done.iter().map(|one| Some(of(&one.scores))).collect())
        };
        let insert = Insert {
            table: "classifications",
            rows: n,
            columns: vec![
                (
                    "fullname",
                    Values::Text(done.iter().map(|one| Some(one.fullname.as_str())).collect()),
                ),
                ("model_id", Values::all(target.model, n)),
                ("label_set_id", Values::all(target.label_set, n)),
                (
                    "text_hash",
                    Values::Bytes(done.iter().map(|one| one.text_hash.as_bytes()).collect()),
                ),
                (
                    "label",
                    Values::Text(
                        done.iter()
                            .map(|one| Some(slugs[one.scores.best].as_str()))
                            .collect(),
                    ),
                ),
                ("score", real(|scores| scores.scores[scores.best])),
                ("margin", real(|scores| scores.margin)),
                (
                    "abstained",
                    Values::Flag(done.iter().map(|one| one.scores.abstained).collect()),
                ),
                (
                    "other",
                    Values::Flag(done.iter().map(|one| one.scores.other).collect()),
                ),
                (
                    "by_small",
                    Values::Flag(done.iter().map(|one| one.by_small).collect()),
                ),
                ("mode", Values::Text(vec![Some(mode.as_str()); n])),
                ("run_id", Values::all(run.0, n)),
                ("classified_at", Values::Time(vec![Some(at(now)); n])),
            ],
            on_conflict: "ON CONFLICT (model_id, label_set_id, fullname) DO UPDATE SET text_hash = excluded.text_hash, \
                 label = excluded.label, score = excluded.score, margin = excluded.margin, \
                 abstained = excluded.abstained, other = excluded.other, by_small = excluded.by_small, mode = excluded.mode, run_id = excluded.run_id, \
                 classified_at = excluded.classified_at",
        };
        DB::insert(&mut *tx, insert)
            .await
            .doing("store classifications")
    }

    pub(super) async fn upsert_scores(
        tx: &mut Transaction<'static, DB>,
        target: Target,
        done: &[&Classified],
    ) -> Result<()> {
        let n = done.len();
        let insert = Insert {
            table: "packed_scores",
            rows: n,
            columns: vec![
                (
                    "fullname",
                    Values::Text(done.iter().map(|one| Some(one.fullname.as_str())).collect()),
                ),
                ("model_id", Values::all(target.model, n)),
                ("label_set_id", Values::all(target.label_set, n)),
                (
                    "scores",
                    Values::Reals(done.iter().map(|one| &one.scores.scores[..]).collect()),
                ),
            ],
            on_conflict: "ON CONFLICT (model_id, label_set_id, fullname) DO UPDATE SET scores = excluded.scores",
        };
        DB::insert(&mut *tx, insert).await.doing("store scores")
    }

    pub(in crate::store) async fn fail(
        &self,
        lease_id: Lease,
        failed: &[(String, String)],
    ) -> Result<()> {
        const WHAT: &str = "hand failed posts back";
        let mut tx = self.begin().await?;
        if !Self::hold_lease(&mut tx, lease_id).await? {
            return Ok(());
        }
        // Only rows that are still under this lease: a purge may have taken a post away meanwhile.
        for (fullname, error) in failed {
            sqlx::query::<DB>(
                "UPDATE backlog SET lease_id = NULL, attempts = attempts + 1, error = $3 \
                  WHERE lease_id = $1 AND fullname = $2",
            )
            .bind(lease_id.0)
            .bind(fullname.as_str())
            .bind(error.as_str())
            .execute(&mut *tx)
            .await
            .doing(WHAT)?;
        }
        tx.commit().await.doing(WHAT)
    }

    /// Takes back what workers held whose leases expired. A lease that is locked is being written under, or
    /// taken back by somebody else: nobody waits for it.
    async fn bury_expired(tx: &mut Transaction<'static, DB>, now: DateTime<Utc>) -> Result<()> {
        let expired = format!(
            "SELECT id FROM leases WHERE expires_at <= $1 ORDER BY id {}",
            DB::SKIP_LOCKED
        );
        let expired: Vec<i64> = sqlx::query::<DB>(AssertSqlSafe(expired))
            .bind(now)
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing("find expired claims")?;
        for id in expired {
            Self::bury_lease(tx, id).await?;
        }
        Ok(())
    }

    // A death is no attempt: it does not say which of the posts is to blame.
    async fn bury_lease(tx: &mut Transaction<'static, DB>, id: i64) -> Result<()> {
        const WHAT: &str = "take posts back from a worker that died";
        sqlx::query::<DB>(
            "UPDATE backlog SET lease_id = NULL, deaths = deaths + 1, error = $2 WHERE lease_id = $1",
        )
        .bind(id)
        .bind(DIED)
        .execute(&mut **tx)
        .await
        .doing(WHAT)?;
        Self::end_lease(tx, id).await
    }

    pub(in crate::store) async fn bury(&self, lease_id: Lease) -> Result<()> {
        let mut tx = self.begin().await?;
        if Self::hold_lease(&mut tx, lease_id).await? {
            Self::bury_lease(&mut tx, lease_id.0).await?;
        }
        tx.commit()
            .await
            .doing("take posts back from a worker that died")
    }

    // The foreign key sets `lease_id` of its posts to NULL: they are free at once, with neither a death nor an
    // attempt.
    pub(in crate::store) async fn release(&self, lease_id: Lease) -> Result<()> {
        sqlx::query::<DB>("DELETE FROM leases WHERE id = $1")
            .bind(lease_id.0)
            .execute(&self.pool)
            .await
            .doing("release a lease")?;
        Ok(())
    }

    pub(in crate::store) async fn retry_failed(
        &self,
        target: Target,
        max_attempts: u32,
    ) -> Result<u64> {
        sqlx::query::<DB>(
            "UPDATE backlog SET attempts = 0, deaths = 0, error = NULL \
              WHERE model_id = $1 AND label_set_id = $2 AND (attempts >= $3 OR deaths >= $4)",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(i64::from(max_attempts))
        .bind(most_deaths(max_attempts))
        .execute(&self.pool)
        .await
        .map(|done| DB::rows_affected(&done))
        .doing("let failed posts be tried again")
    }

    pub(in crate::store) async fn lease_holders(&self) -> Result<Vec<(Lease, String)>> {
        sqlx::query::<DB>("SELECT id, worker FROM leases ORDER BY id")
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| {
                rows.iter()
                    .map(|row| Ok((Lease(row.try_get(0)?), row.try_get(1)?)))
                    .collect()
            })
            .doing("read the leases")
    }
}
