//! Attacks on database files: remaining bytes, incomplete copies, full disks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection, SqliteConnection};
use topicmill::purge::PurgePlan;
use topicmill_core::{Post, SourceKind};
use topicmill_store::Rewritten;

use crate::purge::{Scene, holds, post, some, to_purge};
use crate::support::notice::not_tested;
use crate::support::postgres::{TestDatabase, number, postgres, sqlite};
use crate::support::program::{Program, finished, run_limited};

fn path(database: &TestDatabase) -> String {
    database.url.trim_start_matches("sqlite:").to_owned()
}

/// Returns posts of many lengths, so that edits move their rows between pages.
fn texts(version: usize) -> Vec<Post> {
    (0..1_200)
        .map(|i| Post {
            selftext: format!("tell-no-one-{version} ").repeat(1 + (i * 7 + version * 13) % 60),
            ..post(
                &format!("n{:04}", (i * 769) % 1_200),
                &format!("tell-no-one-{version}-{i}"),
            )
        })
        .collect()
}

/// Returns a plan that purges the posts with these numbers.
fn ids(numbers: impl IntoIterator<Item = usize>) -> PurgePlan {
    let ids = numbers.into_iter().map(|i| to_purge(&format!("n{i:04}")));
    PurgePlan {
        ids: ids.collect(),
        ..PurgePlan::default()
    }
}

#[tokio::test]
async fn no_purged_bytes_remain_after_edits_and_page_splits() {
    let database = sqlite();
    let file = path(&database);
    let scene = Scene::of(&database).await;
    // Rows that grow and shrink among others that do not, inserted out of key order.
    let words = |i: usize| format!("tell-no-one-{i:04}-");
    for version in 0..5 {
        let posts: Vec<Post> = (0..3_000)
            .map(|n| (n * 1_709) % 3_000)
            .filter(|i| (i + version) % 5 != 0)
            .map(|i| Post {
                selftext: words(i).repeat(1 + (i * 7 + version * 13) % 40),
                ..post(&format!("n{i:04}"), &words(i))
            })
            .collect();
        for block in posts.chunks(300) {
            scene.save(SourceKind::Import, block).await;
        }
    }
    let gone = || (0..3_000).filter(|i| i % 4 == 1);
    let report = scene.purge(&ids(gone())).await;
    assert_eq!((report.purged, report.lingers), (750, false));
    let bytes = [
        std::fs::read(&file).unwrap(),
        std::fs::read(format!("{file}-wal")).unwrap(),
    ];
    let lingering = gone().filter(|i| {
        let word = words(*i);
        bytes
            .iter()
            .any(|bytes| memchr::memmem::find(bytes, word.as_bytes()).is_some())
    });
    assert_eq!(lingering.count(), 0);
    assert!(holds(&file, &words(2)));
}

#[tokio::test]
async fn an_incomplete_purge_is_finished_by_the_next_one_or_by_vacuum() {
    let database = sqlite();
    let file = path(&database);
    let scene = Scene::of(&database).await;
    scene.save(SourceKind::Import, &texts(0)).await;
    // A reader holds an old snapshot for a long time.
    let mut reader = SqliteConnection::connect(&database.url).await.unwrap();
    reader.execute("BEGIN").await.unwrap();
    reader.execute("SELECT COUNT(*) FROM posts").await.unwrap();
    let report = scene.purge(&ids(0..600)).await;
    assert!(report.lingers && holds(&file, "tell-no-one"));
    reader.execute("COMMIT").await.unwrap();
    // The next purge removes nothing but still truncates the WAL.
    let report = scene.purge(&ids(5_000..5_001)).await;
    assert!(!report.lingers);
    let report = scene
        .purge(&PurgePlan {
            leave_file: true,
            ..ids(600..1_200)
        })
        .await;
    assert!(report.lingers);
    Program::with_database(&database.url).ok("db vacuum");
    assert!(!holds(&file, "tell-no-one"));
    assert!(!scene.is_rewrite_due().await);
}

