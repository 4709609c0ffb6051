//! What lists and searches need of all posts, in memory, read from the database again when a run has written.
//!
//! A list is chosen here and its lines are read from the database by their keys, so what is shown of a post is what is stored
//! now; only which posts a list has may be as old as the last look, some seconds as a rule.

mod columns;
mod outline;
mod words;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use tokio::sync::watch;

pub use self::columns::{Chosen, Columns, Filter, Place, Sort};
use self::words::Words;
pub use self::words::has_words;
use crate::clock::SharedClock;
use crate::domain::TextHash;
use crate::store::browsed::News;
use crate::store::{Result, Store, StoreError};

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
/// Searches whose matches are kept: whoever turns pages searches for the same again.
const SEARCHES: usize = 32;

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The page.
    pub chosen: Chosen,
    /// Their names, in order.
    pub names: Vec<String>,
    /// A search matched more posts than lists have: the newest ones count.
    pub is_cut: bool,
}

/// How far the index is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Posts that lists have.
    pub posts: usize,
    /// Posts whose texts are searched; the newest ones come first.
    pub searched: usize,
    /// How many it is to be.
    pub to_search: usize,
}

/// All posts, for lists and searches.
pub struct Index {
    columns: RwLock<Arc<Columns>>,
    words: Mutex<Words>,
    /// What was searched for last, and its matches; those of earlier words are dropped.
    searches: Mutex<VecDeque<(String, Arc<Vec<i64>>)>>,
    /// Keys of texts that are in `words`, sorted, with the halves of their hashes.
    texts: Mutex<Vec<(i64, u64)>>,
    searched: AtomicUsize,
    /// How often everything was read.
    times: watch::Sender<u64>,
    /// Why the last look failed, if it did.
    failed: watch::Sender<Option<String>>,
    /// Newest posts whose texts are searched, at most.
    most: usize,
}

impl Index {
    /// An empty one.
    pub fn new(most: usize) -> Result<Self> {
        let words = Words::new().map_err(|error| failed(&error))?;
        Ok(Self {
            columns: RwLock::default(),
            words: Mutex::new(words),
            searches: Mutex::default(),
            texts: Mutex::default(),
            searched: AtomicUsize::new(0),
            times: watch::Sender::new(0),
            failed: watch::Sender::new(None),
            most,
        })
    }

    /// The columns as they are now.
    pub fn columns(&self) -> Arc<Columns> {
        Arc::clone(&self.columns.read().expect("no holder of this lock panics"))
    }

    /// How far it is.
    pub fn standing(&self) -> Standing {
        let posts = self.columns().len();
        Standing {
            posts,
            to_search: self.columns().texts().min(self.most),
            searched: self.searched.load(Ordering::Relaxed),
        }
    }

    /// Waits until lists can be made; an error where they were never read, and the last try failed.
    pub async fn ready(&self) -> Result<()> {
        let (mut times, mut failed) = (self.times.subscribe(), self.failed.subscribe());
        // The senders live as long as this index does.
        tokio::select! {
            // An index that was read once stays useful, whatever the last look met.
            biased;
            _ = times.wait_for(|times| *times > 0) => Ok(()),
            failed = failed.wait_for(Option::is_some) => {
                let said = failed.ok().and_then(|said| said.clone());
                Err(StoreError::Unread(said.unwrap_or_default()))
            }
        }
    }

