//! `topicmill setup`: fetches what the program needs besides itself, into the data folder of this user, or below the
//! prefix where the program is installed.
//!
//! That is ONNX Runtime, which comes in a Python wheel, on request OpenVINO, and a model. Each is put together staging its place and renamed into
//! it when it is whole, so that a run that was killed leaves nothing that would be taken for the library.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use clap::Args;
use serde_json::json;

use super::setup::{DEFAULT_MODEL, run_blocking};
use super::{CliError, Exit, OutputFormat, Setup, output};
use crate::engines::find_model;
use topicmill_score::folder::{ModelFolder, Processor};
use topicmill_score::onnx::library::{
    Library, NATIVE, NATIVE_OPENVINO, data_folder, prefix_of, system_folder,
};
use topicmill_score::onnx::load_runtime;
use topicmill_score::openvino::load_openvino;
use topicmill_store::is_gone;

/// The release of ONNX Runtime that topicmill is tested with, with a hash for each platform's wheel.
const REQUIREMENTS: &str = include_str!("../../requirements/onnxruntime.txt");

/// The same of OpenVINO.
const REQUIREMENTS_OPENVINO: &str = include_str!("../../requirements/openvino.txt");

/// One Python's wheel is_for_these_users all, because the library in it is the same; not every Python has one.
const WHEEL_PYTHON: [&str; 2] = ["--python-version", "3.12"];

/// What CUDA needs besides: the library for it, and NVIDIA's own.
const CUDA: &str = "onnxruntime-gpu[cuda,cudnn]==1.31.1";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill setup
  topicmill setup --system
  topicmill setup --model ~/topicmill/models/minilm-reddit-topics

`setup` writes to `topicmill` in XDG_DATA_HOME, or else in ~/.local/share; with --system, staging the program for \
all users (for /usr/bin/topicmill: /usr/lib/topicmill). It uses `uv` or `pip` to fetch ONNX Runtime, and leaves alone \
what is there already. `topicmill doctor` shows what the program finds.")]
#[expect(clippy::struct_excessive_bools, reason = "a flag each")]
pub struct Install {
    /// Copy the default model from this folder, for example from a copy of topicmill's repository
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Fetch ONNX Runtime for NVIDIA GPUs, and NVIDIA's libraries (about 2 GB)
    #[arg(long)]
    cuda: bool,
    /// Also fetch OpenVINO, a second engine for CPUs (60 MB); the setting `classify.engine` chooses it
    #[arg(long)]
    openvino: bool,
    /// Fetch and copy even what is there already
    #[arg(long)]
    force: bool,
    /// Write staging the program, for all users of this machine; needs the rights of root there
    #[arg(long)]
    system: bool,
    /// Print in this format
    #[arg(long, value_enum, default_value_t)]
    format: OutputFormat,
}

impl Install {
    pub async fn run(self, setup: &Setup) -> Result<Exit, CliError> {
        let [libraries, models] = self.target_folders()?;
        let (library, openvino, format) = (setup.library(), setup.openvino(), self.format);
        let done = run_blocking(move || {
            let runtime = self.library(Library::OnnxRuntime, &libraries, library.as_deref())?;
            let mut done = vec![("ONNX Runtime", runtime)];
            if self.openvino {
                let openvino = self.library(Library::OpenVino, &libraries, openvino.as_deref())?;
                done.push(("OpenVINO", openvino));
            }
            done.push(("model", self.model(&models)?));
            Ok(done)
        });
        let rows = done.await?.into_iter();
        let rows = rows.map(|(what, (was, place))| json!([what, was, place.display().to_string()]));
        let table = output::table(["what", "done", "place"], rows);
        output::print_table(&table, format)?;
        Ok(Exit::Done)
    }

    /// The folders of libraries and of what else is fetched.
    fn target_folders(&self) -> Result<[PathBuf; 2], CliError> {
        if !self.system {
            let no_home = "neither XDG_DATA_HOME nor HOME names an absolute folder: set one";
            let data = data_folder().ok_or_else(|| CliError::Usage(no_home.into()))?;
            return Ok([data.clone(), data]);
        }
        let program = std::env::current_exe().and_then(fs::canonicalize);
        let program = program.map_err(reading(Path::new("/proc/self/exe")))?;
        let (Some(libraries), Some(prefix)) = (system_folder(&program), prefix_of(&program)) else {
            return Err(CliError::Usage(format!(
                "install for all users: `{}` is in no folder `bin`, so nobody would look staging it; install the program \
                 first, or leave out --system",
                program.display()
            )));
        };
        Ok([libraries, prefix.join("share/topicmill")])
    }

