//! Reads posts for which labelling abstained, with their vectors and text.

use sqlx::{QueryBuilder, Row};

use super::super::dialect::Dialect;
use super::super::{AbstainReason, Result, StoredText, Target, UnlabelledText};
use super::{ErrorContext, ROWS_A_STATEMENT, SqlStore, push_list};
use topicmill_core::Fullname;
use topicmill_score::reddit::is_placeholder;

/// Returns the accepted values of `classifications.other`. There are two values, so that the statement is the same for
/// each reason.
fn other(outcome: AbstainReason) -> (bool, bool) {
    match outcome {
        AbstainReason::Other => (true, true),
        AbstainReason::Unsure => (false, false),
        AbstainReason::Both => (true, false),
    }
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn abstained_texts(
        &self,
        target: Target,
        outcome: AbstainReason,
        model: i64,
        after: &str,
        limit: u32,
    ) -> Result<Vec<UnlabelledText>> {
        const WHAT: &str = "read vectors of abstained posts";
        let (one, or) = other(outcome);
        // A cross join makes SQLite scan the labels in order of fullname.
        let rows = sqlx::query::<DB>(
            "SELECT c.fullname, c.text_hash, v.vector \
               FROM classifications c CROSS JOIN posts p CROSS JOIN text_vectors v \
              WHERE c.model_id = $1 AND c.label_set_id = $2 AND c.fullname > $3 \
                AND c.abstained AND (c.other = $4 OR c.other = $5) \
                AND p.fullname = c.fullname AND p.text_hash = c.text_hash AND p.text_purged_at IS NULL \
                AND v.model_id = $6 AND v.text_hash = c.text_hash \
              ORDER BY c.fullname LIMIT $7",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(after)
        .bind(one)
        .bind(or)
        .bind(model)
        .bind(i64::from(limit))
        .fetch_all(&self.pool)
        .await
        .context(WHAT)?;
        rows.iter().map(Self::unlabelled_text).collect()
    }

    pub async fn count_abstained(&self, target: Target, outcome: AbstainReason) -> Result<u64> {
        let (one, or) = other(outcome);
        let count = sqlx::query_scalar::<DB, i64>(
            "SELECT COUNT(*) FROM classifications c JOIN posts p ON p.fullname = c.fullname \
              WHERE c.model_id = $1 AND c.label_set_id = $2 AND c.abstained AND (c.other = $3 OR c.other = $4) \
                AND p.text_hash = c.text_hash AND p.text_purged_at IS NULL",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(one)
        .bind(or)
        .fetch_one(&self.pool)
        .await;
        count
            .map(i64::unsigned_abs)
            .context("count abstained posts")
    }

    pub async fn post_texts(&self, posts: &[&Fullname]) -> Result<Vec<StoredText>> {
        const WHAT: &str = "read the text of posts";
        let mut found = Vec::with_capacity(posts.len());
        for chunk in posts.chunks(ROWS_A_STATEMENT) {
            let mut select = QueryBuilder::<DB>::new(
                "SELECT fullname, text_hash, title, selftext FROM posts \
                  WHERE text_purged_at IS NULL AND fullname IN (",
            );
            push_list(&mut select, chunk.iter().map(|post| post.as_str()));
            for row in &select.build().fetch_all(&self.pool).await.context(WHAT)? {
                let fullname: Fullname = row.try_get(0).context(WHAT)?;
                let body: String = row.try_get(3).context(WHAT)?;
                found.push(StoredText {
                    text_hash: Self::text_hash(row, 1, &fullname)?,
                    title: row.try_get(2).context(WHAT)?,
                    // Otherwise `[removed]` would be the most common word in removed posts.
                    body: if is_placeholder(&body) {
                        String::new()
                    } else {
                        body
                    },
                    fullname,
                });
            }
        }
        Ok(found)
    }
}
