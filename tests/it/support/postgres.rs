//! Real databases for tests: a SQLite file, and a PostgreSQL database for each test.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use tempfile::TempDir;
use topicmill_store::{Access, Store};

use super::engine::repository;
use super::notice::not_tested;

/// The database of one test. A SQLite file is removed with its folder, and a PostgreSQL database is removed with the
/// temporary server.
pub struct TestDatabase {
    pub url: String,
    _folder: TempDir,
}

/// Returns one empty database per backend. Without PostgreSQL, panics on CI, and prints a notice elsewhere.
pub fn databases() -> Vec<TestDatabase> {
    let mut all = vec![sqlite()];
    all.extend(postgres());
    all
}

pub fn sqlite() -> TestDatabase {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("test.db").display());
    TestDatabase {
        url,
        _folder: folder,
    }
}

/// Returns a new database on the server that `TEST_DATABASE_URL` names; it is created when a store opens it. Without
/// the variable, panics on CI, and prints a notice and returns `None` elsewhere.
pub fn postgres() -> Option<TestDatabase> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let Ok(server) = std::env::var("TEST_DATABASE_URL") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "TEST_DATABASE_URL is not set: run `make test`"
        );
        not_tested("on PostgreSQL: TEST_DATABASE_URL is not set; `make test` sets it");
        return None;
    };
    let (base, _) = server.rsplit_once('/').expect("a URL ends with /database");
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let url = format!("{base}/test_{}_{number}", std::process::id());
    Some(TestDatabase {
        url,
        _folder: tempfile::tempdir().unwrap(),
    })
}

/// A PostgreSQL server for one test, which it may restart.
pub struct OwnServer {
    script: Child,
    url: String,
    control: String,
}

impl OwnServer {
    /// Starts a server, or returns `None` if the tests run without PostgreSQL.
    pub fn start() -> Option<Self> {
        postgres()?;
        let output = "echo $TEST_DATABASE_URL; echo $TEST_POSTGRES_CONTROL; exec sleep 900";
        let mut script = Command::new(repository("scripts/with-postgres"))
            .args(["sh", "-c", output])
            .env_remove("TEST_DATABASE_URL")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
        let mut line = || lines.next().expect("the server starts").unwrap();
        let (url, control) = (line(), line());
        Some(Self {
            script,
            url,
            control,
        })
    }

    /// Returns a new database on this server; it is created when a store opens it.
    pub fn database(&self, name: &str) -> TestDatabase {
        let (base, _) = self.url.rsplit_once('/').unwrap();
        TestDatabase {
            url: format!("{base}/{name}"),
            _folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Restarts the server in `fast` mode, or in `immediate` mode, which simulates a crash.
    pub fn restart(&self, mode: &str) {
        let mut restart = Command::new(&self.control);
        let ended = restart.args(["restart", mode]).status().unwrap();
        assert!(ended.success(), "restart the server: {ended}");
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // The script also stops the server.
        let pid = self.script.id().to_string();
        drop(Command::new("kill").args(["-TERM", &pid]).status());
        drop(self.script.wait());
    }
}

impl Drop for TestDatabase {
    /// Names the database of a failed test.
    #[expect(clippy::print_stderr, reason = "shown with the failed test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test failed on {}", self.url);
        }
    }
}

impl TestDatabase {
    /// Opens the store for a test that passes its own times.
    pub async fn open(&self) -> Store {
        self.open_on_server_time().await.with_caller_time()
    }

    /// Opens the store as the program does, with the database server's clock.
    pub async fn open_on_server_time(&self) -> Store {
        Store::open(&self.url, Access::Create).await.unwrap()
    }

    /// Runs SQL without the store.
    pub async fn run(&self, sql: &str) {
        run_sql(&self.url, sql).await;
    }

    /// Returns the folder in which a PostgreSQL server keeps the files of this database.
    pub async fn server_folder(&self) -> PathBuf {
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        let folder: String = sqlx::query_scalar(
            "SELECT current_setting('data_directory') || '/base/' || oid FROM pg_database \
              WHERE datname = current_database()",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        folder.into()
    }
}

/// Runs SQL on the database at a URL, without the store.
pub async fn run_sql(url: &str, sql: &str) {
    macro_rules! run {
        ($connection:ty) => {{
            let mut connection = <$connection>::connect(url).await.unwrap();
            let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
            connection.execute(sql).await.unwrap();
            connection.close().await.unwrap();
        }};
    }
    if url.starts_with("sqlite:") {
        run!(SqliteConnection);
    } else {
        run!(PgConnection);
    }
}

/// Returns the number that a query finds in the PostgreSQL database at a URL, without the store.
pub async fn number(url: &str, sql: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let number = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection);
    let number = number.await.unwrap();
    connection.close().await.unwrap();
    number
}
