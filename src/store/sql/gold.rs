//! What people said about labels, and which posts to ask them about.

use std::collections::HashMap;

use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, QueryBuilder, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::gold::{GoldAnswer, ReviewPost, SavedGold, StoredGold};
use super::super::{Result, StoreError, Target};
use super::{Doing, ROWS_A_STATEMENT, SqlStore, push_list};
use crate::domain::{Chosen, Fullname, TextHash, Timestamp};

/// Joins labels under a target, `$1` and `$2`, for the present texts of posts.
const LABELS: &str = "JOIN classifications c ON c.model_id = $1 AND c.label_set_id = $2 \
     AND c.fullname = p.fullname AND c.text_hash = p.text_hash";
/// Without the posts about which `$3`, or anybody where that is empty, said something.
const UNANSWERED: &str = "p.text_purged_at IS NULL AND NOT EXISTS (SELECT 1 FROM gold g \
     WHERE g.fullname = p.fullname AND ($3 = '' OR g.reviewer = $3))";

/// What a person said before about a post.
type Before = HashMap<(String, String), Option<String>>;

impl<DB: Dialect> SqlStore<DB> {
    pub async fn save_gold(&self, answers: &[GoldAnswer]) -> Result<SavedGold> {
        again!(self.try_save_gold(answers))
    }

    async fn try_save_gold(&self, answers: &[GoldAnswer]) -> Result<SavedGold> {
        let mut tx = self.begin().await?;
        let mut saved = SavedGold::default();
        // Posts are held in the order of their names, so that no two transactions wait for each other.
        let mut answers: Vec<&GoldAnswer> = answers.iter().collect();
        answers.sort_by(|a, b| a.fullname.cmp(&b.fullname));
        let mut drawn: Option<Vec<u8>> = None;
        for chunk in answers.chunks(ROWS_A_STATEMENT) {
            let hashes = Self::hold_answered(&mut tx, chunk).await?;
            let before = Self::said_before(&mut tx, chunk).await?;
            for answer in chunk {
                let Some(hash) = hashes.get(answer.fullname.as_str()) else {
                    saved.missing.push(answer.fullname.clone());
                    continue;
                };
                // Without a hash (a table that somebody wrote by hand), the answer is taken to be about the
                // present text.
                let seen = answer.text_hash.as_ref();
                let seen = seen.map_or(hash.as_slice(), TextHash::as_bytes);
                let stored = Self::save_answer(&mut tx, answer, seen).await?;
                let key = (answer.fullname.to_string(), answer.reviewer.clone());
                match before.get(&key) {
                    None => saved.added += 1,
                    Some(said) if stored && *said != answer.label => saved.changed += 1,
                    Some(_) => saved.same += 1,
                }
                // The draw went by the hash of the text that was seen, which may be another by now.
                let is_present = seen == hash.as_slice();
                let is_further = drawn.as_ref().is_none_or(|drawn| drawn < hash);
                if answer.chosen == Chosen::Random && is_present && is_further {
                    drawn = Some(hash.clone());
                }
            }
        }
        if let Some(drawn) = drawn {
            Self::mark_sample(&mut tx, &drawn).await?;
        }
        // Several people may have answered about one post that is gone; the answers are sorted by it.
        saved.missing.dedup();
        tx.commit().await.doing("store what people said")?;
        Ok(saved)
    }

    /// Keeps posts from being purged or edited, and reads the hashes of their texts.
    async fn hold_answered(
        tx: &mut Transaction<'static, DB>,
        answers: &[&GoldAnswer],
    ) -> Result<HashMap<String, Vec<u8>>> {
        let mut select = QueryBuilder::<DB>::new(
            "SELECT p.fullname, p.text_hash FROM posts p WHERE p.fullname IN (",
        );
        push_list(&mut select, answers.iter().map(|one| one.fullname.as_str()));
        select.push(" ORDER BY p.fullname ").push(DB::HOLD_POSTS);
        let rows = select.build().fetch_all(&mut **tx).await;
        rows.and_then(|rows| {
            let pair = |row: &DB::Row| Ok((row.try_get(0)?, row.try_get(1)?));
            rows.iter().map(pair).collect()
        })
        .doing("look up the posts of answers")
    }

