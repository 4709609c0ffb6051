//! The program under test, with its own working directory and environment.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use topicmill_store::{Access, Store};

use super::builders::{LABELS, lines, pipeline};
use super::postgres::{TestDatabase, databases, run_sql};

/// The program with a folder to run it in and, unless a command names another, a database.
pub struct Program {
    pub folder: TempDir,
    /// The URL that each command gets with `--database`, if any.
    url: Option<String>,
    /// Keeps the files of the database.
    _database: Option<TestDatabase>,
    /// The path of the model folder in the repository.
    model: &'static str,
}

/// A command line: a string that is split as by a shell, or a list of arguments.
pub trait CommandLine {
    fn arguments(&self) -> Vec<String>;
}

impl CommandLine for str {
    fn arguments(&self) -> Vec<String> {
        shlex::split(self).expect("each quote is closed")
    }
}

impl CommandLine for String {
    fn arguments(&self) -> Vec<String> {
        self.as_str().arguments()
    }
}

impl<S: AsRef<str>> CommandLine for [S] {
    fn arguments(&self) -> Vec<String> {
        self.iter().map(|word| word.as_ref().to_owned()).collect()
    }
}

impl<S: AsRef<str>, const N: usize> CommandLine for [S; N] {
    fn arguments(&self) -> Vec<String> {
        self.as_slice().arguments()
    }
}

impl<S: AsRef<str>> CommandLine for Vec<S> {
    fn arguments(&self) -> Vec<String> {
        self.as_slice().arguments()
    }
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
        assert!(!words.is_empty(), "every text contains no words");
        assert!(self.stderr.contains(words), "{words}: {}", self.stderr);
    }

    #[track_caller]
    pub fn expect_stderr_all(&self, words: &[&str]) {
        for words in words {
            self.expect_stderr(words);
        }
    }

    #[track_caller]
    pub fn expect_code(&self, code: i32) {
        assert_eq!(self.code, code, "{}", self.stderr);
    }

    /// Returns stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|_| panic!("{}{}", self.stdout, self.stderr))
    }

    /// Asserts the exit code, and that stderr contains these words.
    #[track_caller]
    pub fn expect_exit(&self, code: i32, words: &str) {
        self.expect_code(code);
        self.expect_stderr(words);
    }
}

impl Program {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            url: None,
            _database: None,
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

    /// Runs every command on the database at this URL.
    pub fn with_database(url: &str) -> Self {
        Self {
            url: Some(url.to_owned()),
            ..Self::new()
        }
    }

    /// Runs every command on this database.
    pub fn on(database: TestDatabase) -> Self {
        Self {
            url: Some(database.url.clone()),
            _database: Some(database),
            ..Self::new()
        }
    }

    /// Returns one program per backend, each with an empty database.
    pub fn on_each_database() -> impl Iterator<Item = Self> {
        databases().into_iter().map(Self::on)
    }

    /// Imports `n` posts with different texts about [`LABELS`] in turn.
    pub fn imported(self, n: usize) -> Self {
        self.import(&lines(n, n));
        self
    }

    /// Imports posts as [`Self::imported`] does, and labels them with [`LABELS`], from `first.toml`.
    pub fn labelled(self, n: usize) -> Self {
        let program = self.imported(n);
        program.pipeline("first", "", &LABELS);
        program.ok("classify --pipeline first.toml");
        program
    }

    /// Labels posts as [`Self::labelled`] does, and changes the labels: post `i` has the label `LABELS[i % 3]`, with a
    /// score of 0.75 and a margin that grows with `i`.
    pub fn labelled_in_turn(self, n: usize) -> Self {
        let program = self.labelled(n);
        program.label_in_turn();
        program
    }

    /// Changes the stored labels, as [`Self::labelled_in_turn`] does.
    pub fn label_in_turn(&self) {
        self.execute(
            "UPDATE classifications SET score = 0.75, abstained = FALSE, \
                margin = 0.001 * CAST(substr(fullname, 5) AS INTEGER), \
                label = CASE CAST(substr(fullname, 5) AS INTEGER) % 3 \
                   WHEN 0 THEN 'gaming' WHEN 1 THEN 'food' ELSE 'music' END",
        );
    }

    /// Returns the URL of the database.
    pub fn url(&self) -> String {
        let own = || format!("sqlite:{}", self.path("topicmill.db").display());
        self.url.clone().unwrap_or_else(own)
    }

