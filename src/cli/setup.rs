//! `topicmill setup`: installs ONNX Runtime, the default model and, with `--openvino`, OpenVINO.
//!
//! The target is the user's data folder, or with `--system` the prefix where the program is installed. The libraries
//! are taken from Python wheels. Each part is installed atomically: unpacked into a staging folder, then renamed into
//! place.

mod wheels;

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Args;
use serde_json::json;
use tempfile::TempDir;

use self::wheels::{Packages, fetch, manual_hint};
use super::app::{DEFAULT_MODEL, run_blocking};
use super::{App, CliError, Exit, OutputFormat, output};
use crate::atomic_file::IfExists;
use crate::atomic_folder::{persist, temp_folder};
use crate::engines::find_model;
use topicmill_score::folder::{ModelFolder, Processor};
use topicmill_score::library::{Library, data_folder, prefix_of, system_folder};
use topicmill_score::onnx::load_runtime;
use topicmill_score::openvino::load_openvino;

/// The release of ONNX Runtime that topicmill is tested with, with the hash of each platform's wheel.
const REQUIREMENTS: &str = include_str!("../../requirements/onnxruntime.txt");

/// The release of OpenVINO that topicmill is tested with, with the hash of each platform's wheel.
const REQUIREMENTS_OPENVINO: &str = include_str!("../../requirements/openvino.txt");

/// ONNX Runtime for CUDA, with NVIDIA's libraries.
const CUDA: &str = "onnxruntime-gpu[cuda,cudnn]==1.31.1";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill setup
  topicmill setup --system
  topicmill setup --model ~/topicmill/models/minilm-reddit-topics

`setup` installs to `topicmill` in XDG_DATA_HOME, by default ~/.local/share/topicmill. With --system it installs next \
to the program, for all users (to /usr/lib/topicmill if the program is /usr/bin/topicmill). It downloads ONNX Runtime \
with `uv` or `pip`, and keeps what is already installed. `topicmill doctor` shows what the program finds.")]
#[expect(clippy::struct_excessive_bools, reason = "a flag each")]
pub struct Setup {
    /// Copy the default model from DIR, such as one in a clone of the repository
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Install ONNX Runtime for NVIDIA GPUs, with NVIDIA's libraries (about 2 GB)
    #[arg(long)]
    cuda: bool,
    /// Also install OpenVINO (60 MB)
    ///
    /// OpenVINO is an alternative engine for CPUs; the `classify.engine` setting selects it.
    #[arg(long)]
    openvino: bool,
    /// Reinstall what is already installed
    #[arg(long)]
    force: bool,
    /// Install next to the program, for all users of this machine; usually needs root
    #[arg(long)]
    system: bool,
    /// Set the output format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

/// A part that is in place now.
struct Installed {
    /// The action taken, for display.
    done: &'static str,
    place: PathBuf,
}

impl Installed {
    fn already(place: PathBuf) -> Self {
        let done = "already present";
        Self { done, place }
    }
}

impl Setup {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let [libraries, models] = self.target_folders()?;
        let (settings, format) = (app.settings().clone(), self.format);
        let parts = run_blocking(move || {
            let path = settings.onnxruntime.library.as_deref();
            let runtime = self.library(Library::OnnxRuntime, &libraries, path)?;
            let mut parts = vec![("ONNX Runtime", runtime)];
            if self.openvino {
                let path = settings.openvino.library.as_deref();
                let openvino = self.library(Library::OpenVino, &libraries, path)?;
                parts.push(("OpenVINO", openvino));
            }
            parts.push(("model", self.model(&models)?));
            Ok(parts)
        });
        let row = |(what, part): (&str, Installed)| {
            json!([what, part.done, part.place.display().to_string()])
        };
        let rows = parts.await?.into_iter().map(row);
        output::print_table(&output::table(["what", "done", "place"], rows), format)?;
        Ok(Exit::Done)
    }

    /// Returns the target folders for libraries and for other data.
    fn target_folders(&self) -> Result<[PathBuf; 2], CliError> {
        if !self.system {
            let no_home = "neither XDG_DATA_HOME nor HOME is an absolute path: set one of them";
            let data = data_folder().ok_or_else(|| CliError::Usage(no_home.into()))?;
            return Ok([data.clone(), data]);
        }
        let program = std::env::current_exe()
            .and_then(fs::canonicalize)
            .map_err(reading(Path::new("/proc/self/exe")))?;
        let (Some(libraries), Some(prefix)) = (system_folder(&program), prefix_of(&program)) else {
            return Err(CliError::Usage(format!(
                "cannot install for all users: `{}` is not in a `bin` folder, so libraries next to it would not be \
                 found; install the program first, or leave out --system",
                program.display()
            )));
        };
        Ok([libraries, prefix.join("share/topicmill")])
    }

