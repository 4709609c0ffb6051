//! Writes labels and what they were computed from, and counts them. In: labels of posts, under a lease or without one.
//! Out: rows of the store.

use super::tally::Tally;
use super::{LabelStep, Labelling};
use crate::run::Run;
use topicmill_store::{Classified, LabelWrite, Lease, StoreError, Written};

impl Labelling<'_> {
    /// Writes labels under a lease, or, if they were computed from stored vectors, without one. Returns the number of
    /// posts stored.
    pub(super) async fn write(
        &self,
        lease: Option<Lease>,
        posts: &[Classified],
        done: &mut Tally<'_>,
    ) -> Result<u64, StoreError> {
        let Run { store, clock, .. } = self.run;
        let n = posts.len() as u64;
        let write = LabelWrite {
            target: self.targets.target,
            logits_model: self.targets.logits_model,
            mode: self.targets.prepared.mode(),
            run: self.run.id,
            now: clock.now().into(),
            lease,
        };
        let began = clock.elapsed();
        // Idempotent: a written post has left the backlog, and without a lease a labelled post is omitted.
        let save = async || store.backlog().save_labels(&write, posts).await;
        let written = match lease {
            Some(_) => self.retry.run_with_timeout(save).await?,
            None => self.retry.run(save).await?,
        };
        done.new.stages.write_secs += clock.elapsed().saturating_sub(began).as_secs_f64();
        let stored = match written {
            Written::Stored(stored) => stored,
            Written::LeaseLost => {
                tracing::warn!(
                    lease = lease.map(|lease| lease.0),
                    posts = n,
                    "another worker has claimed these posts; this worker's scores for them are rejected"
                );
                done.new.refused += n;
                done.new.leases_lost += 1;
                done.report();
                return Ok(0);
            }
        };
        done.new.posts += stored.posts;
        done.new.other += stored.other;
        done.new.unsure += stored.unsure;
        let finished = if lease.is_some() {
            // Posts deleted in the meantime are also finished.
            n
        } else {
            let pairs = self.targets.hypotheses.len() as u64;
            done.new.pairs_reused += stored.posts * pairs;
            stored.posts
        };
        (self.progress)(LabelStep::Done(finished));
        done.report();
        Ok(stored.posts)
    }
}
