//! What lists and searches need of all posts, in memory, read from the database again when a run has written.
//!
//! A list is chosen here and its lines are read from the database by their keys, so what is shown of a post is what is stored
//! now; only which posts a list has may be as old as the last look, some seconds as a rule.

mod columns;
mod words;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use tokio::sync::watch;

pub use self::columns::{Chosen, Columns, Filter, Place, Sort};
use self::words::Words;
pub use self::words::has_words;
use crate::clock::SharedClock;
use crate::store::browsed::News;
use crate::store::{Result, Store, StoreError};

/// Posts that are read at once.
const BLOCK: u32 = 20_000;
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
const MATCHES: usize = 100_000;

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
}

/// All posts, for lists and searches.
pub struct Index {
    columns: RwLock<Arc<Columns>>,
    words: Mutex<Words>,
    /// Texts that are in `words`, with the halves of their hashes.
    texts: Mutex<HashMap<i64, u64>>,
    searched: AtomicUsize,
    /// How often everything was read.
    times: watch::Sender<u64>,
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
            texts: Mutex::default(),
            searched: AtomicUsize::new(0),
            times: watch::Sender::new(0),
            most,
        })
    }

    /// The columns as they are now.
    pub fn columns(&self) -> Arc<Columns> {
        Arc::clone(&self.columns.read().expect("no holder of this lock panics"))
    }

    /// How far it is.
    pub fn standing(&self) -> Standing {
        Standing {
            posts: self.columns().len(),
            searched: self.searched.load(Ordering::Relaxed),
        }
    }

    /// Waits until lists can be made.
    pub async fn ready(&self) {
        // The sender lives as long as this index does.
        let _ = self.times.subscribe().wait_for(|times| *times > 0).await;
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
                Some(search) => {
                    let words = index.words.lock().expect("no holder of this lock panics");
                    let found = words.find(search, MATCHES + 1);
                    Some(found.map_err(|error| failed(&error))?)
                }
            };
            let is_cut = among.as_ref().is_some_and(|among| among.len() > MATCHES);
            let chosen = columns.choose(&filter, among.as_deref(), after, limit);
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

    /// Keeps it up to date for as long as it is polled.
    pub async fn keep(self: Arc<Self>, store: Store, clock: SharedClock) {
        let mut read: Option<News> = None;
        let mut told = false;
        loop {
            let began = clock.elapsed();
            match self.look(&store, &mut read).await {
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
        let news = store.news().await?;
        if read.as_ref() == Some(&news) {
            return Ok(false);
        }
        let columns = self.read(store).await?;
        *self.columns.write().expect("no holder of this lock panics") = Arc::clone(&columns);
        self.times.send_modify(|times| *times += 1);
        self.read_texts(store, &columns).await?;
        *read = Some(news);
        Ok(true)
    }

    async fn read(&self, store: &Store) -> Result<Arc<Columns>> {
        let target = store.current_target().await?;
        let mut columns = Columns::default();
        let mut after = String::new();
        loop {
            let posts = store.outline(target, &after, BLOCK).await?;
            let Some(last) = posts.last() else { break };
            after.clone_from(&last.fullname);
            columns.add(&posts);
        }
        Ok(Arc::new(columns))
    }

    /// Brings the words of texts up to date: takes out those that are gone, and adds those that are new or changed.
    async fn read_texts(&self, store: &Store, columns: &Arc<Columns>) -> Result<()> {
        let now: HashMap<i64, u64> = columns.texts().collect();
        let (gone, wanted) = {
            let mut texts = self.texts.lock().expect("no holder of this lock panics");
            let gone: Vec<i64> = texts
                .keys()
                .copied()
                .filter(|key| !now.contains_key(key))
                .collect();
            for key in &gone {
                texts.remove(key);
            }
            let wanted: Vec<(i64, u64)> = columns
                .newest_first()
                .into_iter()
                .take(self.most)
                .map(|key| (key, now[&key]))
                .filter(|(key, text)| texts.get(key) != Some(text))
                .collect();
            (gone, wanted)
        };
        drop(now);
        if !gone.is_empty() {
            let mut words = self.words.lock().expect("no holder of this lock panics");
            words.take(&gone).map_err(|error| failed(&error))?;
        }
        for segment in wanted.chunks(SEGMENT) {
            let mut texts = Vec::with_capacity(segment.len());
            for some in segment.chunks(TEXTS) {
                let names: Vec<String> =
                    some.iter().map(|(key, _)| columns.fullname(*key)).collect();
                for (name, title, body) in store.texts(&names).await? {
                    if let Some(key) = columns.key(&name) {
                        texts.push((key, title, body));
                    }
                }
            }
            let put = tokio::task::block_in_place(|| {
                let mut words = self.words.lock().expect("no holder of this lock panics");
                words.put(texts)
            });
            put.map_err(|error| failed(&error))?;
            let mut texts = self.texts.lock().expect("no holder of this lock panics");
            texts.extend(segment.iter().copied());
            self.searched.store(texts.len(), Ordering::Relaxed);
        }
        let texts = self.texts.lock().expect("no holder of this lock panics");
        self.searched.store(texts.len(), Ordering::Relaxed);
        Ok(())
    }
}

fn failed(error: &rusqlite::Error) -> StoreError {
    StoreError::Query(format!("search: {error}"))
}
