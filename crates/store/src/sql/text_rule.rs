//! Recomputes text hashes if the rule that builds the text of a post has changed.

use topicmill_core::reddit::{TEXT_RULE, thing_text};
use topicmill_core::{Fullname, TextHash};

use super::meta::SET_META;
use super::{ErrorContext, SqlStore};
use crate::Result;
use crate::dialect::Dialect;

/// Query for the posts with text after the fullname `$1`.
pub const TEXTS: &str = "SELECT fullname, text_hash, title, selftext FROM things \
      WHERE text_purged_at IS NULL AND NOT context_purged AND fullname > $1 ORDER BY fullname LIMIT $2";
/// Posts per transaction. Changed posts are locked until the transaction ends.
const POSTS: i64 = 2_000;

impl<DB: Dialect> SqlStore<DB> {
    /// Recomputes the text hashes of posts with this version's rule. Returns the number of changed posts, which are
    /// labelled again, as after an edit. After an interruption, the next call changes the remaining posts.
    pub async fn apply_text_rule(&self) -> Result<u64> {
        const WHAT: &str = "recompute text hashes";
        let rule = TEXT_RULE.to_string();
        if self.meta("text_rule").await?.as_ref() == Some(&rule) {
            return Ok(0);
        }
        let (mut changed, mut after) = (0, String::new());
        loop {
            let mut tx = self.begin().await?;
            let rows: Vec<(Fullname, Vec<u8>, String, String)> = sqlx::query_as::<DB, _>(TEXTS)
                .bind(after.as_str())
                .bind(POSTS)
                .fetch_all(&mut *tx)
                .await
                .context(WHAT)?;
            if rows.is_empty() {
                sqlx::query::<DB>(SET_META)
                    .bind("text_rule")
                    .bind(rule.as_str())
                    .execute(&mut *tx)
                    .await
                    .context(WHAT)?;
                tx.commit().await.context(WHAT)?;
                if changed > 0 {
                    tracing::info!(
                        posts = changed,
                        rule,
                        "the rule that builds the text of posts has changed, so these posts are labelled again"
                    );
                }
                return Ok(changed);
            }
            let (mut before, mut edited) = (Vec::new(), Vec::new());
            for (fullname, old, title, selftext) in &rows {
                let hash = TextHash::new(&thing_text(fullname, title, selftext));
                if old != hash.as_bytes() {
                    // The conditions skip a post that was edited in the meantime, because its hash is current, and a
                    // purged text, because its hash is kept.
                    let update = "UPDATE things SET text_hash = $3 WHERE fullname = $1 AND text_hash = $2 \
                                  AND text_purged_at IS NULL";
                    let updated = sqlx::query::<DB>(update)
                        .bind(fullname.as_str())
                        .bind(old.as_slice())
                        .bind(hash.as_bytes())
                        .execute(&mut *tx)
                        .await
                        .context(WHAT)?;
                    changed += DB::rows_affected(&updated);
                    before.push(old.as_slice());
                    edited.push(fullname.as_str());
                }
                after = fullname.to_string();
            }
            Self::delete_results_of_edits(&mut tx, &edited, &before).await?;
            tx.commit().await.context(WHAT)?;
        }
    }
}
