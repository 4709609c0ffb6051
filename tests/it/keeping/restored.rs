//! `db backup` and `db restore`: what comes back is what was there, completely or not at all.

use sqlx::Connection;

use topicmill::store::replacing::Locked;

use super::*;
use crate::support::postgres::{postgres, sqlite};

/// An empty database of the kind of another one.
fn another(of: &TestDatabase) -> TestDatabase {
    match kind(of) {
        "sqlite" => sqlite(),
        _ => postgres().unwrap(),
    }
}

#[tokio::test]
async fn a_backup_is_restored_with_all_that_the_database_held() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        let before = everything(url).await;
        let program = Program::new();
        let copy = path(&program, "copy");
        on_ok(&program, url, &["db", "backup", &copy]);
        assert_eq!(names(program.folder.path()), ["copy"]);
        assert_eq!(everything(url).await, before);
        if kind(&database) == "postgres" {
            let mode = std::os::unix::fs::PermissionsExt::mode(
                &Path::new(&copy).metadata().unwrap().permissions(),
            );
            assert_eq!(mode & 0o777, 0o600);
        }

        // Into another one.
        let other = another(&database);
        if kind(&other) == "postgres" {
            on_ok(&program, &other.url, &["db", "create"]);
        }
        on_ok(&program, &other.url, &["db", "restore", &copy]);
        assert_eq!(everything(&other.url).await, before, "{url}");
        let checked = on_ok(&program, &other.url, &["db", "check"]);
        assert!(
            checked.stdout.contains("ok: the database is whole"),
            "{}",
            checked.stdout
        );

        // Over what came since; nothing is replaced unasked.
        execute(
            url,
            "UPDATE posts SET title = 'another' WHERE fullname = 't3_a1'",
        )
        .await;
        let changed = everything(url).await;
        let refused = on(&program, url, &["db", "restore", &copy]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        assert!(refused.stderr.contains("--overwrite"), "{}", refused.stderr);
        assert_eq!(everything(url).await, changed);
        if kind(&database) == "postgres" {
            // Somebody's own view would go with the tables; and rights are not in a backup.
            execute(
                url,
                "GRANT SELECT ON posts TO PUBLIC; CREATE VIEW mine AS SELECT title FROM posts",
            )
            .await;
            let refused = on(&program, url, &["db", "restore", &copy, "--overwrite"]);
            assert_eq!(refused.code, 4, "{}", refused.stderr);
            assert!(
                refused.stderr.contains("your own views"),
                "{}",
                refused.stderr
            );
            execute(url, "DROP VIEW mine").await;
            assert_eq!(everything(url).await, changed);
        }
        on_ok(&program, url, &["db", "restore", &copy, "--overwrite"]);
        assert_eq!(everything(url).await, before, "{url}");
        if kind(&database) == "postgres" {
            let store = Store::open(url, Access::ReadOnly).await.unwrap();
            let may = "SELECT COUNT(*) FROM information_schema.role_table_grants \
                        WHERE grantee = 'PUBLIC' AND table_name = 'posts'";
            assert_eq!(store.query(may).await.unwrap().rows[0][0], 1);
            store.close().await.unwrap();
        }
        // And it is a database to go on with: keys go on, posts come.
        let store = database.open().await;
        let now = topicmill::domain::Timestamp::from_epoch_secs(1_790_000_000).unwrap();
        let stage = topicmill::domain::Stage::Collect;
        assert_eq!(store.begin_run(stage, "w", now).await.unwrap().0, 3);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_purged_since_the_backup_stays_away() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        let program = Program::new();
        let copy = path(&program, "copy");
        on_ok(&program, url, &["db", "backup", &copy]);
        let ids = program.write("ids", "t3_a1\n");
        on_ok(&program, url, &["purge", "--ids", &ids, "--no-rewrite"]);
        on_ok(&program, url, &["db", "restore", &copy, "--overwrite"]);
        let store = Store::open(url, Access::ReadOnly).await.unwrap();
        let count = async |sql: &str| store.query(sql).await.unwrap().rows[0][0].as_i64().unwrap();
        assert_eq!(
            count("SELECT COUNT(*) FROM posts WHERE fullname = 't3_a1'").await,
            0,
            "{url}"
        );
        assert_eq!(count("SELECT COUNT(*) FROM posts").await, 3);
        assert_eq!(
            count("SELECT COUNT(*) FROM tombstones WHERE fullname = 't3_a1'").await,
            1
        );
        assert_eq!(count("SELECT COUNT(*) FROM pair_logits").await, 0);
        assert_eq!(
            count("SELECT COUNT(*) FROM meta WHERE key = 'rewrite_due'").await,
            1
        );
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_file_that_is_no_whole_backup_is_refused_and_changes_nothing() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        many(url, 500).await;
        let before = everything(url).await;
        let program = Program::new();
        let copy = path(&program, "copy");
        on_ok(&program, url, &["db", "backup", &copy]);
        let whole = std::fs::read(&copy).unwrap();
        let half = program.write("half", &whole[..whole.len() / 2]);
        let most = program.write("most", &whole[..whole.len() - whole.len() / 20]);
        let noise: Vec<u8> = (0..5_000_u32)
            .map(|n| u8::try_from(n * 7 % 251).unwrap())
            .collect();
        let noise = program.write("noise", noise);
        let empty = program.write("empty", "");
        let missing = path(&program, "missing");
        let foreign = path(&program, "foreign");
        let mut other = sqlx::SqliteConnection::connect(&format!("sqlite:{foreign}?mode=rwc"))
            .await
            .unwrap();
        sqlx::raw_sql("CREATE TABLE posts (a); CREATE TABLE mine (b)")
            .execute(&mut other)
            .await
            .unwrap();
        other.close().await.unwrap();
        for file in [half, most, noise, empty, missing, foreign] {
            let ran = on(&program, url, &["db", "restore", &file, "--overwrite"]);
            assert_eq!(ran.code, 2, "{file}: {}", ran.stderr);
            assert!(ran.stderr.contains(&file), "{}", ran.stderr);
            assert_eq!(everything(url).await, before, "{url} {file}");
        }
        if kind(&database) == "sqlite" {
            // A file that somebody copied while it was written to, with its log.
            let log = program.write("copy-wal", "what was written last");
            let ran = on(&program, url, &["db", "restore", &copy, "--overwrite"]);
            assert_eq!(ran.code, 2, "{}", ran.stderr);
            assert!(
                ran.stderr.contains(&log) && ran.stderr.contains("db backup"),
                "{}",
                ran.stderr
            );
            assert_eq!(everything(url).await, before);
        }
    }
    // A backup of the other kind is named as such.
    let Some([one, other]) = pairs() else { return };
    let program = Program::new();
    for (from, to) in [(&one, &other), (&other, &one)] {
        let copy = path(&program, kind(from));
        on_ok(&program, &from.url, &["db", "create"]);
        on_ok(&program, &from.url, &["db", "backup", &copy]);
        let ran = on(&program, &to.url, &["db", "restore", &copy]);
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains("db copy"), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn a_database_that_somebody_uses_is_not_replaced() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        let program = Program::new();
        let copy = path(&program, "copy");
        on_ok(&program, url, &["db", "backup", &copy]);
        let before = everything(url).await;
        let args = ["db", "restore", copy.as_str(), "--overwrite"];
        let ran = if kind(&database) == "sqlite" {
            let store = database.open().await;
            let ran = on(&program, url, &args);
            store.close().await.unwrap();
            ran
        } else {
            let mut writer = sqlx::PgConnection::connect(url).await.unwrap();
            sqlx::raw_sql("BEGIN; UPDATE posts SET title = title")
                .execute(&mut writer)
                .await
                .unwrap();
            on(&program, url, &args)
        };
        assert_eq!(ran.code, 75, "{}", ran.stderr);
        assert!(ran.stderr.contains("stop what uses it"), "{}", ran.stderr);
        if kind(&database) != "sqlite" {
            // A watcher or a scheduler that waits holds no lock, but keys of rows that go.
            let idle = database.open().await;
            let ran = on(&program, url, &args);
            idle.close().await.unwrap();
            assert_eq!(ran.code, 75, "{}", ran.stderr);
        }
        assert_eq!(everything(url).await, before);
        assert_eq!(names(program.folder.path()), ["copy"]);
    }
}

