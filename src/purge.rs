//! Purges posts that were deleted on Reddit, that the user names, or whose retention has expired.
//!
//! Reddit's rules require that posts deleted there are deleted here. Posts are checked with Reddit or the archive, a
//! request's worth at a time, the least recently checked first, and each response is written in one transaction before
//! the next request. A run that is stopped or crashes keeps what it finished, and the next run continues from there.

mod deletions;

use chrono::{DateTime, TimeDelta, Utc};

use self::deletions::check_deleted;
use crate::run::{Run, StageError};
use topicmill_core::record::PurgeCounts;
use topicmill_core::{AuthorPolicy, Fullname, PurgeReason, Timestamp, parse_time};
use topicmill_sources::Source;
use topicmill_store::{Checked, OldTexts, Purged, PurgedTexts, Rewritten, Store, StoreError};

/// Number of posts per transaction in steps without requests.
const BATCH: u32 = 1_000;
/// Maximum time since the last run; a longer one is more likely a wrong clock.
const MAX_CLOCK_JUMP: TimeDelta = TimeDelta::days(30);
/// Maximum age in hours, a little over a century.
const MAX_HOURS: u32 = 1_000_000;
/// Key in `meta` of the time by the machine's clock when the user last trusted it.
const CLOCK_TRUSTED_AT: &str = "clock_trusted_at";

/// The posts to purge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgePlan {
    /// Posts to purge by name, stored or not, each with the reason.
    pub ids: Vec<(Fullname, PurgeReason)>,
    /// Names of authors whose posts are purged, as Reddit spells them.
    pub authors: Vec<String>,
    /// Purges the text of old posts.
    pub retention: Option<Retention>,
    /// Purges posts that Reddit no longer shows, or that the archive reports as gone.
    pub check: Option<Check>,
    /// Leaves rewriting the file of a SQLite database to a later purge.
    pub leave_file: bool,
    /// Trusts the machine's clock, now and in later runs, however long ago the last run was.
    pub trusts_clock: bool,
}

/// The retention of post text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Hours since a post was first stored.
    pub hours: u32,
    /// True if the vectors of the texts are kept.
    pub keep_vectors: bool,
    /// True if it also applies to posts that only files and dumps contained.
    pub imports: bool,
}

impl Retention {
    /// Returns this retention an hour earlier for each day of it, for runs that repeat. Otherwise, a daily run that
    /// begins a minute earlier than the one before would keep some texts for another day.
    #[must_use]
    pub fn for_daily_runs(self) -> Self {
        Self {
            hours: self.hours - self.hours / 24,
            ..self
        }
    }
}

/// Limits for requests to the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Maximum number of requests, without retries and tokens.
    pub max_requests: Option<u64>,
    /// Skips posts that were checked within this number of hours.
    pub older_than_hours: u32,
}

/// Progress callback: this many more posts were checked.
pub type OnChecked<'a> = &'a (dyn Fn(u64) + Send + Sync);

/// Purges the posts of a plan. Only a plan with [`PurgePlan::check`] needs `source`.
///
/// # Errors
/// See [`StageError`]; `report` contains what was done before.
pub async fn purge(
    run: &Run<'_>,
    plan: &PurgePlan,
    source: Option<&dyn Source>,
    progress: OnChecked<'_>,
    report: &mut PurgeCounts,
) -> Result<(), StageError> {
    let ended = run_steps(run, plan, source, progress, report).await;
    // The file is rewritten even after an error, because it may contain data that was purged before.
    let rewritten = rewrite(run, plan.leave_file).await;
    report.lingers = *rewritten.as_ref().unwrap_or(&true);
    ended?;
    Ok(rewritten.map(drop)?)
}