#[tokio::test]
async fn a_rewrite_without_disk_space_reports_it_and_is_retried() {
    let database = sqlite();
    let file = path(&database);
    let scene = Scene::of(&database).await;
    for version in 0..3 {
        scene.save(SourceKind::Import, &texts(version)).await;
    }
    scene.store().checkpoint().await.unwrap();
    let left = PurgePlan {
        leave_file: true,
        ..ids(0..600)
    };
    assert!(scene.purge(&left).await.lingers);
    let program = Program::with_database(&database.url);
    // A rewrite needs a WAL as large as the remaining data, which is half of the file; the limit is a quarter of the
    // file.
    let kib = std::fs::metadata(&file).unwrap().len() / 4 / 1_024;
    let limit = format!("ulimit -f {kib}");
    run_limited(&program.command("db vacuum"), &limit).expect_exit(4, "ulimit");
    assert!(scene.is_rewrite_due().await);
    // No post is lost, and the next purge also rewrites the file.
    assert_eq!(scene.stored().await.len(), 600);
    assert!(!scene.purge(&ids(0..1_200)).await.lingers);
    assert!(!holds(&file, "tell-no-one"));
}

#[tokio::test]
async fn vacuum_leaves_no_purged_bytes_in_postgres_files() {
    let Some(database) = postgres() else { return };
    let scene = Scene::of(&database).await;
    let folder = database.server_folder().await;
    if std::fs::read_dir(&folder).is_err() {
        not_tested(&format!(
            "on files of PostgreSQL: cannot read {}",
            folder.display()
        ));
        return;
    }
    // Long texts go to the TOAST table, uncompressed so that they can be found there.
    database
        .run("ALTER TABLE things ALTER COLUMN selftext SET STORAGE EXTERNAL")
        .await;
    let long = Post {
        selftext: "tell-no-one-long ".repeat(600),
        ..post("long", "tell-no-one-long")
    };
    for version in 0..2 {
        scene.save(SourceKind::Import, &texts(version)).await;
    }
    scene
        .save(SourceKind::Import, &[long, post("kept", "kept-for-good")])
        .await;
    database.run("CHECKPOINT").await;
    let files = |text: &str| -> usize {
        std::fs::read_dir(&folder)
            .unwrap()
            .filter_map(|entry| std::fs::read(entry.unwrap().path()).ok())
            .filter(|bytes| {
                bytes
                    .windows(text.len())
                    .any(|window| window == text.as_bytes())
            })
            .count()
    };
    assert!(files("tell-no-one") >= 2);
    // Autovacuum does the same: column statistics may contain values of deleted rows.
    database.run("ANALYZE things").await;
    let mut all = ids(0..1_200);
    all.ids.push(to_purge("long"));
    scene.purge(&all).await;
    assert!(scene.is_rewrite_due().await);
    let program = Program::with_database(&database.url);
    program.ok("status").expect_stderr("db vacuum");
    program.ok("db vacuum");
    database.run("CHECKPOINT").await;
    assert_eq!(files("tell-no-one"), 0);
    assert!(files("kept-for-good") > 0);
}

#[tokio::test]
async fn a_user_who_does_not_own_the_tables_cannot_vacuum_them() {
    let Some(database) = postgres() else { return };
    let scene = Scene::of(&database).await;
    scene.save(SourceKind::Import, &some(&["a"])).await;
    scene.request("a").await;
    let name = database.url.rsplit_once('/').unwrap().1;
    let role = format!("worker_{name}");
    let grant = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'pw'; GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"
    );
    database.run(&grant).await;
    let (_, place) = database.url.rsplit_once('@').unwrap();
    let worker = Program::with_database(&format!("postgres://{role}:pw@{place}"));
    worker.run("db vacuum").expect_exit(4, "owner");
    assert!(scene.is_rewrite_due().await);
    let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
    database.run(&drop).await;
}

