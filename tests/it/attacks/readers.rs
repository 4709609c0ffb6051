//! Hostile input: dumps, tables, ids, timestamps.

use std::time::Duration;

use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use serde_json::{Value, json};
use topicmill::collect::ReadOptions;
use topicmill::pipeline::Context;
use topicmill_core::{Outcome, SourceKind, Timestamp};
use topicmill_sources::arctic_shift::ArcticShift;

use crate::collect::{Scene, child, climate, new_climate, posted};
use crate::support::arctic_shift::{Archive, START, row, row_with};
use crate::support::parquet_files::parquet_with;
use crate::support::postgres::sqlite;
use crate::support::program::Program;
use crate::support::scene::{self, READ_OPTIONS};

/// The first second of the year 2100, in Unix time.
const YEAR_2100: i64 = 4_102_444_800;
/// Moves the watermarks into the future.
const AHEAD: &str = "UPDATE watermarks SET newest_created_at = '2100-01-01T00:00:00+00:00'";
/// Minute 0 of [`posted`], in Unix time.
const MINUTE_0: i64 = 1_750_000_000;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_epoch_secs(secs).unwrap()
}

/// Returns the watermark of `r/climate`.
async fn watermark(context: &Context, source: SourceKind) -> Option<Timestamp> {
    let known = context
        .store
        .posts()
        .watermark(source, "climate", "climate")
        .await;
    known.unwrap()
}

/// Returns a post from the future, followed by these posts.
fn after_future(minutes: std::ops::Range<u64>) -> Vec<Value> {
    let future = child("f", &json!({"created_utc": YEAR_2100}));
    std::iter::once(future).chain(posted(minutes)).collect()
}

#[tokio::test]
async fn a_post_from_the_future_does_not_move_the_watermark() {
    let scene = Scene::new().await;
    scene.new_page(None, &after_future(0..5), None).await;
    scene.collect_one(new_climate(10)).await;
    let known = watermark(&scene.context, SourceKind::Reddit).await;
    assert_eq!(known, Some(at(MINUTE_0 + 60 * 4)));
    // The post is stored with the time that the source reports.
    let dates = "SELECT COUNT(*) FROM posts WHERE created_at > '2099-01-01'";
    assert_eq!(scene.rows(dates).await, ["1"]);

    // The next run reads beyond its first page, back to the known posts.
    let newest = after_future(20..25);
    scene.new_page(None, &newest, Some("t3_m20")).await;
    scene.new_page(Some("t3_m20"), &posted(3..20), None).await;
    let report = scene.collect_one(new_climate(10)).await;
    assert_eq!((report.outcome, report.pages), (Outcome::Ok, 2));
    assert_eq!(scene.rows("SELECT COUNT(*) FROM posts").await, ["26"]);
}

#[tokio::test]
async fn a_watermark_in_the_future_is_reset() {
    let database = sqlite();
    let scene = Scene::of(&database).await;
    scene.new_page(None, &after_future(0..5), None).await;
    scene.collect_one(new_climate(10)).await;
    // As if set while the clock was ahead.
    database.run(AHEAD).await;

    scene.new_page(None, &posted(20..25), Some("t3_m20")).await;
    scene.new_page(Some("t3_m20"), &posted(3..20), None).await;
    let report = scene.collect_one(new_climate(10)).await;
    assert_eq!((report.outcome, report.pages), (Outcome::Ok, 2));
    assert_eq!(scene.rows("SELECT COUNT(*) FROM posts").await, ["26"]);
    let known = watermark(&scene.context, SourceKind::Reddit).await;
    assert_eq!(known, Some(at(MINUTE_0 + 60 * 24)));
}

#[tokio::test]
async fn a_post_from_2005_does_not_end_a_listing() {
    let scene = Scene::new().await;
    scene.new_page(None, &posted(0..3), None).await;
    scene.collect_one(new_climate(3)).await;

    let mut page = posted(40..44);
    page.push(child("old", &json!({"created_utc": 1_117_584_000})));
    scene.new_page(None, &page, Some("t3_m40")).await;
    scene.new_page(Some("t3_m40"), &posted(1..40), None).await;
    let report = scene.collect_one(new_climate(3)).await;
    assert_eq!((report.outcome, report.pages), (Outcome::Ok, 2));
    assert_eq!(scene.rows("SELECT COUNT(*) FROM posts").await, ["45"]);
}

