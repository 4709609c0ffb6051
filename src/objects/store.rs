//! One bucket: what can be done with its objects, each tried again where that helps.
//!
//! Every request is signed anew when it is tried again, so that a long wait does not outlive its signature. What a
//! store asks for in `Retry-After` is waited for; without it, waits grow from a second on.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, RetryConfig, UpdateVersion,
};

use super::wire::{Connector, Fault, Kind, Skew};
use super::{Address, ObjectError, Scheme, Upload};
use crate::clock::SharedClock;
use crate::source::http::backoff;

/// Attempts at a request before it is given up: 63 to 126 seconds in all.
pub(super) const TRIES: u32 = 7;
/// The longest wait that a store can ask for; whoever asks for more has more than a rush of requests.
const LONGEST_ASKED: Duration = Duration::from_mins(5);
/// Smaller files go in one request. A part of a larger one has at least this size; S3 takes 5 MiB and more.
const PART_BYTES: u64 = 8 << 20;
/// S3 takes 10,000.
const MOST_PARTS: u64 = 9_000;

/// An object of a list.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub key: String,
    pub size: u64,
    pub pin: Pin,
}

/// What an object was when it was looked at.
#[derive(Debug, Clone)]
pub(super) struct Pin {
    etag: Option<String>,
    changed: DateTime<Utc>,
}

impl Pin {
    fn of(meta: &ObjectMeta) -> Self {
        Self {
            // The lists of Azure have them without quotes, its answers with.
            etag: meta.e_tag.as_deref().map(quoted),
            changed: meta.last_modified,
        }
    }

    /// What is another text as soon as the object has other bytes.
    pub fn version(&self) -> String {
        let etag = self
            .etag
            .as_deref()
            .map(|etag| etag.trim_matches('"').to_owned());
        etag.unwrap_or_else(|| self.changed.to_rfc3339())
    }
}

/// What is to be there for a write.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    Anything,
    Nothing,
    This(UpdateVersion),
}

/// A small object, read whole.
#[derive(Debug)]
pub(super) struct Small {
    pub content: Bytes,
    pub version: UpdateVersion,
    pub changed: DateTime<Utc>,
}

/// A builder with the variables that it knows, as its own `from_env` would take them from the process.
macro_rules! configured {
    ($builder:ident, $variables:expr) => {
        $variables
            .iter()
            .fold($builder::new(), |builder, (name, value)| {
                match name.to_ascii_lowercase().parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                }
            })
    };
}

/// A bucket or container.
pub(super) struct Store {
    objects: Arc<dyn ObjectStore>,
    parts: Arc<dyn MultipartStore>,
    pub address: Address,
    pub clock: SharedClock,
    skew: Arc<Skew>,
}

impl Store {
    /// The store of an address, with the settings and credentials of an environment.
    pub fn new(
        address: &Address,
        clock: SharedClock,
        variables: &[(String, String)],
    ) -> Result<Self, ObjectError> {
        let skew = Arc::new(Skew::default());
        let connector = Connector {
            clock: clock.clone(),
            skew: skew.clone(),
            // The builder for Google allows it always, for the sake of the machine's own credentials.
            heeds_plain: address.scheme != Scheme::Gs,
        };
        // We try again ourselves: the crate would not wait as long as a store asks for.
        let once = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let bucket = address.container.as_str();
        let made = match address.scheme {
            Scheme::S3 => configured!(AmazonS3Builder, variables)
                .with_bucket_name(bucket)
                .with_retry(once)
                .with_http_connector(connector)
                .build()
                .map(both),
            Scheme::Gs => configured!(GoogleCloudStorageBuilder, variables)
                .with_bucket_name(bucket)
                .with_retry(once)
                .with_http_connector(connector)
                .build()
                .map(both),
            Scheme::Az | Scheme::Hf => {
                let mut builder = configured!(MicrosoftAzureBuilder, variables)
                    .with_container_name(bucket)
                    .with_retry(once)
                    .with_http_connector(connector);
                if let Some(account) = &address.account {
                    builder = builder.with_account(account);
                }
                builder.build().map(both)
            }
        };
        // What the crate says may quote a setting, and that may be a secret.
        let (objects, parts) = made.map_err(|error| ObjectError::Settings {
            object: address.shown(""),
            why: format!(
                "{}: docs/scoring.md has the variables that it reads",
                match error {
                    Error::Generic { .. } =>
                        "its settings are incomplete, or not what they should be",
                    _ => "its settings are not understood",
                }
            ),
        })?;
        Ok(Self {
            objects,
            parts,
            address: address.clone(),
            clock,
            skew,
        })
    }