#[tokio::test]
async fn nobody_gets_into_a_file_that_is_being_replaced_or_goes_on_in_the_former_one() {
    let database = sqlite();
    filled(&database.url).await;
    let program = Program::new();
    let copy = path(&program, "copy");
    on_ok(&program, &database.url, &["db", "backup", &copy]);
    let file = database.url.strip_prefix("sqlite:").unwrap();
    let look = |connection: &rusqlite::Connection| {
        connection.query_row("SELECT COUNT(*) FROM posts", [], |row| row.get::<_, i64>(0))
    };
    let open = || {
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.busy_timeout(Duration::from_millis(50)).unwrap();
        connection
    };
    let locked = Locked::take(Path::new(file)).await.unwrap().unwrap();
    look(&open()).unwrap_err();
    locked.release().await;
    look(&open()).unwrap();
    // Opened, and not read yet: like a process that waits for the lock.
    let waits = open();
    on_ok(
        &program,
        &database.url,
        &["db", "restore", &copy, "--overwrite"],
    );
    look(&waits).unwrap_err();
    look(&open()).unwrap();
    // A former file that has another name, too, is somebody's copy.
    let kept = path(&program, "kept");
    std::fs::hard_link(file, &kept).unwrap();
    on_ok(
        &program,
        &database.url,
        &["db", "restore", &copy, "--overwrite"],
    );
    look(&rusqlite::Connection::open(&kept).unwrap()).unwrap();
}

