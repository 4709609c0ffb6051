//! Counts the posts of a sampling frame, by wave and group: what an estimate from gold labels speaks of.

use std::collections::HashMap;

use sqlx::{QueryBuilder, Row};

use super::{ErrorContext, ROWS_A_STATEMENT, SqlStore, push_list};
use crate::dialect::{Bucket, Dialect};
use crate::gold::{FrameCell, FrameQuery, Grouping, Period};
use crate::{Result, Target, TimeStep};
use topicmill_core::{Fullname, TextHash, Timestamp};

/// Returns the SQL for the groups of posts `p`.
fn bucket_of<DB: Dialect>(by: Option<Grouping>) -> Bucket {
    let key = match by {
        Some(Grouping::COLLECTED) => return DB::bucket("p.collected_at", TimeStep::Day),
        Some(Grouping::MONTH) => return DB::bucket("p.created_at", TimeStep::Month),
        Some(flag @ (Grouping::OVER_18 | Grouping::IS_SELF)) => {
            format!("CASE WHEN p.{} THEN 'yes' ELSE 'no' END", flag.name())
        }
        // An empty flair is none.
        Some(column) => format!("NULLIF(p.{}, '')", column.name()),
        None => "CAST(NULL AS TEXT)".to_owned(),
    };
    let text = "bucket".to_owned();
    Bucket { key, text }
}

/// Pushes an expression for the wave of a post `p`: the number of `cuts` before or at which it was first stored, or one
/// more than their number if its text was deleted before its wave was drawn.
fn push_wave<DB: Dialect>(
    select: &mut QueryBuilder<DB>,
    cuts: &[Timestamp],
    drawn: &[Option<Timestamp>],
) {
    let without_text = cuts.len() + 1;
    // The first branch makes the CASE valid if there are no cuts.
    select.push("CAST(CASE WHEN 1 = 0 THEN 0");
    for wave in 0..=cuts.len() {
        if let Some(cut) = cuts.get(wave) {
            select.push(" WHEN p.collected_at < ").push_bind(*cut);
            select.push(" THEN ");
        } else {
            select.push(" ELSE ");
        }
        match drawn.get(wave).copied().flatten() {
            Some(drawn) => select
                .push("CASE WHEN p.text_purged_at < ")
                .push_bind(drawn)
                .push(format!(" THEN {without_text} ELSE {wave} END")),
            None => select.push(wave),
        };
    }
    select.push(" END AS BIGINT)");
}

fn wave_index(wave: i64) -> usize {
    usize::try_from(wave).expect("`push_wave` numbers waves from 0")
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn frame(&self, query: &FrameQuery<'_>) -> Result<Vec<FrameCell>> {
        let Some(posts) = query.posts else {
            return self.frame_cells(query).await;
        };
        let mut cells = Vec::new();
        for chunk in posts.chunks(ROWS_A_STATEMENT) {
            let posts = Some(chunk);
            cells.extend(self.frame_cells(&FrameQuery { posts, ..*query }).await?);
        }
        Ok(cells)
    }

    async fn frame_cells(&self, query: &FrameQuery<'_>) -> Result<Vec<FrameCell>> {
        let Bucket { key, text } = bucket_of::<DB>(query.by);
        let mut select = QueryBuilder::<DB>::new(format!(
            "SELECT wave, subreddit, topic, {text}, outcome, COUNT(*) FROM (SELECT {key} AS bucket, "
        ));
        push_wave(&mut select, query.cuts, query.drawn);
        select.push(format!(
            " AS wave, p.subreddit, p.topic, \
             CASE WHEN c.abstained THEN NULL ELSE c.label END AS outcome \
               FROM things p JOIN classifications c ON c.fullname = p.fullname AND c.text_hash = p.text_hash \
              WHERE p.kind = '{}' AND c.model_id = ",
            query.kind
        ));
        select.push_bind(query.target.model);
        select.push(" AND c.label_set_id = ");
        select.push_bind(query.target.label_set);
        if let Some(Period { since, until }) = query.period {
            select.push(" AND p.created_at >= ").push_bind(since);
            select.push(" AND p.created_at < ").push_bind(until);
        }
        if let Some(posts) = query.posts {
            select.push(" AND p.fullname IN (");
            push_list(&mut select, posts.iter().map(Fullname::as_str));
        }
        select.push(") AS labelled GROUP BY wave, subreddit, topic, bucket, outcome");
        select
            .build()
            .try_map(row_as!(FrameCell: wave(wave_index), subreddit, topic, group, label, posts(i64::unsigned_abs)))
            .fetch_all(&self.pool)
            .await
            .context("count the posts of the sampling frame")
    }

    pub async fn is_text_deleted_before(&self, time: Timestamp) -> Result<bool> {
        sqlx::query_scalar::<DB, _>(
            "SELECT EXISTS (SELECT 1 FROM things WHERE text_purged_at < $1)",
        )
        .bind(time)
        .fetch_one(&self.pool)
        .await
        .context("look up deleted texts")
    }

    pub async fn groups(
        &self,
        by: Grouping,
        posts: &[Fullname],
    ) -> Result<HashMap<Fullname, Option<String>>> {
        let Bucket { key, text } = bucket_of::<DB>(Some(by));
        let mut groups = HashMap::new();
        for chunk in posts.chunks(ROWS_A_STATEMENT) {
            let mut select = QueryBuilder::<DB>::new(format!(
                "SELECT fullname, {text} FROM (SELECT p.fullname, {key} AS bucket FROM things p WHERE p.fullname IN ("
            ));
            push_list(&mut select, chunk.iter().map(Fullname::as_str));
            select.push(") AS grouped");
            let rows = select.build_query_as().fetch_all(&self.pool).await;
            groups.extend::<Vec<_>>(rows.context("read the groups of posts")?);
        }
        Ok(groups)
    }

    pub async fn undrawn_posts(
        &self,
        target: Target,
        drawn: &TextHash,
        after: Timestamp,
    ) -> Result<Vec<(TextHash, Timestamp)>> {
        const WHAT: &str = "find the posts that the review page would draw";
        // As in `posts_to_review`, the two NOTs make SQLite use the index of text hashes.
        let rows = sqlx::query::<DB>(
            "SELECT c.fullname, c.text_hash, p.collected_at FROM classifications c JOIN things p \
                 ON p.fullname = c.fullname AND p.text_hash = c.text_hash \
              WHERE c.text_hash <= $3 AND NOT c.model_id <> $1 AND NOT c.label_set_id <> $2 AND p.has_text \
                AND p.kind = 'post' \
                AND p.collected_at > $4 AND NOT EXISTS (SELECT 1 FROM gold g WHERE g.fullname = c.fullname \
                    AND g.text_hash = c.text_hash AND g.in_random_sample)",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(drawn.as_bytes())
        .bind(after)
        .fetch_all(&self.pool)
        .await
        .context(WHAT)?;
        let post = |row: DB::Row| {
            let (_, hash) = Self::fullname_and_hash(&row, 0)?;
            Ok((hash, row.try_get(2).context(WHAT)?))
        };
        rows.into_iter().map(post).collect()
    }
}
