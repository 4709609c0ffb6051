//! Writes a lane's labels to the database as they arrive.

use std::time::Duration;

use tokio::sync::mpsc;

use super::{Event, Shared};
use crate::classify::tally::Tally;
use crate::classify::{BacklogError, LabelStep};
use crate::run::Run;
use topicmill_store::{Classified, LabelWrite, Lease, Written};

/// Maximum number of posts per write.
const WRITE_POSTS: usize = 256;
/// Maximum time between writes, so that a slow model's results soon become visible and durable.
const WRITE_EVERY: Duration = Duration::from_secs(2);

impl Shared<'_> {
    /// Writes scores as they arrive, in transactions of up to [`WRITE_POSTS`] posts.
    pub(super) async fn write_events(
        &self,
        mut events: mpsc::Receiver<Event>,
        done: &mut Tally<'_>,
    ) -> Result<(), BacklogError> {
        let Run { store, clock, .. } = *self.run;
        // The engine scores one window at a time, so all waiting posts are under the same lease.
        let mut waiting: Vec<Classified> = Vec::new();
        let mut last_lease = None;
        let mut written_at = clock.elapsed();
        while let Some(event) = events.recv().await {
            let (lease, ended, suspects) = match event {
                Event::Scored(lease, one, computed, reused) => {
                    waiting.push(one);
                    done.new.pairs += computed as u64;
                    done.new.pairs_reused += reused as u64;
                    (lease, false, None)
                }
                Event::Failed(lease, fullname, error) => {
                    tracing::error!(%fullname, "not scored: {error}");
                    let failed = [(fullname, error)];
                    self.retry
                        .run_with_timeout(async || store.backlog().fail(lease, &failed).await)
                        .await?;
                    done.new.failed += 1;
                    (lease, false, None)
                }
                Event::WindowEnd(lease, suspects, took) => {
                    let (stages, computed) = *took;
                    done.new.stages.add(&stages);
                    done.new.add_computed(&computed);
                    (lease, true, suspects)
                }
            };
            last_lease = Some(lease);
            let due = clock.elapsed().saturating_sub(written_at) >= WRITE_EVERY;
            if waiting.len() >= WRITE_POSTS || due || ended {
                self.write(lease, &std::mem::take(&mut waiting), done)
                    .await?;
                written_at = clock.elapsed();
            }
            // Posts still under the lease return to the backlog: they were edited in the meantime, or were not reached
            // before the run was stopped.
            if ended {
                self.retry
                    .run_with_timeout(async || store.backlog().release(lease).await)
                    .await?;
                self.leases.remove(lease);
            }
            // Only after the write, so that a process has at most one unwritten window of suspects.
            drop(suspects);
        }
        // A failed engine sends no `WindowEnd`.
        match last_lease {
            Some(lease) if !waiting.is_empty() => self.write(lease, &waiting, done).await,
            _ => Ok(()),
        }
    }

    async fn write(
        &self,
        lease: Lease,
        posts: &[Classified],
        done: &mut Tally<'_>,
    ) -> Result<(), BacklogError> {
        let Run { store, clock, .. } = *self.run;
        let n = posts.len() as u64;
        let write = LabelWrite {
            target: self.target,
            mode: self.set.mode,
            run: self.run.id,
            now: clock.now().into(),
            lease: Some(lease),
        };
        let began = clock.elapsed();
        // Idempotent: a written post has left the backlog.
        let written = self
            .retry
            .run_with_timeout(async || store.backlog().save_labels(&write, posts).await);
        let written = written.await?;
        done.new.stages.write_secs += clock.elapsed().saturating_sub(began).as_secs_f64();
        match written {
            Written::Stored(stored) => {
                done.new.posts += stored.posts;
                done.new.other += stored.other;
                done.new.unsure += stored.unsure;
                // Counts `n`, because posts deleted in the meantime are also finished.
                (self.progress)(LabelStep::Done(n));
            }
            Written::LeaseLost => {
                tracing::warn!(
                    lease = lease.0,
                    posts = n,
                    "another worker has claimed these posts; this worker's scores for them are rejected"
                );
                done.new.refused += n;
                done.new.leases_lost += 1;
            }
        }
        done.report();
        Ok(())
    }
}
