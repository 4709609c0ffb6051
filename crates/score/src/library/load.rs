//! Loads an inference library, once per process. In: the caller's path, or the search for the library. Out: what its
//! loader returns, and the path, or the reason why no file could be loaded.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{FoundBy, Library, Location, SearchRoots, locate};
use crate::loading::LoadError;

/// A library that is loaded at most once per process, and never unloaded.
pub(crate) struct LoadOnce<T: 'static>(Mutex<Option<&'static T>>);

impl<T: 'static> LoadOnce<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the library, or loads it if no earlier call has succeeded.
    pub(crate) fn get_or_load(
        &self,
        load: impl FnOnce() -> Result<T, LoadError>,
    ) -> Result<&'static T, LoadError> {
        let mut loaded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = *loaded {
            return Ok(loaded);
        }
        Ok(*loaded.insert(Box::leak(Box::new(load()?))))
    }
}

/// A library that was found and loaded.
pub(crate) struct Loaded<T> {
    /// The value that loading it returned.
    pub(crate) value: T,
    pub(crate) path: PathBuf,
    pub(crate) found_by: FoundBy,
}

/// Searches for a library and loads it with `load`. `asked` is the caller's path, and `variable` is the value of
/// `ORT_DYLIB_PATH`.
pub(crate) fn locate_and_load<T>(
    library: Library,
    asked: Option<&Path>,
    variable: Option<OsString>,
    load: impl Fn(&Path) -> Result<T, LoadError>,
) -> Result<Loaded<T>, LoadError> {
    let search = locate(library, asked, variable, &SearchRoots::of_this_process());
    for untrusted in &search.untrusted {
        tracing::warn!("{untrusted}; give its path explicitly if you trust it");
    }
    let loaded = |value, path, found_by| Loaded {
        value,
        path,
        found_by,
    };
    let names = match search.location {
        Location::Explicit { path, by } if !path.is_file() => {
            return Err(LoadError::Missing { library, path, by });
        }
        Location::Explicit { path, by } | Location::Found { path, by } => {
            return Ok(loaded(load(&path)?, path, by));
        }
        Location::System(names) => names,
    };
    let mut tried = search.untrusted;
    for path in names {
        match load(&path) {
            Ok(value) => return Ok(loaded(value, path, FoundBy::System)),
            Err(LoadError::Load { detail, .. }) => {
                // The loader gives the same reason for most names.
                let reason = loader_reason(&detail);
                if !tried.iter().any(|other| loader_reason(other) == reason) {
                    tried.push(detail);
                }
            }
            Err(error) => tried.push(error.to_string()),
        }
    }
    let tried = tried.join("; ");
    Err(LoadError::NotFound { library, tried })
}

/// Returns a loader's message without the library's name at its start.
fn loader_reason(message: &str) -> &str {
    let parts = message.split_once(": ");
    parts.map_or(message, |(_, reason)| reason)
}