    /// Whether what lies here is there for whom it is meant: with --system, for all users. `data` is where it would be
    /// written. What has no path was found by its name where the system looks.
    fn is_for_these_users(&self, data: &Path, place: &Path) -> bool {
        let prefix = data.ancestors().nth(2).unwrap_or(data);
        !self.system || place.is_relative() || place.starts_with(prefix)
    }

    /// A library, fetched into its folder unless it is there.
    fn library(
        &self,
        library: Library,
        data: &Path,
        asked: Option<&Path>,
    ) -> Result<(&'static str, PathBuf), CliError> {
        let there = match library {
            _ if self.force => None,
            Library::OnnxRuntime => load_runtime(asked)
                .ok()
                .filter(|runtime| runtime.knows_cuda() || !self.cuda)
                .map(|runtime| runtime.library().to_owned()),
            Library::OpenVino => load_openvino(asked)
                .ok()
                .map(|runtime| runtime.library().to_owned()),
        };
        if let Some(place) = there.filter(|place| self.is_for_these_users(data, place)) {
            return Ok(("there already", place));
        }
        fs::create_dir_all(data).map_err(CliError::writing(data))?;
        let (name, inside) = match library {
            Library::OnnxRuntime => (NATIVE, "onnxruntime/capi"),
            Library::OpenVino => (NATIVE_OPENVINO, "openvino/libs"),
        };
        let staging = StagingFolder::create(data, name)?;
        self.fetch(library, &staging.0)?;
        if !staging.0.join(inside).is_dir() {
            let why = format!(
                "the package that came has no library; {}",
                manual_hint(library)
            );
            let text = format!("fetch {library}: {why}");
            return Err(CliError::Message(Exit::Model, text));
        }
        let folder = data.join(name);
        staging.commit(&folder)?;
        let path = library.in_venv(data).unwrap_or(folder);
        tracing::info!(library = %path.display(), "{library} is there");
        Ok(("fetched", path))
    }

    /// Has the wheel unpacked into a folder, by `uv` if that is installed, else by Python's pip.
    fn fetch(&self, library: Library, to: &Path) -> Result<(), CliError> {
        let list = to.with_extension("txt");
        let mut asked = vec!["--target".into(), to.as_os_str().to_owned()];
        if self.cuda && library == Library::OnnxRuntime {
            asked.push(CUDA.into());
        } else {
            let requirements = match library {
                Library::OnnxRuntime => REQUIREMENTS,
                Library::OpenVino => REQUIREMENTS_OPENVINO,
            };
            fs::write(&list, requirements).map_err(CliError::writing(&list))?;
            asked.extend(["--no-deps", "--require-hashes", "-r"].map(Into::into));
            asked.push(list.clone().into_os_string());
        }
        // Nothing is built on this machine. And pip takes another Python's version only with it.
        asked.extend(["--only-binary", ":all:"].map(Into::into));
        asked.extend(WHEEL_PYTHON.map(Into::into));
        let mut failed = None;
        for (program, first, last) in INSTALLERS {
            if !has_pip(program) {
                continue;
            }
            tracing::info!(by = program, to = %to.display(), "fetching {library}");
            let mut command = Command::new(program);
            command.args(first.split_whitespace()).args(&asked);
            command.args(last.split_whitespace());
            // Somebody's own setting of it contradicts a target.
            command.env("PIP_USER", "0").stdin(Stdio::null());
            let why = match command.output() {
                Ok(output) if output.status.success() => {
                    let _ = fs::remove_file(&list);
                    return Ok(());
                }
                Ok(output) => {
                    let text = String::from_utf8_lossy(&output.stderr);
                    let lines: Vec<&str> = text.trim().lines().collect();
                    lines[lines.len().saturating_sub(3)..].join(" ")
                }
                Err(error) => error.to_string(),
            };
            failed = Some(format!("`{program}`: {why}"));
        }
        let _ = fs::remove_file(&list);
        let (exit, why) = match failed {
            None => (
                Exit::Model,
                "neither `uv` nor a Python with pip is installed; install one (Debian: `apt install python3-pip`)".into(),
            ),
            Some(why) => (Exit::TryAgain, why + "; check the network and try again"),
        };
        let text = format!("fetch {library}: {why}, or {}", manual_hint(library));
        Err(CliError::Message(exit, text))
    }

