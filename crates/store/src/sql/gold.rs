//! Stores and reads gold labels, and what fits learned from them.

mod review;

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, QueryBuilder, Row};

use super::versions::damaged_fit;
use super::{ErrorContext, ROWS_A_STATEMENT, SqlStore, Tx, push_list};
use crate::dialect::Dialect;
use crate::gold::{FitRow, ForgottenGold, GoldAnswer, SavedGold, StoredGold};
use crate::{LabelSetId, Result, StoreError};
use topicmill_core::{Fullname, GoldSource, SampleReason, short_hash};

/// The fitted label sets, latest first.
const FITS: &str =
    "SELECT id, name, hash, fitted FROM label_sets WHERE fitted IS NOT NULL ORDER BY id DESC";

/// A row of [`FITS`].
type StoredFit = (LabelSetId, String, String, Json<Value>);

/// Earlier answers, by post and annotator.
type EarlierAnswers = HashMap<(String, String), Option<String>>;

impl<DB: Dialect> SqlStore<DB> {
    pub async fn save_gold(&self, answers: &[GoldAnswer]) -> Result<SavedGold> {
        let mut tx = self.begin().await?;
        let mut saved = SavedGold::default();
        // Posts are locked in order of fullname, to avoid deadlocks.
        let mut answers: Vec<&GoldAnswer> = answers.iter().collect();
        answers.sort_by(|a, b| a.fullname.cmp(&b.fullname));
        let mut drawn: Option<Vec<u8>> = None;
        for chunk in answers.chunks(ROWS_A_STATEMENT) {
            let hashes = Self::lock_answered_posts(&mut tx, chunk).await?;
            let before = Self::earlier_answers(&mut tx, chunk).await?;
            for answer in chunk {
                let Some(hash) = hashes.get(answer.fullname.as_str()) else {
                    saved.missing.push(answer.fullname.clone());
                    continue;
                };
                // Without a hash (as in a table written by hand), the answer is taken to be about the current text.
                let seen = match &answer.text_hash {
                    Some(seen) => seen.as_bytes(),
                    None => hash.as_slice(),
                };
                let stored = Self::save_answer(&mut tx, answer, seen).await?;
                let key = (answer.fullname.to_string(), answer.annotator.clone());
                match before.get(&key) {
                    None => saved.added += 1,
                    Some(earlier) if stored && *earlier != answer.label => saved.changed += 1,
                    Some(_) => saved.same += 1,
                }
                // An answer about an earlier text does not show how far the draw has progressed.
                if is_draw(answer) && seen == hash.as_slice() {
                    drawn = drawn.max(Some(hash.clone()));
                }
            }
        }
        if let Some(drawn) = drawn {
            Self::mark_sample(&mut tx, &drawn).await?;
        }
        // Several annotators may have answered about one missing post; the answers are sorted by post.
        saved.missing.dedup();
        tx.commit().await.context("store answers")?;
        self.check_same_file()?;
        Ok(saved)
    }

    pub async fn check_writable(&self) -> Result<()> {
        const WHAT: &str = "check that answers can be stored";
        let mut tx = self.begin().await?;
        // PostgreSQL checks privileges, and SQLite whether the file is writable, also for a statement without rows.
        let share = DB::SHARE_POSTS;
        let lock = format!("SELECT p.fullname FROM things p WHERE FALSE {share}");
        for statement in [
            lock.as_str(),
            "INSERT INTO gold SELECT * FROM gold WHERE FALSE",
            "UPDATE gold SET note = note WHERE FALSE",
            "DELETE FROM gold WHERE FALSE",
        ] {
            let checked = sqlx::query::<DB>(AssertSqlSafe(statement.to_owned()));
            checked.execute(&mut *tx).await.context(WHAT)?;
        }
        tx.rollback().await.context(WHAT)
    }

    /// Locks posts against purges and edits, and returns the hashes of their text.
    async fn lock_answered_posts(
        tx: &mut Tx<DB>,
        answers: &[&GoldAnswer],
    ) -> Result<HashMap<String, Vec<u8>>> {
        let mut select = QueryBuilder::<DB>::new(
            "SELECT p.fullname, p.text_hash FROM things p WHERE p.fullname IN (",
        );
        let posts = answers.iter().map(|answer| answer.fullname.as_str());
        push_list(&mut select, posts);
        select.push(" ORDER BY p.fullname ").push(DB::SHARE_POSTS);
        let pairs = select.build_query_as().fetch_all(&mut **tx).await;
        pairs
            .map(HashMap::from_iter)
            .context("look up the posts of answers")
    }

    async fn earlier_answers(tx: &mut Tx<DB>, answers: &[&GoldAnswer]) -> Result<EarlierAnswers> {
        let mut select = QueryBuilder::<DB>::new(
            "SELECT fullname, annotator, label FROM gold WHERE fullname IN (",
        );
        let posts = answers.iter().map(|answer| answer.fullname.as_str());
        push_list(&mut select, posts);
        let rows = select.build_query_as().fetch_all(&mut **tx).await;
        let rows: Vec<(String, String, Option<String>)> = rows.context("read earlier answers")?;
        let answers = rows.into_iter();
        Ok(answers
            .map(|(post, who, label)| ((post, who), label))
            .collect())
    }

