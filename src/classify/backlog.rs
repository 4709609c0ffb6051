//! Labels what a store has not labelled yet: claim, tokenise, score, write.
//!
//! Three things run side by side, joined by bounded channels: a task claims the next window of posts and
//! tokenises it, a thread of its own holds the engine and scores, and the caller's task writes what comes
//! out. Posts are written as their last pair arrives, under the lease of their window; a heartbeat keeps
//! live leases alive. A write that finds its lease gone is refused by the store, counted, and left to
//! whoever holds the posts now.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::labeler::{Labeler, LabelerError, Prepared};
use super::tokenize::{EncodedText, Encoder, TokenizeError};
use crate::clock::SharedClock;
use crate::domain::{LabelSet, post_text};
use crate::store::{
    Claimant, ClaimedPost, Classified, Lease, ModelRow, RunId, Store, StoreError, Target, Written,
};

/// Most posts of one claim.
const WINDOW_POSTS: usize = 1_024;
/// Most rows that the engine computes for one claim.
const WINDOW_ROWS: usize = 4_096;
/// Most scores that one claim gives.
const WINDOW_SCORES: usize = 100_000;
/// Scored posts that wait for the writer; with it busy, the engine waits.
const EVENTS: usize = 64;
/// Most posts of one write.
const WRITE_POSTS: usize = 256;
/// A write that has gathered fewer posts goes out after this time.
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// Why labelling ended early.
#[derive(Debug, thiserror::Error)]
pub enum BacklogError {
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The model or the device.
    #[error(transparent)]
    Labeler(#[from] LabelerError),
    /// The tokenizer.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// A thread of ours died.
    #[error("the scoring thread ended without a word: {0}")]
    Thread(String),
}

/// How the backlog is worked off.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a claim lives without a heartbeat.
    pub lease: Duration,
    /// A post that failed this often is left alone.
    pub max_attempts: u32,
    /// Stop after this many posts.
    pub limit: Option<u64>,
}

/// Who labels, and where.
#[derive(Debug, Clone, Copy)]
pub struct Worker<'a> {
    /// The database.
    pub store: &'a Store,
    /// For leases and dates.
    pub clock: &'a SharedClock,
    /// Cancelled by the first signal: the batch under way is finished and written, the rest given back.
    pub stop: &'a CancellationToken,
    /// See [`worker_name`].
    pub name: &'a str,
    /// The run that the labels belong to.
    pub run: RunId,
}

/// What labelling did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Labelled {
    /// Posts that got scores.
    pub posts: u64,
    /// Pairs of a post and a label scored for them.
    pub pairs: u64,
    /// Attempts that failed; a post returns to the backlog until it failed too often.
    pub failed: u64,
    /// Posts that another worker took over before they could be written; their scores were refused.
    pub refused: u64,
    /// Posts of the backlog that other workers hold at the end.
    pub held_elsewhere: u64,
    /// Posts of the backlog that failed too often, in this run or before.
    pub set_aside: u64,
    /// From the first claim to the last write.
    pub seconds: f64,
    /// `posts` a second.
    pub posts_per_sec: f64,
}

/// What a listener hears of labelling as it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// This many posts can be claimed.
    Expect(u64),
    /// This many more are written.
    Done(u64),
}

/// Hears steps.
pub type OnStep<'a> = &'a (dyn Fn(Step) + Send + Sync);

/// Claimed posts on their way to the engine.
struct Window {
    lease: Lease,
    posts: Vec<ClaimedPost>,
    texts: Vec<EncodedText>,
}

/// What the engine's thread tells.
enum Event {
    Scored(Lease, Classified),
    Failed(Lease, String, String),
    /// No more of this window will come: done, or stopped on the way.
    WindowEnd(Lease),
}