    /// What time it is at the store, as far as it said.
    pub fn its_now(&self) -> DateTime<Utc> {
        self.clock.now() + TimeDelta::milliseconds(self.skew.millis())
    }

    fn path(&self, key: &str) -> Result<Path, ObjectError> {
        Path::parse(key).map_err(|_| ObjectError::Address {
            address: self.address.shown(key),
            why: "an empty part, `.` and `..` name nothing here".to_owned(),
        })
    }

    /// Tries until it works, or cannot.
    async fn tried<T>(
        &self,
        key: &str,
        mut attempt: impl AsyncFnMut() -> object_store::Result<T>,
    ) -> Result<T, ObjectError> {
        let mut waits = backoff(TRIES);
        let mut tries = 0;
        loop {
            let error = match attempt().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            tries += 1;
            let object = || self.address.shown(key);
            let fault = fault_of(&error);
            match (&error, fault) {
                (_, Some(fault)) if fault.kind == Kind::Refused => {
                    return Err(ObjectError::Refused {
                        object: object(),
                        why: refused(&fault.what),
                    });
                }
                (_, Some(fault)) if fault.kind == Kind::Settings => {
                    return Err(ObjectError::Settings {
                        object: object(),
                        why: settings(&fault.what),
                    });
                }
                (Error::NotFound { .. }, _) => return Err(ObjectError::Missing(object())),
                (Error::AlreadyExists { .. }, _) => return Err(ObjectError::Exists(object())),
                (Error::Precondition { .. } | Error::NotModified { .. }, _) => {
                    return Err(ObjectError::Changed(object()));
                }
                (Error::NotImplemented { .. } | Error::NotSupported { .. }, _) => {
                    return Err(ObjectError::Unconditional(object()));
                }
                _ => {}
            }
            let what = fault.map_or("an answer that nobody asked for", |fault| &fault.what);
            let asked = fault.and_then(|fault| fault.wait);
            let wait = match (waits.next(), asked) {
                (Some(wait), None) => wait,
                (Some(_), Some(asked)) if asked <= LONGEST_ASKED => asked,
                _ => {
                    return Err(ObjectError::Trouble {
                        object: object(),
                        what: what.to_owned(),
                        tries,
                    });
                }
            };
            tracing::warn!(
                object = object(),
                wait_s = wait.as_secs_f32(),
                "an object store has trouble, and is asked again: {what}"
            );
            self.clock.sleep(wait).await;
        }
    }

    /// The objects in a folder and in those below it.
    pub async fn list(&self, folder: &str) -> Result<Vec<Listed>, ObjectError> {
        let prefix = (!folder.is_empty())
            .then(|| self.path(folder))
            .transpose()?;
        let mut found: Vec<ObjectMeta> = Vec::new();
        self.tried(folder, async || {
            // After a fault it goes on where it was.
            let mut pages = match found.last() {
                Some(last) => self
                    .objects
                    .list_with_offset(prefix.as_ref(), &last.location),
                None => self.objects.list(prefix.as_ref()),
            };
            while let Some(meta) = pages.next().await {
                found.push(meta?);
            }
            Ok(())
        })
        .await?;
        let listed = found.iter().map(|meta| Listed {
            key: meta.location.to_string(),
            size: meta.size,
            pin: Pin::of(meta),
        });
        Ok(listed.collect())
    }

    /// One object.
    pub async fn head(&self, key: &str) -> Result<Listed, ObjectError> {
        let path = self.path(key)?;
        let meta = self
            .tried(key, async || self.objects.head(&path).await)
            .await?;
        Ok(Listed {
            key: key.to_owned(),
            size: meta.size,
            pin: Pin::of(&meta),
        })
    }

