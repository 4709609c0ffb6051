//! Objects of stores on the network, and files of data sets on the hub: listed, read at any place, written, locked.
//!
//! What enters are addresses (`s3://`, `gs://`, `az://`, `abfss://`, `hf://datasets/`) and the environment, which alone
//! holds credentials; what leaves are names, bytes and errors that say what to do. Callers block: scoring has threads of
//! its own. No message, no log line and nothing that is written holds a credential or the address of a signed request.

mod address;
mod blocks;
mod error;
mod lock;
mod store;
mod wire;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub use self::address::{Address, Scheme};
pub use self::blocks::Blocks;
use self::blocks::Fetch;
pub use self::error::ObjectError;
pub use self::lock::Lock;
use self::store::{Pin, Standing, Store};
use crate::clock::SharedClock;
use crate::hub::{Dataset, Hub, HubSource, PullError};

/// An object of a list, as it was then.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its whole key.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// What is another text as soon as it has other bytes.
    pub version: String,
    /// Where it is, for people.
    pub shown: String,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Store(Pin),
    Hub(Arc<Dataset>),
}

/// The stores, each opened once. A clone is the same.
#[derive(Clone)]
pub struct Objects {
    handle: Handle,
    clock: SharedClock,
    hub: Arc<dyn Fn() -> HubSource + Send + Sync>,
    variables: Arc<Vec<(String, String)>>,
    stores: Arc<Mutex<HashMap<String, Arc<Store>>>>,
    hubs: Arc<Mutex<HashMap<String, Arc<Dataset>>>>,
}

impl Objects {
    /// The stores, with settings and credentials by the variables of an environment. `hub` is asked where the hub is once
    /// an address names it. It is made within a runtime of several threads, and used from anywhere.
    pub fn new(
        clock: SharedClock,
        variables: impl IntoIterator<Item = (String, String)>,
        hub: impl Fn() -> HubSource + Send + Sync + 'static,
    ) -> Self {
        let of_stores = [
            "AWS_",
            "AZURE_",
            "GOOGLE_",
            "IDENTITY_ENDPOINT",
            "MSI_ENDPOINT",
        ];
        let is_ours = |name: &str| of_stores.iter().any(|start| name.starts_with(start));
        let variables = variables.into_iter().filter(|(name, _)| is_ours(name));
        Self {
            variables: Arc::new(variables.collect()),
            handle: Handle::current(),
            clock,
            hub: Arc::new(hub),
            stores: Arc::default(),
            hubs: Arc::default(),
        }
    }