#[tokio::test]
async fn a_post_from_the_future_does_not_end_the_archive_scan() {
    let database = sqlite();
    let scene = scene::Scene::<Archive, ArcticShift>::of(&database).await;
    let collect = async |overlap| {
        let options = ReadOptions {
            overlap,
            ..READ_OPTIONS
        };
        let topics = [climate(500)];
        scene.collect_with(&topics, options).await[0].stored.new
    };
    let overlap = READ_OPTIONS.overlap;
    let future = json!({"created_utc": YEAR_2100});
    // A time in milliseconds and one before 1970 are rejected, and no page continues from them.
    let odd = [
        row("a", 0),
        row("b", 60),
        row_with("f", 0, &future),
        row_with("ms", 0, &json!({"created_utc": (START + 60) * 1_000})),
        row_with("neg", 0, &json!({"created_utc": -5})),
    ];
    scene.server.state.add_rows(odd);
    assert_eq!(collect(overlap).await, 3);
    let known = watermark(&scene.context, SourceKind::ArcticShift).await;
    assert_eq!(known, Some(at(START + 60)));

    scene.server.state.add_rows([row("c", 3_600)]);
    assert_eq!(collect(overlap).await, 1);

    database.run(AHEAD).await;
    scene.server.state.add_rows([row("d", 7_200)]);
    assert_eq!(collect(overlap).await, 1);
    let known = watermark(&scene.context, SourceKind::ArcticShift).await;
    assert_eq!(known, Some(at(START + 7_200)));
    // The overlap reaches back before the earliest valid time.
    scene.server.state.add_rows([row("e", 9_000)]);
    assert_eq!(collect(Duration::MAX).await, 1);
}

#[test]
fn a_table_cell_is_limited_before_it_is_decompressed() {
    let program = Program::new();
    let schema = "message posts { required binary id (UTF8); required binary subreddit (UTF8); \
                  required binary title (UTF8); required binary created_utc (UTF8); }";
    let packed = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .build();
    let import = |name: &str, title: &str| {
        let columns: [&[&[u8]]; 4] = [&[b"a0"], &[b"food"], &[title.as_bytes()], &[b"1700000000"]];
        let bytes = parquet_with(packed.clone(), schema, &columns);
        assert!(bytes.len() < 100_000, "{}", bytes.len());
        program.write(name, bytes);
        program.run(&format!("import --format parquet {name}"))
    };
    import("good.parquet", "Rye").expect_code(0);
    import("long.parquet", &"x".repeat(20 << 20)).expect_exit(1, "longer than 16 MiB");
    let ran = import("huge.parquet", &"x".repeat(200 << 20));
    ran.expect_code(2);
    ran.expect_stderr_all(&["huge.parquet", "200 MiB", "128 MiB", "as CSV"]);
}

#[test]
fn a_panic_in_a_table_reader_ends_the_run_with_a_message() {
    let folder = crate::support::engine::repository("fuzz/__fuzz__/parquet/crashes");
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert!(entries.len() >= 9, "the corpus was not found");
    let program = Program::new();
    for entry in entries {
        let path = entry.unwrap().path().display().to_string();
        let ran = program.run(&["import", "--format", "parquet", &path]);
        assert!([1, 2].contains(&ran.code), "{path}: {}", ran.stderr);
        ran.expect_stderr(&path);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    }
    program.ok("db create");
    assert_eq!(program.count("runs WHERE status = 'running'"), 0);
}

#[test]
fn no_spelling_of_an_id_bypasses_its_tombstone() {
    let program = Program::new();
    let lines = |ids: &[&str]| -> String { ids.iter().map(|id| line_of(id)).collect() };
    program.import(&lines(&["aa1", "0bb2"]));
    program.purge(" T3_00AA1 \nt3_bb2\n");
    let spellings = [
        "aa1", "0aa1", "AA1", "t3_aa1", "T3_0AA1", " aa1", "BB2", "00bb2",
    ];
    program.import(&lines(&spellings));
    let csv = spellings.map(|id| format!("{id},Rye,food,1700000000\n"));
    let csv = format!("id,title,subreddit,created_utc\n{}", csv.concat());
    program.write("again.csv", csv);
    program.ok("import --format csv again.csv");
    assert_eq!(program.count("posts"), 0);
}

fn line_of(id: &str) -> String {
    let post = json!({"id": id, "subreddit": "food", "title": "Rye", "created_utc": 1_700_000_000});
    format!("{post}\n")
}
