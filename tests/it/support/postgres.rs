//! Real databases for tests: a SQLite file and a PostgreSQL database of the test's own.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use topicmill::store::{Access, Store, Target};

/// A database URL; its database is gone when the folder is dropped, or with the throwaway server.
pub struct TestDatabase {
    pub url: String,
    _folder: TempDir,
}

/// One URL a backend, each of an empty database. Without PostgreSQL this fails in CI and says so elsewhere.
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

/// A database of its own on the server of `TEST_DATABASE_URL`.
pub fn postgres() -> Option<TestDatabase> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let Ok(server) = std::env::var("TEST_DATABASE_URL") else {
        assert!(
            std::env::var_os("CI").is_none(),
            "TEST_DATABASE_URL is not set: run `make test`"
        );
        // Not `eprintln`: the test harness keeps that to itself where a test passes.
        let told = "
*** NOT TESTED ON POSTGRESQL: TEST_DATABASE_URL is not set; `make test` sets it ***
";
        std::io::stderr()
            .write_all(told.as_bytes())
            .expect("stderr is open");
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

impl TestDatabase {
    pub async fn open(&self) -> Store {
        Store::open(&self.url, Access::Create).await.unwrap()
    }

    /// Runs a statement with a target and a fullname as its parameters, past the store.
    pub async fn execute(&self, sql: &'static str, target: Target, fullname: &str) {
        use sqlx::Connection;
        macro_rules! run {
            ($connection:ty) => {{
                let mut connection = <$connection>::connect(&self.url).await.unwrap();
                let query = sqlx::query(sql).bind(target.model).bind(target.label_set);
                query.bind(fullname).execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            }};
        }
        if self.url.starts_with("sqlite:") {
            run!(sqlx::SqliteConnection);
        } else {
            run!(sqlx::PgConnection);
        }
    }
}