/// Labels the backlog of a store under a model and a label set, and makes them the current ones. `done` is
/// added to as labels are written.
///
/// # Errors
/// See [`BacklogError`]. What was scored until then is written, and the rest given back.
pub async fn label(
    worker: &Worker<'_>,
    mut labeler: Labeler,
    set: &LabelSet,
    options: &Options,
    progress: OnStep<'_>,
    done: &mut Labelled,
) -> Result<(), BacklogError> {
    let store = worker.store;
    let prepared = labeler.prepare(set)?;
    let target = target(store, worker, &labeler, set).await?;
    let hypotheses = store.ensure_hypotheses(prepared.keys()).await?;
    store.set_current(target).await?;
    return_abandoned(store, worker.name).await?;
    store.enqueue_missing(target).await?;
    let now = || worker.clock.now().into();
    let waiting = store.waiting(target, options.max_attempts, now()).await?;
    progress(Step::Expect(waiting.claimable));

    let started = worker.clock.elapsed();
    let leases = LiveLeases::default();
    let (window_tx, window_rx) = mpsc::channel::<Window>(1);
    let (event_tx, event_rx) = mpsc::channel::<Event>(EVENTS);
    let window = window_posts(prepared.rows_per_text(), set.labels.len());
    let encoder = labeler.encoder();
    let engine = {
        let stop = worker.stop.clone();
        tokio::task::spawn_blocking(move || {
            score_windows(labeler, &prepared, &hypotheses, window_rx, &event_tx, &stop)
        })
    };
    // Claiming ends when nothing is left, at a signal or at an error; its end closes the channel of windows,
    // the engine scores what it was given and closes the channel of events, and the writer writes what is in
    // it. So each of them comes to its end by itself, and nothing that was scored is dropped.
    let (claimed, written) = {
        let claims = claim_windows(
            worker, target, options, window, &encoder, &leases, window_tx,
        );
        let writes = write_events(worker, target, set, &leases, event_rx, progress, done);
        tokio::select! {
            both = async { tokio::join!(claims, writes) } => both,
            never = heartbeat(worker, options.lease, &leases) => match never {},
        }
    };
    let scored = engine
        .await
        .map_err(|error| BacklogError::Thread(error.to_string()));
    for lease in leases.all() {
        if let Err(error) = store.release(lease).await {
            tracing::warn!(
                lease = lease.0,
                "claimed posts stay claimed until the lease expires: {error}"
            );
        }
    }
    done.seconds = worker.clock.elapsed().saturating_sub(started).as_secs_f64();
    done.posts_per_sec = rate(done.posts, done.seconds);
    written?;
    claimed?;
    scored??;
    let waiting = store.waiting(target, options.max_attempts, now()).await?;
    (done.held_elsewhere, done.set_aside) = (waiting.held, waiting.set_aside);
    Ok(())
}

/// Posts of one claim: enough to sort by length, but not more scores than fit in memory, nor more work than
/// one wants to redo.
fn window_posts(rows_per_text: usize, labels: usize) -> u32 {
    let posts = (WINDOW_ROWS / rows_per_text).min(WINDOW_SCORES / labels.max(1));
    u32::try_from(posts.clamp(1, WINDOW_POSTS)).expect("WINDOW_POSTS is small")
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(posts: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        posts as f64 / seconds
    } else {
        0.0
    }
}

async fn target(
    store: &Store,
    worker: &Worker<'_>,
    labeler: &Labeler,
    set: &LabelSet,
) -> Result<Target, StoreError> {
    let folder = labeler.folder();
    let model = ModelRow {
        name: folder.name.clone(),
        kind: folder.kind.as_str().to_owned(),
        manifest_hash: folder.manifest_hash.clone(),
        precision: folder.precision.clone(),
        tokenizer_hash: folder.tokenizer_hash.clone(),
        max_tokens: i64::try_from(folder.max_tokens).unwrap_or(i64::MAX),
    };
    let label_set = store
        .ensure_label_set(set, worker.clock.now().into())
        .await?;
    Ok(Target {
        model: store.ensure_model(&model).await?,
        label_set,
    })
}

