//! Writes labels with their logits, vectors and scores: under a lease, or without one for labels computed from stored
//! vectors.

use std::collections::{HashMap, HashSet};

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, QueryBuilder, Row};

use super::stored_posts::{Attempt, BULK_ROWS};
use super::{ErrorContext, POSTS_A_STATEMENT, SqlStore, Tx, at, push_list};
use crate::bulk::{Insert, Keys, Values};
use crate::dialect::Dialect;
use crate::driver_error::is_duplicate_key;
use crate::{
    Classified, HypothesisId, LabelSetId, LabelWrite, ModelId, Result, StoredLabels, Target,
    Written,
};
use topicmill_core::score::LabelOutcome;
use topicmill_core::{Fullname, PairLogits, Scores, TextHash};

/// An output that is already stored is equal: its key consists of the model, the text and the hypothesis.
const KEEP_STORED: Keys = Keys::MayExist("ON CONFLICT DO NOTHING");
/// Seconds in a day.
const DAY: i64 = 86_400;

/// A result whose post still has the scored text and is locked until the transaction ends. The post's day and topic are
/// copied to its label for the views that compute counts.
struct LockedPost<'c> {
    result: &'c Classified,
    /// Days since 1970.
    day: i64,
    topic: Option<String>,
}

impl LockedPost<'_> {
    fn fullname(&self) -> &str {
        self.result.fullname.as_str()
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn save_labels(&self, write: &LabelWrite, results: &[Classified]) -> Result<Written> {
        // In order of fullname, as in all writers.
        let mut sorted: Vec<&Classified> = results.iter().collect();
        sorted.sort_unstable_by(|a, b| a.fullname.cmp(&b.fullname));
        match self.try_save_labels(write, &sorted, Attempt::First).await {
            // Another worker has since stored logits for one of the texts.
            Err(error) if is_duplicate_key(&error) => {
                self.try_save_labels(write, &sorted, Attempt::AfterDuplicateKey)
                    .await
            }
            written => written,
        }
    }

    /// Stores labels in order of fullname.
    async fn try_save_labels(
        &self,
        write: &LabelWrite,
        sorted: &[&Classified],
        attempt: Attempt,
    ) -> Result<Written> {
        let begun = self.pool.begin_with(DB::BEGIN_LABELS).await;
        let mut tx = begun.context("begin a transaction")?;
        match write.lease {
            // Another worker has reclaimed these posts.
            Some(lease) if !Self::lock_lease(&mut tx, lease, DB::LOCK_KEY).await? => {
                return Ok(Written::LeaseLost);
            }
            Some(_) => {}
            None => Self::lock_label_set(&mut tx, write.target.label_set).await?,
        }
        let slugs = Self::slugs(&mut tx, write.target.label_set).await?;
        let mut stored = StoredLabels::default();
        for chunk in sorted.chunks(POSTS_A_STATEMENT) {
            // A post that was edited in the meantime remains in the backlog and is scored again.
            let mut posts = Self::lock_unchanged_posts(&mut tx, chunk).await?;
            if posts.is_empty() {
                continue;
            }
            // Drops posts that belong to other writers: with a lease, those that are no longer under it; without one,
            // those that are labelled, or that are still in the backlog because they are leased.
            let dequeued = Self::dequeue(&mut tx, write, &posts).await?;
            if write.lease.is_some() {
                posts.retain(|post| dequeued.contains(&post.result.fullname));
            } else {
                let others = Self::leased_or_labelled(&mut tx, write.target, &posts).await?;
                posts.retain(|post| !others.contains(&post.result.fullname));
            }
            if posts.is_empty() {
                continue;
            }
            for post in &posts {
                stored.add(post.result.scores.outcome);
            }
            Self::insert_logits(&mut tx, write.logits_model, &posts, attempt).await?;
            Self::insert_vectors(&mut tx, write.logits_model, &posts).await?;
            Self::upsert_labels(&mut tx, write, &slugs, &posts).await?;
        }
        tx.commit().await.context("store labels")?;
        Ok(Written::Stored(stored))
    }

    /// Serialises lease-free writes to a label set, so that each write sees the labels from the others, and no post is
    /// labelled twice.
    async fn lock_label_set(tx: &mut Tx<DB>, label_set: LabelSetId) -> Result<()> {
        let alone = format!("SELECT 1 FROM label_sets WHERE id = $1 {}", DB::LOCK_POSTS);
        sqlx::query::<DB>(AssertSqlSafe(alone))
            .bind(label_set)
            .execute(&mut **tx)
            .await
            .map(drop)
            .context("lock the label set")
    }

    /// Selects the results whose posts' text is still the scored one, in order of fullname, and locks these posts. A post
    /// whose text retention deleted keeps the hash; a lease on it ended with the deletion, so only results from stored
    /// vectors are written for it.
    async fn lock_unchanged_posts<'c>(
        tx: &mut Tx<DB>,
        results: &[&'c Classified],
    ) -> Result<Vec<LockedPost<'c>>> {
        const WHAT: &str = "lock posts with unchanged text";
        let mut select = QueryBuilder::<DB>::new(
            "SELECT p.fullname, p.text_hash, p.created_at, p.topic FROM things p WHERE p.fullname IN (",
        );
        let names = results.iter().map(|result| result.fullname.as_str());
        push_list(&mut select, names);
        select.push(" ORDER BY p.fullname ").push(DB::SHARE_POSTS);
        let rows = select.build().fetch_all(&mut **tx).await.context(WHAT)?;
        let by_name = results.iter().map(|one| (one.fullname.as_str(), *one));
        let by_name: HashMap<&str, &'c Classified> = by_name.collect();
        let decode = |row: &DB::Row| -> Result<_, sqlx::Error> {
            let (fullname, text_hash): (String, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
            let created_at: DateTime<Utc> = row.try_get(2)?;
            let post = LockedPost {
                result: by_name[fullname.as_str()],
                day: created_at.timestamp().div_euclid(DAY),
                topic: row.try_get(3)?,
            };
            Ok((post.result.text_hash.as_bytes() == text_hash).then_some(post))
        };
        let unchanged = rows.iter().filter_map(|row| decode(row).transpose());
        let mut locked: Vec<LockedPost<'c>> = unchanged.collect::<Result<_, _>>().context(WHAT)?;
        locked.sort_unstable_by(|a, b| a.fullname().cmp(b.fullname()));
        Ok(locked)
    }

    async fn slugs(tx: &mut Tx<DB>, label_set: LabelSetId) -> Result<Vec<String>> {
        sqlx::query_scalar::<DB, _>(
            "SELECT label FROM labels WHERE label_set_id = $1 ORDER BY position",
        )
        .bind(label_set)
        .fetch_all(&mut **tx)
        .await
        .context("read the labels")
    }

    /// Removes posts from the backlog: with a lease, those under it; without one, those without a lease. Returns them.
    async fn dequeue(
        tx: &mut Tx<DB>,
        write: &LabelWrite,
        posts: &[LockedPost<'_>],
    ) -> Result<HashSet<Fullname>> {
        let mut delete = QueryBuilder::<DB>::new("DELETE FROM backlog WHERE model_id = ");
        delete.push_bind(write.target.model);
        delete.push(" AND label_set_id = ");
        delete.push_bind(write.target.label_set);
        match write.lease {
            Some(lease) => delete.push(" AND lease_id = ").push_bind(lease),
            None => delete.push(" AND lease_id IS NULL"),
        };
        delete.push(" AND fullname IN (");
        push_list(&mut delete, posts.iter().map(LockedPost::fullname));
        delete.push(" RETURNING fullname");
        let dequeued = delete.build_query_scalar().fetch_all(&mut **tx).await;
        dequeued
            .map(HashSet::from_iter)
            .context("remove posts from the backlog")
    }

    /// Returns the posts that are already leased or labelled.
    async fn leased_or_labelled(
        tx: &mut Tx<DB>,
        target: Target,
        posts: &[LockedPost<'_>],
    ) -> Result<HashSet<Fullname>> {
        let Target { model, label_set } = target;
        let mut select = QueryBuilder::<DB>::new(format!(
            "SELECT p.fullname FROM things p \
              WHERE ((SELECT c.text_hash FROM classifications c WHERE c.model_id = {model} \
                        AND c.label_set_id = {label_set} AND c.fullname = p.fullname) = p.text_hash \
                     OR (SELECT b.fullname FROM backlog b WHERE b.model_id = {model} \
                           AND b.label_set_id = {label_set} AND b.fullname = p.fullname) IS NOT NULL) \
                AND p.fullname IN ("
        ));
        push_list(&mut select, posts.iter().map(LockedPost::fullname));
        let posts = select.build_query_scalar().fetch_all(&mut **tx).await;
        posts
            .map(HashSet::from_iter)
            .context("read leased and labelled posts")
    }

    /// Stores the logits that were computed for these labels.
    async fn insert_logits(
        tx: &mut Tx<DB>,
        model: ModelId,
        posts: &[LockedPost<'_>],
        attempt: Attempt,
    ) -> Result<()> {
        let logits = posts.iter().flat_map(|post| {
            let logits = post.result.logits.iter();
            logits.map(|new| (&post.result.text_hash, new.hypothesis, &new.logits))
        });
        let mut rows: Vec<(&TextHash, HypothesisId, &PairLogits)> = logits.collect();
        // In PostgreSQL, an insert waits for another transaction that inserts the same key. The same order in all
        // writers avoids deadlocks between workers that score the same texts.
        rows.sort_unstable_by_key(|(hash, hypothesis, _)| (**hash, *hypothesis));
        // Several posts may have the same text, but keys must be distinct within an INSERT.
        rows.dedup_by_key(|(hash, hypothesis, _)| (**hash, *hypothesis));
        let real = |of: fn(&PairLogits) -> Option<f32>| {
            Values::Real32(rows.iter().map(|(.., logits)| of(logits)).collect())
        };
        let hashes = rows.iter().map(|(hash, ..)| hash.as_bytes()).collect();
        let hypotheses = rows.iter().map(|(_, id, _)| Some(id.0)).collect();
        let insert = Insert {
            table: "pair_logits",
            rows: rows.len(),
            columns: vec![
                ("model_id", Values::repeat(model.0, rows.len())),
                ("text_hash", Values::Bytes(hashes)),
                ("hypothesis_id", Values::Integer(hypotheses)),
                ("entailment", real(|logits| Some(logits.entailment))),
                ("contradiction", real(|logits| logits.contradiction)),
                ("neutral", real(|logits| logits.neutral)),
            ],
            keys: if DB::BULK_LOGITS && attempt == Attempt::First && rows.len() >= BULK_ROWS {
                Keys::New
            } else {
                KEEP_STORED
            },
        };
        let stored = DB::insert(&mut *tx, insert).await;
        stored.map(drop).context("store logits")
    }

    /// Stores the vectors that were computed for these labels.
    async fn insert_vectors(
        tx: &mut Tx<DB>,
        model: ModelId,
        posts: &[LockedPost<'_>],
    ) -> Result<()> {
        let vectors = posts.iter().filter_map(|post| {
            let vector = post.result.vector.as_ref()?;
            Some((&post.result.text_hash, vector.as_bytes()))
        });
        let mut rows: Vec<(&TextHash, &[u8])> = vectors.collect();
        rows.sort_unstable_by_key(|(hash, _)| **hash);
        rows.dedup_by_key(|(hash, _)| **hash);
        let hashes = rows.iter().map(|(hash, _)| hash.as_bytes()).collect();
        let vectors = rows.iter().map(|(_, vector)| *vector).collect();
        let insert = Insert {
            table: "text_vectors",
            rows: rows.len(),
            columns: vec![
                ("model_id", Values::repeat(model.0, rows.len())),
                ("text_hash", Values::Bytes(hashes)),
                ("vector", Values::Bytes(vectors)),
            ],
            keys: KEEP_STORED,
        };
        let stored = DB::insert(&mut *tx, insert).await;
        stored.map(drop).context("store vectors")
    }

    /// Writes the labels of posts, and all their scores.
    async fn upsert_labels(
        tx: &mut Tx<DB>,
        write: &LabelWrite,
        slugs: &[String],
        posts: &[LockedPost<'_>],
    ) -> Result<()> {
        let &LabelWrite {
            target,
            mode,
            run,
            now,
            ..
        } = write;
        let n = posts.len();
        let results = posts.iter().map(|post| post.result);
        let scores = results.clone().map(|result| &result.scores);
        let real = |of: fn(&Scores) -> f64| {
            Values::Real(scores.clone().map(|scores| Some(of(scores))).collect())
        };
        let flag = |of: fn(&Scores) -> bool| {
            Values::Flag(scores.clone().map(|scores| Some(of(scores))).collect())
        };
        let names = posts.iter().map(|post| Some(post.fullname()));
        // Both tables have the same key.
        let keys = || {
            vec![
                ("fullname", Values::Text(names.clone().collect())),
                ("model_id", Values::repeat(target.model.0, n)),
                ("label_set_id", Values::repeat(target.label_set.0, n)),
            ]
        };
        let hashes = results.map(|result| result.text_hash.as_bytes());
        let labels = scores
            .clone()
            .map(|scores| Some(slugs[scores.best].as_str()));
        let days = posts.iter().map(|post| Some(post.day));
        let topics = posts.iter().map(|post| post.topic.as_deref());
        let mut columns = keys();
        columns.extend([
            ("text_hash", Values::Bytes(hashes.collect())),
            ("label", Values::Text(labels.collect())),
            ("score", real(|scores| scores.scores[scores.best])),
            ("margin", real(|scores| scores.margin)),
            ("abstained", flag(Scores::is_abstention)),
            (
                "other",
                flag(|scores| scores.outcome == LabelOutcome::Other),
            ),
            ("mode", Values::Text(vec![Some(mode.as_str()); n])),
            ("run_id", Values::repeat(run.0, n)),
            ("classified_at", Values::Time(vec![Some(at(now)); n])),
            ("day", Values::Integer(days.collect())),
            ("topic", Values::Text(topics.collect())),
        ]);
        let insert = Insert {
            table: "classifications",
            rows: n,
            columns,
            keys: Keys::MayExist(
                "ON CONFLICT (model_id, label_set_id, fullname) DO UPDATE SET text_hash = excluded.text_hash, \
                 label = excluded.label, score = excluded.score, margin = excluded.margin, \
                 abstained = excluded.abstained, other = excluded.other, mode = excluded.mode, \
                 run_id = excluded.run_id, \
                 classified_at = excluded.classified_at, day = excluded.day, topic = excluded.topic",
            ),
        };
        DB::insert(&mut *tx, insert)
            .await
            .context("store classifications")?;
        let scores = scores.map(|scores| &scores.scores[..]).collect();
        let mut columns = keys();
        columns.push(("scores", Values::Reals(scores)));
        let insert = Insert {
            table: "packed_scores",
            rows: n,
            columns,
            keys: Keys::MayExist(
                "ON CONFLICT (model_id, label_set_id, fullname) DO UPDATE SET scores = excluded.scores",
            ),
        };
        let stored = DB::insert(&mut *tx, insert).await;
        stored.map(drop).context("store scores")
    }
}