/// Rewrites the files of a SQLite database, so that no bytes of this purge or an earlier one remain. The tables of a
/// PostgreSQL server are shared, and are only rewritten on request. Returns true if bytes of purged data may remain in
/// them.
async fn rewrite(run: &Run<'_>, leave_file: bool) -> Result<bool, StoreError> {
    if !run.store.purging().is_rewrite_due().await? {
        return Ok(false);
    }
    if matches!(run.store, Store::Postgres(_)) {
        let whose = if run.store.purging().may_rewrite().await? {
            ""
        } else {
            "the tables' owner runs "
        };
        tracing::info!(
            "PostgreSQL keeps the bytes of deleted rows in its files until {whose}`topicmill db vacuum`"
        );
        return Ok(true);
    }
    if leave_file || run.stop.is_cancelled() {
        tracing::warn!(
            "bytes of purged data may remain in the file until the next purge, or `topicmill db vacuum`, rewrites it"
        );
        return Ok(true);
    }
    let rewritten = run.store.purging().rewrite().await?;
    if let Some(remedy) = rewritten.remedy() {
        tracing::warn!("bytes of purged data remain in the database's files: {remedy}");
    }
    Ok(rewritten != Rewritten::Complete)
}

/// Rewrites the files of a SQLite database after a run that purged posts which its source reported as gone. If that
/// fails, only logs it: a later purge rewrites them.
pub async fn rewrite_after_reports(run: &Run<'_>) {
    if let Err(error) = rewrite(run, false).await {
        tracing::warn!(
            "bytes of purged data may remain in the database's files until the next purge, or `topicmill db vacuum`, \
             rewrites them: {error}"
        );
    }
}

/// Runs the steps of a plan, those without requests first.
async fn run_steps(
    run: &Run<'_>,
    plan: &PurgePlan,
    source: Option<&dyn Source>,
    progress: OnChecked<'_>,
    report: &mut PurgeCounts,
) -> Result<(), StageError> {
    // The steps without requests come first, because no source can make them fail.
    purge_requested(run, &plan.ids, report).await?;
    if !plan.authors.is_empty() {
        let posts = posts_by(run, &plan.authors).await?;
        purge_requested(run, &posts, report).await?;
    }
    if let Some(retention) = plan.retention {
        check_clock(run, plan).await?;
        purge_old_texts(run, retention, report).await?;
    }
    let checked = match (plan.check, source) {
        (Some(check), Some(source)) => check_deleted(run, check, source, progress, report).await,
        _ => Ok(()),
    };
    warn_about_fits(run, report.gold).await?;
    checked
}

/// Returns the time some hours before another.
fn hours_before(time: Timestamp, hours: u32) -> Timestamp {
    let age = TimeDelta::hours(i64::from(hours.min(MAX_HOURS)));
    (time.as_datetime() - age).into()
}

/// Rejects the machine's clock if it is behind the last run, or more than a month ahead of it, unless the user trusts it
/// now or has done so in that time. With PostgreSQL, the server's clock is used instead.
async fn check_clock(run: &Run<'_>, plan: &PurgePlan) -> Result<(), StageError> {
    if matches!(run.store, Store::Postgres(_)) {
        return Ok(());
    }
    let now = run.now();
    if plan.trusts_clock {
        let now = now.as_datetime().to_rfc3339();
        return Ok(run.store.set_meta(CLOCK_TRUSTED_AT, &now).await?);
    }
    let day = TimeDelta::days(1);
    let is_plausible = |earlier: DateTime<Utc>| {
        let since = now.as_datetime() - earlier;
        (-day..MAX_CLOCK_JUMP).contains(&since)
    };
    let trusted_at = run.store.meta(CLOCK_TRUSTED_AT).await?;
    let trusted_at = trusted_at.and_then(|time| parse_time(&time));
    if trusted_at.is_some_and(|trusted| is_plausible(trusted.time)) {
        return Ok(());
    }
    let (before, after) = (now.as_datetime() - day, now.as_datetime() + day);
    let last_start = run.store.runs().last_run_start(before.into(), after.into());
    match last_start.await? {
        Some(last) if !is_plausible(last.as_datetime()) => Err(StageError::Clock { now, last }),
        _ => Ok(()),
    }
}