#[tokio::test]
async fn a_copied_file_contains_the_labels_of_every_finished_run() {
    let database = sqlite();
    let scene = Scene::of(&database).await;
    scene
        .save(SourceKind::Import, &some(&["a", "b", "c"]))
        .await;
    // This process keeps the database open, so that no other one checkpoints the WAL by closing it.
    let program = Program::with_database(&database.url);
    program.ok("classify");
    let copy = program.path("copy.db");
    std::fs::copy(path(&database), &copy).unwrap();
    let copied = Program::with_database(&format!("sqlite:{}", copy.display()));
    assert_eq!(copied.count("classifications"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_during_writes_is_consistent() {
    let database = sqlite();
    let scene = Scene::of(&database).await;
    let stop = AtomicBool::new(false);
    let writing = async {
        let mut version = 0;
        while !stop.load(Ordering::Relaxed) {
            scene.save(SourceKind::Import, &texts(version)).await;
            version += 1;
        }
    };
    let backing = async {
        let program = Program::with_database(&database.url);
        for name in ["0.db", "1.db", "2.db"] {
            let command = program.command(&["db", "backup", name]);
            let ran = tokio::process::Command::from(command).output().await;
            finished(ran.unwrap()).expect_code(0);
            let url = format!("sqlite:{}", program.path(name).display());
            let copy = Program::with_database(&url);
            let sound = copy.scalar("SELECT integrity_check FROM pragma_integrity_check");
            assert_eq!(sound, "ok");
            // A page of posts is stored atomically.
            let posts = copy.count("posts");
            assert!(posts == 0 || posts == 1_200, "{posts}");
        }
        stop.store(true, Ordering::Relaxed);
    };
    tokio::time::timeout(Duration::from_mins(1), async {
        tokio::join!(writing, backing)
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_table_is_not_marked_rewritten_while_an_old_snapshot_is_open() {
    let Some(database) = postgres() else { return };
    let scene = Scene::of(&database).await;
    scene.save(SourceKind::Import, &texts(0)).await;
    let mut reader = PgConnection::connect(&database.url).await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut reader)
        .await
        .unwrap();
    let mut reading = reader
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    reading.execute("SELECT COUNT(*) FROM runs").await.unwrap();
    scene.purge(&ids(0..600)).await;
    let holder = format!("process {pid} is still using an old snapshot");
    Program::with_database(&database.url)
        .run("db vacuum")
        .expect_exit(1, &holder);
    assert!(scene.is_rewrite_due().await);
    reading.commit().await.unwrap();
    let rewritten = scene.store().purging().rewrite().await.unwrap();
    assert_eq!(rewritten, Rewritten::Complete);
    assert!(!scene.is_rewrite_due().await);
}

#[tokio::test]
async fn a_rewrite_does_not_queue_others_behind_a_locked_table() {
    let Some(database) = postgres() else { return };
    let scene = Scene::of(&database).await;
    scene.save(SourceKind::Import, &some(&["a"])).await;
    scene.request("a").await;
    let mut reader = PgConnection::connect(&database.url).await.unwrap();
    let mut reading = reader.begin().await.unwrap();
    reading
        .execute("LOCK TABLE things IN ACCESS SHARE MODE")
        .await
        .unwrap();
    let rewritten = scene.store().purging().rewrite().await.unwrap();
    assert_eq!(rewritten, Rewritten::TableLocked { table: "things" });
    assert!(scene.is_rewrite_due().await);
    reading.commit().await.unwrap();
    let rewritten = scene.store().purging().rewrite().await.unwrap();
    assert_eq!(rewritten, Rewritten::Complete);
}

#[tokio::test]
async fn postgres_statistics_contain_no_text() {
    let Some(database) = postgres() else { return };
    crate::support::rows::fill(&database.url).await;
    database.run("ANALYZE things").await;
    let texts = "SELECT COUNT(*) FROM pg_stats WHERE tablename = 'things' \
                    AND attname IN ('title', 'selftext', 'url', 'permalink', 'author', 'flair')";
    assert_eq!(number(&database.url, texts).await, 0);
}

#[tokio::test]
async fn a_run_whose_end_is_only_in_the_wal_warns() {
    let database = sqlite();
    let scene = Scene::of(&database).await;
    scene.save(SourceKind::Import, &some(&["a"])).await;
    let mut reader = SqliteConnection::connect(&database.url).await.unwrap();
    reader.execute("BEGIN").await.unwrap();
    reader.execute("SELECT COUNT(*) FROM posts").await.unwrap();
    let program = Program::with_database(&database.url);
    let purge = "purge --retention 1000000 --yes";
    program.ok(purge).expect_stderr("db backup");
    reader.execute("COMMIT").await.unwrap();
    let output = program.ok(purge).stderr;
    assert!(!output.contains("db backup"), "{output}");
}
