//! Hashes texts again when the rule by which they are read of posts has changed.

use sqlx::Row;
use topicmill_score::reddit::{TEXT_RULE, post_text};

use super::super::Result;
use super::super::dialect::Dialect;
use super::{Doing, SqlStore};
use topicmill_core::TextHash;

/// Posts of a transaction: they are locked until it ends.
const POSTS: i64 = 2_000;

impl<DB: Dialect> SqlStore<DB> {
    /// Gives posts the hash of their text by this program's rule, and returns how many have another one now. As after
    /// an edit, these are labelled again. A run that was interrupted continues with the next call.
    pub async fn apply_text_rule(&self) -> Result<u64> {
        const WHAT: &str = "hash texts by the rule of this version";
        let rule = TEXT_RULE.to_string();
        let stored: Option<String> =
            sqlx::query_scalar::<DB, _>("SELECT value FROM meta WHERE key = 'text_rule'")
                .fetch_optional(&self.pool)
                .await
                .doing(WHAT)?;
        if stored.as_ref() == Some(&rule) {
            return Ok(0);
        }
        let (mut changed, mut after) = (0, String::new());
        loop {
            let mut tx = self.begin().await?;
            let rows = sqlx::query::<DB>(
                "SELECT fullname, text_hash, title, selftext FROM posts \
                  WHERE text_purged_at IS NULL AND fullname > $1 ORDER BY fullname LIMIT $2",
            )
            .bind(after.as_str())
            .bind(POSTS)
            .fetch_all(&mut *tx)
            .await
            .doing(WHAT)?;
            let (mut before, mut edited) = (Vec::new(), Vec::new());
            for row in &rows {
                let cell = |column: usize| row.try_get::<String, _>(column).doing(WHAT);
                let (fullname, old) = (cell(0)?, row.try_get::<Vec<u8>, _>(1).doing(WHAT)?);
                let hash = TextHash::new(&post_text(&cell(2)?, &cell(3)?));
                if old != hash.as_bytes() {
                    // An edit that was stored meanwhile has a hash by this rule already, and a purged text keeps its
                    // own.
                    let update = "UPDATE posts SET text_hash = $3 WHERE fullname = $1 AND text_hash = $2 AND text_purged_at IS NULL";
                    let updated = sqlx::query::<DB>(update)
                        .bind(fullname.as_str())
                        .bind(old.as_slice())
                        .bind(hash.as_bytes())
                        .execute(&mut *tx)
                        .await
                        .doing(WHAT)?;
                    changed += DB::rows_affected(&updated);
                    before.push(old);
                    edited.push(fullname.clone());
                }
                after = fullname;
            }
            let before: Vec<&[u8]> = before.iter().map(Vec::as_slice).collect();
            let edited: Vec<&str> = edited.iter().map(String::as_str).collect();
            Self::forget_edited(&mut tx, &edited, &before).await?;
            if rows.is_empty() {
                sqlx::query::<DB>(
                    "INSERT INTO meta (key, value) VALUES ('text_rule', $1) \
                     ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                )
                .bind(rule.as_str())
                .execute(&mut *tx)
                .await
                .doing(WHAT)?;
            }
            tx.commit().await.doing(WHAT)?;
            if rows.is_empty() {
                if changed > 0 {
                    tracing::info!(
                        posts = changed,
                        rule,
                        "posts are labelled again, because their texts are read by another rule now"
                    );
                }
                return Ok(changed);
            }
        }
    }
}
