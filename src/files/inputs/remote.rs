//! Inputs in object stores and in data sets of the hub.

use std::io;
use std::sync::Arc;

use super::{Input, Opener, ReadAt, Source, pattern};
use crate::files::FilesError;
use crate::objects::{Address, Blocks, Found, Objects};
use crate::tables::Format;

/// The stores.
#[derive(Clone)]
pub struct Remote(pub Objects);

impl Source for Remote {
    fn is_mine(&self, named: &str) -> bool {
        Address::is_one(named)
    }

    fn list(&self, named: &str) -> Result<Vec<Input>, FilesError> {
        let address = Address::parse(named)?;
        // A key may hold what is wild in a pattern, as a name on a disk may.
        if let Some(found) = self.0.one(&address)? {
            let name = found.key.rsplit('/').next().unwrap_or_default().to_owned();
            return Ok(vec![self.input(&address, name, found)]);
        }
        let (folder, wild) = match address.pattern() {
            Some((folder, wild)) => {
                let pattern = pattern(wild).map_err(|why| FilesError::Pattern {
                    pattern: address.to_string(),
                    why,
                })?;
                (
                    folder,
                    Some((pattern, wild.contains('/') || wild.contains("**"))),
                )
            }
            None => (address.key.as_str(), None),
        };
        let is_deep = wild.as_ref().is_none_or(|(_, is_deep)| *is_deep);
        let start = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        let mut inputs = Vec::new();
        for found in self.0.folder(&address, folder, is_deep)? {
            let Some(name) = found.key.strip_prefix(&start).map(str::to_owned) else {
                continue;
            };
            // As on a disk: what begins with a dot or an underscore is not for readers.
            let is_hidden = name.split('/').any(|part| part.starts_with(['.', '_']));
            let is_wanted = match &wild {
                Some((pattern, _)) => pattern.matches(&name),
                None => Format::of_name(name.as_ref()).0 == Some(Format::Parquet),
            };
            if is_wanted && !is_hidden {
                inputs.push(self.input(&address, name, found));
            }
        }
        if inputs.is_empty() {
            return Err(match wild {
                None if !address.key.is_empty() && !address.is_folder => {
                    FilesError::Missing(address.to_string().into())
                }
                None => FilesError::NothingIn(address.to_string().into()),
                Some(_) => FilesError::Missing(address.to_string().into()),
            });
        }
        inputs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(inputs)
    }
}

impl Remote {
    fn input(&self, address: &Address, name: String, found: Found) -> Input {
        Input {
            shown: found.shown.clone(),
            name,
            size: found.size,
            version: found.version.clone(),
            opener: Arc::new(InStore {
                objects: self.0.clone(),
                address: address.clone(),
                found,
            }),
        }
    }
}

struct InStore {
    objects: Objects,
    address: Address,
    found: Found,
}

impl Opener for InStore {
    fn open(&self, _: &Input) -> Result<Arc<dyn ReadAt>, FilesError> {
        let blocks = self.objects.open(&self.address, &self.found)?;
        Ok(Arc::new(Opened(blocks)))
    }
}

struct Opened(Blocks);

impl ReadAt for Opened {
    // Each read asks for the version that was listed, so none gives another one.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, into).map_err(|error| {
            match error.downcast::<crate::objects::ObjectError>() {
                Ok(error) => io::Error::other(FilesError::from(error)),
                Err(error) => error,
            }
        })
    }
}
