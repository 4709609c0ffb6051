//! The program under test, with its own working directory and environment.

use std::path::Path;
use std::process::{Child, Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A folder to run the program in.
pub struct Program {
    pub folder: TempDir,
    /// The URL that each command gets with `--database`, if any.
    database: Option<String>,
    /// The path of the model folder in the repository.
    model: &'static str,
}

/// The result of a run of the program.
pub struct RunOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl RunOutput {
    /// Asserts that stderr contains these words.
    #[track_caller]
    pub fn expect_stderr(&self, words: &str) {
        assert!(self.stderr.contains(words), "{words}: {}", self.stderr);
    }

    #[track_caller]
    pub fn expect_stderr_all(&self, words: &[&str]) {
        for words in words {
            self.expect_stderr(words);
        }
    }

    #[track_caller]
    pub fn expect_exit(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{}", self.stderr);
        self.expect_stderr(words);
    }
}

impl Program {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            database: None,
            model: "tests/it/fixtures/models/tiny-bart-mnli",
        }
    }

    /// Uses the default model, for tests of its labels or vectors.
    pub fn with_default_model(self) -> Self {
        Self {
            model: "models/minilm-reddit-topics",
            ..self
        }
    }

    pub fn with_database(url: &str) -> Self {
        Self {
            database: Some(url.to_owned()),
            ..Self::new()
        }
    }

    /// Returns a command that uses the repository's model and library, and none of the settings in this environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_topicmill"));
        command.current_dir(self.folder.path());
        if let Some(url) = &self.database {
            command.args(["--database", url]);
        }
        command.args(args);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOPICMILL")) {
            command.env_remove(name);
        }
        command
            .env_remove("DATABASE_URL")
            // The test server's only user is a superuser.
            .env("TOPICMILL__DATABASE__ALLOW_SUPERUSER", "true")
            .env("XDG_CACHE_HOME", self.folder.path().join(".cache"))
            .env("TOPICMILL__CLASSIFY__MODEL", root.join(self.model))
            .env("ORT_DYLIB_PATH", super::engine::library());
        command
    }

    pub fn run(&self, args: &[&str]) -> RunOutput {
        finished(self.command(args).output().unwrap())
    }

    /// Runs with settings, each identified by a name such as `classify.workers`.
    pub fn run_with(&self, settings: &[(&str, &str)], args: &[&str]) -> RunOutput {
        let mut command = self.command(args);
        for (key, value) in settings {
            let name = key.to_uppercase().replace('.', "__");
            command.env(format!("TOPICMILL__{name}"), value);
        }
        finished(command.output().unwrap())
    }

    /// Runs with a file size limit of zero, which simulates a full disk.
    pub fn run_on_full_disk(&self, args: &[&str]) -> RunOutput {
        run_limited(&self.command(args), "ulimit -f 0")
    }

    /// Runs and expects success.
    pub fn ok(&self, args: &[&str]) -> RunOutput {
        let ran = self.run(args);
        assert_eq!(
            ran.code, 0,
            "topicmill {args:?}\n{}{}",
            ran.stdout, ran.stderr
        );
        ran
    }

    /// Returns the JSON output of a command.
    pub fn json(&self, args: &[&str]) -> Value {
        let ran = self.ok(&[args, &["--format", "json"]].concat());
        serde_json::from_str(&ran.stdout).unwrap()
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    pub fn read_json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Returns the counts of a successful run.
    pub fn run_counts(&self, args: &[&str]) -> Value {
        self.ok(&[args, &["--run-json", "run.json"]].concat());
        self.read_json("run.json")["counts"].take()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

/// Sends a signal to a running program.
pub fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([name, &pid]).status();
    assert!(sent.unwrap().success(), "{name}");
}

/// Splits a command line at spaces.
pub fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

/// Returns a command that runs `words`, followed by the program and arguments of `command`.
pub fn wrapped(words: &[&str], command: &Command) -> Command {
    let mut all = Command::new(words[0]);
    all.args(&words[1..])
        .arg(command.get_program())
        .args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        all.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => all.env(name, value),
            None => all.env_remove(name),
        };
    }
    all
}

/// Runs a command under a limit such as `ulimit -f 100`, in KiB, which simulates a full disk.
pub fn run_limited(command: &Command, limit: &str) -> RunOutput {
    let shell = format!("trap '' XFSZ; {limit} && exec \"$@\"");
    let mut shell = wrapped(&["bash", "-c", &shell, "bash"], command);
    finished(shell.output().unwrap())
}

pub fn finished(output: Output) -> RunOutput {
    use std::os::unix::process::ExitStatusExt;
    let code = output
        .status
        .code()
        .unwrap_or_else(|| -output.status.signal().unwrap_or(0));
    RunOutput {
        code,
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Points a command at a fake Reddit, with test credentials.
pub fn on_reddit<'c>(command: &'c mut Command, url: &str) -> &'c mut Command {
    command
        .env("TOPICMILL__REDDIT__AUTH_URL", url)
        .env("TOPICMILL__REDDIT__API_URL", url)
        .env("TOPICMILL__REDDIT__CLIENT_ID", "an-id")
        .env("TOPICMILL__REDDIT__CLIENT_SECRET", "a-secret")
        .env(
            "TOPICMILL__REDDIT__USER_AGENT",
            "linux:topicmill:v1 (by /u/someone)",
        )
}