    async fn said_before(
        tx: &mut Transaction<'static, DB>,
        answers: &[&GoldAnswer],
    ) -> Result<Before> {
        let mut select = QueryBuilder::<DB>::new(
            "SELECT fullname, reviewer, label FROM gold WHERE fullname IN (",
        );
        push_list(&mut select, answers.iter().map(|one| one.fullname.as_str()));
        let rows = select.build().fetch_all(&mut **tx).await;
        rows.and_then(|rows| {
            let entry = |row: &DB::Row| Ok(((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?));
            rows.iter().map(entry).collect()
        })
        .doing("look up what people said before")
    }

    /// Whether it was stored: an older answer does not replace a later one.
    async fn save_answer(
        tx: &mut Transaction<'static, DB>,
        answer: &GoldAnswer,
        text_hash: &[u8],
    ) -> Result<bool> {
        // A file that brings an answer back says less about how its post was chosen than who chose it, and, unless it has
        // the hash, nothing about the text that the person saw.
        let done = sqlx::query::<DB>(
            "INSERT INTO gold (fullname, reviewer, label, label_set_id, text_hash, chosen, in_random_sample, source, \
                               answered_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $6 = 'random', $7, $8) \
             ON CONFLICT (fullname, reviewer) DO UPDATE SET label = excluded.label, \
               label_set_id = excluded.label_set_id, source = excluded.source, answered_at = excluded.answered_at, \
               text_hash = CASE WHEN $9 OR excluded.answered_at > gold.answered_at THEN excluded.text_hash \
                           ELSE gold.text_hash END, \
               chosen = CASE WHEN excluded.chosen = 'import' THEN gold.chosen ELSE excluded.chosen END, \
               in_random_sample = gold.in_random_sample OR excluded.in_random_sample \
             WHERE excluded.answered_at >= gold.answered_at",
        )
        .bind(answer.fullname.as_str())
        .bind(answer.reviewer.as_str())
        .bind(answer.label.as_deref())
        .bind(answer.label_set)
        .bind(text_hash)
        .bind(answer.chosen.as_str())
        .bind(answer.source.as_str())
        .bind(answer.answered_at)
        .bind(answer.text_hash.is_some())
        .execute(&mut **tx)
        .await
        .doing("store what people said")?;
        Ok(DB::rows_affected(&done) > 0)
    }

    /// Random posts are drawn in the order of the hashes of their texts, past those that have an answer already. These
    /// are of the sample as well: without them, it would lack the posts that were asked about for another reason.
    async fn mark_sample(tx: &mut Transaction<'static, DB>, drawn: &[u8]) -> Result<()> {
        sqlx::query::<DB>(
            "UPDATE gold SET in_random_sample = TRUE WHERE NOT in_random_sample AND text_hash <= $1",
        )
        .bind(drawn)
        .execute(&mut **tx)
        .await
        .doing("extend the random sample")?;
        Ok(())
    }

    pub async fn gold(&self) -> Result<Vec<StoredGold>> {
        const WHAT: &str = "read what people said";
        let rows = sqlx::query::<DB>(
            "SELECT g.fullname, g.reviewer, g.label, g.label_set_id, g.chosen, g.source, g.answered_at, \
                    g.in_random_sample, g.text_hash = p.text_hash, g.text_hash \
               FROM gold g JOIN posts p ON p.fullname = g.fullname ORDER BY g.fullname, g.answered_at, g.reviewer",
        )
        .fetch_all(&self.pool)
        .await
        .doing(WHAT)?;
        let mut answers = Vec::with_capacity(rows.len());
        for row in &rows {
            let name: String = row.try_get(0).doing(WHAT)?;
            let chosen: String = row.try_get(4).doing(WHAT)?;
            let source: String = row.try_get(5).doing(WHAT)?;
            let answered_at: DateTime<Utc> = row.try_get(6).doing(WHAT)?;
            answers.push(StoredGold {
                answer: GoldAnswer {
                    reviewer: row.try_get(1).doing(WHAT)?,
                    label: row.try_get(2).doing(WHAT)?,
                    label_set: row.try_get(3).doing(WHAT)?,
                    chosen: word(&name, &chosen)?,
                    source: word(&name, &source)?,
                    answered_at: answered_at.into(),
                    fullname: word(&name, &name)?,
                    text_hash: Some(Self::text_hash(row, 9, &name)?),
                },
                in_random_sample: row.try_get(7).doing(WHAT)?,
                is_of_present_text: row.try_get(8).doing(WHAT)?,
            });
        }
        Ok(answers)
    }

    pub async fn said_of(&self, post: &Fullname) -> Result<Vec<(String, Option<String>)>> {
        let rows = sqlx::query::<DB>(
            "SELECT reviewer, label FROM gold WHERE fullname = $1 ORDER BY answered_at, reviewer",
        )
        .bind(post.as_str())
        .fetch_all(&self.pool)
        .await;
        rows.and_then(|rows| {
            let pair = |row: &DB::Row| Ok((row.try_get(0)?, row.try_get(1)?));
            rows.iter().map(pair).collect()
        })
        .doing("read what people said of a post")
    }

    pub async fn forget_gold(&self, post: &Fullname, reviewer: &str) -> Result<bool> {
        sqlx::query::<DB>("DELETE FROM gold WHERE fullname = $1 AND reviewer = $2")
            .bind(post.as_str())
            .bind(reviewer)
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .doing("take an answer back")
    }

    pub async fn forget_reviewer(&self, reviewer: &str) -> Result<u64> {
        sqlx::query::<DB>("DELETE FROM gold WHERE reviewer = $1")
            .bind(reviewer)
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done))
            .doing("take answers back")
    }

    pub async fn closest_calls(
        &self,
        target: Target,
        reviewer: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Fullname>> {
        let sql = format!(
            "SELECT p.fullname FROM posts p {LABELS} WHERE {UNANSWERED} ORDER BY c.margin, p.fullname LIMIT $4"
        );
        self.unanswered(sql, target, reviewer, limit).await
    }

    pub async fn random_posts(
        &self,
        target: Target,
        reviewer: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Fullname>> {
        // The labels come by the index of their texts' hashes, and only as many as are wanted. Without the two NOT, SQLite
        // 3.51 would read a million of them by their key, and sort them; with a join, PostgreSQL 15 would.
        let sql = format!(
            "SELECT c.fullname FROM classifications c WHERE c.text_hash >= '' AND NOT c.model_id <> $1 AND NOT c.label_set_id <> $2 \
                AND (SELECT 1 FROM posts p WHERE p.fullname = c.fullname AND p.text_hash = c.text_hash AND {UNANSWERED}) = 1 \
              ORDER BY c.text_hash, c.fullname LIMIT $4"
        );
        self.unanswered(sql, target, reviewer, limit).await
    }

    async fn unanswered(
        &self,
        sql: String,
        target: Target,
        reviewer: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Fullname>> {
        const WHAT: &str = "find posts to ask people about";
        let rows = sqlx::query::<DB>(AssertSqlSafe(sql))
            .bind(target.model)
            .bind(target.label_set)
            .bind(reviewer.unwrap_or_default())
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .doing(WHAT)?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let name: String = row.try_get(0).doing(WHAT)?;
            found.push(word(&name, &name)?);
        }
        Ok(found)
    }

    pub async fn review_posts(
        &self,
        target: Target,
        posts: &[Fullname],
    ) -> Result<Vec<ReviewPost>> {
        const WHAT: &str = "read posts to ask people about";
        // The caller's order is the order in which posts are asked about, and IN does not keep it.
        let mut found: HashMap<Fullname, ReviewPost> = HashMap::with_capacity(posts.len());
        for chunk in posts.chunks(ROWS_A_STATEMENT) {
            let mut select = QueryBuilder::<DB>::new(
                "SELECT p.fullname, p.subreddit, p.title, p.selftext, p.url, p.permalink, p.created_at, c.label, \
                        c.score, c.margin, c.abstained, c.other, p.text_hash \
                   FROM posts p JOIN classifications c ON c.fullname = p.fullname AND c.text_hash = p.text_hash \
                    AND c.model_id = ",
            );
            select
                .push_bind(target.model)
                .push(" AND c.label_set_id = ");
            select.push_bind(target.label_set);
            select.push(" WHERE p.text_purged_at IS NULL AND p.fullname IN (");
            push_list(&mut select, chunk.iter().map(Fullname::as_str));
            for row in &select.build().fetch_all(&self.pool).await.doing(WHAT)? {
                let post = Self::review_post(row)?;
                found.insert(post.fullname.clone(), post);
            }
        }
        Ok(posts.iter().filter_map(|name| found.remove(name)).collect())
    }

    fn review_post(row: &DB::Row) -> Result<ReviewPost> {
        let name: String = row.try_get(0).doing("read posts to ask people about")?;
        let fullname = word(&name, &name)?;
        let text_hash = Self::text_hash(row, 12, &name)?;
        let read = || -> Result<ReviewPost, sqlx::Error> {
            let created_at: DateTime<Utc> = row.try_get(6)?;
            Ok(ReviewPost {
                fullname,
                subreddit: row.try_get(1)?,
                title: row.try_get(2)?,
                selftext: row.try_get(3)?,
                url: row.try_get(4)?,
                permalink: row.try_get(5)?,
                created_at: Timestamp::from(created_at),
                text_hash,
                label: row.try_get(7)?,
                score: row.try_get(8)?,
                margin: row.try_get(9)?,
                abstained: row.try_get(10)?,
                other: row.try_get(11)?,
            })
        };
        read().doing("read posts to ask people about")
    }
}

/// A word that topicmill wrote.
fn word<T: std::str::FromStr<Err: std::fmt::Display>>(row: &str, text: &str) -> Result<T> {
    text.parse().map_err(|error: T::Err| StoreError::Corrupt {
        table: "gold",
        row: row.to_owned(),
        detail: error.to_string(),
    })
}
