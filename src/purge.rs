//! Out of the store again: what is gone on Reddit, what somebody names, and what is too old.
//!
//! What enters is the store and, to ask about its posts, Reddit; what leaves is a [`PurgeCounts`]. Reddit's rules
//! demand that what is deleted there is deleted here. Posts are asked about a hundred at a time, those
//! not asked about for longest first, and each answer is written in one transaction before the next question,
//! so that a run that is stopped or killed has done what it did, and the next one goes on from there.

use std::collections::{HashMap, HashSet};

use chrono::TimeDelta;

use crate::worker::Worker;
use topicmill_core::record::PurgeCounts;
use topicmill_core::{FailureKind, Fullname, PurgeReason, SourceKind, Timestamp};
use topicmill_sources::error::SourceError;
use topicmill_sources::page::Source;
use topicmill_sources::reddit::{Fates, INFO_LIMIT, PostFate, Reddit};
use topicmill_store::{Checked, Due, Purged, Rewritten, Store, StoreError};

/// Posts of one transaction that asks nobody.
const BATCH: u32 = 1_000;
/// Posts that Reddit showed lately, asked about again to see whether an empty answer can be believed.
const CONTROLS: u32 = 10;
/// A longer time without a run is more likely a wrong clock.
const MAX_CLOCK_JUMP: TimeDelta = TimeDelta::days(30);
/// A little more than a century: no post is older.
const MAX_HOURS: u32 = 1_000_000;

/// Why a purge ended early. What was written until then stays written.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Reddit, or the way to it.
    #[error(transparent)]
    Reddit(#[from] SourceError),
    /// The machine's clock is far from the last run, so it may be wrong, and with it the age of everything.
    #[error(
        "it is {} by the clock of this machine, and the last run on another day began on {}: set the clock, or add \
         `--yes` if it is right",
        now.as_datetime().date_naive(),
        last.as_datetime().date_naive()
    )]
    Clock {
        /// By the machine's clock.
        now: Timestamp,
        /// When the last run began that did not begin within a day of it.
        last: Timestamp,
    },
}

impl PurgeError {
    /// The kind of this error, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Reddit(error) => error.kind(),
            Self::Clock { .. } => FailureKind::Usage,
        }
    }
}

/// What is purged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PurgePlan {
    /// These posts, known or not, and why.
    pub ids: Vec<(Fullname, PurgeReason)>,
    /// The texts of posts first stored more hours ago.
    pub retention_hours: Option<u32>,
    /// Sightings and runs of more days ago become fewer.
    pub thin_days: Option<u32>,
    /// What Reddit does not show any more.
    pub check: Option<Check>,
    /// The file of a SQLite database is not rewritten at the end: a later purge does it.
    pub leave_file: bool,
    /// The machine's clock is right, however long ago the last run was.
    pub trusts_clock: bool,
}

/// How Reddit is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Questions at most, of up to 100 posts each; tries again and tokens are not counted.
    pub max_requests: Option<u64>,
    /// Posts that Reddit showed within these hours are left alone.
    pub older_than_hours: u32,
}

/// What a listener hears of a purge as it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeStep {
    /// Reddit was asked about this many more posts.
    Checked(u64),
    /// The database's file is rewritten without what was purged.
    Rewriting {
        /// Bytes written.
        done: u64,
        /// Bytes that will be.
        total: u64,
    },
}

/// Hears steps.
pub type OnPurgeStep<'a> = &'a (dyn Fn(PurgeStep) + Send + Sync);

/// Purges what the plan names. Only a plan with [`PurgePlan::check`] needs `reddit`.
///
/// # Errors
/// See [`PurgeError`]; `report` tells what was done until then.
pub async fn purge(
    worker: &Worker<'_>,
    plan: &PurgePlan,
    reddit: Option<&Reddit>,
    progress: OnPurgeStep<'_>,
    report: &mut PurgeCounts,
) -> Result<(), PurgeError> {
    let ended = run_steps(worker, plan, reddit, progress, report).await;
    // Before `ended?`: what was purged until an error is to leave the file, too.
    let rewritten = rewrite(worker, plan, progress, report).await;
    ended?;
    Ok(rewritten?)
}

/// Sees to it that nothing of what this purge or an earlier one took lingers in the files of a SQLite database. The
/// tables of a server are others' too: they are rewritten when somebody asks for it.
async fn rewrite(
    worker: &Worker<'_>,
    plan: &PurgePlan,
    progress: OnPurgeStep<'_>,
    report: &mut PurgeCounts,
) -> Result<(), StoreError> {
    report.lingers = worker.store.purging().is_rewrite_due().await?;
    if !report.lingers {
        return Ok(());
    }
    if matches!(worker.store, Store::Postgres(_)) {
        tracing::info!(
            "PostgreSQL keeps the bytes of deleted rows in its files until `topicmill db vacuum` rewrites them"
        );
        return Ok(());
    }
    if plan.leave_file || worker.stop.is_cancelled() {
        tracing::warn!(
            "bytes of what was purged may linger in the file until the next purge, or `topicmill db vacuum`, \
             rewrites it"
        );
        return Ok(());
    }
    let on_bytes = |done, total| progress(PurgeStep::Rewriting { done, total });
    let rewritten = worker.store.purging().rewrite(&on_bytes).await?;
    report.lingers = rewritten != Rewritten::Whole;
    if let Some(remedy) = rewritten.remedy() {
        tracing::warn!("bytes of what was purged linger in the database's files: {remedy}");
    }
    Ok(())
}

