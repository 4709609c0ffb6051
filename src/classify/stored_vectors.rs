//! Labels posts from the stored vectors of their texts, or from what retention keeps, without a lease and without the
//! engine.
//!
//! Posts are not claimed, because a page takes milliseconds. A page is read and scored while the previous one is being
//! written, and the write skips posts that another worker has claimed or labelled, or that have changed. Posts without
//! a vector are left to the lanes.

use std::sync::atomic::Ordering::Relaxed;

use super::tally::Tally;
use super::{LabelStep, Labelling};
use topicmill_core::record::ClassifyCounts;
use topicmill_core::{LabelSet, ModelKind};
use topicmill_review::rescore::Rescorer;
use topicmill_store::{Classified, StoreError};

/// Maximum number of posts per page.
const PAGE_POSTS: u32 = 4_000;
/// Maximum number of scores per page.
const PAGE_SCORES: usize = 400_000;

/// Scored posts, and the last fullname of the page, where the next page continues.
struct ScoredPage {
    posts: Vec<Classified>,
    last: String,
}

impl Labelling<'_> {
    /// Labels the posts whose text retention deleted, from their logits, or from their scores under a label set that
    /// differs only in the threshold, the temperature and the weight of the background. The limit of the run does not
    /// apply, because the label set could not become the current one if some of these labels were missing.
    pub(super) async fn label_without_text(
        &self,
        kind: &ModelKind,
        set: &LabelSet,
        done: &mut ClassifyCounts,
    ) -> Result<(), StoreError> {
        let (store, target) = (self.run.store, self.targets.target);
        if store.labels().current_target().await? == Some(target) {
            return Ok(());
        }
        let rescorer = Rescorer::new(store, (kind, target.model), set, None).await?;
        let mut tally = Tally::new(self.progress);
        let mut after = String::new();
        while !self.halt.is_cancelled() {
            let posts = store
                .backlog()
                .unlabelled_without_text(target, &after, PAGE_POSTS)
                .await?;
            let Some((last, _)) = posts.last() else {
                break;
            };
            after = last.to_string();
            let texts = posts.iter().map(|(_, text)| *text).collect();
            let evidence_of = rescorer.evidence(store, texts).await?;
            let scored = posts.into_iter().filter_map(|(fullname, text_hash)| {
                let evidence = evidence_of.get(&text_hash)?;
                Some(Classified {
                    scores: evidence.scores(set.temperature, set.threshold),
                    fullname,
                    text_hash,
                    logits: Vec::new(),
                    vector: None,
                })
            });
            let scored: Vec<Classified> = scored.collect();
            (self.progress)(LabelStep::Expect(tally.posts() + scored.len() as u64));
            self.write(None, &scored, &mut tally).await?;
        }
        tally.report();
        done.add(&tally.into_sum());
        Ok(())
    }

    /// Labels the posts whose texts have stored vectors. `done` is updated as labels are written; labels that are
    /// already written are kept after an error.
    pub(super) async fn label_from_vectors(
        &self,
        done: &mut ClassifyCounts,
    ) -> Result<(), StoreError> {
        if self.targets.prepared.label_vectors().is_none() {
            return Ok(());
        }
        let clock = self.run.clock;
        let began = clock.elapsed();
        let mut tally = Tally::new(self.progress);
        let ended = self.label_pages(&mut tally).await;
        tally.report();
        done.add(&tally.into_sum());
        done.seconds += clock.elapsed().saturating_sub(began).as_secs_f64();
        done.posts_per_sec = super::rate(done.posts, done.seconds);
        ended
    }

    async fn label_pages(&self, done: &mut Tally<'_>) -> Result<(), StoreError> {
        let mut next = self.page("").await?;
        while let Some(page) = next {
            // Before the write, because the next page is read during it and must stay within the limit.
            let posts = page.posts.len() as u64;
            self.sizes.left.fetch_sub(posts, Relaxed);
            (self.progress)(LabelStep::Expect(done.posts() + posts));
            // The next page is read while this one is being written, so that the CPU and the database work at the same
            // time.
            let read = async {
                if self.halt.is_cancelled() {
                    return Ok(None);
                }
                self.page(&page.last).await
            };
            let (written, read) = tokio::join!(self.write(None, &page.posts, done), read);
            // Posts that the write skipped do not count towards the limit.
            let left_out = posts - written?;
            self.sizes.left.fetch_add(left_out, Relaxed);
            next = match read? {
                // The limit was reached when the page was read; the skipped posts make room for more.
                None if left_out > 0 && !self.halt.is_cancelled() => self.page(&page.last).await?,
                read => read,
            };
        }
        Ok(())
    }

    /// Reads and scores the next page; `None` if there is none or the limit is reached.
    async fn page(&self, after: &str) -> Result<Option<ScoredPage>, StoreError> {
        let store = self.run.store;
        let targets = &self.targets;
        let scores_limit = u32::try_from(PAGE_SCORES / targets.labels.max(1)).unwrap_or(u32::MAX);
        let run_limit = u32::try_from(self.sizes.left.load(Relaxed)).unwrap_or(u32::MAX);
        let limit = PAGE_POSTS.min(scores_limit.max(1)).min(run_limit);
        if limit == 0 {
            return Ok(None);
        }
        let (backlog, target) = (store.backlog(), targets.target);
        let read = async || backlog.unlabelled_vectors(target, after, limit).await;
        let texts = self.retry.run(read).await?;
        let Some(last) = texts.last().map(|text| text.fullname.clone()) else {
            return Ok(None);
        };
        // A vector of a different length does not come from this model, so the text is left to the engine.
        let scored = texts.into_iter().filter_map(|text| {
            Some(Classified {
                scores: targets.prepared.scores_of(&text.vector)?,
                fullname: text.fullname,
                text_hash: text.text_hash,
                logits: Vec::new(),
                vector: None,
            })
        });
        let (posts, last) = (scored.collect(), last.to_string());
        Ok(Some(ScoredPage { posts, last }))
    }
}
