//! Gold labels, and the selection of posts to review.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, QueryBuilder, Row, Transaction};

use super::super::dialect::Dialect;
use super::super::gold::{
    FilterLabel, FitRow, ForgottenGold, GoldAnswer, ReviewFilter, ReviewPost, SavedGold, StoredGold,
};
use super::super::{Result, StoreError, Target};
use super::{Doing, ROWS_A_STATEMENT, SqlStore, push_list};
use topicmill_core::{Fullname, GoldSource, SampleReason, TextHash, Timestamp};

/// Joins labels under a target, `$1` and `$2`, for the present texts of posts.
const LABELS: &str = "JOIN classifications c ON c.model_id = $1 AND c.label_set_id = $2 \
     AND c.fullname = p.fullname AND c.text_hash = p.text_hash";
/// Without the posts about which `$3`, or anybody where that is empty, said something.
const UNANSWERED: &str = "p.has_text AND NOT EXISTS (SELECT 1 FROM gold g \
     WHERE g.fullname = p.fullname AND ($3 = '' OR g.reviewer = $3))";

/// A row of `gold`, with whether its text is the post's present one.
type Said = (
    String,
    String,
    Option<String>,
    Option<i64>,
    String,
    String,
    Timestamp,
    bool,
    bool,
    Vec<u8>,
    Option<String>,
);

/// The fitted label sets, latest first.
const FITS: &str =
    "SELECT id, name, fitted FROM label_sets WHERE fitted IS NOT NULL ORDER BY id DESC";

/// A row of [`FITS`].
type StoredFit = (i64, String, Json<Value>);

