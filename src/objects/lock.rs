//! A lock in a store: an object that says who works on something, and that its holder writes anew while it lives.
//!
//! It is made by a write that works only where nothing is (`If-None-Match: *`) and renewed by one that works only on
//! what its holder wrote last (`If-Match`), so of two that take it one fails. When it was written last and what time it
//! is now are both the store's word: clocks of machines may differ. A lock that was not renewed for [`LEASE`] is taken
//! over in the same way, and its late holder finds out with its next write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use object_store::UpdateVersion;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::store::{Small, Standing, Store};
use super::{ObjectError, Objects};

/// After so long without a sign of its holder a lock is free. Less than anybody minds to wait for a machine that died,
/// more than a store's trouble usually lasts.
pub(super) const LEASE: Duration = Duration::from_mins(1);
/// A renewal may fail and be tried again a few times within the lease.
const RENEWED_EACH: Duration = Duration::from_secs(12);
/// Of its own time a holder counts less than the lease: a write takes a while.
const TRUSTED: Duration = Duration::from_secs(50);

/// What stands in a lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    /// For people.
    holder: String,
    /// That nobody else has, so that a holder knows its own lock again.
    token: String,
    /// How often it was written.
    beat: u64,
    /// Its holder is done.
    free: bool,
}

/// A lock that is held until it is dropped.
pub struct Lock {
    held: Arc<State>,
    objects: Objects,
    renewing: Option<std::thread::JoinHandle<()>>,
}

struct State {
    store: Arc<Store>,
    key: String,
    note: Mutex<(Note, UpdateVersion)>,
    /// Our own clock's word on when it was written last.
    written: Mutex<Duration>,
    lost: AtomicBool,
    end: CancellationToken,
}

impl Lock {
    /// Takes the lock, and renews it until it is dropped.
    pub(super) fn take(
        objects: &Objects,
        store: &Arc<Store>,
        key: &str,
        holder: &str,
        token: &str,
    ) -> Result<Self, ObjectError> {
        let note = Note {
            holder: holder.to_owned(),
            token: token.to_owned(),
            beat: 0,
            free: false,
        };
        let before = store.clock.elapsed();
        let version = objects.wait(async || taken(store, key, &note).await)?;
        let state = Arc::new(State {
            store: store.clone(),
            key: key.to_owned(),
            note: Mutex::new((note, version)),
            written: Mutex::new(before),
            lost: AtomicBool::new(false),
            end: CancellationToken::new(),
        });
        let (renewed, with) = (state.clone(), objects.clone());
        let renewing = std::thread::spawn(move || with.wait(async || renewed.keep_up().await));
        Ok(Self {
            held: state,
            objects: objects.clone(),
            renewing: Some(renewing),
        })
    }

    /// Whether it is held still, as far as can be known without asking.
    ///
    /// # Errors
    /// [`ObjectError::Lost`].
    pub fn check(&self) -> Result<(), ObjectError> {
        self.held.check()
    }

    /// Renews it now: after this it is held for as long as a write takes.
    ///
    /// # Errors
    /// [`ObjectError::Lost`], and those of the store.
    pub fn renew(&self) -> Result<(), ObjectError> {
        self.objects.wait(async || self.held.renew(false).await)
    }

    /// The same for whoever does not block.
    pub(super) async fn renewed(&self) -> Result<(), ObjectError> {
        self.held.renew(false).await
    }

    fn end(&mut self) {
        self.held.end.cancel();
        if let Some(renewing) = self.renewing.take() {
            // It ends at once, or with the request that it waits for.
            let _ = renewing.join();
        }
    }

    /// Removes the lock's object: what it was for is done, and nobody takes it again.
    ///
    /// # Errors
    /// Those of the store.
    pub fn remove(mut self) -> Result<(), ObjectError> {
        self.end();
        self.held.check()?;
        self.held.lost.store(true, Ordering::SeqCst);
        let (store, key) = (&self.held.store, &self.held.key);
        self.objects.wait(async || store.remove(key).await)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.end();
        if self.held.check().is_ok() {
            // Where this fails, the lock is free after its lease.
            let _ = self.objects.wait(async || self.held.renew(true).await);
        }
    }
}

impl State {
    fn check(&self) -> Result<(), ObjectError> {
        let written = *self.written.lock().expect("no holder of this lock panics");
        let silent = self.store.clock.elapsed().saturating_sub(written);
        if self.lost.load(Ordering::SeqCst) || silent > TRUSTED {
            return Err(self.lost());
        }
        Ok(())
    }