#[tokio::test]
async fn a_backup_takes_the_place_of_the_last_one_if_that_is_wanted() {
    for database in databases() {
        filled(&database.url).await;
        let program = Program::new();
        let copy = path(&program, "copy");
        std::fs::write(&copy, "the last one").unwrap();
        let again = on(&program, &database.url, &["db", "backup", &copy]);
        assert_eq!(again.code, 2, "{}", again.stderr);
        assert_eq!(std::fs::read(&copy).unwrap(), b"the last one");
        on_ok(
            &program,
            &database.url,
            &["db", "backup", &copy, "--overwrite"],
        );
        let target = another(&database);
        on_ok(&program, &target.url, &["db", "create"]);
        on_ok(&program, &target.url, &["db", "restore", &copy]);
        assert_eq!(
            everything(&target.url).await,
            everything(&database.url).await
        );
        assert_eq!(names(program.folder.path()), ["copy"]);
    }
}

#[tokio::test]
async fn nothing_that_is_written_takes_the_place_of_the_database() {
    let database = sqlite();
    let url = database.url.as_str();
    filled(url).await;
    let before = everything(url).await;
    let program = Program::new();
    let file = url.strip_prefix("sqlite:").unwrap();
    let link = path(&program, "link");
    std::os::unix::fs::symlink(file, &link).unwrap();
    program.write("texts.ndjson", "{\"id\": 1, \"text\": \"hello\"}\n");
    for name in [file, &link] {
        for args in [
            &["db", "backup", name, "--overwrite"][..],
            &["export", name, "--format", "csv", "--overwrite"],
            &["report", name, "--overwrite"],
            &[
                "labels",
                "calibrate",
                "gold.csv",
                "--out",
                name,
                "--overwrite",
            ],
            &["score", "texts.ndjson", name, "--overwrite"],
            &["classify", "--run-json", name],
            &["collect", "--source", "sample", "--run-json", name],
        ] {
            let ran = on(&program, url, args);
            assert_eq!(ran.code, 2, "{args:?}\n{}", ran.stderr);
            assert!(
                ran.stderr.contains("it is the database itself"),
                "{args:?}\n{}",
                ran.stderr
            );
        }
    }
    assert_eq!(everything(url).await, before);
    // One that is not there yet.
    let new = path(&program, "new.db");
    let args = ["collect", "--source", "sample", "--run-json", &new];
    let ran = on(&program, &format!("sqlite:{new}"), &args);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(!Path::new(&new).exists());
}

#[tokio::test]
async fn a_database_is_restored_behind_a_link_that_leads_nowhere() {
    let database = sqlite();
    filled(&database.url).await;
    let program = Program::new();
    let (copy, link) = (path(&program, "copy"), path(&program, "link"));
    on_ok(&program, &database.url, &["db", "backup", &copy]);
    std::os::unix::fs::symlink("lost.db", &link).unwrap();
    on_ok(
        &program,
        &format!("sqlite:{link}"),
        &["db", "restore", &copy],
    );
    assert!(Path::new(&link).symlink_metadata().unwrap().is_symlink());
    assert_eq!(names(program.folder.path()), ["copy", "link", "lost.db"]);
}

