//! SQL statements for the browse pages: summaries of posts, and the details of one post.

use sqlx::{QueryBuilder, Row};

use super::super::browse::{ChangeMarker, LabelScore, PostDetails, PostSummary, Sighting, Verdict};
use super::super::dialect::Dialect;
use super::super::{Result, StoreError, Target};
use super::{ErrorContext, SqlStore, is_forbidden, push_list};
use topicmill_core::Fullname;

/// A key that matches no row.
const NO_ROW: i64 = -1;
/// Maximum number of characters of a body in a list: two lines of a wide window.
const EXCERPT: i64 = 280;
/// Maximum number of characters of a title in a list; Reddit's limit is 300.
const TITLE: i64 = 400;
/// Maximum number of displayed sightings of a post: a year of daily runs.
const SIGHTINGS: i64 = 400;
/// Maximum number of displayed posts with the same text.
const SAME_TEXT: i64 = 20;

const OUTCOME: &str =
    "CASE WHEN c.other THEN 'other' WHEN c.abstained THEN 'unsure' ELSE c.label END";

/// Returns the keys of a target, or keys that match no row.
fn keys(target: Option<Target>) -> (i64, i64) {
    target.map_or((NO_ROW, NO_ROW), |target| (target.model, target.label_set))
}

impl<DB: Dialect> SqlStore<DB> {
    pub async fn post_summaries(
        &self,
        target: Option<Target>,
        posts: &[Fullname],
    ) -> Result<Vec<PostSummary>> {
        let mut select = Self::select_listed(target);
        select.push(" WHERE p.fullname IN (");
        push_list(&mut select, posts.iter().map(Fullname::as_str));
        let posts = select.build().try_map(Self::decode_listed);
        posts
            .fetch_all(&self.pool)
            .await
            .context("read a page of posts")
    }

    fn select_listed(target: Option<Target>) -> QueryBuilder<DB> {
        let (model, label_set) = keys(target);
        let mut select = QueryBuilder::<DB>::new(format!(
            "SELECT p.fullname, p.subreddit, p.topic, substr(p.title, 1, {TITLE}), substr(p.selftext, 1, {EXCERPT}), \
                    CASE WHEN c.abstained THEN NULL ELSE c.label END, \
                    CASE WHEN c.abstained THEN NULL ELSE l.label_name END, {OUTCOME}, \
                    c.score, c.margin, p.reddit_score, \
                    p.num_comments, p.created_at, p.text_purged_at IS NOT NULL \
               FROM posts p LEFT JOIN classifications c ON c.model_id = "
        ));
        select.push_bind(model).push(" AND c.label_set_id = ");
        select.push_bind(label_set).push(
            " AND c.fullname = p.fullname AND c.text_hash = p.text_hash \
              LEFT JOIN labels l ON l.label_set_id = c.label_set_id AND l.label = c.label",
        );
        select
    }

    fn decode_listed(row: DB::Row) -> Result<PostSummary, sqlx::Error> {
        row_as!(PostSummary: fullname, subreddit, topic, title, excerpt, label, label_name, outcome, score,
            margin, reddit_score, num_comments, created_at, text_purged)(row)
    }

    pub async fn post_details(&self, fullname: &Fullname) -> Result<Option<PostDetails>> {
        let current = self.current_target().await?;
        let (name, fullname) = ([fullname.clone()], fullname.as_str());
        let Some(listed) = self.post_summaries(current, &name).await?.pop() else {
            return Ok(None);
        };
        let mut hash: Vec<u8> = Vec::new();
        let decode = |row: DB::Row| {
            hash = row.try_get(13)?;
            // Titles are shortened in lists, but not on the page of a post.
            let title = row.try_get(14)?;
            row_as!(PostDetails: selftext, url, permalink, author, flair, upvote_ratio, over_18, source,
                crosspost_parent, collected_at, updated_at, checked_at, removed_at;
                listed = PostSummary { title, ..listed.clone() };
                text_hash = topicmill_score::hex(&hash); verdicts = Vec::new(); sightings = Vec::new();
                same_text = Vec::new())(row)
        };
        let post = sqlx::query::<DB>(
            "SELECT selftext, url, permalink, author, flair, upvote_ratio, over_18, source, crosspost_parent, \
                    collected_at, updated_at, checked_at, removed_at, text_hash, title FROM posts WHERE fullname = $1",
        )
        .bind(fullname)
        .try_map(decode)
        .fetch_optional(&self.pool)
        .await
        .context("read a post")?;
        // The post may be purged between the two statements.
        let Some(mut post) = post else {
            return Ok(None);
        };
        post.verdicts = self.verdicts(current, fullname, &hash).await?;
        post.sightings = self.sightings(fullname).await?;
        post.same_text = self.same_text(current, fullname, &hash).await?;
        Ok(Some(post))
    }

