//! Attacks through libraries: which ONNX Runtime is loaded, and what it stores and sends.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::models::scoring;
use crate::support::engine::{files_below, library, repository};
use crate::support::notice::not_tested;
use crate::support::program::{Program, RunOutput, finished, wrapped};

const DOCTOR: &str = "doctor --offline --format json";

/// Runs `doctor` in a folder, without a setting for the library's path.
fn doctor(mut command: Command, here: &Path) -> RunOutput {
    command.env_remove("ORT_DYLIB_PATH").current_dir(here);
    finished(command.output().unwrap())
}

/// Asserts that `doctor` says these words of ONNX Runtime.
#[track_caller]
fn expect_library(doctor: &RunOutput, words: &str) {
    let found = doctor.json()[0]["detail"].take();
    let is_said = found.as_str().unwrap().contains(words);
    assert!(is_said, "{words}: {found}{}", doctor.stderr);
}

/// A copy of the program without a `.venv` nearby, and a current folder with a `.venv` in which a library was planted.
struct Away {
    top: TempDir,
    here: PathBuf,
    planted: PathBuf,
}

impl Away {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let here = top.path().join("above/here");
        let capi = here.join(".venv/native/onnxruntime/capi");
        fs::create_dir_all(&capi).unwrap();
        let planted = capi.join("libonnxruntime.so.1.99");
        fs::copy(library(), &planted).unwrap();
        let (built, copy) = (
            env!("CARGO_BIN_EXE_topicmill"),
            top.path().join("topicmill"),
        );
        fs::hard_link(built, &copy)
            .or_else(|_| fs::copy(built, &copy).map(drop))
            .unwrap();
        Self { top, here, planted }
    }

    /// Runs the copied `doctor` in a folder.
    fn doctor(&self, folder: &Path) -> RunOutput {
        let mut command = Command::new(self.top.path().join("topicmill"));
        command
            .args(DOCTOR.split(' '))
            .env("ORT_DISABLE_TELEMETRY", "1");
        doctor(command, folder)
    }

    /// Runs `doctor` in the current folder while a file or folder has these permissions.
    fn doctor_with_mode(&self, path: &Path, mode: u32) -> RunOutput {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let answer = self.doctor(&self.here);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        answer
    }
}

#[test]
fn the_library_is_searched_near_the_program_and_then_in_the_current_folder() {
    let away = Away::new();
    // The `.venv` of the repository in which the program was built comes first. A program that cargo built outside the
    // repository does not find it.
    if Path::new(env!("CARGO_BIN_EXE_topicmill")).starts_with(env!("CARGO_MANIFEST_DIR")) {
        let ran = doctor(Program::new().command(DOCTOR), &away.here);
        expect_library(&ran, &library().display().to_string());
        expect_library(&ran, "in the program's folders");
    }
    let ran = away.doctor(&away.here);
    expect_library(&ran, "libonnxruntime.so.1.99");
    expect_library(&ran, "of the current folder");
    // A `.venv` above the current folder is not searched.
    let below = away.here.join("below");
    fs::create_dir(&below).unwrap();
    let ran = away.doctor(&below);
    expect_library(&ran, "topicmill setup");
    assert!(!ran.stdout.contains("so.1.99"), "{}", ran.stdout);
}

#[test]
fn a_library_that_another_user_can_replace_is_not_loaded() {
    let away = Away::new();
    let (here, planted) = (&away.here, &away.planted);
    let (above, capi) = (here.parent().unwrap(), planted.parent().unwrap());
    for path in [here, above, capi, planted] {
        let ran = away.doctor_with_mode(path, 0o757);
        expect_library(&ran, "is writable by others");
        ran.expect_stderr("was not loaded");
    }
    // In a sticky folder, others can add files but cannot replace this one.
    expect_library(
        &away.doctor_with_mode(above, 0o1777),
        "of the current folder",
    );
    if can_chown() {
        for path in [&here.join(".venv"), planted, here] {
            chown(path, Some(4_242), None).unwrap();
            expect_library(&away.doctor(here), "belongs to another user");
            chown(path, Some(0), None).unwrap();
        }
    }
}

/// Returns true if the test may change the owners of files.
fn can_chown() -> bool {
    let dir = tempfile::tempdir().unwrap();
    chown(dir.path(), Some(4_242), None).is_ok()
}

#[test]
fn a_settings_file_writable_by_others_cannot_name_a_library() {
    let program = Program::new();
    program.write("topicmill.toml", "[onnxruntime]\nlibrary = \"evil.so\"\n");
    let file = program.path("topicmill.toml");
    let show = || program.run("config show");
    assert_eq!(show().code, 0);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    show().expect_exit(2, "is writable by others");
    program.ok("config show --config topicmill.toml");
    fs::write(&file, "[openvino]\nlibrary = \"evil.so\"\n").unwrap();
    show().expect_exit(2, "`openvino.library`");
    // A file that names no library works as before.
    fs::write(&file, "[collect]\nlimit = 7\n").unwrap();
    assert_eq!(show().code, 0);
}

/// Runs a command in an empty home, and asserts that it writes no file there except in the program's own cache.
fn assert_writes_only_its_cache(mut command: Command) {
    let home = tempfile::tempdir().unwrap();
    command
        .env("HOME", home.path())
        .env("XDG_CACHE_HOME", home.path().join(".cache"))
        .env_remove("ORT_DISABLE_TELEMETRY");
    finished(command.output().unwrap()).expect_code(0);
    let mut found = files_below(home.path());
    found.retain(|path| !path.starts_with(home.path().join(".cache/topicmill")));
    assert_eq!(found, Vec::<PathBuf>::new());
}

#[test]
fn onnx_runtime_stores_and_sends_no_telemetry() {
    let program = Program::new();
    let score = || scoring(&program, &repository("models/minilm-reddit-topics"));
    assert_writes_only_its_cache(score());
    let tried = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .output();
    if !tried.is_ok_and(|ran| ran.status.success()) {
        not_tested("under strace: telemetry: strace is not installed, or may not trace");
        return;
    }
    // Strace records every system call.
    let trace = program.path("trace");
    let traced = format!(
        "strace -f -qq -e trace=network,openat -o {}",
        trace.display()
    );
    let strace: Vec<&str> = traced.split(' ').collect();
    assert_writes_only_its_cache(wrapped(&strace, &score()));
    let trace = fs::read_to_string(trace).unwrap();
    let shows_runtime = trace.contains("libonnxruntime");
    assert!(shows_runtime, "the trace does not show ONNX Runtime");
    for call in "connect( sendto( sendmsg( AF_INET Microsoft resolv.conf".split(' ') {
        let line = trace.lines().find(|line| line.contains(call));
        assert_eq!(line, None, "{call}");
    }
}
