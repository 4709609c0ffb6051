//! What lists and searches need of all posts, in memory, read from the database again when a run has written.
//!
//! A list is chosen here and its lines are read from the database by their keys, so what is shown of a post is what is stored
//! now; only which posts a list has may be as old as the last look, some seconds as a rule.

mod columns;
mod words;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

pub use self::columns::{ChosenRows, Columns, RowFilter, RowPlace, Sort, key};
use self::words::WordIndex;
pub use self::words::has_words;
use topicmill_core::clock::SharedClock;
use topicmill_core::{Fullname, TextHash};
use topicmill_store::browsed::News;
use topicmill_store::{Result, Store, StoreError};

/// Posts whose texts are read at once: bound as parameters of one statement.
const TEXTS: usize = 500;
/// Texts that are added to the searchable ones at once: a segment of the index, newest posts first.
const SEGMENT: usize = 4_000;
/// How often the database is asked whether anything was written.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Reading anew takes at most one part in twenty of the time while something writes all the time.
const REST: u32 = 19;
/// But nobody waits longer than this for what was written: 1,000,000 posts are read in some four seconds.
const LONGEST_REST: Duration = Duration::from_mins(1);
/// Matches of a search that lists have: who searches for "the" wants no list of all posts.
const MATCHES: usize = 30_000;

#[derive(Debug, Clone, Default)]
pub struct FoundRows {
    /// The page.
    pub chosen: ChosenRows,
    pub names: Vec<Fullname>,
    /// A search matched more posts than lists have: the newest ones count.
    pub is_cut: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchProgress {
    pub posts: usize,
    /// Posts whose texts are searched; the newest ones come first.
    pub searched: usize,
    /// How many it is to be.
    pub to_search: usize,
}

/// All posts, for lists and searches.
pub struct Index {
    /// Nothing before they are read for the first time.
    columns: watch::Sender<Option<Arc<Columns>>>,
    /// Why the last look failed, if it did.
    failed: watch::Sender<Option<String>>,
    words: Mutex<WordIndex>,
    searched: AtomicUsize,
    /// Newest posts whose texts are searched, at most.
    most: usize,
}

/// What an index was made of.
#[derive(Default)]
struct Read {
    news: Option<News>,
    /// Keys of texts that are in the words, with the halves of their hashes.
    texts: HashMap<i64, u64>,
}

impl Index {
    pub fn new(most: usize) -> Result<Self> {
        Ok(Self {
            columns: watch::Sender::new(None),
            failed: watch::Sender::new(None),
            words: Mutex::new(WordIndex::new().map_err(|error| failed(&error))?),
            searched: AtomicUsize::new(0),
            most,
        })
    }

    pub fn columns(&self) -> Arc<Columns> {
        self.columns.borrow().clone().unwrap_or_default()
    }

    pub fn standing(&self) -> SearchProgress {
        let columns = self.columns();
        SearchProgress {
            posts: columns.len(),
            to_search: columns.texts().min(self.most),
            searched: self.searched.load(Ordering::Relaxed),
        }
    }

    /// Waits until lists can be made; an error where they were never read, and the last try failed.
    pub async fn ready(&self) -> Result<()> {
        let (mut columns, mut failed) = (self.changes(), self.failed.subscribe());
        // The senders live as long as this index does.
        tokio::select! {
            // An index that was read once stays useful, whatever the last look met.
            biased;
            _ = columns.wait_for(Option::is_some) => Ok(()),
            failed = failed.wait_for(Option::is_some) => {
                let said = failed.ok().and_then(|said| said.clone());
                Err(StoreError::Unread(said.unwrap_or_default()))
            }
        }
    }

    /// Changes each time that everything was read again, and at once where it was read already.
    pub fn changes(&self) -> watch::Receiver<Option<Arc<Columns>>> {
        let mut changes = self.columns.subscribe();
        if changes.borrow().is_some() {
            changes.mark_changed();
        }
        changes
    }