    /// Tells each time that everything was read again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.times.subscribe()
    }

    /// A page of a list; on a thread of its own, since it walks over all posts.
    pub async fn find(
        self: &Arc<Self>,
        filter: Filter,
        search: Option<String>,
        after: Option<Place>,
        limit: usize,
    ) -> Result<Found> {
        let index = Arc::clone(self);
        let finding = tokio::task::spawn_blocking(move || {
            let columns = index.columns();
            let among = match search.as_deref() {
                None => None,
                Some(search) => Some(index.search(search)?),
            };
            let is_cut = among.as_ref().is_some_and(|among| among.len() > MATCHES);
            let chosen = columns.choose(&filter, among.as_deref().map(Vec::as_slice), after, limit);
            let names = chosen.keys.iter();
            let names = names.map(|(_, key)| columns.fullname(*key)).collect();
            Ok(Found {
                chosen,
                names,
                is_cut,
            })
        });
        finding.await.expect("finding does not panic")
    }

    /// Keys of posts that match, sorted.
    fn search(&self, search: &str) -> Result<Arc<Vec<i64>>> {
        let lock = || self.searches.lock().expect("no holder of this lock panics");
        if let Some((_, found)) = lock().iter().find(|(known, _)| known == search) {
            return Ok(Arc::clone(found));
        }
        let words = self.words.lock().expect("no holder of this lock panics");
        // One more than lists have says that there are more.
        let found = words.find(search, MATCHES + 1);
        let found = Arc::new(found.map_err(|error| failed(&error))?);
        // Under the lock of the words, so that nobody forgets what is not there yet.
        let mut searches = lock();
        searches.truncate(SEARCHES - 1);
        searches.push_front((search.to_owned(), Arc::clone(&found)));
        Ok(found)
    }

    /// Changes the words, and forgets what was found among those before.
    fn change(&self, change: impl FnOnce(&mut Words) -> rusqlite::Result<()>) -> Result<()> {
        // Changing the words takes the processor for long, and the lock belongs to a thread.
        tokio::task::block_in_place(|| {
            let mut words = self.words.lock().expect("no holder of this lock panics");
            let changed = change(&mut words);
            let searches = self.searches.lock();
            searches.expect("no holder of this lock panics").clear();
            changed.map_err(|error| failed(&error))
        })
    }

    /// Keeps it up to date for as long as it is polled.
    pub async fn keep(self: Arc<Self>, store: Store, clock: SharedClock) {
        let mut read: Option<News> = None;
        let mut told = false;
        loop {
            let began = clock.elapsed();
            let looked = self.look(&store, &mut read).await;
            self.failed.send_replace(looked.as_ref().err().map(reason));
            match looked {
                Ok(false) => told = false,
                Ok(true) => {
                    let took = clock.elapsed().saturating_sub(began);
                    let posts = self.columns().len();
                    tracing::debug!(posts, millis = took.as_millis(), "read what lists need");
                    clock.sleep((took * REST).min(LONGEST_REST)).await;
                    told = false;
                }
                Err(error) => {
                    // Once, not every two seconds.
                    if !told {
                        tracing::warn!("lists stay as they are: {error}");
                    }
                    told = true;
                }
            }
            clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Reads everything again if something was written since; whether it was.
    async fn look(&self, store: &Store, read: &mut Option<News>) -> Result<bool> {
        store.usable().await?;
        // Asked before the posts are read. What is written meanwhile is then news for the next look, and nothing is
        // missed.
        let news = store.news().await?;
        if read.as_ref() == Some(&news) {
            return Ok(false);
        }
        let columns = Arc::new(outline::read(store).await?);
        *self.columns.write().expect("no holder of this lock panics") = Arc::clone(&columns);
        // Before the texts are read: lists can be made now, and their words take longer.
        self.times.send_modify(|times| *times += 1);
        self.read_texts(store, &columns).await?;
        // Last: a look that fails half-way is done again as a whole.
        *read = Some(news);
        Ok(true)
    }

    /// Brings the words of texts up to date: takes out those that are gone or too old, and adds those that are new or changed.
    async fn read_texts(&self, store: &Store, columns: &Columns) -> Result<()> {
        let mut known = self
            .texts
            .lock()
            .expect("no holder of this lock panics")
            .clone();
        let mut wanted = columns.newest_texts(self.most);
        let to_search = wanted.len();
        let mut within: Vec<i64> = wanted.iter().map(|(key, _)| *key).collect();
        within.sort_unstable();
        let gone: Vec<i64> = known
            .iter()
            .map(|(key, _)| *key)
            .filter(|key| within.binary_search(key).is_err())
            .collect();
        drop(within);
        if !gone.is_empty() {
            self.change(|words| words.take(&gone))?;
            known.retain(|(key, _)| gone.binary_search(key).is_err());
        }
        wanted.retain(|(key, text)| {
            let at = known.binary_search_by_key(key, |(key, _)| *key);
            !at.is_ok_and(|at| known[at].1 == *text)
        });
        let before = known.len();
        let mut put = Vec::with_capacity(wanted.len());
        for (i, segment) in wanted.chunks(SEGMENT).enumerate() {
            match self.put_texts(store, columns, segment).await {
                Ok(read) => put.extend(read),
                Err(error) => {
                    // What was put in stays there, so that the next look does not put it in again.
                    self.remember(known, &wanted[..i * SEGMENT], &put);
                    return Err(error);
                }
            }
            let searched = (before + put.len()).min(to_search);
            self.searched.store(searched, Ordering::Relaxed);
        }
        self.remember(known, &wanted, &put);
        Ok(())
    }

    /// Puts the texts of posts into the words as they are now, and takes out those that went in between; the keys of those
    /// that are there, with the halves of the hashes of what was read.
    async fn put_texts(
        &self,
        store: &Store,
        columns: &Columns,
        segment: &[(i64, u64)],
    ) -> Result<Vec<(i64, u64)>> {
        let mut texts = Vec::with_capacity(segment.len());
        let mut read = Vec::with_capacity(segment.len());
        for some in segment.chunks(TEXTS) {
            let names: Vec<String> = some.iter().map(|(key, _)| columns.fullname(*key)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for text in store.texts_of(&names).await? {
                if let Some(key) = columns.key(&text.fullname) {
                    read.push((key, half(text.text_hash)));
                    texts.push((key, text.title, text.body));
                }
            }
        }
        read.sort_unstable();
        let is_read = |key: i64| read.binary_search_by_key(&key, |(key, _)| *key).is_ok();
        let keys = segment.iter().map(|(key, _)| *key);
        // Purged, or without a text, since the columns were read.
        let gone: Vec<i64> = keys.filter(|key| !is_read(*key)).collect();
        self.change(|words| {
            words.take(&gone)?;
            words.put(texts)
        })?;
        Ok(read)
    }

    /// Notes which texts are in the words.
    fn remember(&self, mut known: Vec<(i64, u64)>, tried: &[(i64, u64)], put: &[(i64, u64)]) {
        let mut changed: Vec<i64> = tried.iter().map(|(key, _)| *key).collect();
        changed.sort_unstable();
        known.retain(|(key, _)| changed.binary_search(key).is_err());
        known.extend_from_slice(put);
        known.sort_unstable();
        known.shrink_to_fit();
        self.searched.store(known.len(), Ordering::Relaxed);
        *self.texts.lock().expect("no holder of this lock panics") = known;
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