    async fn verdicts(
        &self,
        current: Option<Target>,
        fullname: &str,
        hash: &[u8],
    ) -> Result<Vec<Verdict>> {
        let sql = format!(
            "SELECT s.name, substr(s.hash, 1, 12), m.name, m.number_format, {OUTCOME}, c.label, c.score, c.margin, \
                    c.text_hash = $2, c.run_id, c.classified_at, s.threshold, c.model_id, c.label_set_id \
               FROM classifications c JOIN models m ON m.id = c.model_id JOIN label_sets s ON s.id = c.label_set_id \
              WHERE c.fullname = $1 ORDER BY c.label_set_id DESC, c.model_id DESC"
        );
        let decode = |row: DB::Row| {
            let (model, label_set) = (row.try_get(12)?, row.try_get(13)?);
            let target = Target { model, label_set };
            let verdict = row_as!(Verdict: label_set, version, model, precision, outcome, best, score, margin,
                is_of_this_text, run, classified_at, threshold; is_current = current == Some(target);
                scores = Vec::new())(row)?;
            Ok((target, verdict))
        };
        let rows = sqlx::query::<DB>(sqlx::AssertSqlSafe(sql))
            .bind(fullname)
            .bind(hash)
            .try_map(decode)
            .fetch_all(&self.pool)
            .await
            .context("read the labels of a post")?;
        let mut all = Vec::with_capacity(rows.len());
        for (target, mut verdict) in rows {
            verdict.scores = self.scores_of(target, fullname).await?;
            all.push(verdict);
        }
        // The sort is stable, so the others remain newest first.
        all.sort_by_key(|verdict| !verdict.is_current);
        Ok(all)
    }

    async fn scores_of(&self, target: Target, fullname: &str) -> Result<Vec<LabelScore>> {
        sqlx::query::<DB>(
            "SELECT l.label, l.label_name, s.score FROM label_scores s \
               JOIN labels l ON l.label_set_id = s.label_set_id AND l.position = s.position \
              WHERE s.model_id = $1 AND s.label_set_id = $2 AND s.fullname = $3 ORDER BY s.score DESC, l.position",
        )
        .bind(target.model)
        .bind(target.label_set)
        .bind(fullname)
        .try_map(row_as!(LabelScore: label, label_name, score))
        .fetch_all(&self.pool)
        .await
        .context("read the scores of a post")
    }

    async fn sightings(&self, fullname: &str) -> Result<Vec<Sighting>> {
        sqlx::query::<DB>(
            "SELECT s.run_id, r.started_at, s.topic, s.listing, CAST(s.rank AS BIGINT), s.reddit_score \
               FROM sightings s JOIN runs r ON r.id = s.run_id \
              WHERE s.fullname = $1 ORDER BY s.run_id DESC, s.topic LIMIT $2",
        )
        .bind(fullname)
        .bind(SIGHTINGS)
        .try_map(row_as!(Sighting: run, at, topic, listing, rank, reddit_score))
        .fetch_all(&self.pool)
        .await
        .context("read the sightings of a post")
    }

    async fn same_text(
        &self,
        current: Option<Target>,
        fullname: &str,
        hash: &[u8],
    ) -> Result<Vec<PostSummary>> {
        let mut select = Self::select_listed(current);
        // Uses the index on labels, because posts have no index on text hashes.
        select.push(" WHERE p.fullname IN (SELECT same.fullname FROM classifications same WHERE same.text_hash >= '' \
                     AND same.text_hash = ");
        select
            .push_bind(hash)
            .push(") AND p.text_hash = ")
            .push_bind(hash);
        select.push(" AND p.has_text AND p.fullname <> ");
        select.push_bind(fullname);
        select
            .push(" ORDER BY p.created_at DESC, p.fullname LIMIT ")
            .push_bind(SAME_TEXT);
        let posts = select.build().try_map(Self::decode_listed);
        posts
            .fetch_all(&self.pool)
            .await
            .context("read posts with the same text")
    }

    pub async fn change_marker(&self) -> Result<ChangeMarker> {
        // Counts the ended runs too: times may have a resolution of one second, so a run that ends in the same second
        // as another changes no time.
        sqlx::query_as::<DB, _>(
            "SELECT (SELECT MAX(id) FROM runs), (SELECT MAX(heartbeat_at) FROM runs), \
                    (SELECT MAX(finished_at) FROM runs), (SELECT COUNT(finished_at) FROM runs), \
                    (SELECT model_id FROM current_target), (SELECT label_set_id FROM current_target)",
        )
        .fetch_one(&self.pool)
        .await
        .map(|marks| ChangeMarker(Some(marks)))
        .context("read the last write")
    }

    /// Returns the URL without its password.
    pub fn shown_url(&self) -> &str {
        &self.url
    }

    pub async fn check_usable(&self) -> Result<()> {
        let known = Self::latest();
        let found = match self.schema().await {
            // A user who may read only the views has all the privileges that the pages need.
            Err(error) if is_forbidden(&error) => return Ok(()),
            found => found?,
        };
        match found.cmp(&known) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less if found == 0 => Err(StoreError::NoTables(self.url.clone())),
            std::cmp::Ordering::Less => Err(StoreError::NotMigrated(self.url.clone())),
            std::cmp::Ordering::Greater => Err(StoreError::Newer {
                url: self.url.clone(),
                found,
                known,
            }),
        }
    }
}
