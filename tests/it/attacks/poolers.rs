//! `PgBouncer` in front of PostgreSQL, and servers with unusual defaults.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};

use crate::support::notice::not_tested;
use crate::support::postgres::{TestDatabase, postgres};
use crate::support::program::Program;
use crate::support::wait::until;

/// `PgBouncer` with Debian's defaults except `pool_mode`, in front of a database's server.
struct Bouncer {
    process: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Bouncer {
    async fn before(database: &TestDatabase, mode: &str) -> Option<Self> {
        let paths = std::env::var("PATH").unwrap() + ":/usr/sbin";
        let mut programs = std::env::split_paths(&paths).map(|folder| folder.join("pgbouncer"));
        let Some(program) = programs.find(|path| path.exists()) else {
            not_tested("with PgBouncer: it is not installed (Debian: apt install pgbouncer)");
            return None;
        };
        let mut url: reqwest::Url = database.url.parse().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let (user, password) = (url.username(), url.password().unwrap());
        std::fs::write(place("users"), format!("\"{user}\" \"{password}\"\n")).unwrap();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = plain\nauth_file = {}\npool_mode = {mode}\n",
            url.port().unwrap(),
            place("users").display()
        );
        std::fs::write(place("settings"), settings).unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(program);
        // `PgBouncer` does not run as root.
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        let process = command.arg("-q").arg(place("settings")).spawn().unwrap();
        let listens = async || TcpStream::connect(("127.0.0.1", port)).is_ok();
        until("PgBouncer listens", listens).await;
        url.set_port(Some(port)).unwrap();
        Some(Self {
            process,
            url: url.into(),
            _folder: folder,
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbouncer_works_in_session_mode_and_is_rejected_in_transaction_mode() {
    let Some(database) = postgres() else { return };
    Program::with_database(&database.url).ok("db create");
    database.run("CREATE SCHEMA apart").await;
    for mode in ["transaction", "statement"] {
        let Some(bouncer) = Bouncer::before(&database, mode).await else {
            return;
        };
        for _ in 0..3 {
            let refused = Program::with_database(&bouncer.url).run("status");
            refused.expect_exit(4, "pool_mode = session");
        }
    }
    let Some(bouncer) = Bouncer::before(&database, "session").await else {
        return;
    };
    let program = Program::with_database(&bouncer.url);
    program.ok("collect --source sample --topic gaming --limit 20");
    program.ok("purge --retention 48");
    program.ok("status");
    let hash = program.scalar("SELECT text_hash FROM things LIMIT 1");
    assert_eq!(hash.as_str().unwrap().len(), 32);
    let apart = Program::with_database(&format!("{}?options[search_path]=apart", bouncer.url));
    apart.ok("db create");
    assert_eq!(apart.count("posts"), 0);
    let wrong = Program::with_database(&format!("{}?options[no_such_setting]=1", bouncer.url));
    wrong.run("status").expect_exit(4, "no_such_setting");
}

#[tokio::test(flavor = "multi_thread")]
async fn database_defaults_change_no_stored_value() {
    let Some(database) = postgres() else { return };
    let program = Program::with_database(&database.url);
    program.ok("collect --source sample --topic gaming --limit 20");
    let sql = "SELECT fullname, text_hash, created_at, 1 / 3.0::float8, now() - now() FROM things ORDER BY 1";
    let before = program.rows(sql);
    let name = database.url.rsplit_once('/').unwrap().1;
    for set in [
        "bytea_output = escape",
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = iso_8601",
        "TimeZone = 'Asia/Tokyo'",
        "extra_float_digits = -10",
        "standard_conforming_strings = off",
        "default_transaction_isolation = serializable",
        "default_transaction_deferrable = on",
    ] {
        database
            .run(&format!("ALTER DATABASE {name} SET {set}"))
            .await;
    }
    assert_eq!(program.rows(sql), before);
    program
        .import(r#"{"id": "a1", "title": "A\\B", "subreddit": "food", "created_utc": 1700000000}"#);
    let title = program.scalar("SELECT title FROM posts WHERE fullname = 't3_a1'");
    assert_eq!(title, "A\\B");
}
