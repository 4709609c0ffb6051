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
            let rows = self.keywords().await?;
            let last = rows.iter().rfind(|row| row.topic == topic);
            if last.map_or(&[][..], |row| &row.keywords) == keywords {
                return Ok(false);
            }
            // This change is after the last one, whatever the clock says.
            let since = last.map_or(now, |row| {
                now.max((row.since.as_datetime() + TimeDelta::seconds(1)).into())
            });
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
            if DB::rows_affected(&inserted) > 0 {
                break;
            }
            // Another run has recorded keywords in the meantime, so they are compared again.
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
