//! Tests that an export is one snapshot and is either complete or absent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;
use topicmill::export::{self, DatasetFormat, Destination, Filters, Subject, Terms};
use topicmill_store::{Access, Store};

use super::*;
use crate::support::program::{finished, run_limited};
use crate::support::wait::until_blocking;

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
        program.import(&long.collect::<String>());
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
        let ids = (0..12).map(|i| format!("k{i:06}\n"));
        let ids = ids.chain((0..N).map(|i| format!("l{i:06}\n")));
        program.write("ids.txt", ids.collect::<String>());
        let purge = Mutex::new(program.command("purge --ids ids.txt"));
        let received = {
            let parts = parts.clone();
            move |_| {
                // All posts are purged while the first rows are written.
                if parts.fetch_add(1, Ordering::Relaxed) == 0 {
                    // On SQLite the purge exits with 1, because the export is still reading the purged rows.
                    let ran = finished(purge.lock().unwrap().output().unwrap());
                    ran.expect_stderr("purged=1212");
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
    program.import(&posts(30_000));
    program.write("old.parquet", "old");
    let export = "export old.parquet --overwrite --unlabelled";
    let mut child = program.command(export).spawn().unwrap();
    until_blocking("the export has begun", || {
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "the export ended before it was killed");
        let mut files = program.files().into_iter();
        files.any(|name| name.ends_with(".partial"))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(program.read("old.parquet"), "old");
    // An export that reaches a file size limit leaves no file.
    let limited = program.command("export old.csv --unlabelled");
    run_limited(&limited, "ulimit -f 50").expect_exit(1, "old.csv");
    assert!(!program.path("old.csv").exists());
    program.ok(export);
    let file = File::open(program.path("old.parquet")).unwrap();
    let file = SerializedFileReader::new(file).unwrap();
    assert_eq!(file.metadata().file_metadata().num_rows(), 30_000);
}