/// Adds what one transaction purged.
fn add(report: &mut PurgeCounts, purged: Purged) {
    report.purged += purged.posts;
    report.crossposts += purged.crossposts;
    report.gold += purged.gold;
}

/// Warns that fitted label sets keep what they learned from gold labels that were deleted with their posts.
async fn warn_about_fits(run: &Run<'_>, gold: u64) -> Result<(), StoreError> {
    if gold == 0 {
        return Ok(());
    }
    let fits = match run.store.gold().fits().await {
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::warn!(
                gold,
                "gold labels were deleted with their posts, and a fit cannot be read: {error}"
            );
            return Ok(());
        }
        fits => fits?,
    };
    for fit in fits {
        tracing::warn!(
            gold,
            "gold labels were deleted with their posts, but the label set {}",
            fit.what_it_keeps()
        );
    }
    Ok(())
}

/// Purges posts that the user names, block by block.
async fn purge_requested(
    run: &Run<'_>,
    ids: &[(Fullname, PurgeReason)],
    report: &mut PurgeCounts,
) -> Result<(), StageError> {
    for chunk in ids.chunks(BATCH as usize) {
        if run.stop.is_cancelled() {
            break;
        }
        let checked = Checked {
            gone: chunk.to_vec(),
            ..Checked::default()
        };
        let purged = run.store.purging().purge(run.id, &checked, run.now());
        add(report, purged.await?);
        report.requested += chunk.len() as u64;
    }
    Ok(())
}

/// Finds the posts of authors, whose names are stored as hashes or, with `collect.store_author`, unchanged.
async fn posts_by(
    run: &Run<'_>,
    authors: &[String],
) -> Result<Vec<(Fullname, PurgeReason)>, StoreError> {
    let store = run.store;
    let policy = AuthorPolicy::Hashed(store.posts().author_key().await?);
    let mut posts = Vec::new();
    for author in authors {
        let stored = [
            policy.apply(author),
            author.to_lowercase(),
            // A database may change only ASCII letters to lower case.
            author.to_ascii_lowercase(),
        ];
        let found = store.purging().posts_by_author(&stored).await?;
        if found.is_empty() {
            tracing::warn!("no stored post is by `{author}`: check the spelling");
        } else {
            tracing::info!(posts = found.len(), "found the stored posts by `{author}`");
        }
        posts.extend(found.into_iter().map(|post| (post, PurgeReason::Requested)));
    }
    let nameless = store.purging().count_without_author().await?;
    if nameless > 0 {
        tracing::warn!(
            posts = nameless,
            "`--author` cannot find posts that are stored without an author: list them in a file for `--ids`"
        );
    }
    Ok(posts)
}

/// Purges the text of posts whose retention has expired, block by block.
async fn purge_old_texts(
    run: &Run<'_>,
    retention: Retention,
    report: &mut PurgeCounts,
) -> Result<(), StageError> {
    // The clocks of machines differ a little. A post that was stored more than a day in the future got its time from a
    // wrong clock. It counts as due, because otherwise it would not be due for a long time.
    let now = run.store.purging().database_now(run.now()).await?;
    let old = OldTexts {
        before: hours_before(now, retention.hours),
        after: (now.as_datetime() + TimeDelta::days(1)).into(),
        imports: retention.imports,
        keep_vectors: retention.keep_vectors,
    };
    let in_future = run.store.purging().count_texts_after(old.after).await?;
    if in_future > 0 {
        tracing::warn!(
            posts = in_future,
            "posts whose storage time is in the future count as due, because a clock was wrong"
        );
    }
    while !run.stop.is_cancelled() {
        let purged = run.store.purging().purge_texts(&old, BATCH, run.now());
        let PurgedTexts { posts, unlabelled } = purged.await?;
        report.texts += posts;
        report.texts_unlabelled += unlabelled;
        if posts == 0 {
            break;
        }
    }
    Ok(())
}