    /// Opens the database for a test that passes its own times.
    pub async fn store(&self) -> Store {
        let store = Store::open(&self.url(), Access::Create).await.unwrap();
        store.with_caller_time()
    }

    /// Runs SQL on the database without the program.
    pub fn execute(&self, sql: &str) {
        let url = self.url();
        let work = || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(run_sql(&url, sql));
        };
        // A thread of its own, because a test's runtime cannot start another.
        std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    }

    /// Returns the rows of a query, each an object with the names of the columns.
    #[track_caller]
    pub fn query(&self, sql: &str) -> Vec<Value> {
        match self.json(&["sql", sql]) {
            Value::Array(rows) => rows,
            other => panic!("not a list: {other}"),
        }
    }

    /// Returns the rows of a query, each a list of values.
    #[track_caller]
    pub fn rows(&self, sql: &str) -> Value {
        let values =
            |row: &Value| -> Value { row.as_object().unwrap().values().cloned().collect() };
        self.query(sql).iter().map(values).collect()
    }

    /// Returns the values that a query with one column finds.
    #[track_caller]
    pub fn column(&self, sql: &str) -> Vec<Value> {
        let value = |row: &Value| -> Value {
            let mut values = row.as_object().unwrap().values().cloned();
            let value = values.next().expect("a row has a column");
            assert!(values.next().is_none(), "several columns: {row}");
            value
        };
        self.query(sql).iter().map(value).collect()
    }

    /// Returns the one value that a query finds.
    #[track_caller]
    pub fn scalar(&self, sql: &str) -> Value {
        let mut values = self.column(sql);
        assert_eq!(values.len(), 1, "not one value: {values:?}");
        values.remove(0)
    }

    /// Returns the number of rows of a table, which a condition may follow.
    #[track_caller]
    pub fn count(&self, table: &str) -> u64 {
        let count = self.scalar(&format!("SELECT COUNT(*) AS n FROM {table}"));
        count.as_u64().unwrap()
    }

    /// Returns the rows of `labeled_posts`.
    #[track_caller]
    pub fn labelled_posts(&self) -> Value {
        self.json("sql 'SELECT * FROM labeled_posts ORDER BY fullname'")
    }

    /// Writes `posts.ndjson` and imports it.
    #[track_caller]
    pub fn import(&self, posts: &str) -> RunOutput {
        self.write("posts.ndjson", posts);
        self.ok("import posts.ndjson")
    }

    /// Purges posts and comments by their ids, one a line.
    #[track_caller]
    pub fn purge(&self, ids: &str) -> RunOutput {
        self.write("ids.txt", ids);
        self.ok("purge --ids ids.txt")
    }

    /// Writes `gold.csv` and imports its gold labels.
    pub fn import_gold(&self, text: &str, flags: &str) -> RunOutput {
        self.write("gold.csv", text);
        self.run(&format!("labels gold import gold.csv {flags}"))
    }

    /// Imports gold labels, expects success, and returns the counts.
    #[track_caller]
    pub fn imported_gold(&self, text: &str, flags: &str) -> Value {
        let ran = self.import_gold(text, &format!("{flags} --format json"));
        ran.expect_code(0);
        ran.json()
    }

    /// Writes a pipeline file with a topic for each slug and label; returns the file's name.
    pub fn pipeline(&self, name: &str, settings: &str, labels: &[(&str, &str)]) -> String {
        let file = format!("{name}.toml");
        self.write(&file, pipeline(name, settings, labels));
        file
    }

    /// Runs `classify` with these flags and makes its labels current; returns the run's counts.
    #[track_caller]
    pub fn classify(&self, flags: &(impl CommandLine + ?Sized)) -> Value {
        let words = ["classify", "--make-current"].map(str::to_owned);
        self.run_counts(&[&words[..], &flags.arguments()].concat())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the sorted names of the files and folders in the program's folder.
    pub fn files(&self) -> Vec<String> {
        let entries = self.folder.path().read_dir().unwrap().map(Result::unwrap);
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Returns a command that uses the repository's model and library, and none of the settings in this environment.
    pub fn command(&self, line: &(impl CommandLine + ?Sized)) -> Command {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_topicmill"));
        command.current_dir(self.folder.path());
        if let Some(url) = &self.url {
            command.args(["--database", url]);
        }
        command.args(line.arguments());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TOPICMILL")) {
            command.env_remove(name);
        }
        command
            .env_remove("DATABASE_URL")
            // The test server's only user is a superuser.
            .env("TOPICMILL__DATABASE__ALLOW_SUPERUSER", "true")
            // No test leaves this machine: nothing listens on this port.
            .env("TOPICMILL__ARCTIC_SHIFT__API_URL", "http://127.0.0.1:9")
            .env("XDG_CACHE_HOME", self.folder.path().join(".cache"))
            .env("TOPICMILL__CLASSIFY__MODEL", root.join(self.model))
            .env("ORT_DYLIB_PATH", super::engine::library());
        command
    }

    pub fn run(&self, line: &(impl CommandLine + ?Sized)) -> RunOutput {
        finished(self.command(line).output().unwrap())
    }

    /// Starts a command, whose output is kept for [`finished`].
    pub fn spawn(&self, line: &(impl CommandLine + ?Sized)) -> Child {
        let mut command = self.command(line);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Runs with settings, each identified by a name such as `classify.workers`.
    pub fn run_with(
        &self,
        settings: &[(&str, &str)],
        line: &(impl CommandLine + ?Sized),
    ) -> RunOutput {
        let mut command = self.command(line);
        for (key, value) in settings {
            let name = key.to_uppercase().replace('.', "__");
            command.env(format!("TOPICMILL__{name}"), value);
        }
        finished(command.output().unwrap())
    }

    /// Runs and expects success.
    #[track_caller]
    pub fn ok(&self, line: &(impl CommandLine + ?Sized)) -> RunOutput {
        let ran = self.run(line);
        let (out, words) = (&ran.stdout, line.arguments());
        assert_eq!(ran.code, 0, "topicmill {words:?}\n{out}{}", ran.stderr);
        ran
    }

    /// Returns the JSON output of a command.
    #[track_caller]
    pub fn json(&self, line: &(impl CommandLine + ?Sized)) -> Value {
        let format = ["--format", "json"].map(str::to_owned);
        self.ok(&[line.arguments(), format.into()].concat()).json()
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn read_json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Returns the rows of an NDJSON file.
    pub fn read_lines(&self, name: &str) -> Vec<Value> {
        let text = self.read(name);
        let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
        rows.collect()
    }

    /// Returns the counts of a successful run.
    #[track_caller]
    pub fn run_counts(&self, line: &(impl CommandLine + ?Sized)) -> Value {
        let record = ["--run-json", "run.json"].map(str::to_owned);
        self.ok(&[line.arguments(), record.into()].concat());
        self.read_json("run.json")["counts"].take()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// Creates a named pipe.
    pub fn pipe(&self, name: &str) {
        let made = Command::new("mkfifo").arg(self.path(name)).status();
        assert!(made.unwrap().success(), "{name}");
    }
}

/// Returns the first row of a list in which a column has this value.
#[track_caller]
pub fn find_row<'r>(rows: &'r Value, column: &str, value: &str) -> &'r Value {
    let mut all = rows.as_array().unwrap().iter();
    let row = all.find(|row| row[column] == value);
    row.unwrap_or_else(|| panic!("no {column} is {value}: {rows}"))
}

/// Sends a signal to a running program.
pub fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([name, &pid]).status();
    assert!(sent.unwrap().success(), "{name}");
}

/// Starts a server; returns the address that it logs after these words.
pub fn start_server(mut command: Command, words: &str) -> (Child, SocketAddr) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, rest) = line.split_once(words)?;
        rest.split('/').next()?.parse().ok()
    });
    // Keep reading, so that its log does not fill the pipe.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (child, address.expect("the server logs its address"))
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

/// Runs a command after a shell's command, such as `ulimit -f 100`, in KiB, which simulates a full disk.
pub fn run_limited(command: &Command, limit: &str) -> RunOutput {
    let shell = format!("{limit} && exec \"$@\"");
    let command = &mut wrapped(&["bash", "-c", &shell, "bash"], command);
    finished(command.output().unwrap())
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

/// Points a command at a fake archive, and lifts the limit on its requests.
pub fn on_archive<'c>(command: &'c mut Command, url: &str) -> &'c mut Command {
    command
        .env("TOPICMILL__ARCTIC_SHIFT__API_URL", url)
        .env("TOPICMILL__ARCTIC_SHIFT__REQUESTS_PER_MINUTE", "60000")
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
