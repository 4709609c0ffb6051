//! Tests that an export is one snapshot and is either complete or absent.

use super::*;
use crate::support::wait::until_blocking;

#[tokio::test]
async fn an_export_is_a_consistent_snapshot() {
    const N: usize = 1_200;
    for database in databases() {
        // More text than fits in the buffers, which hold up to 32 batches of 1 MB.
        let scene = Scene::labelled(&database, 12);
        let body = "a word of a long body ".repeat(1_800);
        let long = (0..N).map(|i| {
            let post = json!({
                "id": format!("l{i:06}"), "title": format!("long {i}"), "selftext": body, "subreddit": "gaming",
                "created_utc": 1_700_000_000,
            });
            format!("{post}\n")
        });
        let file = scene.program.write("long.ndjson", long.collect::<String>());
        scene.ok(&["import", &file]);
        let store = database.open_on_server_time().await;
        let target = store.labels().current_target().await.unwrap().unwrap();
        let set = store.labels().label_set(target.label_set).await.unwrap();
        let out = scene.path("a.jsonl");
        let destination = Destination {
            path: out.clone(),
            format: Some(DatasetFormat::Ndjson),
            overwrite: false,
            bom: false,
            safe_csv: false,
        };
        let terms = Terms {
            allow_superuser: true,
            stop: CancellationToken::new(),
        };
        let parts = Arc::new(AtomicU64::new(0));
        let command = {
            let mut command = scene.program.command("purge --ids");
            let ids = (0..12).map(|i| format!("k{i:06}\n"));
            let ids: String = ids.chain((0..N).map(|i| format!("l{i:06}\n"))).collect();
            command.arg(scene.program.write("ids.txt", ids));
            std::sync::Mutex::new(command)
        };
        let received = {
            let parts = parts.clone();
            move |_| {
                // All posts are purged while the first rows are written.
                if parts.fetch_add(1, Ordering::Relaxed) == 0 {
                    // On SQLite the purge exits with 1, because the export is still reading the purged rows.
                    let ran = command.lock().unwrap().output().unwrap();
                    let stderr = String::from_utf8_lossy(&ran.stderr);
                    assert!(stderr.contains("purged=1212"), "{stderr}");
                }
            }
        };
        let subject = Subject {
            kind: topicmill_core::ThingKind::Post,
            target,
            set,
            vectors: false,
            waves: None,
        };
        let filters = Filters {
            unlabelled: true,
            ..Filters::default()
        };
        let counts = export::export(&store, &subject, &filters, destination, terms, received).await;
        assert_eq!(counts.unwrap().rows, 1_212);
        assert!(parts.load(Ordering::Relaxed) > 35);
        assert_eq!(scene.view().len(), 0, "all posts are purged");
        let rows = scene.read_lines("a.jsonl");
        assert!(rows[..12].iter().all(|row| row["score_food"].is_number()));
        assert!(
            rows[12..]
                .iter()
                .all(|row| row["selftext"] == body.trim_end() || row["selftext"] == body)
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_killed_or_failed_export_keeps_the_previous_file() {
    let database = crate::support::postgres::sqlite();
    let scene = Scene::labelled(&database, 12);
    let more = scene.program.write("more.ndjson", posts(30_000));
    scene.ok(&["import", &more]);
    fs::write(scene.path("old.parquet"), "old").unwrap();
    let args = ["export", "old.parquet", "--overwrite", "--unlabelled"];
    let is_partial =
        |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".partial");
    let mut child = scene.program.command(&args).spawn().unwrap();
    until_blocking("the export has begun", || {
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "the export ended before it was killed");
        let entries = fs::read_dir(scene.program.folder.path()).unwrap();
        entries.flatten().any(is_partial)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(scene.read("old.parquet"), "old");
    // An export that reaches a file size limit leaves no file.
    let export = ["export", "old.csv", "--unlabelled"];
    run_limited(&scene.command(&export), "ulimit -f 50").expect_exit(1, "old.csv");
    assert!(!scene.path("old.csv").exists());
    scene.ok("export old.parquet --overwrite --unlabelled");
    let file = File::open(scene.path("old.parquet")).unwrap();
    let file = SerializedFileReader::new(file).unwrap();
    assert_eq!(file.metadata().file_metadata().num_rows(), 30_000);
}