    /// Stores an answer; returns false if a later one is stored.
    async fn save_answer(tx: &mut Tx<DB>, answer: &GoldAnswer, text_hash: &[u8]) -> Result<bool> {
        // An imported file does not state how a post was selected, so that column is kept. Without a hash, the file
        // does not state which text the annotator saw, so the stored hash is kept too. Without a time, the stored time
        // is kept, because a fit may have used the answers that are older than the fit. Such an answer is the latest in
        // any case: the clock of the host that stored the earlier answer may be ahead.
        let done = sqlx::query::<DB>(
            "INSERT INTO gold (fullname, annotator, label, label_set_id, text_hash, chosen, in_random_sample, source, \
                               answered_at, note) \
             VALUES ($1, $2, $3, $4, $5, $6, $6 = 'random' AND $1 >= 't3', $7, $8, $10) \
             ON CONFLICT (fullname, annotator) DO UPDATE SET label = excluded.label, \
               label_set_id = excluded.label_set_id, source = excluded.source, \
               answered_at = CASE WHEN $11 AND excluded.answered_at > gold.answered_at THEN excluded.answered_at \
                             ELSE gold.answered_at END, \
               text_hash = CASE WHEN $9 OR excluded.answered_at > gold.answered_at THEN excluded.text_hash \
                           ELSE gold.text_hash END, \
               chosen = CASE WHEN excluded.chosen = 'import' THEN gold.chosen ELSE excluded.chosen END, \
               in_random_sample = gold.in_random_sample OR excluded.in_random_sample, \
               note = COALESCE(excluded.note, gold.note) \
             WHERE NOT $11 OR excluded.answered_at >= gold.answered_at",
        )
        .bind(answer.fullname.as_str())
        .bind(answer.annotator.as_str())
        .bind(answer.label.as_deref())
        .bind(answer.label_set.map(|id| id.0))
        .bind(text_hash)
        .bind(answer.chosen.as_str())
        .bind(answer.source.as_str())
        .bind(answer.answered_at)
        .bind(answer.text_hash.is_some())
        .bind(answer.note.as_deref())
        .bind(answer.is_dated)
        .execute(&mut **tx)
        .await
        .context("store answers")?;
        Ok(DB::rows_affected(&done) > 0)
    }

    /// Adds answers to the random sample. Random posts are drawn in order of text hash, skipping posts with an answer.
    /// The skipped posts belong to the sample too: otherwise, the sample would lack the posts that were selected for a
    /// different reason. Comments are never drawn.
    async fn mark_sample(tx: &mut Tx<DB>, drawn: &[u8]) -> Result<()> {
        sqlx::query::<DB>(
            "UPDATE gold SET in_random_sample = TRUE \
              WHERE NOT in_random_sample AND text_hash <= $1 AND fullname >= 't3'",
        )
        .bind(drawn)
        .execute(&mut **tx)
        .await
        .map(drop)
        .context("extend the random sample")
    }

    pub async fn answers(&self) -> Result<Vec<StoredGold>> {
        self.read_answers(Self::select_answers()).await
    }

    pub async fn answers_about(&self, post: &Fullname) -> Result<Vec<StoredGold>> {
        let mut select = Self::select_answers();
        select.push(" WHERE g.fullname = ").push_bind(post.as_str());
        self.read_answers(select).await
    }

    pub async fn answers_by(&self, annotator: &str) -> Result<Vec<StoredGold>> {
        let mut select = Self::select_answers();
        select.push(" WHERE g.annotator = ").push_bind(annotator);
        self.read_answers(select).await
    }

    fn select_answers() -> QueryBuilder<DB> {
        QueryBuilder::new(
            "SELECT g.fullname, g.annotator, g.label, g.label_set_id, g.chosen, g.source, g.answered_at, \
                    g.in_random_sample, g.text_hash = p.text_hash, g.text_hash, g.note, p.collected_at, p.created_at, \
                    p.text_purged_at \
               FROM gold g JOIN things p ON p.fullname = g.fullname",
        )
    }

