//! Labels with their logits, vectors and scores, written under a lease, or, of stored vectors, without one.

use std::collections::{HashMap, HashSet};

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, QueryBuilder, Row, Transaction};

use super::super::bulk::{Insert, Values};
use super::super::dialect::Dialect;
use super::super::failure::{Attempts, is_taken};
use super::super::{Classified, LabelWrite, Lease, Result, StoredLabels, Target, Written};
use super::known::MANY;
use super::{Doing, POSTS_A_STATEMENT, SqlStore, at, push_list};
use topicmill_core::{Fullname, TextHash};
use topicmill_score::{PairLogits, Scores, TextVector};

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Posts that are held, by their names: the hash of the text, and what a label carries of its post for the views that
/// count.
type Held = HashMap<Fullname, (Vec<u8>, i64, Option<String>)>;

impl<DB: Dialect> SqlStore<DB> {
    pub async fn save_labels(&self, write: &LabelWrite, done: &[Classified]) -> Result<Written> {
        // Whether many logits are stored as fast as the database takes them: then one that is there is an error.
        let mut apart = true;
        let mut attempts = Attempts::default();
        loop {
            match self.try_save_labels(write, apart, done).await {
                // Another worker stored what the model said of one of the texts meanwhile.
                Err(error) if apart && is_taken(&error) => apart = false,
                Err(error) if write.lease.is_none() && attempts.again(&error) => {}
                written => return written,
            }
        }
    }

    async fn try_save_labels(
        &self,
        write: &LabelWrite,
        apart: bool,
        done: &[Classified],
    ) -> Result<Written> {
        let mut tx = self.begin_labels().await?;
        match write.lease {
            // Somebody else has these posts now. Dropping the transaction rolls it back.
            Some(lease) if !Self::hold_lease(&mut tx, lease).await? => {
                return Ok(Written::LeaseLost);
            }
            Some(_) => {}
            None => Self::write_alone(&mut tx, write.target.label_set).await?,
        }
        let slugs = Self::slugs(&mut tx, write.target.label_set).await?;
        let mut stored = StoredLabels::default();
        let mut done: Vec<&Classified> = done.iter().collect();
        // In the order in which everybody locks posts.
        done.sort_unstable_by(|one, two| one.fullname.cmp(&two.fullname));
        for chunk in done.chunks(POSTS_A_STATEMENT) {
            // A post that was edited meanwhile stays in the backlog, and is scored again.
            let (mut chunk, held) = Self::hold_texts(&mut tx, chunk).await?;
            if chunk.is_empty() {
                continue;
            }
            Self::keep_own(&mut tx, write, &mut chunk).await?;
            if chunk.is_empty() {
                continue;
            }
            stored.add(&chunk);
            Self::insert_logits(&mut tx, &chunk, apart).await?;
            Self::insert_vectors(&mut tx, &chunk).await?;
            Self::upsert_classifications(&mut tx, write, &slugs, &held, &chunk).await?;
            Self::upsert_scores(&mut tx, write.target, &chunk).await?;
        }
        tx.commit().await.doing("store labels")?;
        Ok(Written::Stored(stored))
    }

    /// Lets one at a time write under a label set without a lease: it sees what the others wrote, so that no post is
    /// labelled twice.
    async fn write_alone(tx: &mut Transaction<'static, DB>, label_set: i64) -> Result<()> {
        let alone = format!("SELECT 1 FROM label_sets WHERE id = $1 {}", DB::LOCK_POSTS);
        sqlx::query::<DB>(AssertSqlSafe(alone))
            .bind(label_set)
            .execute(&mut **tx)
            .await
            .done("wait for others who store labels")
    }

    /// Takes posts out of the backlog, and leaves out those that are not this writer's: what is not there under its
    /// lease any more (deleted, say), or, without a lease, what a worker holds or has labelled.
    async fn keep_own(
        tx: &mut Transaction<'static, DB>,
        write: &LabelWrite,
        posts: &mut Vec<&Classified>,
    ) -> Result<()> {
        let taken = Self::take_out_of_backlog(tx, write, posts).await?;
        if write.lease.is_some() {
            posts.retain(|one| taken.contains(&one.fullname));
        } else {
            // What is still in the backlog is in a worker's hands.
            let others = Self::others_posts(tx, write.target, posts).await?;
            posts.retain(|one| !others.contains(&one.fullname));
        }
        Ok(())
    }

