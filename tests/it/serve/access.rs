//! Tests access control, invalid requests, slow clients, and a missing or incompatible database.

use std::fs::{Permissions, set_permissions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use sqlx::{Connection, Executor, SqliteConnection};

use super::{Served, labelled, posts};
use crate::support::postgres::postgres;
use crate::support::program::{Program, wrapped};
use crate::support::proxy::Proxy;

const TOKEN: &str = "a-token-of-the-test-0123";

#[test]
fn requests_must_be_local_and_name_a_local_host() {
    let program = Program::new();
    program.ok("db create");
    let served = Served::start(&program);
    let port = served.address.port();
    let under = |host: &str| {
        served
            .raw(&format!(
                "GET /posts HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            ))
            .status
    };
    for here in ["localhost", "127.0.0.1", "[::1]"] {
        assert_eq!(under(&format!("{here}:{port}")), 200, "{here}");
    }
    for elsewhere in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "0.0.0.0",
    ] {
        assert_eq!(under(&format!("{elsewhere}:{port}")), 403, "{elsewhere}");
    }
    assert_eq!(served.raw("GET /posts HTTP/1.0\r\n\r\n").status, 403);
    // A proxy on this machine makes other machines' requests local.
    for proxied in [
        "X-Forwarded-For: 192.0.2.1",
        "x-real-ip: ::1",
        "Forwarded: for=192.0.2.1",
    ] {
        for path in ["/posts", "/healthz", "/login"] {
            let refused = served.ask("GET", path, &format!("{proxied}\r\n"));
            assert_eq!(refused.status, 403, "{proxied}");
            assert!(
                refused.body.contains("set `serve.token`"),
                "{}",
                refused.body
            );
        }
    }
}

#[test]
fn pages_are_not_cached_framed_or_scripted_from_elsewhere() {
    let program = Program::new();
    program.ok("db create");
    let answer = Served::start(&program).get("/posts");
    for header in [
        "content-security-policy: default-src 'self'",
        "x-content-type-options: nosniff",
        "cache-control: no-store",
        "frame-ancestors 'none'",
    ] {
        assert!(answer.head.contains(header), "{}", answer.head);
    }
    assert!(!answer.head.contains("unsafe"), "{}", answer.head);
}

#[test]
fn cross_site_requests_can_open_pages_but_not_the_review_page() {
    let program = labelled(Program::new(), &posts(4));
    let served = Served::with(&program, &["--review"]);
    let from = |site: &str, path: &str| {
        let header = format!("Sec-Fetch-Site: {site}\r\n");
        served.ask("GET", path, &header).status
    };
    for site in ["cross-site", "same-site"] {
        for path in ["/", "/posts", "/posts/t3_k00001", "/style.css"] {
            assert_eq!(from(site, path), 200, "{site} {path}");
        }
        assert_eq!(from(site, "/review"), 403, "{site}");
    }
    for site in ["same-origin", "none"] {
        assert_eq!(from(site, "/review"), 200, "{site}");
    }
}

#[test]
fn other_machines_are_served_only_with_a_private_token_file() {
    let program = Program::new();
    program.ok("db create");
    let at = ["serve", "--listen", "0.0.0.0:0"];
    program.run(&at).expect_exit(2, "--token-file");
    let short = program.write("short.txt", "hush\n");
    let everyone = Permissions::from_mode(0o644);
    set_permissions(&short, everyone).unwrap();
    let short = program.run(&[&at[..], &["--token-file", &short]].concat());
    short.expect_exit(2, "every user of this machine can read the secret");
    assert!(!short.stderr.contains("hush"), "{}", short.stderr);
}

#[test]
fn a_request_needs_the_token_or_the_cookie_of_a_login() {
    let program = Program::new();
    program.ok("db create");
    let file = program.write("token.txt", format!("{TOKEN}\n"));
    let served = Served::with(&program, &["--token-file", &file]);
    let refused = served.get("/posts");
    assert_eq!(refused.status, 401);
    assert!(refused.body.contains("name=\"token\""), "{}", refused.body);
    assert_eq!(served.get("/nothing").status, 401);
    assert_eq!(served.get("/healthz").status, 200);
    assert_eq!(served.get("/style.css").status, 200);
    let with = |header: &str| served.ask("GET", "/posts", &format!("{header}\r\n")).status;
    assert_eq!(with(&format!("Authorization: Bearer {TOKEN}")), 200);
    let proxied = format!("X-Forwarded-For: 192.0.2.1\r\nAuthorization: Bearer {TOKEN}");
    assert_eq!(with(&proxied), 200);
    assert_eq!(with(&format!("Authorization: Bearer {TOKEN}x")), 401);
    assert_eq!(with(&format!("Cookie: topicmill_token={TOKEN}")), 401);
    // The form takes the token once; then the cookie suffices.
    let login = |token: &str, header: &str| served.send("/login", &[("token", token)], header);
    let let_in = login(TOKEN, "");
    assert_eq!(let_in.status, 303, "{}", let_in.body);
    let cookie = let_in.head.split("set-cookie: ").nth(1).unwrap();
    assert!(cookie.contains("httponly; samesite=strict"), "{cookie}");
    assert!(!cookie.contains(TOKEN), "{cookie}");
    assert!(!cookie.contains("path="), "{cookie}");
    assert_eq!(
        with(&format!("Cookie: {}", cookie.split(';').next().unwrap())),
        200
    );
    assert_eq!(login("wrong", "").status, 401);
    for foreign in [
        "Origin: http://evil.example\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
    ] {
        assert_eq!(login(TOKEN, foreign).status, 403);
    }
    assert_eq!(login(&"x".repeat(30_000), "").status, 413);
}

#[test]
fn a_shared_review_page_asks_for_the_annotators_name() {
    let program = labelled(Program::new(), &posts(4));
    let file = program.write("token.txt", TOKEN);
    let served = Served::with(&program, &["--token-file", &file, "--review"]);
    let page = |path: &str| {
        let header = format!("Authorization: Bearer {TOKEN}\r\n");
        served.ask("GET", path, &header).body
    };
    let (nameless, named) = (page("/review"), page("/review?as=ada"));
    assert!(nameless.contains("name=\"as\"") && !nameless.contains("name=\"label\""));
    assert!(named.contains("name=\"who\" value=\"ada\"") && named.contains("name=\"label\""));
}

#[test]
fn unknown_paths_and_methods_are_reported() {
    let program = labelled(Program::new(), &posts(4));
    let served = Served::start(&program);
    for path in [
        "/nothing",
        "/posts/",
        "/..%2f..%2fetc%2fpasswd",
        "/sql",
        "/style.css/x",
    ] {
        assert_eq!(served.get(path).status, 404, "{path}");
    }
    for (method, path) in [
        ("POST", "/posts"),
        ("DELETE", "/posts/t3_k00001"),
        ("TRACE", "/"),
    ] {
        let answer = served.ask(method, path, "");
        assert_eq!(answer.status, 405, "{method} {path}");
        assert!(answer.head.contains("allow: get"), "{}", answer.head);
        assert!(!answer.body.is_empty());
    }
    for path in ["/", "/posts", "/posts/t3_k00001", "/healthz", "/style.css"] {
        let answer = served.ask("HEAD", path, "");
        assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{path}");
    }
    for wrong in [
        "outcome=nope",
        "since=yesterday",
        "after=there",
        "sort=score&after=x:t3_a",
    ] {
        assert_eq!(
            served.get(&format!("/posts?{wrong}")).status,
            400,
            "{wrong}"
        );
    }
    assert_eq!(served.get("/posts?q=%FF%FE").status, 200);
    assert!(served.raw("nonsense\r\n\r\n").status >= 400);
    let long = served.get(&format!("/posts?q={}", "a".repeat(1_000_000)));
    assert!([400, 414, 431].contains(&long.status), "{}", long.status);
}

#[test]
fn slow_clients_do_not_delay_others() {
    let program = labelled(Program::new(), &posts(4));
    let served = Served::start(&program);
    // Some send no complete head, and others do not read their response.
    let slow: Vec<TcpStream> = (0..100)
        .map(|n| {
            let mut stream = TcpStream::connect(served.address).unwrap();
            let end = ["", "alhost\r\n\r\n"][n % 2];
            write!(stream, "GET /posts HTTP/1.1\r\nHost: loc{end}").unwrap();
            stream
        })
        .collect();
    assert!(served.page("/posts").contains("A new boss fight"));
    drop(slow);
}

#[test]
fn a_signal_stops_the_server_despite_idle_clients() {
    let program = Program::new();
    program.ok("db create");
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut served = Served::start(&program);
        served.page("/");
        let mut idle = TcpStream::connect(served.address).unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        crate::support::program::signal(&served.child, signal);
        let ended = served.child.wait().unwrap();
        assert_eq!(ended.code(), Some(code), "{signal}");
    }
}

#[test]
fn a_missing_or_incompatible_database_is_reported() {
    let program = labelled(Program::new(), &posts(4));
    let served = Served::start(&program);
    assert_eq!(served.get("/healthz").status, 200);
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (9999, 'later', TRUE, '', 0)";
    program.execute(later);
    let health = served.get("/healthz");
    assert_eq!(health.status, 503, "{}", health.body);
    assert!(!health.body.contains("topicmill.db"), "{}", health.body);
    program.run("serve --listen 127.0.0.1:0").expect_code(4);
    program.execute("DELETE FROM _sqlx_migrations WHERE version = 9999");
    assert_eq!(served.get("/healthz").status, 200);
    std::fs::remove_file(program.path("topicmill.db")).unwrap();
    for page in ["/healthz", "/", "/posts"] {
        assert_eq!(served.get(page).status, 503, "{page}");
    }
    program.run("serve").expect_code(4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_check_does_not_wait_for_a_postgres_that_is_silent_or_gone() {
    let Some(database) = postgres() else { return };
    let program = Program::on(database);
    program.ok("db create");
    let proxy = Proxy::in_front_of(&program.url()).await;
    let through = Program::with_database(&proxy.url(&program.url()));
    let served = Served::start(&through);
    assert_eq!(served.get("/healthz").status, 200);
    // The response to this statement never comes; `get` waits for a minute.
    proxy.gate.lose("_sqlx_migrations");
    assert_eq!(served.get("/healthz").status, 503);
    assert!(proxy.gate.has_lost());
    proxy.cut();
    assert_eq!(served.get("/healthz").status, 503);
    proxy.restore();
    assert_eq!(served.get("/healthz").status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_who_may_not_write_sees_what_others_change() {
    let program = Program::new();
    program.import(&posts(4));
    // A new database is private until its owner shares it.
    let database = program.path("topicmill.db");
    let mode = database.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    set_permissions(&database, Permissions::from_mode(0o644)).unwrap();
    // Root may write anywhere, so root reads as another user.
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let folder = if is_root { 0o755 } else { 0o555 };
    let limited = |line: &str| {
        let mut command = program.command(line);
        command.env("TOPICMILL__CLASSIFY__MODEL", "/missing");
        let user = ["setpriv", "--reuid", "65534", "--clear-groups", "--"];
        set_permissions(program.folder.path(), Permissions::from_mode(folder)).unwrap();
        if is_root {
            wrapped(&user, &command)
        } else {
            command
        }
    };
    let served = Served::of(limited("serve --listen 127.0.0.1:0"));
    assert_eq!(served.get("/posts/t3_k00001").status, 200);
    set_permissions(program.folder.path(), Permissions::from_mode(0o755)).unwrap();
    // A writer that keeps its log open, and one that has finished.
    let mut held = SqliteConnection::connect(&program.url()).await.unwrap();
    held.execute("SELECT COUNT(*) FROM posts").await.unwrap();
    program.purge("t3_k00001");
    assert_eq!(served.get("/posts/t3_k00001").status, 404);
    held.close().await.unwrap();
    program.purge("t3_k00002");
    assert_eq!(served.get("/posts/t3_k00002").status, 404);
    assert_eq!(served.get("/posts/t3_k00000").status, 200);
}