#[tokio::test]
async fn two_copies_to_one_file_do_not_mix() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        let program = Program::new();
        let copy = path(&program, "copy");
        // What a copy that is under way holds.
        let part = std::fs::File::create_new(path(&program, "copy.part.lock")).unwrap();
        part.lock().unwrap();
        program.write("copy.part", "half");
        let second = on(&program, url, &["db", "backup", &copy]);
        assert_eq!(second.code, 75, "{}", second.stderr);
        assert!(second.stderr.contains("wait for it"), "{}", second.stderr);
        let left = ["copy.part", "copy.part.lock"];
        assert_eq!(names(program.folder.path()), left);
        // And what it leaves when it is killed.
        drop(part);
        on_ok(&program, url, &["db", "backup", &copy, "--overwrite"]);
        assert_eq!(names(program.folder.path()), ["copy"]);
        let target = another(&database);
        on_ok(&program, &target.url, &["db", "create"]);
        on_ok(&program, &target.url, &["db", "restore", &copy]);
        assert_eq!(everything(&target.url).await, everything(url).await);
    }
}

#[tokio::test]
async fn a_database_that_is_made_during_a_restore_stays() {
    let database = sqlite();
    filled(&database.url).await;
    many(&database.url, 12_000).await;
    let program = Program::new();
    let copy = path(&program, "copy");
    on_ok(&program, &database.url, &["db", "backup", &copy]);
    let made = path(&program, "made");
    on_ok(&program, &format!("sqlite:{made}"), &["db", "create"]);
    let mut met = 0;
    for n in 0..20 {
        let target = path(&program, &format!("target{n}"));
        let url = format!("sqlite:{target}");
        let mut command = program.command(&["--database", &url, "db", "restore", &copy]);
        let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
        while !Path::new(&format!("{target}.restored")).exists()
            && running.try_wait().unwrap().is_none()
        {
            std::thread::yield_now();
        }
        // Somebody's database comes, unless the restored one is there already.
        let came = std::fs::hard_link(&made, &target).is_ok();
        let ran = finished(running.wait_with_output().unwrap());
        assert_eq!(ran.code, if came { 75 } else { 0 }, "{}", ran.stderr);
        if came {
            met += 1;
            assert!(ran.stderr.contains("meanwhile"), "{}", ran.stderr);
            assert_eq!(
                std::fs::read(&target).unwrap(),
                std::fs::read(&made).unwrap()
            );
        }
        assert!(!Path::new(&format!("{target}.restored")).exists());
    }
    assert!(
        met > 0,
        "no database was made while another one was restored"
    );
}

#[tokio::test]
async fn a_backup_or_a_restore_that_is_killed_leaves_no_half() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        many(url, 12_000).await;
        let program = Program::new();
        let mut at_work = 0;
        for n in 0..6 {
            let copy = path(&program, &format!("copy{n}"));
            let command = program.command(&["--database", url, "db", "backup", &copy]);
            at_work += u32::from(killed_after(command, Duration::from_millis(15 + 40 * n)));
            if Path::new(&copy).exists() {
                let other = another(&database);
                if kind(&other) == "postgres" {
                    on_ok(&program, &other.url, &["db", "create"]);
                }
                on_ok(&program, &other.url, &["db", "restore", &copy]);
            } else {
                on_ok(&program, url, &["db", "backup", &copy]);
            }
        }
        assert!(at_work >= 2, "{url}: {at_work} kills met a backup");
        let copy = path(&program, "copy0");
        execute(
            url,
            "UPDATE posts SET title = 'later' WHERE fullname = 't3_a1'",
        )
        .await;
        let title = "SELECT title FROM posts WHERE fullname = 't3_a1'";
        let mut at_work = 0;
        for n in 0..6 {
            let args = ["--database", url, "db", "restore", &copy, "--overwrite"];
            at_work += u32::from(killed_after(
                program.command(&args),
                Duration::from_millis(15 + 60 * n),
            ));
            let store = Store::open(url, Access::Existing).await.unwrap();
            let counted = "SELECT COUNT(*) FROM posts";
            assert_eq!(
                store.query(counted).await.unwrap().rows[0][0],
                12_004,
                "{url} kill {n}"
            );
            // Either of the two, whole.
            let found = store.query(title).await.unwrap().rows[0][0].clone();
            assert!(found == "later" || found == "Alive", "{found}");
            store.close().await.unwrap();
        }
        assert!(at_work >= 2, "{url}: {at_work} kills met a restore");
        // PostgreSQL takes back by itself what the killed one had begun.
        let mut ran = on(&program, url, &["db", "restore", &copy, "--overwrite"]);
        for _ in 0..20 {
            if ran.code != 75 {
                break;
            }
            ran = on(&program, url, &["db", "restore", &copy, "--overwrite"]);
        }
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        on_ok(&program, url, &["db", "check"]);
    }
}