async fn run_steps(
    worker: &Worker<'_>,
    plan: &PurgePlan,
    reddit: Option<&Reddit>,
    progress: OnPurgeStep<'_>,
    report: &mut PurgeCounts,
) -> Result<(), PurgeError> {
    // What needs nobody's answer goes first.
    purge_requested(worker, &plan.ids, report).await?;
    if plan.retention_hours.or(plan.thin_days).is_some() && !plan.trusts_clock {
        check_clock(worker).await?;
    }
    if let Some(hours) = plan.retention_hours {
        purge_old_texts(worker, hours, report).await?;
    }
    if let Some(days) = plan.thin_days {
        thin_history(worker, days, report).await?;
    }
    if let (Some(check), Some(reddit)) = (plan.check, reddit) {
        check_deleted(worker, check, reddit, progress, report).await?;
    }
    Ok(())
}

impl Worker<'_> {
    fn now(&self) -> Timestamp {
        self.clock.now().into()
    }

    /// The time so many hours ago, by the clock of the database where it has one.
    async fn hours_ago(&self, hours: u32) -> Result<Timestamp, StoreError> {
        let age = TimeDelta::hours(i64::from(hours.min(MAX_HOURS)));
        let now = self.store.purging().shared_now(self.now()).await?;
        Ok((now.as_datetime() - age).into())
    }
}

/// Rejects a clock that no other confirms, and that is more than a month ahead of the last run, or behind it.
async fn check_clock(worker: &Worker<'_>) -> Result<(), PurgeError> {
    let now = worker.now();
    let day = TimeDelta::days(1);
    let (before, after) = (now.as_datetime() - day, now.as_datetime() + day);
    match worker
        .store
        .runs()
        .last_run(before.into(), after.into())
        .await?
    {
        _ if matches!(worker.store, Store::Postgres(_)) => Ok(()),
        Some(last)
            if !(-day..MAX_CLOCK_JUMP).contains(&(now.as_datetime() - last.as_datetime())) =>
        {
            Err(PurgeError::Clock { now, last })
        }
        _ => Ok(()),
    }
}

fn add(report: &mut PurgeCounts, purged: Purged) {
    report.purged += purged.posts;
    report.crossposts += purged.crossposts;
}

async fn purge_requested(
    worker: &Worker<'_>,
    ids: &[(Fullname, PurgeReason)],
    report: &mut PurgeCounts,
) -> Result<(), PurgeError> {
    for chunk in ids.chunks(BATCH as usize) {
        if worker.stop.is_cancelled() {
            break;
        }
        let checked = Checked {
            gone: chunk.to_vec(),
            ..Checked::default()
        };
        let purged = worker
            .store
            .purging()
            .purge(worker.run, &checked, worker.now());
        add(report, purged.await?);
        report.requested += chunk.len() as u64;
    }
    Ok(())
}

async fn purge_old_texts(
    worker: &Worker<'_>,
    hours: u32,
    report: &mut PurgeCounts,
) -> Result<(), PurgeError> {
    let before = worker.hours_ago(hours).await?;
    // Clocks of machines differ a little; what is a day ahead was stored under a wrong one, and would never be due.
    let future = worker
        .store
        .purging()
        .shared_now(worker.now())
        .await?
        .as_datetime()
        + TimeDelta::days(1);
    let odd = worker
        .store
        .purging()
        .count_texts_after(future.into())
        .await?;
    if odd > 0 {
        tracing::warn!(
            posts = odd,
            "posts that were stored under a clock of the future count as due"
        );
    }
    while !worker.stop.is_cancelled() {
        let store = worker.store;
        let taken = store
            .purging()
            .purge_texts(before, future.into(), BATCH, worker.now())
            .await?;
        report.texts += taken;
        if taken == 0 {
            break;
        }
    }
    Ok(())
}

/// A day at a time, so that others can write between them.
async fn thin_history(
    worker: &Worker<'_>,
    days: u32,
    report: &mut PurgeCounts,
) -> Result<(), PurgeError> {
    let before = worker.hours_ago(days.saturating_mul(24)).await?;
    while !worker.stop.is_cancelled() {
        let Some(thinned) = worker.store.purging().thin_a_day(before).await? else {
            break;
        };
        report.sightings += thinned.sightings;
        report.runs += thinned.runs;
    }
    Ok(())
}