    /// A page of a list; on a thread of its own, since it walks over all posts.
    pub async fn find(
        self: &Arc<Self>,
        filter: RowFilter,
        search: Option<String>,
        after: Option<RowPlace>,
        limit: usize,
    ) -> Result<FoundRows> {
        let index = Arc::clone(self);
        let finding = tokio::task::spawn_blocking(move || {
            let columns = index.columns();
            // One more than lists have says that there are more.
            let among = search.map(|search| index.words().find(&search, MATCHES + 1));
            let among = among.transpose().map_err(|error| failed(&error))?;
            let is_cut = among.as_ref().is_some_and(|among| among.len() > MATCHES);
            let chosen = columns.choose(&filter, among.as_deref().map(Vec::as_slice), after, limit);
            let names = chosen.keys.iter();
            let names = names
                .filter_map(|(_, key)| columns.fullname(*key))
                .collect();
            Ok(FoundRows {
                chosen,
                names,
                is_cut,
            })
        });
        finding.await.expect("finding does not panic")
    }

    fn words(&self) -> MutexGuard<'_, WordIndex> {
        self.words.lock().expect("no holder of this lock panics")
    }

    /// Keeps it up to date for as long as it is polled.
    pub async fn keep(self: Arc<Self>, store: Store, clock: SharedClock) {
        let mut read = Read::default();
        loop {
            let began = clock.elapsed();
            let looked = self.look(&store, &mut read).await;
            let failed = looked.as_ref().err().map(reason);
            if let Some(failed) = &failed
                && self.failed.borrow().is_none()
            {
                // Once, not every two seconds.
                tracing::warn!("lists stay as they are: {failed}");
            }
            self.failed.send_replace(failed);
            if let Ok(true) = looked {
                let took = clock.elapsed().saturating_sub(began);
                let posts = self.columns().len();
                tracing::debug!(posts, millis = took.as_millis(), "read what lists need");
                clock.sleep((took * REST).min(LONGEST_REST)).await;
            }
            clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Reads everything again if something was written since; whether it was.
    async fn look(&self, store: &Store, read: &mut Read) -> Result<bool> {
        store.usable().await?;
        // Asked before the posts are read. What is written meanwhile is then news for the next look, and nothing is
        // missed.
        let news = store.posts().news().await?;
        if read.news.as_ref() == Some(&news) {
            return Ok(false);
        }
        let columns = Arc::new(Columns::read(store).await?);
        // Before the texts are read: lists can be made now, and their words take longer.
        self.columns.send_replace(Some(Arc::clone(&columns)));
        self.read_texts(store, &columns, &mut read.texts).await?;
        // Last: a look that fails half-way is done again as a whole.
        read.news = Some(news);
        Ok(true)
    }

    /// Brings the words of texts up to date: takes out those that are gone or too old, and adds those that are new or changed.
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
                for text in store.posts().texts_of(&names).await? {
                    let key = key(text.fullname.as_str());
                    read.insert(key, half(text.text_hash));
                    texts.push((key, text.title, text.body));
                }
            }
            let keys = segment.iter().map(|(key, _)| *key);
            // Purged, or without a text, since the columns were read.
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

    /// Takes texts out of the words, and puts others there.
    fn change(&self, gone: &[i64], texts: Vec<(i64, String, String)>) -> Result<()> {
        // It takes the processor for long, and the lock belongs to a thread.
        tokio::task::block_in_place(|| {
            let mut words = self.words();
            words.take(gone).and_then(|()| words.put(texts))
        })
        .map_err(|error| failed(&error))
    }
}

/// The first half of a hash, as the columns have it.
fn half(hash: TextHash) -> u64 {
    let half = hash.as_bytes().first_chunk().expect("it has 16 bytes");
    u64::from_be_bytes(*half)
}

/// Why nothing could be read, in words for whoever asks for a list.
fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Denied(said) | StoreError::Query(said) => format!(
            "{said}; on PostgreSQL, `serve` needs the right to SELECT from all tables and views: \
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
    fn who_listens_after_the_first_read_hears_of_it() {
        let index = Index::new(1).unwrap();
        assert!(!index.changes().has_changed().unwrap());
        index.columns.send_replace(Some(Arc::default()));
        assert!(index.changes().has_changed().unwrap());
    }
}
