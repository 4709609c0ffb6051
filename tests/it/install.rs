//! Tests the program outside its repository: installed under a prefix, with a different home, downloading what it
//! lacks.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::engine::{library, repository};
use crate::support::program::{CommandLine, RunOutput, finished};

const MODEL: &str = "models/minilm-reddit-topics";

/// A prefix with the program in `bin`, an empty home, an empty working directory, and an empty folder as `PATH`.
struct Installed {
    top: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        for folder in ["prefix/bin", "home", "here", "path"] {
            std::fs::create_dir_all(top.path().join(folder)).unwrap();
        }
        let program = top.path().join("prefix/bin/topicmill");
        // A copy, because a symlink would lead back into the repository. `cp` writes it: if this process did, a child
        // that a concurrent test forks could inherit the file while it is open for writing, and the copy could not be
        // run.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_topicmill"))
            .arg(program)
            .status();
        assert!(copied.unwrap().success());
        Self { top }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    fn data(&self, path: &str) -> PathBuf {
        self.at("home/.local/share/topicmill").join(path)
    }

    fn command(&self, line: &(impl CommandLine + ?Sized)) -> Command {
        let mut command = Command::new(self.at("prefix/bin/topicmill"));
        command
            .args(line.arguments())
            .env_clear()
            .env("HOME", self.at("home"))
            .env("PATH", self.at("path"))
            .current_dir(self.at("here"));
        command
    }

    fn run(&self, line: &(impl CommandLine + ?Sized)) -> RunOutput {
        finished(self.command(line).output().unwrap())
    }

    /// Returns `doctor`'s rows for the library and the model: state and detail.
    fn doctor(&self) -> Vec<(String, String)> {
        let ran = self.run("doctor --source sample --format json");
        let rows: Vec<serde_json::Value> = serde_json::from_str(&ran.stdout).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        rows[..2]
            .iter()
            .map(|row| (text(&row["state"]), text(&row["detail"])))
            .collect()
    }

    /// Writes a fake Python whose pip runs this script on `$target`, the folder to install into.
    fn python(&self, does: &str) {
        let script = format!(
            "#!/bin/sh\nPATH=/usr/bin:/bin\ncase \"$*\" in *--version) exit 0;; esac\n\
             while [ \"$1\" != --target ]; do shift; done\ntarget=$2\n{does}\n"
        );
        let python = self.at("path/python3");
        std::fs::write(&python, script).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns the hidden files in the data folder and among its models, which are partial downloads.
    fn partial_files(&self) -> Vec<String> {
        let entries = ["", "models"].map(|folder| std::fs::read_dir(self.data(folder)));
        let names = entries.into_iter().flatten().flatten().flatten();
        let names = names.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with('.')).collect()
    }
}

/// Returns the `onnxruntime` folder from the wheel that the tests use.
fn wheel() -> PathBuf {
    library().ancestors().nth(2).unwrap().to_owned()
}

fn unpacking_script() -> String {
    format!("cp -r '{}' \"$target/onnxruntime\"", wheel().display())
}

fn link(to: &Path, at: PathBuf) {
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    symlink(to, at).unwrap();
}

#[test]
fn an_installed_program_finds_the_library_and_the_model_under_its_prefix() {
    let installed = Installed::new();
    for (state, detail) in installed.doctor() {
        assert_eq!(state, "wrong");
        assert!(detail.contains("topicmill setup"), "{detail}");
        assert!(!detail.contains("Dlopen"), "{detail}");
    }
    let site = "prefix/lib/python3.12/site-packages/onnxruntime";
    link(&wheel(), installed.at(site));
    let share = format!("prefix/share/topicmill/{MODEL}");
    link(&repository(MODEL), installed.at(&share));
    let found = installed.doctor();
    for ((state, detail), place) in found.iter().zip([site, &share]) {
        assert_eq!(state, "ok", "{detail}");
        let place = installed.at(place);
        assert!(detail.starts_with(place.to_str().unwrap()), "{detail}");
    }
    // The installed model is used in any working directory, except one that contains a folder with that name.
    std::fs::create_dir_all(installed.at(&format!("here/{MODEL}"))).unwrap();
    assert_eq!(installed.doctor()[1].0, "wrong");
}

#[test]
fn setup_downloads_missing_files_once() {
    let installed = Installed::new();
    installed.python(&unpacking_script());
    let model = repository(MODEL);
    let model = model.to_str().unwrap();
    let done = |ran: &RunOutput| -> Vec<String> {
        ran.expect_code(0);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&ran.stdout).unwrap();
        let done = rows
            .iter()
            .map(|row| row["done"].as_str().unwrap().to_owned());
        done.collect()
    };
    let setup = ["setup", "--model", model, "--format", "json"];
    assert_eq!(done(&installed.run(&setup)), ["fetched", "copied"]);
    assert_eq!(
        done(&installed.run(&setup)),
        ["already present", "already present"]
    );
    let again = ["setup", "--format", "json"];
    assert_eq!(
        done(&installed.run(&again)),
        ["already present", "already present"]
    );
    let forced = ["setup", "--force", "--model", model, "--format", "json"];
    assert_eq!(done(&installed.run(&forced)), ["fetched", "copied"]);
    for ((state, detail), place) in installed.doctor().iter().zip(["native", MODEL]) {
        assert_eq!(state, "ok", "{detail}");
        assert!(
            detail.starts_with(installed.data(place).to_str().unwrap()),
            "{detail}"
        );
    }
    assert_eq!(installed.partial_files(), Vec::<String>::new());
    // The library that `setup` installed works.
    std::fs::write(
        installed.at("here/in.ndjson"),
        "{\"text\": \"a match of football\"}\n",
    )
    .unwrap();
    let scored = installed.run("score in.ndjson out.ndjson");
    scored.expect_code(0);
}

#[test]
fn a_failed_setup_download_is_reported_and_leaves_no_file() {
    let installed = Installed::new();
    installed
        .run("setup")
        .expect_exit(5, "neither `uv` nor a Python with pip");
    installed.python("echo 'no route to the index' >&2; exit 1");
    installed
        .run("setup")
        .expect_exit(75, "no route to the index");
    installed.python("mkdir \"$target/something\"");
    installed.run("setup").expect_exit(5, "has no library");
    assert!(!installed.data("native").exists());
    installed.python(&unpacking_script());
    installed.run("setup").expect_exit(5, "setup --model");
    // The library is installed anyway; a folder that is not a model is not copied.
    assert!(installed.data("native").exists());
    let ran = installed.run(&["setup", "--model", installed.at("here").to_str().unwrap()]);
    ran.expect_code(5);
    assert!(!installed.data(MODEL).exists());
    assert_eq!(installed.partial_files(), Vec::<String>::new());
    let mut homeless = installed.command("setup");
    let ran = finished(homeless.env_remove("HOME").output().unwrap());
    ran.expect_code(2);
}