    async fn read_answers(&self, mut select: QueryBuilder<DB>) -> Result<Vec<StoredGold>> {
        const WHAT: &str = "read answers";
        select.push(" ORDER BY g.fullname, g.answered_at, g.annotator");
        let rows = select.build().fetch_all(&self.pool).await.context(WHAT)?;
        let stored = |row: DB::Row| {
            let fullname: Fullname = row.try_get(0).context(WHAT)?;
            let hash: Vec<u8> = row.try_get(9).context(WHAT)?;
            let text = |column: usize| row.try_get::<String, _>(column).context(WHAT);
            Ok(StoredGold {
                in_random_sample: row.try_get(7).context(WHAT)?,
                is_of_present_text: row.try_get(8).context(WHAT)?,
                collected_at: row.try_get(11).context(WHAT)?,
                created_at: row.try_get(12).context(WHAT)?,
                text_purged_at: row.try_get(13).context(WHAT)?,
                answer: GoldAnswer {
                    annotator: text(1)?,
                    label: row.try_get(2).context(WHAT)?,
                    label_set: row.try_get(3).context(WHAT)?,
                    chosen: parse_column(&fullname, &text(4)?)?,
                    source: parse_column(&fullname, &text(5)?)?,
                    answered_at: row.try_get(6).context(WHAT)?,
                    is_dated: true,
                    text_hash: Some(parse_column(&fullname, &topicmill_core::hex(&hash))?),
                    note: row.try_get(10).context(WHAT)?,
                    fullname,
                },
            })
        };
        rows.into_iter().map(stored).collect()
    }

    pub async fn delete_answer(&self, post: &Fullname, annotator: &str) -> Result<bool> {
        sqlx::query::<DB>("DELETE FROM gold WHERE fullname = $1 AND annotator = $2")
            .bind(post.as_str())
            .bind(annotator)
            .execute(&self.pool)
            .await
            .map(|done| DB::rows_affected(&done) > 0)
            .context("delete an answer")
    }

    pub async fn delete_answers_of(
        &self,
        annotator: &str,
        post: Option<&Fullname>,
    ) -> Result<ForgottenGold> {
        const WHAT: &str = "delete answers";
        let mut tx = self.begin().await?;
        let answers = sqlx::query::<DB>(
            "DELETE FROM gold WHERE annotator = $1 AND ($2 = '' OR fullname = $2)",
        )
        .bind(annotator)
        .bind(post.map(Fullname::as_str).unwrap_or_default())
        .execute(&mut *tx)
        .await
        .map(|done| DB::rows_affected(&done))
        .context(WHAT)?;
        let left = sqlx::query::<DB>("SELECT 1 FROM gold WHERE annotator = $1 LIMIT 1")
            .bind(annotator)
            .fetch_optional(&mut *tx)
            .await
            .context(WHAT)?;
        let select = sqlx::query_as::<DB, StoredFit>(FITS);
        let rows = select.fetch_all(&mut *tx).await.context(WHAT)?;
        let mut fits = Vec::new();
        for (id, name, hash, Json(mut stored)) in rows {
            let fit = fit_row(id, name, &hash, &stored)?;
            if !fit.learned.by.iter().any(|name| name == annotator) {
                continue;
            }
            if left.is_none() {
                let by = fit.learned.by.iter().filter(|name| *name != annotator);
                stored["provenance"]["by"] = by.cloned().collect::<Vec<String>>().into();
                sqlx::query::<DB>("UPDATE label_sets SET fitted = $2 WHERE id = $1")
                    .bind(fit.id)
                    .bind(Json(stored))
                    .execute(&mut *tx)
                    .await
                    .context(WHAT)?;
            }
            fits.push(fit);
        }
        if answers == 0 && left.is_some() {
            // The post had no answer by this annotator, so the fits did not change either.
            fits.clear();
        }
        tx.commit().await.context(WHAT)?;
        Ok(ForgottenGold { answers, fits })
    }

    pub async fn fits(&self) -> Result<Vec<FitRow>> {
        let select = sqlx::query_as::<DB, StoredFit>(FITS);
        let rows = select.fetch_all(&self.pool).await;
        let rows = rows.context("read the fitted label sets")?;
        let read = |(id, name, hash, Json(fitted)): StoredFit| fit_row(id, name, &hash, &fitted);
        rows.into_iter().map(read).collect()
    }
}

/// Returns true if an answer shows how far the random draw has progressed, which is in order of text hash. A random
/// selection that was imported is not in this order, so it implies nothing about posts with lower hashes.
fn is_draw(answer: &GoldAnswer) -> bool {
    answer.chosen == SampleReason::Random
        && answer.source != GoldSource::Import
        && !answer.fullname.is_comment()
}

fn fit_row(id: LabelSetId, name: String, hash: &str, fitted: &Value) -> Result<FitRow> {
    match Deserialize::deserialize(&fitted["provenance"]) {
        Ok(learned) => Ok(FitRow {
            id,
            name,
            version: short_hash(hash).to_owned(),
            learned,
        }),
        Err(error) => Err(damaged_fit(id, &name, hash, &error.to_string())),
    }
}

/// Parses a value that topicmill wrote.
fn parse_column<T>(row: &Fullname, text: &str) -> Result<T>
where
    T: std::str::FromStr<Err: std::fmt::Display>,
{
    text.parse().map_err(|error: T::Err| StoreError::Corrupt {
        table: "gold",
        row: row.to_string(),
        detail: error.to_string(),
    })
}