async fn check_deleted(
    worker: &Worker<'_>,
    check: Check,
    reddit: &Reddit,
    progress: OnPurgeStep<'_>,
    report: &mut PurgeCounts,
) -> Result<(), PurgeError> {
    let started = worker.now();
    let due = Due {
        sample: reddit.kind() == SourceKind::Sample,
        before: worker.hours_ago(check.older_than_hours).await?,
    };
    let mut unclear = 0;
    let budget = check.max_requests.unwrap_or(u64::MAX);
    while report.requests < budget && !worker.stop.is_cancelled() {
        // Those that stay due because no answer told their fate come back; behind them are the others.
        let limit = INFO_LIMIT + unclear;
        let asked = worker.store.purging().due(due, limit).await?;
        let asked: Vec<Fullname> = asked.into_iter().skip(unclear as usize).collect();
        if asked.is_empty() {
            break;
        }
        let answer = tokio::select! {
            answer = fetch_fates(worker.store, reddit, &asked, report, budget) => answer?,
            () = worker.stop.cancelled() => break,
        };
        report.checked += asked.len() as u64;
        progress(PurgeStep::Checked(asked.len() as u64));
        let Some(Fates { fates, shows }) = answer else {
            unclear += u32::try_from(asked.len()).expect("at most INFO_LIMIT");
            report.unclear += asked.len() as u64;
            continue;
        };
        let mut checked = classify_fates(asked, &fates, report);
        add_crosspost_fates(&mut checked, &fates, report);
        checked.shows = shows;
        // A clock that was set back must not make the same posts due again.
        let now = worker.now().max(started);
        add(
            report,
            worker
                .store
                .purging()
                .purge(worker.run, &checked, now)
                .await?,
        );
    }
    report.left = worker.store.purging().count_due(due).await?;
    report.reconciled = worker.store.purging().note_reconciled(due).await?;
    Ok(())
}

/// Asks what became of posts; `None` where that cannot be told.
///
/// What is purged is gone, so an answer that knows none of the posts is not believed at once: the next
/// question adds posts that Reddit showed lately, and only if it still shows one of those are the others
/// missing rather than the answer empty.
async fn fetch_fates(
    store: &Store,
    reddit: &Reddit,
    asked: &[Fullname],
    report: &mut PurgeCounts,
    budget: u64,
) -> Result<Option<Fates>, PurgeError> {
    report.requests += 1;
    let Some(answer) = reddit.info(asked).await? else {
        return Ok(None);
    };
    let knows = |name: &Fullname| answer.fates.contains_key(name);
    if asked.iter().any(knows) {
        return Ok(Some(answer));
    }
    // The control question would exceed the budget, and without it nothing may be purged.
    if report.requests >= budget {
        return Ok(None);
    }
    let sample = reddit.kind() == SourceKind::Sample;
    let mut controls = store.purging().last_seen(sample, CONTROLS).await?;
    controls.retain(|fullname| !asked.contains(fullname));
    // The controls need places among the hundred. The first answer did not know those left out, either.
    let again = asked.iter().take((INFO_LIMIT - CONTROLS) as usize);
    let question: Vec<Fullname> = again.chain(&controls).cloned().collect();
    report.requests += 1;
    let answer = reddit.info(&question).await?;
    let shown = |fates: &HashMap<_, _>| question.iter().any(|name| fates.contains_key(name));
    // In a small database there may be nothing to compare with.
    let few = controls.is_empty() && asked.len() < CONTROLS as usize;
    Ok(answer.filter(|answer| few || shown(&answer.fates)))
}

/// Adds the posts that are gone and nobody asked about: crossposts told of them.
fn add_crosspost_fates(
    checked: &mut Checked,
    fates: &HashMap<Fullname, PostFate>,
    report: &mut PurgeCounts,
) {
    let known: HashSet<&Fullname> = checked.gone.iter().map(|(name, _)| name).collect();
    let mut more = Vec::new();
    for (fullname, fate) in fates {
        if let PostFate::Gone(reason) = fate
            && !known.contains(fullname)
        {
            report.count(*reason);
            more.push((fullname.clone(), *reason));
        }
    }
    checked.gone.append(&mut more);
}

fn classify_fates(
    asked: Vec<Fullname>,
    fates: &HashMap<Fullname, PostFate>,
    report: &mut PurgeCounts,
) -> Checked {
    let mut checked = Checked::default();
    for fullname in asked {
        let fate = fates.get(&fullname).copied();
        match fate.unwrap_or(PostFate::Gone(PurgeReason::Missing)) {
            PostFate::Alive => checked.alive.push(fullname),
            PostFate::Authorless => {
                checked.authorless.push(fullname.clone());
                checked.alive.push(fullname);
            }
            PostFate::Gone(reason) => {
                report.count(reason);
                checked.gone.push((fullname, reason));
            }
        }
    }
    checked
}