    fn lost(&self) -> ObjectError {
        ObjectError::Lost(self.store.address.shown(&self.key))
    }

    async fn keep_up(&self) {
        loop {
            let woken = self.end.cancelled();
            let slept = self.store.clock.sleep(RENEWED_EACH);
            tokio::select! {
                () = woken => return,
                () = slept => {}
            }
            match self.renew(false).await {
                Ok(()) => {}
                Err(ObjectError::Lost(_)) => return,
                // The lease may outlast the trouble; `check` knows when it does not.
                Err(error) => tracing::warn!("a lock could not be renewed: {error}"),
            }
        }
    }

    async fn renew(&self, free: bool) -> Result<(), ObjectError> {
        if self.lost.load(Ordering::SeqCst) {
            return Err(self.lost());
        }
        let (mut note, version) = self
            .note
            .lock()
            .expect("no holder of this lock panics")
            .clone();
        note.beat += 1;
        note.free = free;
        let before = self.store.clock.elapsed();
        let standing = Standing::This(version);
        let put = self.store.put(&self.key, content(&note), &standing).await;
        match put {
            Ok(version) => {
                *self.note.lock().expect("no holder of this lock panics") = (note, version);
                *self.written.lock().expect("no holder of this lock panics") = before;
                Ok(())
            }
            Err(ObjectError::Exists(_)) => {
                // Another thread of ours may have renewed it just now.
                let there = self.store.small(&self.key).await?;
                let ours = there.and_then(|there| Some((note_of(&there)?, there.version)));
                let is_ours = |(there, _): &(Note, _)| there.token == note.token && !there.free;
                let Some(ours) = ours.filter(is_ours) else {
                    self.lost.store(true, Ordering::SeqCst);
                    return Err(self.lost());
                };
                // It was written when that one was, and not now.
                *self.note.lock().expect("no holder of this lock panics") = ours;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

async fn taken(store: &Store, key: &str, note: &Note) -> Result<UpdateVersion, ObjectError> {
    let standing = match store.small(key).await? {
        None => Standing::Nothing,
        Some(there) => {
            free(store, &there)?;
            Standing::This(there.version)
        }
    };
    let put = store.put(key, content(note), &standing).await;
    let version = match put {
        Err(ObjectError::Exists(_)) => {
            // Somebody was quicker.
            let there = store.small(key).await?;
            return Err(there.map_or_else(
                || ObjectError::Lost(store.address.shown(key)),
                |there| held(store, &there),
            ));
        }
        put => put?,
    };
    heeds_conditions(store, key, note).await?;
    Ok(version)
}

/// Whether a store heeds conditions, or does what it is asked all the same: then two would hold one lock.
async fn heeds_conditions(store: &Store, key: &str, note: &Note) -> Result<(), ObjectError> {
    let other = Note {
        beat: u64::MAX,
        ..note.clone()
    };
    let wrong = UpdateVersion {
        e_tag: Some("\"0000000000000000000000000000dead\"".to_owned()),
        version: Some("1".to_owned()),
    };
    for standing in [Standing::Nothing, Standing::This(wrong)] {
        match store.put(key, content(&other), &standing).await {
            Err(ObjectError::Exists(_)) => {}
            Ok(_) => {
                store.remove(key).await?;
                return Err(ObjectError::Unconditional(store.address.shown(key)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a lock that is there is free.
fn free(store: &Store, there: &Small) -> Result<(), ObjectError> {
    let note = note_of(there);
    let is_free = note.is_some_and(|note| note.free);
    if is_free || silent(store, there) > LEASE {
        return Ok(());
    }
    Err(held(store, there))
}

fn silent(store: &Store, there: &Small) -> Duration {
    let silent = store.its_now() - there.changed;
    silent.to_std().unwrap_or_default()
}

fn held(store: &Store, there: &Small) -> ObjectError {
    let holder = note_of(there).map_or_else(|| "somebody".to_owned(), |note| note.holder);
    ObjectError::Held {
        holder,
        silent: silent(store, there),
        lease: LEASE,
    }
}

fn note_of(there: &Small) -> Option<Note> {
    serde_json::from_slice(&there.content).ok()
}

fn content(note: &Note) -> Bytes {
    serde_json::to_vec(note).expect("a note is JSON").into()
}