    fn model(&self, data: &Path) -> Result<(&'static str, PathBuf), CliError> {
        let named = Path::new(DEFAULT_MODEL);
        let found = find_model(named);
        let there = ModelFolder::open_for(&found, Processor::Cpu, None);
        let place = fs::canonicalize(&found).unwrap_or(found);
        let is_for_these_users = self.is_for_these_users(data, &place);
        if there.is_ok() && is_for_these_users && !self.force {
            return Ok(("there already", place));
        }
        let from = match (&self.model, there) {
            (Some(from), _) => from,
            (None, Ok(_)) if !is_for_these_users => &place,
            (None, Ok(_)) => return Ok(("there already", place)),
            (None, Err(error)) => {
                let text = format!(
                    "{error}: the default model comes with topicmill's wheel and repository; copy it from a copy of the \
                     repository with `topicmill setup --model DIR/models/minilm-reddit-topics`"
                );
                return Err(CliError::Message(Exit::Model, text));
            }
        };
        // A folder that is none is told before anything is written.
        ModelFolder::open_for(from, Processor::Cpu, None)?;
        let name = named.file_name().unwrap_or_default();
        let models = data.join("models");
        fs::create_dir_all(&models).map_err(CliError::writing(&models))?;
        let staging = StagingFolder::create(&models, &name.to_string_lossy())?;
        copy_files(from, &staging.0)?;
        // Once more: the files may have changed while they were copied.
        ModelFolder::open_for(&staging.0, Processor::Cpu, None)?;
        let to = models.join(name);
        staging.commit(&to)?;
        Ok(("copied", to))
    }
}

/// What one may do instead of fetching a library.
fn manual_hint(library: Library) -> &'static str {
    match library {
        Library::OnnxRuntime => "name a library that you have with `onnxruntime.library`",
        Library::OpenVino => "name a library that you have with `openvino.library`",
    }
}

const UV: &str = "pip install --quiet";
const PIP: &str = "-m pip install --quiet --disable-pip-version-check";
/// The library is the same for every Python, and not every Python has a wheel: one Python's is taken.
const ANY_PYTHON: &str = "--no-compile --ignore-requires-python --implementation cp --abi cp312";

/// Programs that fetch, with their arguments before and behind those of all.
const INSTALLERS: [(&str, &str, &str); 3] = [
    ("uv", UV, ""),
    ("python3", PIP, ANY_PYTHON),
    ("python", PIP, ANY_PYTHON),
];

fn has_pip(program: &str) -> bool {
    let mut command = Command::new(program);
    if program != "uv" {
        command.args(["-m", "pip"]);
    }
    let output = command.arg("--version").stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// A folder staging the one of this name, for what is not whole yet; removed where it does not become that one.
struct StagingFolder(PathBuf);

impl StagingFolder {
    /// An empty one. Each process has its own, and clears away those of processes that are dead.
    fn create(folder: &Path, name: &str) -> Result<Self, CliError> {
        let begin = format!(".{name}.");
        let entries = fs::read_dir(folder).map_err(reading(folder))?;
        for entry in entries.flatten() {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            let process = file.strip_prefix(&begin);
            let process = process.and_then(|rest| rest.split('.').next());
            // Others' folders have no number there.
            if process.and_then(|id| id.parse().ok()).is_some_and(is_gone) {
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            }
        }
        let path = folder.join(format!("{begin}{}.partial", std::process::id()));
        fs::create_dir_all(&path).map_err(CliError::writing(&path))?;
        Ok(Self(path))
    }

    /// Puts what is whole into its place, and what was there run_blocking until then.
    fn commit(self, place: &Path) -> Result<(), CliError> {
        // A rename does not replace a folder that has files in it.
        let old = self.0.with_extension("old");
        let moved = match fs::rename(place, &old) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            moved => moved,
        };
        moved
            .and_then(|()| {
                fs::rename(&self.0, place).inspect_err(|_| {
                    let _ = fs::rename(&old, place);
                })
            })
            .and_then(|()| remove(&old))
            .map_err(CliError::writing(place))
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

fn reading(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    move |error| CliError::Message(Exit::Partial, format!("read `{}`: {error}", path.display()))
}

// `Drop` comes here after `put`, too, where nothing is left.
fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Copies the files of a model folder, which has no folders in it but what the hub's exports call `onnx`.
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
