//! Reads what is stored about given posts or texts: labels, scores, texts and their hashes, and topics.

use std::collections::HashMap;

use sqlx::Row;

use super::{ErrorContext, SqlStore};
use crate::dialect::Dialect;
use crate::versions::{LabelState, PostLabel, Prediction};
use crate::{Result, StoreError, StoredText, Target};
use topicmill_core::reddit::is_placeholder;
use topicmill_core::{Fullname, TextHash, hex};

impl<DB: Dialect> SqlStore<DB> {
    pub async fn label_states(
        &self,
        target: Option<Target>,
        posts: &[Fullname],
    ) -> Result<Vec<PostLabel>> {
        const WHAT: &str = "read labels";
        // Posts are read even without a target, so that callers can distinguish unknown and unlabelled posts.
        let target = target.unwrap_or(Target::NONE);
        let decode = |row: &DB::Row| -> Result<PostLabel, sqlx::Error> {
            let (never_had_text, has_lost_text): (bool, bool) = (row.try_get(2)?, row.try_get(3)?);
            let label: Option<String> = row.try_get(4)?;
            let state = match label {
                _ if never_had_text => LabelState::WithoutText,
                None if has_lost_text => LabelState::WithoutText,
                None => LabelState::Unlabelled,
                Some(_) if !row.try_get::<bool, _>(7)? => LabelState::Outdated,
                // Retention keeps the label and the hash of its text, so the label can still be judged.
                Some(label) => LabelState::Labelled(Prediction {
                    label,
                    score: row.try_get(5)?,
                    abstained: row.try_get(6)?,
                }),
            };
            Ok(PostLabel {
                fullname: row.try_get(0)?,
                title: row.try_get(1)?,
                state,
            })
        };
        let select = format!(
            "SELECT p.fullname, p.title, NOT (p.has_text OR p.context_purged) AND p.text_purged_at IS NULL, \
                    p.text_purged_at IS NOT NULL OR p.context_purged, \
                    c.label, c.score, c.abstained, c.text_hash = p.text_hash \
               FROM things p LEFT JOIN classifications c ON c.fullname = p.fullname \
                AND c.model_id = {} AND c.label_set_id = {} WHERE p.fullname IN (",
            target.model, target.label_set
        );
        let names = posts.iter().map(Fullname::as_str).collect();
        let rows = self.rows_in(&select, names, WHAT).await?;
        let states: Result<_, sqlx::Error> = rows.iter().map(decode).collect();
        states.context(WHAT)
    }

    pub async fn post_texts(&self, posts: &[&Fullname]) -> Result<Vec<StoredText>> {
        const WHAT: &str = "read the text of posts";
        let select = "SELECT fullname, text_hash, title, selftext FROM things \
                       WHERE text_purged_at IS NULL AND NOT context_purged AND fullname IN (";
        let names = posts.iter().map(|post| post.as_str()).collect();
        let text = |row: &DB::Row| {
            let (fullname, text_hash) = Self::fullname_and_hash(row, 0)?;
            let body: String = row.try_get(3).context(WHAT)?;
            Ok(StoredText {
                fullname,
                text_hash,
                title: row.try_get(2).context(WHAT)?,
                // `[removed]` would be the most common word in removed posts.
                body: if is_placeholder(&body) {
                    String::new()
                } else {
                    body
                },
            })
        };
        let rows = self.rows_in(select, names, WHAT).await?;
        rows.iter().map(text).collect()
    }

    pub async fn text_scores(
        &self,
        target: Target,
        texts: &[TextHash],
    ) -> Result<Vec<Option<Vec<f64>>>> {
        const WHAT: &str = "read the scores of texts";
        let mut by_hash: HashMap<Vec<u8>, Vec<f64>> = HashMap::new();
        // The condition on all hashes is that of the index.
        let select = format!(
            "SELECT c.text_hash, CAST(k.scores AS TEXT) FROM classifications c JOIN packed_scores k \
                 ON k.model_id = c.model_id AND k.label_set_id = c.label_set_id AND k.fullname = c.fullname \
              WHERE c.text_hash >= '' AND c.model_id = {} AND c.label_set_id = {} AND c.text_hash IN (",
            target.model, target.label_set
        );
        let hashes = texts.iter().map(TextHash::as_bytes).collect();
        for row in self.rows_in(&select, hashes, WHAT).await? {
            let hash: Vec<u8> = row.try_get(0).context(WHAT)?;
            let scores: String = row.try_get(1).context(WHAT)?;
            // PostgreSQL writes an array in braces.
            let json = scores.replace('{', "[").replace('}', "]");
            let scores = serde_json::from_str(&json).map_err(|error| StoreError::Corrupt {
                table: "packed_scores",
                row: hex(&hash),
                detail: error.to_string(),
            })?;
            by_hash.insert(hash, scores);
        }
        let scores = texts.iter().map(|text| by_hash.get(text.as_bytes()));
        Ok(scores.map(Option::<&_>::cloned).collect())
    }

    pub async fn text_hashes(&self, posts: &[Fullname]) -> Result<Vec<(Fullname, TextHash)>> {
        let select = "SELECT fullname, text_hash FROM things WHERE fullname IN (";
        let names = posts.iter().map(Fullname::as_str).collect();
        let rows = self.rows_in(select, names, "find posts").await?;
        let pairs = rows.iter().map(|row| Self::fullname_and_hash(row, 0));
        pairs.collect()
    }

    pub async fn collection_topics(
        &self,
        after: &str,
        limit: u32,
    ) -> Result<Vec<(Fullname, String)>> {
        sqlx::query_as::<DB, _>(
            "SELECT fullname, topic FROM things WHERE topic IS NOT NULL AND fullname > $1 \
              ORDER BY fullname LIMIT $2",
        )
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .context("read the topics of posts")
    }
}