/// Claims and tokenises window after window until nothing is left.
async fn claim_windows(
    worker: &Worker<'_>,
    target: Target,
    options: &Options,
    window: u32,
    encoder: &Arc<Encoder>,
    leases: &LiveLeases,
    windows: mpsc::Sender<Window>,
) -> Result<(), BacklogError> {
    let mut left = options.limit.unwrap_or(u64::MAX);
    let claimant = Claimant {
        worker: worker.name,
        run: worker.run,
        max_attempts: options.max_attempts,
        lease: options.lease,
    };
    while left > 0 && !worker.stop.is_cancelled() {
        // A place in the channel first: posts are claimed only when the engine is about to need them.
        let Ok(place) = windows.reserve().await else {
            break;
        };
        let wanted = window.min(u32::try_from(left).unwrap_or(u32::MAX));
        let now = worker.clock.now().into();
        let claim = worker.store.claim(target, &claimant, wanted, now).await?;
        if claim.posts.is_empty() {
            break;
        }
        leases.add(claim.lease);
        left -= claim.posts.len() as u64;
        let texts: Vec<String> = claim
            .posts
            .iter()
            .map(|post| post_text(&post.title, &post.selftext))
            .collect();
        let encoder = Arc::clone(encoder);
        let texts = tokio::task::spawn_blocking(move || encoder.encode(&texts))
            .await
            .map_err(|error| BacklogError::Thread(error.to_string()))??;
        place.send(Window {
            lease: claim.lease,
            posts: claim.posts,
            texts,
        });
    }
    Ok(())
}

/// The engine's thread: scores windows as they come.
fn score_windows(
    mut labeler: Labeler,
    prepared: &Prepared,
    hypotheses: &[i64],
    mut windows: mpsc::Receiver<Window>,
    events: &mpsc::Sender<Event>,
    stop: &CancellationToken,
) -> Result<(), LabelerError> {
    while let Some(Window {
        lease,
        posts,
        texts,
    }) = windows.blocking_recv()
    {
        // A writer that went away wants nothing more.
        let halted = || stop.is_cancelled() || events.is_closed();
        labeler.score(prepared, &texts, &halted, &mut |i, result| {
            let ClaimedPost {
                fullname,
                text_hash,
                ..
            } = &posts[i];
            let event = match result {
                Ok(scored) => {
                    let logits = hypotheses.iter().copied().zip(scored.logits).collect();
                    let one = Classified {
                        fullname: fullname.clone(),
                        text_hash: *text_hash,
                        scores: scored.scores,
                        logits,
                    };
                    Event::Scored(lease, one)
                }
                Err(error) => Event::Failed(lease, fullname.clone(), error.to_string()),
            };
            // Only fails when the writer went away, which `halted` sees.
            drop(events.blocking_send(event));
        })?;
        drop(events.blocking_send(Event::WindowEnd(lease)));
    }
    Ok(())
}

/// Writes scores as they come, in transactions of a useful size.
async fn write_events(
    worker: &Worker<'_>,
    target: Target,
    set: &LabelSet,
    leases: &LiveLeases,
    mut events: mpsc::Receiver<Event>,
    progress: OnStep<'_>,
    done: &mut Labelled,
) -> Result<(), BacklogError> {
    // The engine works on one window at a time, so what waits is of one lease.
    let mut waiting: Vec<Classified> = Vec::new();
    let mut of_lease = None;
    let mut writer = Writer {
        worker,
        target,
        set,
        progress,
        done,
    };
    let mut written_at = worker.clock.elapsed();
    while let Some(event) = events.recv().await {
        let (lease, ended) = match event {
            Event::Scored(lease, one) => {
                waiting.push(one);
                (lease, false)
            }
            Event::Failed(lease, fullname, error) => {
                tracing::warn!(%fullname, "not scored: {error}");
                worker.store.fail(lease, &[(fullname, error)]).await?;
                writer.done.failed += 1;
                (lease, false)
            }
            Event::WindowEnd(lease) => (lease, true),
        };
        of_lease = Some(lease);
        let due = worker.clock.elapsed().saturating_sub(written_at) >= WRITE_EVERY;
        if waiting.len() >= WRITE_POSTS || due || ended {
            writer.write(lease, &std::mem::take(&mut waiting)).await?;
            written_at = worker.clock.elapsed();
        }
        if ended {
            worker.store.release(lease).await?;
            leases.remove(lease);
        }
    }
    // An engine that failed does not say that its window ends.
    match of_lease {
        Some(lease) if !waiting.is_empty() => writer.write(lease, &waiting).await,
        _ => Ok(()),
    }
}

