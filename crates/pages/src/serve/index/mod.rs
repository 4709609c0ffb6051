//! An in-memory index of all posts, for lists and full-text search. It is refreshed after writes to the database.
//!
//! A list is selected here, and its posts are then read from the database by key. Posts are therefore always current;
//! only the selection may be outdated, by up to the time since the last poll, usually a few seconds.

mod columns;
mod filter;
mod full_text;
mod interner;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

pub use self::columns::{Columns, key};
pub use self::filter::{FacetCount, Facets, RowFilter, RowPosition, SelectedRows, Sort};
use self::full_text::FullTextIndex;
pub use self::full_text::has_words;
use topicmill_core::clock::SharedClock;
use topicmill_core::{Fullname, TextHash};
use topicmill_store::browse::ChangeMarker;
use topicmill_store::{Result, Store, StoreError};

/// Number of posts whose text one statement reads; each post is a bound parameter.
const TEXTS: usize = 500;
/// Number of posts added to the full-text index at once, newest first; they form one segment.
const SEGMENT: usize = 4_000;
/// Interval between polls for changes to the database.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The pause after a refresh, as a multiple of the refresh's duration. Under constant writes, refreshes take a
/// twentieth of the time.
const PAUSE_FACTOR: u32 = 19;
/// The longest pause. Reading 1,000,000 posts takes about four seconds.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// Maximum number of matches for a search, reached by words as common as "the".
const MAX_MATCHES: usize = 30_000;

/// The result of [`Index::find`].
#[derive(Debug, Clone, Default)]
pub struct FoundRows {
    /// The selected page.
    pub selected: SelectedRows,
    /// Fullnames of the posts on the page.
    pub names: Vec<Fullname>,
    /// True if a search matched more posts than are listed; the newest are listed.
    pub is_cut: bool,
}

/// The progress in building the full-text index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchProgress {
    /// Number of posts.
    pub posts: usize,
    /// Number of posts in the full-text index; the newest are added first.
    pub searched: usize,
    /// Number of posts that will be in the full-text index when it is complete.
    pub to_search: usize,
}

/// Columns of all posts and a full-text index.
pub struct Index {
    /// `None` before the first read.
    columns: watch::Sender<Option<Arc<Columns>>>,
    /// Error from the last poll, if it failed.
    failed: watch::Sender<Option<String>>,
    words: Mutex<FullTextIndex>,
    searched: AtomicUsize,
    /// Maximum number of posts in the full-text index.
    most: usize,
}

/// The database state that the index reflects.
#[derive(Default)]
struct ReadState {
    news: Option<ChangeMarker>,
    /// Keys for the posts in the full-text index, each with the first half of the post's text hash.
    texts: HashMap<i64, u64>,
}

impl Index {
    /// Creates an empty index.
    pub fn new(most: usize) -> Result<Self> {
        Ok(Self {
            columns: watch::Sender::new(None),
            failed: watch::Sender::new(None),
            words: Mutex::new(FullTextIndex::new().map_err(|error| failed(&error))?),
            searched: AtomicUsize::new(0),
            most,
        })
    }

    /// Returns the current columns.
    pub fn columns(&self) -> Arc<Columns> {
        self.columns.borrow().clone().unwrap_or_default()
    }

    /// Returns the progress in building the full-text index.
    pub fn progress(&self) -> SearchProgress {
        let columns = self.columns();
        SearchProgress {
            posts: columns.len(),
            to_search: columns.texts().min(self.most),
            searched: self.searched.load(Ordering::Relaxed),
        }
    }

    /// Waits until the columns have been read once; returns an error if a read fails before that.
    pub async fn ready(&self) -> Result<()> {
        let (mut columns, mut failed) = (self.changes(), self.failed.subscribe());
        // The waits cannot fail because the senders live as long as this index.
        tokio::select! {
            // After the first read, the index remains usable even if polls fail.
            biased;
            _ = columns.wait_for(Option::is_some) => Ok(()),
            failed = failed.wait_for(Option::is_some) => {
                let message = failed.ok().and_then(|message| message.clone());
                Err(StoreError::ListsUnavailable(message.unwrap_or_default()))
            }
        }
    }

    /// Returns a receiver that is notified of each refresh, and also immediately if the index has already been read.
    pub fn changes(&self) -> watch::Receiver<Option<Arc<Columns>>> {
        let mut changes = self.columns.subscribe();
        if changes.borrow().is_some() {
            changes.mark_changed();
        }
        changes
    }

    /// Selects a page of posts, on a blocking thread because it scans all posts.
    pub async fn find(
        self: &Arc<Self>,
        filter: RowFilter,
        search: Option<String>,
        after: Option<RowPosition>,
        limit: usize,
    ) -> Result<FoundRows> {
        let index = Arc::clone(self);
        let finding = tokio::task::spawn_blocking(move || {
            let columns = index.columns();
            let among = index.search(search)?;
            let is_cut = among
                .as_ref()
                .is_some_and(|among| among.len() > MAX_MATCHES);
            let selected =
                columns.select(&filter, among.as_deref().map(Vec::as_slice), after, limit);
            let names = selected.keys.iter();
            let names = names
                .filter_map(|(_, key)| columns.fullname(*key))
                .collect();
            Ok(FoundRows {
                selected,
                names,
                is_cut,
            })
        });
        finding.await.expect("finding does not panic")
    }

