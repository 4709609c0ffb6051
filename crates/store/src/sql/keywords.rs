//! Stores the keywords that posts were selected with: a part of the sampling frame.

use chrono::TimeDelta;
use serde_json::Value;
use sqlx::Row as _;
use sqlx::types::Json;

use super::{ErrorContext, SqlStore};
use crate::dialect::Dialect;
use crate::{Result, TopicKeywords};
use topicmill_core::Timestamp;

fn strings(Json(values): Json<Vec<Value>>) -> Vec<String> {
    let strings = values.iter().filter_map(Value::as_str);
    strings.map(str::to_owned).collect()
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn record_keywords(
        &self,
        topic: &str,
        keywords: &[String],
        now: Timestamp,
    ) -> Result<bool> {
        const WHAT: &str = "record the keywords of a topic";
        loop {
            let all = self.keywords().await?;
            let last = all.iter().rfind(|row| row.topic == topic);
            if last.map_or(&[][..], |row| &row.keywords) == keywords {
                return Ok(false);
            }
            // This change is after the last one, whatever the clock says.
            let after_last = last.map(|row| row.since.as_datetime() + TimeDelta::seconds(1));
            let since = after_last.map_or(now, |after| now.max(after.into()));
            let inserted = sqlx::query::<DB>(
                "INSERT INTO topic_keywords (topic, since, keywords) VALUES ($1, $2, $3) \
                 ON CONFLICT (topic, since) DO NOTHING",
            )
            .bind(topic)
            .bind(since)
            .bind(Json(&serde_json::json!(keywords)))
            .execute(&self.pool)
            .await
            .context(WHAT)?;
            // If not, another run has recorded other keywords in the meantime.
            if DB::rows_affected(&inserted) > 0 {
                break;
            }
        }
        sqlx::query_scalar::<DB, _>("SELECT EXISTS (SELECT 1 FROM posts WHERE topic = $1)")
            .bind(topic)
            .fetch_one(&self.pool)
            .await
            .context(WHAT)
    }

    pub async fn keywords(&self) -> Result<Vec<TopicKeywords>> {
        sqlx::query::<DB>("SELECT topic, since, keywords FROM topic_keywords ORDER BY topic, since")
            .try_map(row_as!(TopicKeywords: topic, since, keywords(strings)))
            .fetch_all(&self.pool)
            .await
            .context("read the keywords of topics")
    }
}