    /// Selects the results whose posts still have the scored text, and locks these posts until the transaction ends.
    async fn hold_texts<'c>(
        tx: &mut Transaction<'static, DB>,
        done: &[&'c Classified],
    ) -> Result<(Vec<&'c Classified>, Held)> {
        const WHAT: &str = "look whether texts are as they were";
        let mut select = QueryBuilder::<DB>::new(
            "SELECT p.fullname, p.text_hash, p.created_at, p.topic FROM posts p WHERE p.text_purged_at IS NULL AND p.fullname IN (",
        );
        push_list(&mut select, done.iter().map(|one| one.fullname.as_str()));
        select.push(" ORDER BY p.fullname ").push(DB::HOLD_POSTS);
        let decode = |row: &DB::Row| -> Result<_, sqlx::Error> {
            let created_at: DateTime<Utc> = row.try_get(2)?;
            let day = created_at.timestamp().div_euclid(DAY);
            Ok((row.try_get(0)?, (row.try_get(1)?, day, row.try_get(3)?)))
        };
        let held: Held = select
            .build()
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(decode).collect())
            .doing(WHAT)?;
        let is_same = |one: &&Classified| {
            let post = held.get(&one.fullname);
            post.is_some_and(|(text, ..)| text == one.text_hash.as_bytes())
        };
        Ok((done.iter().copied().filter(is_same).collect(), held))
    }

    /// Keeps a lease from being taken over or ended while its posts are written, which goes before any lock on them;
    /// false if it is not there. Whoever takes over an expired lease deletes its row, so the row alone decides. It can
    /// be renewed meanwhile: a long write costs no lease.
    pub(super) async fn hold_lease(
        tx: &mut Transaction<'static, DB>,
        lease: Lease,
    ) -> Result<bool> {
        Self::find_lease(tx, lease, DB::HOLD).await
    }

    /// Locks a lease; returns true if it exists.
    pub(super) async fn find_lease(
        tx: &mut Transaction<'static, DB>,
        lease: Lease,
        lock: &str,
    ) -> Result<bool> {
        let live = format!("SELECT 1 FROM leases WHERE id = $1 {lock}");
        sqlx::query::<DB>(AssertSqlSafe(live))
            .bind(lease.0)
            .fetch_optional(&mut **tx)
            .await
            .map(|row| row.is_some())
            .doing("check the lease")
    }

    async fn slugs(tx: &mut Transaction<'static, DB>, label_set: i64) -> Result<Vec<String>> {
        sqlx::query_scalar::<DB, _>(
            "SELECT label FROM labels WHERE label_set_id = $1 ORDER BY position",
        )
        .bind(label_set)
        .fetch_all(&mut **tx)
        .await
        .doing("read the labels")
    }

    async fn take_out_of_backlog(
        tx: &mut Transaction<'static, DB>,
        write: &LabelWrite,
        posts: &[&Classified],
    ) -> Result<HashSet<Fullname>> {
        let mut delete = QueryBuilder::<DB>::new("DELETE FROM backlog WHERE model_id = ");
        delete
            .push_bind(write.target.model)
            .push(" AND label_set_id = ")
            .push_bind(write.target.label_set);
        match write.lease {
            Some(lease) => delete.push(" AND lease_id = ").push_bind(lease.0),
            None => delete.push(" AND lease_id IS NULL"),
        };
        delete.push(" AND fullname IN (");
        push_list(&mut delete, posts.iter().map(|one| one.fullname.as_str()));
        delete.push(" RETURNING fullname");
        delete
            .build()
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing("take posts out of the backlog")
    }

    /// Returns the ones among some posts that a worker holds, or that are labelled already.
    async fn others_posts(
        tx: &mut Transaction<'static, DB>,
        target: Target,
        posts: &[&Classified],
    ) -> Result<HashSet<Fullname>> {
        let mut select = QueryBuilder::<DB>::new(
            "SELECT p.fullname FROM posts p WHERE ((SELECT c.text_hash FROM classifications c WHERE c.model_id = ",
        );
        select
            .push_bind(target.model)
            .push(" AND c.label_set_id = ")
            .push_bind(target.label_set)
            .push(
                " AND c.fullname = p.fullname) = p.text_hash \
                   OR (SELECT b.fullname FROM backlog b WHERE b.model_id = ",
            )
            .push_bind(target.model)
            .push(" AND b.label_set_id = ")
            .push_bind(target.label_set)
            .push(" AND b.fullname = p.fullname) IS NOT NULL) AND p.fullname IN (");
        push_list(&mut select, posts.iter().map(|one| one.fullname.as_str()));
        select
            .build()
            .fetch_all(&mut **tx)
            .await
            .and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect())
            .doing("look whether posts are labelled already")
    }

    async fn insert_logits(
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
        let stored = if DB::LOGITS_APART && apart && insert.rows >= MANY {
            DB::insert_new(&mut *tx, insert).await
        } else {
            DB::insert(&mut *tx, insert).await
        };
        stored.doing("store logits")
    }

    /// Stores the vectors that were computed for these labels.
    async fn insert_vectors(tx: &mut Transaction<'static, DB>, done: &[&Classified]) -> Result<()> {
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

    async fn upsert_classifications(
        tx: &mut Transaction<'static, DB>,
        write: &LabelWrite,
        slugs: &[String],
        held: &Held,
        done: &[&Classified],
    ) -> Result<()> {
        let &LabelWrite {
            target,
            mode,
            run,
            now,
            ..
        } = write;
        let n = done.len();
        let post = |one: &&Classified| &held[&one.fullname];
        let real = |of: fn(&Scores) -> f64| {
            Values::Real(done.iter().map(|one| Some(of(&one.scores))).collect())
        };
        let insert = Insert {
            table: "classifications",
            rows: n,
            columns: with_keys(
                target,
                done,
                [
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
                    ("mode", Values::Text(vec![Some(mode.as_str()); n])),
                    ("run_id", Values::all(run.0, n)),
                    ("classified_at", Values::Time(vec![Some(at(now)); n])),
                    (
                        "day",
                        Values::Integer(done.iter().map(|one| Some(post(one).1)).collect()),
                    ),
                    (
                        "topic",
                        Values::Text(done.iter().map(|one| post(one).2.as_deref()).collect()),
                    ),
                ],
            ),
            on_conflict: "ON CONFLICT (model_id, label_set_id, fullname) DO UPDATE SET text_hash = excluded.text_hash, \
                 label = excluded.label, score = excluded.score, margin = excluded.margin, \
                 abstained = excluded.abstained, other = excluded.other, mode = excluded.mode, run_id = excluded.run_id, \
                 classified_at = excluded.classified_at, day = excluded.day, topic = excluded.topic",
        };
        DB::insert(&mut *tx, insert)
            .await
            .doing("store classifications")
    }

    async fn upsert_scores(
        tx: &mut Transaction<'static, DB>,
        target: Target,
        done: &[&Classified],
    ) -> Result<()> {
        let insert = Insert {
            table: "packed_scores",
            rows: done.len(),
            columns: with_keys(
                target,
                done,
                [(
                    "scores",
                    Values::Reals(done.iter().map(|one| &one.scores.scores[..]).collect()),
                )],
            ),
            on_conflict: "ON CONFLICT (model_id, label_set_id, fullname) DO UPDATE SET scores = excluded.scores",
        };
        DB::insert(&mut *tx, insert).await.doing("store scores")
    }
}

/// The columns of rows about labels: those of the key, and others.
fn with_keys<'a, const N: usize>(
    target: Target,
    done: &[&'a Classified],
    others: [(&'static str, Values<'a>); N],
) -> Vec<(&'static str, Values<'a>)> {
    let (n, posts) = (done.len(), done.iter());
    let names = posts.map(|one| Some(one.fullname.as_str())).collect();
    let keys = [
        ("fullname", Values::Text(names)),
        ("model_id", Values::all(target.model, n)),
        ("label_set_id", Values::all(target.label_set, n)),
    ];
    keys.into_iter().chain(others).collect()
}
