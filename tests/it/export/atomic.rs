//! Tests that an export is one snapshot and is either complete or absent.

use super::*;
use crate::support::wait::until_blocking;
use topicmill_store::{Access, Store};

#[tokio::test]
async fn an_export_is_a_consistent_snapshot() {
    const N: usize = 1_200;
    for program in Program::on_each_database() {
        // More text than fits in the buffers, which hold up to 32 batches of 1 MB.
        let program = labelled(program, 12);
        let body = "a word of a long body ".repeat(1_800);
        let long = (0..N).map(|i| {
            let post = json!({
                "id": format!("l{i:06}"), "title": format!("long {i}"), "selftext": body, "subreddit": "gaming",
                "created_utc": 1_700_000_000,
            });
            format!("{post}\n")
        });
        let file = program.write("long.ndjson", long.collect::<String>());
        program.ok(&["import", &file]);
        let store = Store::open(&program.url(), Access::Existing).await.unwrap();
        let target = store.labels().current_target().await.unwrap().unwrap();
        let set = store.labels().label_set(target.label_set).await.unwrap();
        let out = program.path("a.jsonl");
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
            let mut command = program.command("purge --ids");
            let ids = (0..12).map(|i| format!("k{i:06}\n"));
            let ids: String = ids.chain((0..N).map(|i| format!("l{i:06}\n"))).collect();
            command.arg(program.write("ids.txt", ids));
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
        assert_eq!(program.view().len(), 0, "all posts are purged");
        let rows = program.read_lines("a.jsonl");
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
    let program = labelled(Program::on(sqlite()), 12);
    let more = program.write("more.ndjson", posts(30_000));
    program.ok(&["import", &more]);
    fs::write(program.path("old.parquet"), "old").unwrap();
    let args = ["export", "old.parquet", "--overwrite", "--unlabelled"];
    let is_partial =
        |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".partial");
    let mut child = program.command(&args).spawn().unwrap();
    until_blocking("the export has begun", || {
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "the export ended before it was killed");
        let entries = fs::read_dir(program.folder.path()).unwrap();
        entries.flatten().any(is_partial)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(program.read("old.parquet"), "old");
    // An export that reaches a file size limit leaves no file.
    let export = ["export", "old.csv", "--unlabelled"];
    run_limited(&program.command(&export), "ulimit -f 50").expect_exit(1, "old.csv");
    assert!(!program.path("old.csv").exists());
    program.ok("export old.parquet --overwrite --unlabelled");
    let file = File::open(program.path("old.parquet")).unwrap();
    let file = SerializedFileReader::new(file).unwrap();
    assert_eq!(file.metadata().file_metadata().num_rows(), 30_000);
}
