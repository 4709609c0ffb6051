//! Where inputs and outputs of `score` lie: on this machine, in object stores, in data sets of the hub.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use reqwest::Url;
use sha2::{Digest, Sha256};

use crate::cli::CliError;
use crate::cli::model::hub_of_the_environment;
use crate::cli::setup::Setup;
use crate::files::inputs::{Input, Source, local::Local, remote::Remote};
use crate::files::shelf::{Shelf, local::Folder, remote::Remote as RemoteFolder};
use crate::objects::{Address, Objects};
use crate::placing::{self, Standing};
use crate::tables::bytes;

/// Bytes that are fetched at once.
const PIECE: u64 = 4 << 20;

/// Object stores, with the settings that the environment has for them.
pub(in crate::cli) fn stores(setup: &Setup) -> Objects {
    let variables = std::env::vars_os();
    // One that is no Unicode is no setting of a store.
    let variables = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Objects::new(setup.clock.clone(), variables, hub_of_the_environment)
}

/// All places.
pub(super) struct Places(Objects);

impl Places {
    pub(super) fn new(setup: &Setup) -> Self {
        Self(stores(setup))
    }

    /// The folder that shards go to.
    pub(super) fn shelf(&self, output: &Path) -> Result<Box<dyn Shelf>, CliError> {
        let named = output.to_string_lossy();
        if !Address::is_one(&named) {
            return Ok(Box::new(Folder(local(output))));
        }
        let address = Address::parse(&named).map_err(crate::files::FilesError::from)?;
        let output = self.0.output(&address);
        Ok(Box::new(RemoteFolder(
            output.map_err(crate::files::FilesError::from)?,
        )))
    }

    /// The files that the names on the command line stand for.
    pub(super) fn listed(&self, named: &[PathBuf]) -> Result<Vec<Input>, CliError> {
        let stores = Remote(self.0.clone());
        let mut inputs = Vec::new();
        for path in named {
            let path = local(path);
            let named = path.to_string_lossy();
            inputs.extend(if stores.is_mine(&named) {
                stores.list(&named)?
            } else {
                Local.list(&named)?
            });
        }
        Ok(inputs)
    }

    /// The files that folders, patterns and addresses stand for, on this machine: what lies elsewhere is fetched.
    pub(super) fn here(&self, inputs: Vec<PathBuf>, output: &Path) -> Result<Here, CliError> {
        let mut partial = local(output).into_os_string();
        partial.push(".partial");
        let mut here = Here {
            files: Vec::new(),
            fetched: Vec::new(),
            partial: partial.into(),
            folder: None,
        };
        for path in inputs {
            let path = local(&path);
            let named = path.to_string_lossy();
            let is_pattern = || named.contains(['*', '?', '[']);
            if Address::is_one(&named) {
                for input in self.listed(std::slice::from_ref(&path))? {
                    here.fetch(&input, output)?;
                }
            } else if !bytes::is_stdin(&path) && (path.is_dir() || (!path.exists() && is_pattern()))
            {
                let found = Local.list(&named)?;
                here.files
                    .extend(found.into_iter().map(|input| PathBuf::from(input.shown)));
            } else {
                here.files.push(path);
            }
        }
        Ok(here)
    }
}

/// Whether an output is a folder of shards, and no file.
pub(super) fn is_folder(output: &Path) -> Result<bool, CliError> {
    let named = output.to_string_lossy();
    if named.ends_with(std::path::is_separator) || local(output).is_dir() {
        return Ok(true);
    }
    if Address::is_one(&named) {
        // Before it is shown: what cannot be read may hold a secret.
        let address = Address::parse(&named).map_err(crate::files::FilesError::from)?;
        if crate::tables::Format::of_name(output).0.is_some() {
            return Err(CliError::Usage(format!(
                "an object store takes a folder of shards, and `{address}` is a file: end it with `/`, or write to a file of \
                 this machine and copy it"
            )));
        }
        return Ok(true);
    }
    Ok(false)
}

/// `file:///folder/file` as a path; anything else as it is.
pub(in crate::cli) fn local(path: &Path) -> PathBuf {
    let named = path.to_string_lossy();
    let file = Some(&*named).filter(|named| named.starts_with("file://"));
    let file = file.and_then(|named| Url::parse(named).ok()?.to_file_path().ok());
    file.unwrap_or_else(|| path.to_owned())
}

/// Inputs on this machine. What was fetched is removed with this, unless a later run can go on with it.
pub(super) struct Here {
    pub(super) files: Vec<PathBuf>,
    /// Those that were fetched.
    fetched: Vec<PathBuf>,
    /// What a run leaves that was stopped.
    partial: PathBuf,
    /// Where they are if nothing is written to a file.
    folder: Option<tempfile::TempDir>,
}

impl Here {
    /// Fetches an input, unless an earlier run of the same command did.
    fn fetch(&mut self, input: &Input, output: &Path) -> Result<(), CliError> {
        let identity = format!("{} {} {}", input.shown, input.size, input.version);
        let identity = topicmill_score::hex(&Sha256::digest(identity)[..6]);
        // Its ending says its format.
        let name = input.name.rsplit('/').next().unwrap_or_default();
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |source| CliError::Write { path, source }
        };
        let path = if bytes::is_stdin(output) {
            if self.folder.is_none() {
                let folder = tempfile::tempdir().map_err(failed(&std::env::temp_dir()))?;
                self.folder = Some(folder);
            }
            let folder = self.folder.as_ref().expect("it was made a line ago");
            folder.path().join(format!("{identity}.{name}"))
        } else {
            let output = local(output);
            let start = output.file_name().unwrap_or_default().to_string_lossy();
            placing::folder_of(&output).join(format!(".{start}.{identity}.{name}"))
        };
        if fs::metadata(&path).is_ok_and(|there| there.len() == input.size) {
            tracing::info!("{} was fetched by an earlier run", input.shown);
        } else {
            tracing::info!(bytes = input.size, "fetching {}", input.shown);
            let chunks = input.open()?;
            let mut file = placing::beside(&path).map_err(failed(&path))?;
            let mut at = 0;
            while at < input.size {
                let length = PIECE.min(input.size - at);
                let bytes = chunks.bytes(at, usize::try_from(length).unwrap_or(usize::MAX));
                let bytes = bytes.map_err(|error| crate::files::read_error(&input.shown, error))?;
                file.write_all(&bytes).map_err(failed(&path))?;
                at += length;
            }
            placing::place(file, &path, Standing::Replaced).map_err(failed(&path))?;
        }
        self.files.push(path.clone());
        self.fetched.push(path);
        Ok(())
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if self.partial.exists() {
            return;
        }
        for path in &self.fetched {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("remove `{}`: {error}; remove it yourself", path.display());
                }
                _ => {}
            }
        }
    }
}
