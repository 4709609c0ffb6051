//! Downloads Python wheels and unpacks them into a folder, with `uv` if it is installed, else with Python's pip.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::atomic_file::folder_of;
use crate::cli::{CliError, Exit};
use topicmill_score::library::Library;

/// Selects the wheel for one Python version, because not every version has a wheel. The library is the same in each.
const WHEEL_PYTHON: [&str; 2] = ["--python-version", "3.12"];

/// The programs that can download wheels, in the order of preference.
const INSTALLERS: [&str; 3] = [UV, "python3", "python"];
const UV: &str = "uv";

/// The packages to download.
pub(super) enum Packages {
    /// The content of a requirements file, which has the hash of each wheel.
    Pinned(&'static str),
    /// A package and its dependencies.
    WithDependencies(&'static str),
}

/// Downloads and unpacks the packages of a library into a folder.
pub(super) fn fetch(library: Library, packages: &Packages, to: &Path) -> Result<(), CliError> {
    let list = tempfile::Builder::new()
        .suffix(".txt")
        .tempfile_in(folder_of(to));
    let mut list = list.map_err(CliError::writing(to))?;
    let mut arguments = vec!["--target".into(), to.as_os_str().to_owned()];
    match packages {
        Packages::WithDependencies(package) => arguments.push(package.into()),
        Packages::Pinned(requirements) => {
            let written = list.write_all(requirements.as_bytes());
            written.map_err(CliError::writing(list.path()))?;
            arguments.extend(["--no-deps", "--require-hashes", "-r"].map(Into::into));
            arguments.push(list.path().into());
        }
    }
    // Nothing is built from source. Also, pip accepts --python-version only with this flag.
    arguments.extend(["--only-binary", ":all:"].map(Into::into));
    arguments.extend(WHEEL_PYTHON.map(Into::into));
    let mut failure = None;
    let installers = INSTALLERS.into_iter();
    for program in installers.filter(|program| is_installed(program)) {
        tracing::info!(by = program, to = %to.display(), "fetching {library}");
        match install(program, &arguments) {
            Ok(()) => return Ok(()),
            Err(why) => failure = Some(format!("`{program}`: {why}")),
        }
    }
    let (exit, why) = match failure {
        None => (
            Exit::Model,
            "neither `uv` nor a Python with pip is installed; install one (Debian: `apt install python3-pip`)".into(),
        ),
        Some(why) => (Exit::TryAgain, why + "; check the network and try again"),
    };
    let text = format!("cannot fetch {library}: {why}, or {}", manual_hint(library));
    Err(CliError::Message(exit, text))
}

/// Returns the alternative to downloading a library.
pub(super) fn manual_hint(library: Library) -> &'static str {
    match library {
        Library::OnnxRuntime => "set `onnxruntime.library` to a library that you have",
        Library::OpenVino => "set `openvino.library` to a library that you have",
    }
}

/// Returns true if a program is installed; a Python needs pip.
fn is_installed(program: &str) -> bool {
    let mut command = Command::new(program);
    if program != UV {
        command.args(["-m", "pip"]);
    }
    let output = command.arg("--version").stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}

/// Downloads and unpacks wheels with a program. An error is the end of its output.
fn install(program: &str, arguments: &[OsString]) -> Result<(), String> {
    let (before, after) = match program {
        UV => ("pip install --quiet", ""),
        // Lets any Python's pip download the wheel for CPython 3.12.
        _ => (
            "-m pip install --quiet --disable-pip-version-check",
            "--no-compile --ignore-requires-python --implementation cp --abi cp312",
        ),
    };
    let mut command = Command::new(program);
    command.args(before.split(' ')).args(arguments);
    command.args(after.split_whitespace());
    // The user's own PIP_USER conflicts with --target.
    command.env("PIP_USER", "0").stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.trim().lines().collect();
    Err(lines[lines.len().saturating_sub(3)..].join(" "))
}
