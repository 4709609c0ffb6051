//! Selects posts to review, and reads them with their labels.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, Row};

use crate::dialect::Dialect;
use crate::gold::{FilterLabel, ReviewOrder, ReviewPost};
use crate::sql::{ErrorContext, SqlStore};
use crate::{Result, Target};
use topicmill_core::Fullname;

/// Joins the labels of the posts' current text under the target `$1`, `$2`.
const LABELS: &str = "JOIN classifications c ON c.model_id = $1 AND c.label_set_id = $2 \
     AND c.fullname = p.fullname AND c.text_hash = p.text_hash";
/// Condition for posts or comments that have text but no answer by `$3`, or by anyone if `$3` is empty.
const UNANSWERED: &str = "p.has_text AND NOT EXISTS (SELECT 1 FROM gold g \
     WHERE g.fullname = p.fullname AND ($3 = '' OR g.annotator = $3))";

impl<DB: Dialect> SqlStore<DB> {
    pub async fn posts_to_review(
        &self,
        target: Target,
        annotator: Option<&str>,
        order: ReviewOrder<'_>,
        limit: u32,
    ) -> Result<Vec<Fullname>> {
        // A random sample speaks of one kind of thing, so comments are not drawn.
        let sql = match order {
            ReviewOrder::Margin => format!(
                "SELECT p.fullname FROM things p {LABELS} WHERE p.kind = 'post' AND {UNANSWERED} \
                  ORDER BY c.margin, p.fullname LIMIT $4"
            ),
            // Reads only as many labels as needed, in the order of the text hash index. Without the two NOTs, SQLite
            // 3.51 would read a million labels by key and sort them. With a join, PostgreSQL 15 would do the same.
            ReviewOrder::Random => format!(
                "SELECT c.fullname FROM classifications c WHERE c.text_hash >= '' AND NOT c.model_id <> $1 \
                    AND NOT c.label_set_id <> $2 \
                    AND (SELECT 1 FROM things p WHERE p.fullname = c.fullname AND p.text_hash = c.text_hash \
                      AND p.kind = 'post' AND {UNANSWERED}) = 1 \
                  ORDER BY c.text_hash, c.fullname LIMIT $4"
            ),
            // The order of hashes is random, so that the answers represent all posts that match the filter.
            ReviewOrder::Filtered(filter) => {
                let label = match filter.label {
                    FilterLabel::Any => "$7 = ''",
                    FilterLabel::Slug(_) => "NOT c.abstained AND c.label = $7",
                    FilterLabel::Missing => "c.abstained AND $7 = ''",
                };
                format!(
                    "SELECT p.fullname FROM things p {LABELS} WHERE p.kind = '{}' AND {UNANSWERED} AND c.score >= $5 \
                        AND c.score <= $6 AND {label} ORDER BY p.text_hash, p.fullname LIMIT $4",
                    filter.kind
                )
            }
        };
        let mut select = sqlx::query_scalar::<DB, Fullname>(AssertSqlSafe(sql))
            .bind(target.model)
            .bind(target.label_set)
            .bind(annotator.unwrap_or_default())
            .bind(i64::from(limit));
        if let ReviewOrder::Filtered(filter) = order {
            let slug = match &filter.label {
                FilterLabel::Slug(slug) => slug.as_str(),
                FilterLabel::Any | FilterLabel::Missing => "",
            };
            select = select.bind(filter.low).bind(filter.high).bind(slug);
        }
        let posts = select.fetch_all(&self.pool).await;
        posts.context("find posts to review")
    }

    pub async fn review_posts(
        &self,
        target: Target,
        posts: &[Fullname],
    ) -> Result<Vec<ReviewPost>> {
        // Used to restore the order of `posts`, in which they are reviewed: IN does not keep it.
        let mut found: HashMap<Fullname, ReviewPost> = HashMap::with_capacity(posts.len());
        let select = format!(
            "SELECT p.subreddit, p.title, p.selftext, p.url, p.permalink, p.created_at, c.label, c.score, \
                    c.abstained, p.fullname, p.text_hash \
               FROM things p JOIN classifications c ON c.fullname = p.fullname AND c.text_hash = p.text_hash \
                AND c.model_id = {} AND c.label_set_id = {} WHERE p.has_text AND p.fullname IN (",
            target.model, target.label_set
        );
        let names = posts.iter().map(Fullname::as_str).collect();
        for row in self.rows_in(&select, names, "read posts to review").await? {
            let post = Self::review_post(row)?;
            found.insert(post.fullname.clone(), post);
        }
        Ok(posts.iter().filter_map(|name| found.remove(name)).collect())
    }

    fn review_post(row: DB::Row) -> Result<ReviewPost> {
        const WHAT: &str = "read posts to review";
        let (fullname, text_hash) = Self::fullname_and_hash(&row, 9)?;
        row_as!(ReviewPost: subreddit, title, selftext, url, permalink, created_at, label, score, abstained;
            fullname = fullname; text_hash = text_hash)(row)
        .context(WHAT)
    }
}