    /// Counts a list's facet values, on a blocking thread because it scans all posts.
    pub async fn facets(
        self: &Arc<Self>,
        filter: RowFilter,
        search: Option<String>,
    ) -> Result<Facets> {
        let index = Arc::clone(self);
        let counting = tokio::task::spawn_blocking(move || {
            let among = index.search(search)?;
            let among = among.as_deref().map(Vec::as_slice);
            Ok(index.columns().facets(&filter, among))
        });
        counting.await.expect("counting does not panic")
    }

    /// Returns the keys of the posts that match a search, at most one more than the limit, to detect truncation.
    fn search(&self, search: Option<String>) -> Result<Option<Arc<Vec<i64>>>> {
        let among = search.map(|search| self.words().find(&search, MAX_MATCHES + 1));
        among.transpose().map_err(|error| failed(&error))
    }

    fn words(&self) -> MutexGuard<'_, FullTextIndex> {
        self.words
            .lock()
            .expect("no code panics while holding this lock")
    }

    /// Refreshes the index after each change; never returns.
    pub async fn refresh_forever(self: Arc<Self>, store: Store, clock: SharedClock) {
        let mut read = ReadState::default();
        loop {
            let began = clock.elapsed();
            let polled = self.poll(&store, &mut read).await;
            let failed = polled.as_ref().err().map(reason);
            if let Some(failed) = &failed
                && self.failed.borrow().is_none()
            {
                // This is logged once, not at every poll.
                tracing::warn!("cannot refresh the index, so lists may be outdated: {failed}");
            }
            self.failed.send_replace(failed);
            if let Ok(true) = polled {
                let took = clock.elapsed().saturating_sub(began);
                let posts = self.columns().len();
                tracing::debug!(posts, millis = took.as_millis(), "refreshed the index");
                clock.sleep((took * PAUSE_FACTOR).min(MAX_PAUSE)).await;
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    }

    /// Refreshes the index if the database has changed; returns true if it has.
    async fn poll(&self, store: &Store, read: &mut ReadState) -> Result<bool> {
        store.check_usable().await?;
        // The state is read before the posts so that the next poll notices concurrent writes.
        let news = store.posts().change_marker().await?;
        if read.news.as_ref() == Some(&news) {
            return Ok(false);
        }
        let columns = Arc::new(Columns::read(store).await?);
        // The columns are published before the text is read because lists do not need the text.
        self.columns.send_replace(Some(Arc::clone(&columns)));
        self.read_texts(store, &columns, &mut read.texts).await?;
        // The state is set last so that a failed refresh is repeated.
        read.news = Some(news);
        Ok(true)
    }

    /// Updates the full-text index: removes text that is purged or beyond the limit, and adds new and edited text.
    async fn read_texts(
        &self,
        store: &Store,
        columns: &Columns,
        known: &mut HashMap<i64, u64>,
    ) -> Result<()> {
        let mut wanted = columns.newest_texts(self.most);
        let within: HashSet<i64> = wanted.iter().map(|(key, _)| *key).collect();
        let gone = known.keys().copied().filter(|key| !within.contains(key));
        self.change(&gone.collect::<Vec<_>>(), Vec::new())?;
        known.retain(|key, _| within.contains(key));
        wanted.retain(|(key, text)| known.get(key) != Some(text));
        for segment in wanted.chunks(SEGMENT) {
            let (mut texts, mut read) = (Vec::new(), HashMap::new());
            for some in segment.chunks(TEXTS) {
                let names = some.iter().filter_map(|(key, _)| columns.fullname(*key));
                let names: Vec<Fullname> = names.collect();
                let names: Vec<&Fullname> = names.iter().collect();
                for text in store.posts().post_texts(&names).await? {
                    let key = key(text.fullname.as_str());
                    read.insert(key, half(text.text_hash));
                    texts.push((key, text.title, text.body));
                }
            }
            let keys = segment.iter().map(|(key, _)| *key);
            // These posts have been purged since the columns were read.
            let gone: Vec<i64> = keys.filter(|key| !read.contains_key(key)).collect();
            self.change(&gone, texts)?;
            for key in &gone {
                known.remove(key);
            }
            known.extend(read);
            self.searched.store(known.len(), Ordering::Relaxed);
        }
        self.searched.store(known.len(), Ordering::Relaxed);
        Ok(())
    }

    /// Removes the text for some posts and adds the text for others.
    fn change(&self, gone: &[i64], texts: Vec<(i64, String, String)>) -> Result<()> {
        // The work is CPU-bound and holds a blocking lock.
        tokio::task::block_in_place(|| {
            let mut words = self.words();
            words.remove(gone).and_then(|()| words.upsert(texts))
        })
        .map_err(|error| failed(&error))
    }
}

/// Returns the first half of a hash.
fn half(hash: TextHash) -> u64 {
    let half = hash.as_bytes().first_chunk().expect("a hash has 16 bytes");
    u64::from_be_bytes(*half)
}

/// Returns a user-facing message for a failed read.
fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Denied(message) | StoreError::Query(message) => format!(
            "{message}; on PostgreSQL, `serve` needs SELECT privileges on all tables and views: \
             `GRANT SELECT ON ALL TABLES IN SCHEMA public TO your_user`"
        ),
        error => error.to_string(),
    }
}

fn failed(error: &rusqlite::Error) -> StoreError {
    StoreError::Query(format!("search: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_subscribers_are_notified_of_the_first_read() {
        let index = Index::new(1).unwrap();
        assert!(!index.changes().has_changed().unwrap());
        index.columns.send_replace(Some(Arc::default()));
        assert!(index.changes().has_changed().unwrap());
    }
}