struct Writer<'a, 'd> {
    worker: &'a Worker<'a>,
    target: Target,
    set: &'a LabelSet,
    progress: OnStep<'a>,
    done: &'d mut Labelled,
}

impl Writer<'_, '_> {
    async fn write(&mut self, lease: Lease, posts: &[Classified]) -> Result<(), BacklogError> {
        let Worker {
            store, clock, run, ..
        } = *self.worker;
        let now = clock.now().into();
        let n = posts.len() as u64;
        match store
            .complete(lease, self.target, self.set.mode, run, now, posts)
            .await?
        {
            Written::Stored(stored) => {
                self.done.posts += stored;
                self.done.pairs += stored * self.set.labels.len() as u64;
                // Posts that were deleted meanwhile need no label.
                (self.progress)(Step::Done(n));
            }
            Written::LeaseLost => {
                tracing::warn!(
                    lease = lease.0,
                    posts = n,
                    "another worker took these posts over; what this one scored is refused"
                );
                self.done.refused += n;
            }
        }
        Ok(())
    }
}

/// Renews the leases of this worker until it is dropped.
async fn heartbeat(worker: &Worker<'_>, lease: Duration, leases: &LiveLeases) -> Infallible {
    loop {
        worker.clock.sleep(lease / 3).await;
        for id in leases.all() {
            match worker
                .store
                .renew(id, worker.clock.now().into(), lease)
                .await
            {
                Ok(true) => {}
                // Its posts are refused when they are written; telling twice helps nobody.
                Ok(false) => leases.remove(id),
                // A lease outlives two beats that were missed.
                Err(error) => tracing::warn!(lease = id.0, "a lease was not renewed: {error}"),
            }
        }
    }
}

/// The leases that this worker holds now.
#[derive(Debug, Default)]
struct LiveLeases(Mutex<Vec<Lease>>);

impl LiveLeases {
    fn lock(&self) -> MutexGuard<'_, Vec<Lease>> {
        self.0.lock().expect("no holder of this lock panics")
    }

    fn add(&self, lease: Lease) {
        self.lock().push(lease);
    }

    fn remove(&self, lease: Lease) {
        self.lock().retain(|live| *live != lease);
    }

    fn all(&self) -> Vec<Lease> {
        self.lock().clone()
    }
}

/// The name of this process among workers: host, boot, process namespace and process, so that a process of
/// the same machine can tell whether it still lives. Names of hosts are not unique; boots are.
pub fn worker_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.split('-').next().unwrap_or_default();
    let host = Some(host.trim())
        .filter(|host| !host.is_empty())
        .unwrap_or("host")
        .to_owned();
    format!("{host}:{boot}:{}:{}", pid_namespace(), std::process::id())
}

fn pid_namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect()
}

/// Whether a worker of this machine died. Of another machine, or where there is no `/proc`, nobody knows.
pub fn died(worker: &str, me: &str) -> bool {
    let (Some((place, pid)), Some((here, _))) = (worker.rsplit_once(':'), me.rsplit_once(':'))
    else {
        return false;
    };
    let proc = std::path::Path::new("/proc");
    place == here && proc.join("self").exists() && !proc.join(pid).exists()
}

/// Takes back the claims of processes of this machine that were killed, so that the next run need not wait
/// for their leases to expire.
async fn return_abandoned(store: &Store, me: &str) -> Result<(), StoreError> {
    for (lease, worker) in store.lease_holders().await? {
        if died(&worker, me) {
            tracing::info!(lease = lease.0, %worker, "taking back the posts of a worker that died");
            store.release(lease).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