    /// Returns true if the intended users have access to what is installed at `place`. With --system, these are all
    /// users, so `place` must be below the prefix of `data` (the target folder), or be a relative path, which means
    /// that the system's loader finds the library.
    fn is_for_these_users(&self, data: &Path, place: &Path) -> bool {
        let prefix = data.ancestors().nth(2).unwrap_or(data);
        !self.system || place.is_relative() || place.starts_with(prefix)
    }

    /// Returns the path of a library that is already installed. `path` is the one in the settings.
    fn present_library(&self, library: Library, path: Option<&Path>) -> Option<PathBuf> {
        match library {
            Library::OnnxRuntime => {
                let runtime = load_runtime(path).ok()?;
                (runtime.has_cuda() || !self.cuda).then(|| runtime.library().to_owned())
            }
            Library::OpenVino => Some(load_openvino(path).ok()?.library().to_owned()),
        }
    }

    /// Installs a library unless it is already present.
    fn library(
        &self,
        library: Library,
        data: &Path,
        path: Option<&Path>,
    ) -> Result<Installed, CliError> {
        if !self.force
            && let Some(place) = self.present_library(library, path)
            && self.is_for_these_users(data, &place)
        {
            return Ok(Installed::already(place));
        }
        fs::create_dir_all(data).map_err(CliError::writing(data))?;
        let packages = match library {
            Library::OnnxRuntime if self.cuda => Packages::WithDependencies(CUDA),
            Library::OnnxRuntime => Packages::Pinned(REQUIREMENTS),
            Library::OpenVino => Packages::Pinned(REQUIREMENTS_OPENVINO),
        };
        let folder = data.join(library.native_folder());
        let staging = staging_folder(&folder)?;
        fetch(library, &packages, staging.path())?;
        if !staging.path().join(library.package_folder()).is_dir() {
            let text = format!(
                "cannot fetch {library}: the downloaded package has no library; {}",
                manual_hint(library)
            );
            return Err(CliError::Message(Exit::Model, text));
        }
        persist(&staging, &folder, IfExists::Replace).map_err(CliError::writing(&folder))?;
        let place = library.find_below(data).unwrap_or(folder);
        tracing::info!(library = %place.display(), "installed {library}");
        let done = "fetched";
        Ok(Installed { done, place })
    }

    /// Copies the default model to a folder for data, unless it is already present.
    fn model(&self, data: &Path) -> Result<Installed, CliError> {
        let default = Path::new(DEFAULT_MODEL);
        let folder = find_model(default);
        let present = ModelFolder::open_for(&folder, Processor::Cpu, None);
        let place = fs::canonicalize(&folder).unwrap_or(folder);
        let is_for_these_users = self.is_for_these_users(data, &place);
        if present.is_ok() && is_for_these_users && !self.force {
            return Ok(Installed::already(place));
        }
        let from = match (&self.model, present) {
            (Some(from), _) => from,
            (None, Ok(_)) if !is_for_these_users => &place,
            // There is no other folder to copy from.
            (None, Ok(_)) => return Ok(Installed::already(place)),
            (None, Err(error)) => {
                let text = format!(
                    "{error}: the default model comes with topicmill's wheel and repository; copy it from a clone of \
                     the repository with `topicmill setup --model DIR/models/minilm-reddit-topics`"
                );
                return Err(CliError::Message(Exit::Model, text));
            }
        };
        // A folder that is not a model is rejected before anything is written.
        ModelFolder::open_for(from, Processor::Cpu, None)?;
        let models = data.join("models");
        fs::create_dir_all(&models).map_err(CliError::writing(&models))?;
        let to = models.join(default.file_name().unwrap_or_default());
        let staging = staging_folder(&to)?;
        copy_files(from, staging.path())?;
        // The copy is checked too, because the files may have changed while they were copied.
        ModelFolder::open_for(staging.path(), Processor::Cpu, None)?;
        persist(&staging, &to, IfExists::Replace).map_err(CliError::writing(&to))?;
        let done = "copied";
        Ok(Installed { done, place: to })
    }
}

/// Creates an empty folder next to the target. Dropping it deletes it.
fn staging_folder(place: &Path) -> Result<TempDir, CliError> {
    temp_folder(place, 0o755).map_err(CliError::writing(place))
}

/// Returns a function that turns an I/O error into the error of reading `path`.
fn reading(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    move |error| {
        CliError::Message(
            Exit::Partial,
            format!("cannot read `{}`: {error}", path.display()),
        )
    }
}

/// Copies a folder recursively: models from the Hugging Face hub have an `onnx` subfolder.
fn copy_files(from: &Path, to: &Path) -> Result<(), CliError> {
    fs::create_dir_all(to).map_err(CliError::writing(to))?;
    for entry in fs::read_dir(from).map_err(reading(from))? {
        let entry = entry.map_err(reading(from))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_files(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(CliError::writing(&target))?;
        }
    }
    Ok(())
}