    /// Bytes of an object, as it was when it was looked at.
    pub async fn range(
        &self,
        key: &str,
        range: Range<u64>,
        pin: &Pin,
    ) -> Result<Bytes, ObjectError> {
        let path = self.path(key)?;
        let due = range.end - range.start;
        let options = GetOptions {
            if_match: pin.etag.clone(),
            if_unmodified_since: pin.etag.is_none().then_some(pin.changed),
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        let bytes = self.tried(key, async || {
            let answer = self.objects.get_opts(&path, options.clone()).await?;
            // A store that does not heed If-Match still says what it gives.
            let there = answer.meta.e_tag.as_deref().map(quoted);
            if pin.etag.is_some() && there != pin.etag {
                return Err(Error::Precondition {
                    path: key.to_owned(),
                    source: "another ETag".into(),
                });
            }
            let bytes = answer.bytes().await?;
            if bytes.len() as u64 == due {
                Ok(bytes)
            } else {
                Err(Error::Generic {
                    store: "store",
                    source: "a wrong length".into(),
                })
            }
        });
        // An object that went away in the middle is another one, too.
        bytes.await.map_err(|error| match error {
            ObjectError::Missing(object) => ObjectError::Changed(object),
            other => other,
        })
    }

    /// A small object; none where there is none.
    pub async fn small(&self, key: &str) -> Result<Option<Small>, ObjectError> {
        let path = self.path(key)?;
        let read = self.tried(key, async || {
            let answer = self.objects.get(&path).await?;
            let meta = answer.meta.clone();
            Ok(Small {
                content: answer.bytes().await?,
                version: UpdateVersion {
                    e_tag: meta.e_tag,
                    version: meta.version,
                },
                changed: meta.last_modified,
            })
        });
        match read.await {
            Ok(small) => Ok(Some(small)),
            Err(ObjectError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a small object, if what is there is what is to be there. The answer to a write may be lost although it
    /// worked: so what is there is looked at before it counts as somebody else's.
    ///
    /// # Errors
    /// [`ObjectError::Exists`] where something else is there.
    pub async fn put(
        &self,
        key: &str,
        content: Bytes,
        standing: &Standing,
    ) -> Result<UpdateVersion, ObjectError> {
        let path = self.path(key)?;
        let mode = match standing {
            Standing::Anything => PutMode::Overwrite,
            Standing::Nothing => PutMode::Create,
            Standing::This(version) => PutMode::Update(version.clone()),
        };
        let mut tries = 0;
        let put = self.tried(key, async || {
            tries += 1;
            let options = PutOptions::from(mode.clone());
            let payload = PutPayload::from(content.clone());
            self.objects.put_opts(&path, payload, options).await
        });
        match put.await {
            Ok(done) => Ok(done.into()),
            Err(ObjectError::Exists(object) | ObjectError::Changed(object)) => {
                match self.small(key).await? {
                    Some(there) if tries > 1 && there.content == content => Ok(there.version),
                    _ => Err(ObjectError::Exists(object)),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Writes a file of this machine. `may_end` is asked before it appears under its name.
    pub async fn put_file(
        &self,
        key: &str,
        file: &FilePath,
        may_end: impl AsyncFn() -> Result<(), ObjectError>,
        upload: &Upload,
    ) -> Result<(), ObjectError> {
        let failed = |source| ObjectError::File {
            path: file.display().to_string(),
            source,
        };
        let mut opened = File::open(file).map_err(failed)?;
        let size = opened.metadata().map_err(failed)?.len();
        let part = PART_BYTES.max(size.div_ceil(MOST_PARTS));
        if size <= part {
            let mut content = Vec::new();
            opened.read_to_end(&mut content).map_err(failed)?;
            let standing = if upload.replaces {
                Standing::Anything
            } else {
                Standing::Nothing
            };
            let put = async {
                may_end().await?;
                self.put(key, content.into(), &standing).await.map(drop)
            };
            return self.unless_stopped(key, upload, put).await;
        }
        let path = self.path(key)?;
        let begun = self.tried(key, async || self.parts.create_multipart(&path).await);
        let id = self.unless_stopped(key, upload, begun).await?;
        let done = async {
            let parts = self.put_parts(key, &id, &mut opened, (size, part)).await?;
            may_end().await?;
            // Large objects are completed without a condition, so this is as late as it can be looked at.
            if !upload.replaces && self.is_there(key).await? {
                return Err(ObjectError::Exists(self.address.shown(key)));
            }
            self.complete(key, &id, parts, size).await
        };
        let done = self.unless_stopped(key, upload, done).await;
        if done.is_err() {
            // Parts that nobody completes are paid for. That this fails, too, changes nothing for the caller.
            let _ = self.parts.abort_multipart(&path, &id).await;
        }
        done
    }

    /// Whether an object is there.
    async fn is_there(&self, key: &str) -> Result<bool, ObjectError> {
        match self.head(key).await {
            Ok(_) => Ok(true),
            Err(ObjectError::Missing(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Ends with the work, or as soon as nobody wants it any more.
    async fn unless_stopped<T>(
        &self,
        key: &str,
        upload: &Upload,
        work: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        tokio::select! {
            biased;
            done = work => done,
            () = upload.stop.cancelled() => Err(ObjectError::Stopped(self.address.shown(key))),
        }
    }

    async fn put_parts(
        &self,
        key: &str,
        id: &String,
        file: &mut File,
        (size, part): (u64, u64),
    ) -> Result<Vec<object_store::multipart::PartId>, ObjectError> {
        let path = self.path(key)?;
        let failed = |source| ObjectError::File {
            path: "the draft".to_owned(),
            source,
        };
        let mut parts = Vec::new();
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut left = size;
        while left > 0 {
            let length = usize::try_from(part.min(left)).expect("a part fits into memory");
            let mut bytes = vec![0; length];
            file.read_exact(&mut bytes).map_err(failed)?;
            left -= length as u64;
            let bytes = Bytes::from(bytes);
            let at = parts.len();
            let put = self.tried(key, async || {
                let payload = PutPayload::from(bytes.clone());
                self.parts.put_part(&path, id, at, payload).await
            });
            parts.push(put.await?);
        }
        Ok(parts)
    }

    async fn complete(
        &self,
        key: &str,
        id: &String,
        parts: Vec<object_store::multipart::PartId>,
        size: u64,
    ) -> Result<(), ObjectError> {
        let path = self.path(key)?;
        let mut tries = 0;
        let done = self.tried(key, async || {
            tries += 1;
            self.parts
                .complete_multipart(&path, id, parts.clone())
                .await
        });
        match done.await {
            // The first try worked, and its answer was lost: S3 has no such upload any more, Azure has no such blocks.
            Err(error @ (ObjectError::Missing(_) | ObjectError::Settings { .. })) if tries > 1 => {
                let there = self.head(key).await?;
                if there.size == size {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            done => done.map(drop),
        }
    }

    /// Removes an object, if it is there.
    pub async fn remove(&self, key: &str) -> Result<(), ObjectError> {
        let path = self.path(key)?;
        match self
            .tried(key, async || self.objects.delete(&path).await)
            .await
        {
            Err(ObjectError::Missing(_)) => Ok(()),
            done => done,
        }
    }
}

fn both<S: ObjectStore + MultipartStore>(
    store: S,
) -> (Arc<dyn ObjectStore>, Arc<dyn MultipartStore>) {
    let store = Arc::new(store);
    (store.clone(), store)
}

fn quoted(etag: &str) -> String {
    if etag.ends_with('"') {
        etag.to_owned()
    } else {
        format!("\"{etag}\"")
    }
}

/// What our client said of a request, below all that was said of it since.
fn fault_of(error: &Error) -> Option<&Fault> {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    loop {
        if let Some(fault) = cause.downcast_ref::<Fault>() {
            return Some(fault);
        }
        cause = cause.source()?;
    }
}

fn refused(what: &str) -> String {
    if !what.starts_with("status") {
        return what.to_owned();
    }
    format!(
        "the store refuses it ({what}); check the credentials in the environment, their time of expiry, and what they may \
         read and write"
    )
}

fn settings(what: &str) -> String {
    if !what.starts_with("status") {
        return what.to_owned();
    }
    let why = if what.contains("NoSuchBucket") || what.contains("ContainerNotFound") {
        "there is no such bucket"
    } else {
        "the store does not understand the request"
    };
    format!("{why} ({what}); check the address, the region and the endpoint")
}
