//! Of every post what the columns hold, out of the database: one statement, in no order, its rows in parts.

use chrono::DateTime;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::columns::{Columns, Outlined, OutlinedLabel};
use crate::store::{Inquiry, Part, Result, Store, StoreError, Target, parts};

fn statement(target: Option<Target>) -> String {
    // No row has these keys.
    let (model, set) = target.map_or((-1, -1), |target| (target.model, target.label_set));
    format!(
        "SELECT p.fullname, p.created_at, p.subreddit, p.topic, p.reddit_score, \
                CASE WHEN p.text_purged_at IS NULL THEN p.text_hash END, \
                CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END, c.score, c.margin \
           FROM posts p LEFT JOIN classifications c \
             ON c.model_id = {model} AND c.label_set_id = {set} AND c.fullname = p.fullname AND c.text_hash = p.text_hash"
    )
}

/// Reads the columns anew.
pub async fn read(store: &Store) -> Result<Columns> {
    let inquiry = Inquiry {
        sql: statement(store.current_target().await?),
        limit: None,
        at_most: None,
        patience: None,
        longest: None,
        // The statement is our own, so the rights of the database's user are no danger here.
        any_user: true,
        stop: CancellationToken::new(),
    };
    let (into, mut parts) = parts();
    let take = async {
        let mut columns = Columns::default();
        while let Some(part) = parts.recv().await {
            let Part::Rows(rows) = part else { continue };
            for row in rows {
                columns.add(&post(&row)?);
            }
        }
        columns.sort();
        Ok(columns)
    };
    let (asked, columns) = futures_util::future::join(store.ask(inquiry, into), take).await;
    asked?;
    columns
}

fn post(row: &[Value]) -> Result<Outlined<'_>> {
    let text = |at: usize| row[at].as_str();
    let fullname = text(0).unwrap_or_default();
    let corrupt = |detail: &str| StoreError::Corrupt {
        table: "posts",
        row: fullname.to_owned(),
        detail: detail.to_owned(),
    };
    let hash = text(5).and_then(|hash| u64::from_str_radix(hash.get(..16)?, 16).ok());
    let number = |at: usize| row[at].as_f64().unwrap_or_default();
    Ok(Outlined {
        fullname,
        created: text(1)
            .and_then(seconds)
            .ok_or_else(|| corrupt("its time is none"))?,
        subreddit: text(2).unwrap_or_default(),
        topic: text(3),
        reddit_score: row[4].as_i64(),
        text: hash.unwrap_or_default(),
        label: text(6).map(|outcome| OutlinedLabel {
            outcome,
            score: number(7),
            margin: number(8),
        }),
    })
}

/// The second of 1970 of a time as SQLite holds it, or as PostgreSQL prints it.
fn seconds(text: &str) -> Option<i64> {
    let time = DateTime::parse_from_rfc3339(text)
        // PostgreSQL prints the zone as `+00`, without minutes.
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f%#z"));
    time.ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_databases_are_read() {
        for text in [
            "2026-11-04T07:06:32+00:00",
            "2026-11-04 07:06:32+00",
            "2026-11-04 08:06:32.5+01",
        ] {
            assert_eq!(seconds(text), Some(1_793_775_992), "{text}");
        }
        assert_eq!(seconds("yesterday"), None);
    }
}