/// Earlier answers, by post and person.
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
                // Only topicmill draws in the order of the hashes: a table that says that a post was drawn at random
                // says nothing of the posts before it.
                let is_draw =
                    answer.chosen == SampleReason::Random && answer.source != GoldSource::Import;
                if is_draw && is_present && is_further {
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
        let pairs = select.build_query_as().fetch_all(&mut **tx).await;
        pairs
            .map(HashMap::from_iter)
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
        let said: Vec<(String, String, Option<String>)> = select
            .build_query_as()
            .fetch_all(&mut **tx)
            .await
            .doing("look up what people said before")?;
        let said = said.into_iter();
        Ok(said
            .map(|(post, who, label)| ((post, who), label))
            .collect())
    }

    /// Returns true if it was stored: an older answer does not replace a later one.
    async fn save_answer(
        tx: &mut Transaction<'static, DB>,
        answer: &GoldAnswer,
        text_hash: &[u8],
    ) -> Result<bool> {
        // A file that brings an answer back says less about how its post was chosen than who chose it, and, unless it
        // has the hash, nothing about the text that the person saw.
        let done = sqlx::query::<DB>(
            "INSERT INTO gold (fullname, reviewer, label, label_set_id, text_hash, chosen, in_random_sample, source, \
                               answered_at, note) \
             VALUES ($1, $2, $3, $4, $5, $6, $6 = 'random', $7, $8, $10) \
             ON CONFLICT (fullname, reviewer) DO UPDATE SET label = excluded.label, \
               label_set_id = excluded.label_set_id, source = excluded.source, answered_at = excluded.answered_at, \
               text_hash = CASE WHEN $9 OR excluded.answered_at > gold.answered_at THEN excluded.text_hash \
                           ELSE gold.text_hash END, \
               chosen = CASE WHEN excluded.chosen = 'import' THEN gold.chosen ELSE excluded.chosen END, \
               in_random_sample = gold.in_random_sample OR excluded.in_random_sample, \
               note = COALESCE(excluded.note, gold.note) \
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
        .bind(answer.note.as_deref())
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
        .done("extend the random sample")
    }

    pub async fn answers(&self) -> Result<Vec<StoredGold>> {
        let rows: Vec<Said> = sqlx::query_as::<DB, _>(
            "SELECT g.fullname, g.reviewer, g.label, g.label_set_id, g.chosen, g.source, g.answered_at, \
                    g.in_random_sample, g.text_hash = p.text_hash, g.text_hash, g.note \
               FROM gold g JOIN posts p ON p.fullname = g.fullname ORDER BY g.fullname, g.answered_at, g.reviewer",
        )
        .fetch_all(&self.pool)
        .await
        .doing("read what people said")?;
        let stored = |(
            name,
            reviewer,
            label,
            label_set,
            chosen,
            source,
            at,
            random,
            is_present,
            hash,
            note,
        ): Said| {
            Ok(StoredGold {
                answer: GoldAnswer {
                    fullname: word(&name, &name)?,
                    reviewer,
                    label,
                    label_set,
                    chosen: word(&name, &chosen)?,
                    source: word(&name, &source)?,
                    answered_at: at,
                    text_hash: Some(word(&name, &topicmill_score::hex(&hash))?),
                    note,
                },
                in_random_sample: random,
                is_of_present_text: is_present,
            })
        };
        rows.into_iter().map(stored).collect()
    }

    pub async fn said_of(&self, post: &Fullname) -> Result<Vec<(String, Option<String>)>> {
        sqlx::query_as::<DB, _>(
            "SELECT reviewer, label FROM gold WHERE fullname = $1 ORDER BY answered_at, reviewer",
        )
        .bind(post.as_str())
        .fetch_all(&self.pool)
        .await
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

    pub async fn forget_reviewer(
        &self,
        reviewer: &str,
        post: Option<&Fullname>,
    ) -> Result<ForgottenGold> {
        again!(self.try_forget_reviewer(reviewer, post))
    }

    /// Removes answers, and the annotator's name from the label sets that were fitted to them, unless other answers
    /// of the annotator are left.
    async fn try_forget_reviewer(
        &self,
        reviewer: &str,
        post: Option<&Fullname>,
    ) -> Result<ForgottenGold> {
        const WHAT: &str = "take answers back";
        let mut tx = self.begin().await?;
        let answers = sqlx::query::<DB>(
            "DELETE FROM gold WHERE reviewer = $1 AND ($2 = '' OR fullname = $2)",
        )
        .bind(reviewer)
        .bind(post.map(Fullname::as_str).unwrap_or_default())
        .execute(&mut *tx)
        .await
        .map(|done| DB::rows_affected(&done))
        .doing(WHAT)?;
        let left = sqlx::query::<DB>("SELECT 1 FROM gold WHERE reviewer = $1 LIMIT 1")
            .bind(reviewer)
            .fetch_optional(&mut *tx)
            .await
            .doing(WHAT)?;
        let rows: Vec<StoredFit> = sqlx::query_as::<DB, _>(FITS)
            .fetch_all(&mut *tx)
            .await
            .doing(WHAT)?;
        let mut fits = Vec::new();
        for (id, name, Json(mut stored)) in rows {
            let fit = fit_row(id, name, &stored)?;
            if !fit.learned.by.iter().any(|name| name == reviewer) {
                continue;
            }
            if left.is_none() {
                let by = fit.learned.by.iter().filter(|name| *name != reviewer);
                stored["provenance"]["by"] = by.cloned().collect::<Vec<String>>().into();
                sqlx::query::<DB>("UPDATE label_sets SET fitted = $2 WHERE id = $1")
                    .bind(fit.id)
                    .bind(Json(stored))
                    .execute(&mut *tx)
                    .await
                    .doing(WHAT)?;
            }
            fits.push(fit);
        }
        if answers == 0 && left.is_some() {
            // The post had no answer of this annotator, so the fits did not change either.
            fits.clear();
        }
        tx.commit().await.doing(WHAT)?;
        Ok(ForgottenGold { answers, fits })
    }

    pub async fn fits(&self) -> Result<Vec<FitRow>> {
        let rows: Vec<StoredFit> = sqlx::query_as::<DB, _>(FITS)
            .fetch_all(&self.pool)
            .await
            .doing("read the fitted label sets")?;
        let read = |(id, name, Json(fitted)): StoredFit| fit_row(id, name, &fitted);
        rows.into_iter().map(read).collect()
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
        // The labels come by the index of their texts' hashes, and only as many as are wanted. Without the two NOT,
        // SQLite
        // 3.51 would read a million of them by their key, and sort them; with a join, PostgreSQL 15 would.
        let sql = format!(
            "SELECT c.fullname FROM classifications c WHERE c.text_hash >= '' AND NOT c.model_id <> $1 AND NOT c.label_set_id <> $2 \
                AND (SELECT 1 FROM posts p WHERE p.fullname = c.fullname AND p.text_hash = c.text_hash AND {UNANSWERED}) = 1 \
              ORDER BY c.text_hash, c.fullname LIMIT $4"
        );
        self.unanswered(sql, target, reviewer, limit).await
    }

    pub async fn filtered_posts(
        &self,
        target: Target,
        reviewer: Option<&str>,
        filter: &ReviewFilter,
        limit: u32,
    ) -> Result<Vec<Fullname>> {
        // In the order of the hashes, which is random, so that answers are typical of what the filter selects.
        let (label, slug) = match &filter.label {
            FilterLabel::Any => ("$7 = ''", ""),
            FilterLabel::Slug(slug) => ("NOT c.abstained AND c.label = $7", slug.as_str()),
            FilterLabel::Missing => ("c.abstained AND $7 = ''", ""),
        };
        let sql = format!(
            "SELECT p.fullname FROM posts p {LABELS} WHERE {UNANSWERED} AND c.score >= $5 AND c.score <= $6 AND {label} \
              ORDER BY p.text_hash, p.fullname LIMIT $4"
        );
        let found: Vec<String> = sqlx::query_scalar::<DB, _>(AssertSqlSafe(sql))
            .bind(target.model)
            .bind(target.label_set)
            .bind(reviewer.unwrap_or_default())
            .bind(i64::from(limit))
            .bind(filter.low)
            .bind(filter.high)
            .bind(slug)
            .fetch_all(&self.pool)
            .await
            .doing("find posts that a filter selects")?;
        found.iter().map(|name| word(name, name)).collect()
    }

    async fn unanswered(
        &self,
        sql: String,
        target: Target,
        reviewer: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Fullname>> {
        let found: Vec<String> = sqlx::query_scalar::<DB, _>(AssertSqlSafe(sql))
            .bind(target.model)
            .bind(target.label_set)
            .bind(reviewer.unwrap_or_default())
            .bind(i64::from(limit))
            .fetch_all(&self.pool)
            .await
            .doing("find posts to ask people about")?;
        found.iter().map(|name| word(name, name)).collect()
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
                "SELECT p.subreddit, p.title, p.selftext, p.url, p.permalink, p.created_at, c.label, c.score, c.margin, \
                        c.abstained, c.other, p.fullname, p.text_hash \
                   FROM posts p JOIN classifications c ON c.fullname = p.fullname AND c.text_hash = p.text_hash \
                    AND c.model_id = ",
            );
            select
                .push_bind(target.model)
                .push(" AND c.label_set_id = ");
            select.push_bind(target.label_set);
            select.push(" WHERE p.has_text AND p.fullname IN (");
            push_list(&mut select, chunk.iter().map(Fullname::as_str));
            for row in select.build().fetch_all(&self.pool).await.doing(WHAT)? {
                let post = Self::review_post(row)?;
                found.insert(post.fullname.clone(), post);
            }
        }
        Ok(posts.iter().filter_map(|name| found.remove(name)).collect())
    }

    fn review_post(row: DB::Row) -> Result<ReviewPost> {
        const WHAT: &str = "read posts to ask people about";
        let fullname = row.try_get(11).doing(WHAT)?;
        let text_hash = Self::text_hash(&row, 12, &fullname)?;
        row_as!(ReviewPost: subreddit, title, selftext, url, permalink, created_at, label, score, margin, abstained,
            other; fullname = fullname; text_hash = text_hash)(row)
        .doing(WHAT)
    }
}

fn fit_row(id: i64, name: String, fitted: &Value) -> Result<FitRow> {
    let learned = Deserialize::deserialize(&fitted["provenance"]);
    let learned = learned.map_err(|error: serde_json::Error| StoreError::Corrupt {
        table: "label_sets",
        row: id.to_string(),
        detail: error.to_string(),
    })?;
    Ok(FitRow { id, name, learned })
}

/// A word that topicmill wrote.
fn word<T: std::str::FromStr<Err: std::fmt::Display>>(row: &str, text: &str) -> Result<T> {
    text.parse().map_err(|error: T::Err| StoreError::Corrupt {
        table: "gold",
        row: row.to_owned(),
        detail: error.to_string(),
    })
}