    /// Waits for work on the network. On a thread of its own, for a thread of the runtime may not wait.
    fn wait<T: Send>(&self, work: impl AsyncFnOnce() -> T + Send) -> T {
        let handle = &self.handle;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || handle.block_on(work()));
            waiting.join().expect("requests do not panic")
        })
    }

    fn store(&self, address: &Address) -> Result<Arc<Store>, ObjectError> {
        let mut stores = self.stores.lock().expect("no holder of this lock panics");
        let name = address.shown("");
        if let Some(store) = stores.get(&name) {
            return Ok(store.clone());
        }
        let store = Arc::new(Store::new(address, self.clock.clone(), &self.variables)?);
        stores.insert(name, store.clone());
        Ok(store)
    }

    fn dataset(&self, address: &Address) -> Result<Arc<Dataset>, ObjectError> {
        let name = address.container.clone();
        let known = self
            .hubs
            .lock()
            .expect("no holder of this lock panics")
            .get(&name)
            .cloned();
        if let Some(dataset) = known {
            return Ok(dataset);
        }
        let (repo, revision) = address.repository();
        let hub = Hub::new((self.hub)(), self.clock.clone())?;
        let dataset = self.wait(async || hub.dataset(repo, revision.unwrap_or("main")).await)?;
        let dataset = Arc::new(dataset);
        let mut hubs = self.hubs.lock().expect("no holder of this lock panics");
        hubs.insert(name, dataset.clone());
        Ok(dataset)
    }

    /// The object at an address; none where there is none of this very name.
    ///
    /// # Errors
    /// See [`ObjectError`].
    pub fn one(&self, address: &Address) -> Result<Option<Found>, ObjectError> {
        if address.key.is_empty() || address.is_folder {
            return Ok(None);
        }
        if address.scheme == Scheme::Hf {
            let (folder, _) = address.key.rsplit_once('/').unwrap_or(("", &address.key));
            let beside = self.folder(address, folder, false)?;
            return Ok(beside.into_iter().find(|found| found.key == address.key));
        }
        let store = self.store(address)?;
        match self.wait(async || store.head(&address.key).await) {
            Ok(listed) => Ok(Some(Found {
                shown: address.shown(&listed.key),
                version: listed.pin.version(),
                key: listed.key,
                size: listed.size,
                place: Place::Store(listed.pin),
            })),
            Err(ObjectError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The objects whose keys begin with a folder's, sorted; without `deep` a store may leave out those in folders
    /// below it.
    ///
    /// # Errors
    /// See [`ObjectError`].
    pub fn folder(
        &self,
        address: &Address,
        folder: &str,
        deep: bool,
    ) -> Result<Vec<Found>, ObjectError> {
        let mut found: Vec<Found> = if address.scheme == Scheme::Hf {
            let dataset = self.dataset(address)?;
            let files = match self.wait(async || dataset.files(folder, deep).await) {
                // The data set is there, so it is the folder that is not.
                Err(PullError::NotFound { .. }) => Vec::new(),
                files => files?,
            };
            let files = files.into_iter().map(|file| Found {
                shown: address.shown(&file.path),
                key: file.path,
                size: file.size,
                version: file.oid,
                place: Place::Hub(dataset.clone()),
            });
            files.collect()
        } else {
            let store = self.store(address)?;
            let listed = self.wait(async || store.list(folder).await)?;
            let listed = listed.into_iter().map(|listed| Found {
                shown: address.shown(&listed.key),
                version: listed.pin.version(),
                key: listed.key,
                size: listed.size,
                place: Place::Store(listed.pin),
            });
            listed.collect()
        };
        found.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(found)
    }

    /// Opens an object for reads, as it was when it was found.
    ///
    /// # Errors
    /// See [`ObjectError`].
    pub fn open(&self, address: &Address, found: &Found) -> Result<Blocks, ObjectError> {
        let (objects, key, size) = (self.clone(), found.key.clone(), found.size);
        let fetch: Fetch = match &found.place {
            Place::Store(pin) => {
                let (store, pin) = (self.store(address)?, pin.clone());
                Arc::new(move |range: Range<u64>, end: &CancellationToken| {
                    let read = async || store.range(&key, range, &pin).await;
                    objects.wait(async || unless_ended(end, &key, read()).await)
                })
            }
            Place::Hub(dataset) => {
                let dataset = dataset.clone();
                Arc::new(move |range: Range<u64>, end: &CancellationToken| {
                    let read = async || Ok(dataset.range(&key, range, size).await?);
                    objects.wait(async || unless_ended(end, &key, read()).await)
                })
            }
        };
        Ok(Blocks::new(size, fetch))
    }

    /// A folder to write to.
    ///
    /// # Errors
    /// [`ObjectError::ReadOnly`], and those of the settings.
    pub fn output(&self, address: &Address) -> Result<Output, ObjectError> {
        if address.scheme == Scheme::Hf {
            return Err(ObjectError::ReadOnly(address.to_string()));
        }
        Ok(Output {
            store: self.store(address)?,
            objects: self.clone(),
            folder: address.key.clone(),
        })
    }
}

/// Bytes, unless nobody wants them any more.
async fn unless_ended(
    end: &CancellationToken,
    key: &str,
    read: impl Future<Output = Result<Bytes, ObjectError>>,
) -> Result<Bytes, ObjectError> {
    tokio::select! {
        read = read => read,
        () = end.cancelled() => Err(ObjectError::Changed(key.to_owned())),
    }
}

/// How a file of this machine becomes an object.
#[derive(Debug, Clone)]
pub struct Upload {
    /// Whether it may take the place of an object.
    pub replaces: bool,
    /// Ends it.
    pub stop: CancellationToken,
}

impl Upload {
    /// One that takes the place of whatever is there, and that nobody ends.
    pub fn replacing() -> Self {
        Self {
            replaces: true,
            stop: CancellationToken::new(),
        }
    }
}

/// What a small object was when it was read.
#[derive(Debug, Clone)]
pub struct Version(Standing);

impl Version {
    /// Of an object that is not there.
    pub fn of_nothing() -> Self {
        Self(Standing::Nothing)
    }

    /// Whatever is there is replaced.
    pub fn any() -> Self {
        Self(Standing::Anything)
    }
}

/// A folder of a store to write to. Names are below it.
#[derive(Clone)]
pub struct Output {
    store: Arc<Store>,
    objects: Objects,
    folder: String,
}

impl Output {
    fn key(&self, name: &str) -> String {
        match self.folder.as_str() {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        }
    }

    /// Where a file is, for people.
    pub fn shown(&self, name: &str) -> String {
        self.store.address.shown(&self.key(name))
    }

    /// Names and sizes of all files in it and in folders below it, by name.
    ///
    /// # Errors
    /// See [`ObjectError`].
    pub fn list(&self) -> Result<Vec<(String, u64)>, ObjectError> {
        let listed = self
            .objects
            .wait(async || self.store.list(&self.folder).await)?;
        let start = self.key("");
        let mut named: Vec<(String, u64)> = listed
            .into_iter()
            .filter_map(|listed| Some((listed.key.strip_prefix(&start)?.to_owned(), listed.size)))
            .collect();
        named.sort();
        Ok(named)
    }

    /// A small file with its version; none where there is none.
    ///
    /// # Errors
    /// See [`ObjectError`].
    pub fn read(&self, name: &str) -> Result<Option<(Bytes, Version)>, ObjectError> {
        let key = self.key(name);
        let small = self.objects.wait(async || self.store.small(&key).await)?;
        Ok(small.map(|small| (small.content, Version(Standing::This(small.version)))))
    }

    /// Writes a small file, where what is there is what was there.
    ///
    /// # Errors
    /// [`ObjectError::Exists`] where it is another one.
    pub fn put(&self, name: &str, content: Bytes, before: &Version) -> Result<(), ObjectError> {
        let key = self.key(name);
        let put = self
            .objects
            .wait(async || self.store.put(&key, content, &before.0).await);
        put.map(drop)
    }

    /// Writes a file of this machine; `lock` is renewed before it appears under its name.
    ///
    /// # Errors
    /// [`ObjectError::Exists`] where something is there that it may not replace, [`ObjectError::Stopped`], and those of
    /// the store.
    pub fn put_file(
        &self,
        name: &str,
        file: &Path,
        lock: &Lock,
        upload: &Upload,
    ) -> Result<(), ObjectError> {
        let key = self.key(name);
        let renew = async || lock.renewed().await;
        let put = async || self.store.put_file(&key, file, renew, upload).await;
        self.objects.wait(put)
    }

    /// Removes a file, if it is there.
    ///
    /// # Errors
    /// See [`ObjectError`].
    pub fn remove(&self, name: &str) -> Result<(), ObjectError> {
        let key = self.key(name);
        self.objects.wait(async || self.store.remove(&key).await)
    }

    /// Time since the program began.
    pub fn elapsed(&self) -> std::time::Duration {
        self.objects.clock.elapsed()
    }

    /// Takes a lock. `token`: what nobody else has.
    ///
    /// # Errors
    /// [`ObjectError::Held`], and [`ObjectError::Unconditional`] where the store cannot lock.
    pub fn lock(&self, name: &str, holder: &str, token: &str) -> Result<Lock, ObjectError> {
        Lock::take(&self.objects, &self.store, &self.key(name), holder, token)
    }
}