#[tokio::test]
async fn a_full_disk_ends_a_backup_and_a_restore_and_loses_nothing() {
    for database in databases() {
        let url = database.url.as_str();
        filled(url).await;
        many(url, 2_000).await;
        let before = everything(url).await;
        let program = Program::new();
        let copy = path(&program, "copy");
        let full = on_a_full_disk(&program, 300, &["--database", url, "db", "backup", &copy]);
        assert!([1, 4].contains(&full.code), "{} {}", full.code, full.stderr);
        assert!(
            full.stderr.contains("disk") || full.stderr.contains("large"),
            "{}",
            full.stderr
        );
        assert!(
            names(program.folder.path()).is_empty(),
            "{:?}",
            names(program.folder.path())
        );
        on_ok(&program, url, &["db", "backup", &copy]);
        if kind(&database) == "sqlite" {
            let args = ["--database", url, "db", "restore", &copy, "--overwrite"];
            let full = on_a_full_disk(&program, 300, &args);
            assert!([1, 4].contains(&full.code), "{} {}", full.code, full.stderr);
            let file = Path::new(url.strip_prefix("sqlite:").unwrap());
            assert!(
                names(file.parent().unwrap())
                    .iter()
                    .all(|name| !name.contains("restored"))
            );
        }
        assert_eq!(everything(url).await, before);
    }
}

#[tokio::test]
async fn no_password_is_among_the_arguments_or_in_what_is_said() {
    let Some(database) = postgres() else { return };
    filled(&database.url).await;
    let password = password(&database.url);
    let store = Store::open(&database.url, Access::ReadOnly).await.unwrap();
    let version = store.server_state().await.unwrap().unwrap().version;
    store.close().await.unwrap();
    let program = Program::new();
    // In the place of PostgreSQL's programs stand ones that write down what they are given.
    let folder = program.folder.path().join("tools");
    std::fs::create_dir(&folder).unwrap();
    let said = path(&program, "said");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo 'pg_dump (PostgreSQL) {version}.1'; exit; fi\n\
         echo \"$@\" > {said}; echo \"password=$PGPASSWORD\" >> {said}; echo 'I cannot' >&2; exit 1\n"
    );
    let tool = folder.join("pg_dump");
    std::fs::write(&tool, script).unwrap();
    std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let copy = path(&program, "copy");
    let mut command = program.command(&["-vv", "db", "backup", &copy]);
    command.env("DATABASE_URL", &database.url);
    let usual = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{usual}", folder.display()));
    let ran = finished(command.output().unwrap());
    assert!(!ran.stderr.contains(password), "{}", ran.stderr);
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    assert!(ran.stderr.contains("I cannot"), "{}", ran.stderr);
    let said = std::fs::read_to_string(&said).unwrap();
    let (args, environment) = said.split_once('\n').unwrap();
    assert!(!args.contains(password), "{args}");
    assert_eq!(environment.trim(), format!("password={password}"));
    // None for this server.
    let mut command = program.command(&["db", "backup", &copy]);
    command
        .env("DATABASE_URL", &database.url)
        .env("PATH", &folder);
    std::fs::write(&tool, "#!/bin/sh\necho 'pg_dump (PostgreSQL) 9.6'\n").unwrap();
    let ran = finished(command.output().unwrap());
    // Where the machine has one in its usual place, that one is taken.
    if ran.code != 0 {
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains("only version 9"), "{}", ran.stderr);
    }
}
