//! Tests `topicmill export`: the contents of a data set, and that a data set is written atomically.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use topicmill::export::{self, DatasetFormat, Destination, Filters, Subject, Terms};

use crate::support::engine::{has_onnx_runtime, repository};
use crate::support::postgres::{TestDatabase, databases, sqlite};
use crate::support::program::{Program, run_limited};

const LABELS: &str = "name = \"two\"\nmode = \"single\"\n\
    [[topic]]\nslug = \"gaming\"\nlabel = \"video games\"\nsubreddits = [\"gaming\"]\n\
    [[topic]]\nslug = \"food\"\nlabel = \"food and cooking\"\nsubreddits = [\"food\"]\n";

/// Titles with characters that are special in some format.
const TITLES: [&str; 6] = [
    "a new boss fight, in \"this\" game",
    "=HYPERLINK(\"http://x.test\") how long to roast a chicken",
    "line one of a recipe\nline two",
    "game night 🎲 with é and \u{202e}reversed\u{202c}",
    "a stew; with | pipes\tand tabs",
    "<script>alert(1)</script> game",
];

fn posts(n: usize) -> String {
    (0..n)
        .map(|i| {
            let post = json!({
                "id": format!("k{i:06}"), "title": format!("{} {i}", TITLES[i % TITLES.len()]),
                "selftext": if i % 2 == 0 { "" } else { "a body\r\nof two lines" },
                "subreddit": "gaming", "created_utc": 1_700_000_000 + i * 3_600, "score": i,
                "num_comments": Value::Null,
            });
            format!("{post}\n")
        })
        .collect()
}

struct Scene {
    program: Program,
}

impl std::ops::Deref for Scene {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Scene {
    /// Creates a database of labelled posts.
    fn labelled(database: &TestDatabase, n: usize) -> Self {
        let scene = Self::unlabelled(database, n);
        let file = scene.program.write("two.toml", LABELS);
        scene.ok(&["classify", "--pipeline", &file]);
        scene
    }

    fn unlabelled(database: &TestDatabase, n: usize) -> Self {
        let program = Program::with_database(&database.url);
        let file = program.write("posts.ndjson", posts(n));
        let scene = Self { program };
        scene.ok(&["import", &file]);
        scene
    }

    fn refused(&self, args: &[&str], expected: &[&str]) {
        let ran = self.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        for word in expected {
            assert!(ran.stderr.contains(word), "{args:?}: {}", ran.stderr);
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.program.folder.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.program.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// Returns the rows of the view, by fullname.
    fn view(&self) -> BTreeMap<String, Value> {
        let query = "SELECT * FROM labeled_posts";
        let ran = self.ok(&["sql", query, "--format", "ndjson"]);
        let rows = ran.stdout.lines().map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            (row["fullname"].as_str().unwrap().to_owned(), row)
        });
        rows.collect()
    }

    fn jsonl(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path(name)).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }
}

#[test]
fn every_format_contains_the_rows_of_the_view() {
    if !has_onnx_runtime("every_format_contains_the_rows_of_the_view") {
        return;
    }
    let mut first: Option<Vec<Value>> = None;
    for database in databases() {
        let scene = Scene::labelled(&database, 60);
        let view = scene.view();
        for out in ["a.jsonl", "a.csv", "a.parquet"] {
            scene.ok(&["export", out]);
        }
        let rows = scene.jsonl("a.jsonl");
        assert_eq!(rows.len(), 60);
        for row in &rows {
            let shown = &view[row["fullname"].as_str().unwrap()];
            for column in [
                "title",
                "selftext",
                "subreddit",
                "reddit_score",
                "num_comments",
            ] {
                assert_eq!(row[column], shown[column], "{column}");
            }
            for column in ["label", "label_name", "score"] {
                assert_eq!(row[column], shown[column], "{column}");
            }
            let scores = [&row["score_gaming"], &row["score_food"]];
            let best = scores.map(|score| score.as_f64().unwrap());
            assert_eq!(row["score"], json!(best[0].max(best[1])));
            assert!(row["created_at"].as_str().unwrap().ends_with('Z'));
            assert_eq!(row["label_set"], "two");
            assert_eq!(row["outcome"], shown["outcome"]);
        }
        let mut csv = csv::Reader::from_path(scene.path("a.csv")).unwrap();
        let header = csv.headers().unwrap().clone();
        for (row, record) in rows.iter().zip(csv.records().map(Result::unwrap)) {
            for (name, value) in header.iter().zip(&record) {
                // The JSON parser rounds the last digit.
                let number = row[name].as_f64().filter(|_| row[name].is_f64());
                if let Some(number) = number {
                    let close = (value.parse::<f64>().unwrap() - number).abs() < 1e-15;
                    assert!(close, "{name}: {value} is not {number}");
                    continue;
                }
                let text = match &row[name] {
                    Value::Null => String::new(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                assert_eq!(value, text, "{name}");
            }
        }
        let file = File::open(scene.path("a.parquet")).unwrap();
        let file = SerializedFileReader::new(file).unwrap();
        let mut count = 0;
        for (row, read) in rows.iter().zip(file.get_row_iter(None).unwrap()) {
            let read = read.unwrap();
            count += 1;
            assert_eq!(
                read.get_string(0).unwrap(),
                row["fullname"].as_str().unwrap()
            );
            assert_eq!(read.get_string(3).unwrap(), row["title"].as_str().unwrap());
            assert_eq!(
                read.get_long(8).unwrap(),
                row["reddit_score"].as_i64().unwrap()
            );
            assert!(read.get_long(9).is_err(), "null stays null");
            let best = read.get_double(13).unwrap();
            assert!((best - row["score"].as_f64().unwrap()).abs() < 1e-15);
            assert_eq!(json!(read.get_bool(15).unwrap()), row["abstained"]);
        }
        assert_eq!(count, 60);
        // Both databases give the same rows, except for the times of labelling.
        let same: Vec<Value> = rows
            .into_iter()
            .map(|mut row| {
                row["classified_at"].take();
                row
            })
            .collect();
        let first = first.get_or_insert_with(|| same.clone());
        assert_eq!(*first, same);
    }
}

#[test]
fn filters_select_the_matching_rows() {
    if !has_onnx_runtime("filters_select_the_matching_rows") {
        return;
    }
    for database in databases() {
        let scene = Scene::labelled(&database, 48);
        scene.ok(&["export", "all.jsonl"]);
        let all = scene.jsonl("all.jsonl");
        let expect = |args: &[&str], passes: &dyn Fn(&Value) -> bool| {
            scene.ok(&[&["export", "some.jsonl", "--overwrite"], args].concat());
            let wanted: Vec<&Value> = all.iter().filter(|row| passes(row)).collect();
            let some = scene.jsonl("some.jsonl");
            assert!(
                some.iter().eq(wanted.iter().copied()),
                "{args:?}: {} rows",
                some.len()
            );
            assert!(
                some.len() < all.len() && !some.is_empty(),
                "{args:?} says nothing"
            );
        };
        expect(&["--label", "gaming"], &|row| row["label"] == "gaming");
        expect(&["--label", "food and cooking"], &|row| {
            row["label"] == "food"
        });
        let mut scores: Vec<f64> = all.iter().filter_map(|row| row["score"].as_f64()).collect();
        scores.sort_by(f64::total_cmp);
        let middle = f64::midpoint(scores[23], scores[24]);
        expect(&["--min-score", &middle.to_string()], &|row| {
            row["score"].as_f64() >= Some(middle)
        });
        expect(&["--since", "2023-11-15"], &|row| {
            row["created_at"].as_str() >= Some("2023-11-15T00:00:00Z")
        });
        expect(&["--until", "2023-11-15T12:00:00Z"], &|row| {
            row["created_at"].as_str() < Some("2023-11-15T12:00:00Z")
        });
        let expression = "reddit_score % 2 = 0 AND title LIKE '%game%' -- even ones";
        expect(&["--where", expression], &|row| {
            row["reddit_score"].as_i64().unwrap() % 2 == 0
                && row["title"].as_str().unwrap().contains("game")
        });
        for more in ["1=1); DELETE FROM posts; --", "1 = 1) UNION SELECT (1"] {
            scene.refused(&["export", "x.csv", "--where", more], &[]);
        }
        // Exported ids can be passed to `--ids` of other commands.
        scene.ok(&["export", "ids.txt", "--format", "ids", "--label", "gaming"]);
        let ids = fs::read_to_string(scene.path("ids.txt")).unwrap();
        let wanted = all.iter().filter(|row| row["label"] == "gaming");
        assert!(
            ids.lines()
                .eq(wanted.map(|row| row["fullname"].as_str().unwrap()))
        );
    }
}

#[test]
fn invalid_input_is_rejected_with_advice_and_writes_nothing() {
    if !has_onnx_runtime("invalid_input_is_rejected_with_advice_and_writes_nothing") {
        return;
    }
    let database = sqlite();
    let empty = Scene::unlabelled(&database, 12);
    empty.refused(&["export", "x.csv"], &["topicmill classify"]);
    let file = empty.program.write("two.toml", LABELS);
    empty.ok(&["classify", "--pipeline", &file]);
    let scene = empty;
    let before = scene.names();
    for (args, expected) in [
        (&["x.ods"][..], &[".parquet", "--format"][..]),
        (&["x.csv", "--label", "gamin"], &["`gamin`", "gaming"]),
        (&["x.csv", "--where", "scoer > 1"], &["scoer"]),
        (&["x.csv", "--since", "yesterday"], &["2026-11-20"]),
        (&["x.csv", "--since", "2026-02-30"], &["2026-11-20"]),
        (
            &["x.csv", "--since", "2026-11-21", "--until", "2026-11-20"],
            &["--until"],
        ),
        (&["x.csv", "--min-score", "7"], &["0 to 1"]),
        (&["x.csv", "--label-set", "three"], &["`three`", "two"]),
        (&["x.parquet", "--bom"], &["--bom"]),
        (
            &["two.toml", "--format", "csv"],
            &["exists already", "--overwrite"],
        ),
    ] {
        scene.refused(&[&["export"], args].concat(), expected);
    }
    let lost = scene.run(&["export", "no/such/folder/x.csv"]);
    assert_eq!(lost.code, 1, "{}", lost.stderr);
    assert_eq!(scene.names().len(), before.len(), "{:?}", scene.names());
    assert_eq!(scene.view().len(), 12);
    // A foreign folder is not replaced, an exported one is.
    fs::create_dir(scene.path("mine")).unwrap();
    fs::write(scene.path("mine/README.md"), "mine").unwrap();
    let kept = scene.run(&["export", "mine", "--overwrite"]);
    assert_eq!(kept.code, 1, "{}", kept.stderr);
    assert_eq!(
        fs::read_to_string(scene.path("mine/README.md")).unwrap(),
        "mine"
    );
    scene.ok(&["export", "set"]);
    scene.refused(&["export", "set"], &["exists already"]);
    for stranger in ["set/notes.txt", "set/data/mine.parquet"] {
        fs::write(scene.path(stranger), "mine").unwrap();
        let kept = scene.run(&["export", "set", "--overwrite"]);
        kept.expect_exit(1, "is not part of the data set");
        assert_eq!(fs::read_to_string(scene.path(stranger)).unwrap(), "mine");
        fs::remove_file(scene.path(stranger)).unwrap();
    }
    scene.ok(&["export", "set", "--overwrite", "--label", "gaming"]);
    let card = fs::read_to_string(scene.path("set/README.md")).unwrap();
    assert!(
        card.contains("| gaming |") && !card.contains("| food |"),
        "{card}"
    );
    assert!(
        !scene
            .names()
            .iter()
            .any(|name| name.starts_with('.') && name.contains("set"))
    );
    // Without rows, the table has only its header.
    scene.ok(&["export", "none.csv", "--since", "2999-01-01"]);
    assert_eq!(
        fs::read_to_string(scene.path("none.csv"))
            .unwrap()
            .lines()
            .count(),
        1
    );
}

#[test]
fn labels_of_another_set_come_from_the_model_that_produced_them() {
    if !has_onnx_runtime("labels_of_another_set_come_from_the_model_that_produced_them") {
        return;
    }
    let database = sqlite();
    let scene = Scene::labelled(&database, 12);
    let other = LABELS.replace("name = \"two\"", "name = \"also\"\nthreshold = 0.01");
    let other = scene.program.write("also.toml", other);
    let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
    let tiny = tiny.to_str().unwrap();
    scene.ok(&["classify", "--pipeline", &other, "--model", tiny]);
    // Neither the current set nor the current model.
    scene.ok(&["export", "also.jsonl", "--label-set", "also"]);
    let rows = scene.jsonl("also.jsonl");
    assert_eq!(rows.len(), 12);
    assert!(rows.iter().all(|row| row["model"] == "tiny-bert-nli"));
    // With labels of both models, the current model's are exported unless the other one is named.
    scene.ok(&["classify", "--pipeline", &other]);
    for (args, model) in [
        (&[][..], "tiny-bart-mnli"),
        (&["--model", "tiny-bert-nli"], "tiny-bert-nli"),
    ] {
        let export = ["export", "also.jsonl", "--overwrite", "--label-set", "also"];
        scene.ok(&[&export[..], args].concat());
        assert_eq!(scene.jsonl("also.jsonl")[0]["model"], model);
    }
    let never = LABELS.replace("name = \"two\"", "name = \"never\"\nthreshold = 0.02");
    let never = scene.program.write("never.toml", never);
    scene.refused(
        &["export", "also.jsonl", "--overwrite", "--label-set", &never],
        &["no post has a label"],
    );
    assert_eq!(
        scene.jsonl("also.jsonl").len(),
        12,
        "what was there is there"
    );
}

#[test]
fn spreadsheets_get_no_formulas_and_detect_utf_8() {
    let database = crate::support::postgres::sqlite();
    if !has_onnx_runtime("spreadsheets_get_no_formulas_and_detect_utf_8") {
        return;
    }
    let scene = Scene::labelled(&database, 6);
    scene.ok(&["export", "a.csv", "--safe-csv", "--bom"]);
    let bytes = fs::read(scene.path("a.csv")).unwrap();
    assert!(bytes.starts_with(b"\xef\xbb\xbffullname,"));
    let mut csv = csv::Reader::from_reader(&bytes[3..]);
    for record in csv.records() {
        for value in &record.unwrap() {
            assert!(!value.starts_with(['=', '+', '@']), "{value}");
        }
    }
}

#[tokio::test]
async fn an_export_is_a_consistent_snapshot() {
    const N: usize = 1_200;
    if !has_onnx_runtime("an_export_is_a_consistent_snapshot") {
        return;
    }
    for database in databases() {
        // More text than fits in the buffers: 1 MB a batch, up to 32 batches.
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
            split: None,
        };
        let terms = Terms {
            allow_superuser: true,
            reconciled_at: None,
            stop: CancellationToken::new(),
        };
        let parts = Arc::new(AtomicU64::new(0));
        let command = {
            let mut command = scene.program.command(&["purge", "--ids"]);
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
                    // On SQLite the purge exits with 1, because the export still reads the purged rows.
                    let ran = command.lock().unwrap().output().unwrap();
                    let stderr = String::from_utf8_lossy(&ran.stderr);
                    assert!(stderr.contains("purged=1212"), "{stderr}");
                }
            }
        };
        let subject = Subject {
            target,
            set,
            vectors: false,
        };
        let filters = Filters {
            unlabelled: true,
            ..Filters::default()
        };
        let counts = export::export(&store, &subject, &filters, destination, terms, received).await;
        assert_eq!(counts.unwrap().rows, 1_212);
        assert!(parts.load(Ordering::Relaxed) > 35);
        assert_eq!(scene.view().len(), 0, "they are purged");
        let rows = scene.jsonl("a.jsonl");
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
    if !has_onnx_runtime("a_killed_or_failed_export_keeps_the_previous_file") {
        return;
    }
    let scene = Scene::labelled(&database, 12);
    let more = scene.program.write("more.ndjson", posts(30_000));
    scene.ok(&["import", &more]);
    fs::write(scene.path("old.parquet"), "old").unwrap();
    let args = ["export", "old.parquet", "--overwrite", "--unlabelled"];
    let begun = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        entries
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().ends_with(".partial"))
    };
    let mut child = scene.program.command(&args).spawn().unwrap();
    while !begun(scene.program.folder.path()) {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before it was killed"
        );
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        fs::read_to_string(scene.path("old.parquet")).unwrap(),
        "old"
    );
    // The file size is limited.
    let export = ["export", "old.csv", "--unlabelled"];
    run_limited(&scene.command(&export), "ulimit -f 50").expect_exit(1, "old.csv");
    assert!(!scene.path("old.csv").exists());
    scene.ok(&["export", "old.parquet", "--overwrite", "--unlabelled"]);
    let file = File::open(scene.path("old.parquet")).unwrap();
    let file = SerializedFileReader::new(file).unwrap();
    assert_eq!(file.metadata().file_metadata().num_rows(), 30_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn gold_is_exported_and_splits_off_a_test_part() {
    if !has_onnx_runtime("gold_is_exported_and_splits_off_a_test_part") {
        return;
    }
    for database in databases() {
        let program = Program::with_database(&database.url);
        let texts = [
            "the boss of the third level has a shield that breaks after nine hits",
            "which knife do you use to cut onions without crying into the soup",
            "my neighbour plays the trumpet at night and nobody seems to mind it",
            "a patch of the racing game has removed my favourite car from it",
            "how long does bread have to rest before it goes into the oven",
        ];
        // The last post is a near-duplicate of the first.
        let copy = format!("{} EDIT", texts[0]);
        let lines = texts.iter().copied().chain([copy.as_str()]).enumerate();
        let lines = lines.map(|(i, text)| {
            let post = json!({
                "id": format!("k{i}"), "title": text, "selftext": "", "subreddit": "mixed",
                "created_utc": 1_700_000_000 + i,
            });
            format!("{post}\n")
        });
        let posts = program.write("posts.ndjson", lines.collect::<String>());
        let labels = program.write("two.toml", LABELS);
        let scene = Scene { program };
        scene.ok(&["import", &posts]);
        scene.ok(&["classify", "--pipeline", &labels]);
        // `datasets` cannot load an empty split.
        let ran = scene.ok(&["export", "unchecked", "--split", "gold"]);
        let expected = "split test has no posts, so it is not in the data set";
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
        let files = fs::read_dir(scene.path("unchecked/data")).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["train-00000-of-00001.parquet"]);
        let card = fs::read_to_string(scene.path("unchecked/README.md")).unwrap();
        assert!(!card.contains("test"), "{card}");
        for part in [
            "  - split: train\n",
            "| language | not detected",
            "- n<1K\n",
        ] {
            assert!(card.contains(part), "{card}");
        }
        for (annotator, answers) in [
            ("anna", "id,label\nk0,gaming\nk1,food\nk2,none\n"),
            ("ben", "id,label\nk0,gaming\nk1,gaming\n"),
        ] {
            let answers = scene.program.write("answers.csv", answers);
            scene.ok(&[
                "labels",
                "gold",
                "import",
                &answers,
                "--annotator",
                annotator,
            ]);
        }
        let expected = [
            (json!("gaming"), json!("anna, ben"), "test"),
            // They disagree.
            (Value::Null, json!("anna, ben"), "train"),
            (json!("other"), json!("anna"), "test"),
            (Value::Null, Value::Null, "train"),
            (Value::Null, Value::Null, "train"),
            (Value::Null, Value::Null, "test"),
        ];
        scene.ok(&["export", "gold.jsonl", "--split", "gold"]);
        let rows = scene.jsonl("gold.jsonl");
        let found = rows.iter().map(|row| {
            let split = row["split"].as_str().unwrap();
            (row["gold"].clone(), row["gold_by"].clone(), split)
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
        let shown = scene.view();
        for row in &rows {
            let shown = &shown[row["fullname"].as_str().unwrap()];
            for column in ["gold", "gold_by", "label", "label_name"] {
                assert_eq!(row[column], shown[column], "{column}");
            }
        }
        // The answer about an earlier text does not count.
        let edited = "UPDATE gold SET text_hash = (SELECT text_hash FROM posts WHERE fullname = 't3_k3') WHERE \
            fullname = 't3_k2'";
        database.run(edited).await;
        assert_eq!(scene.view()["t3_k2"]["gold_by"], Value::Null);
        scene.ok(&["export", "data-set", "--split", "gold"]);
        let card = fs::read_to_string(scene.path("data-set/README.md")).unwrap();
        let classes = [
            "  - name: label",
            "    dtype:",
            "      class_label:",
            "        names:",
            "          '0': \"gaming\"",
            "          '1': \"food\"",
            "  - name",
        ];
        let classes = &classes.join("\n");
        assert!(card.contains(classes), "{card}");
        scene.refused(
            &["export", "x.csv", "--split", "gold", "--split-by", "time"],
            &["leave out --split-by"],
        );
        scene.refused(&["export", "x.csv", "--vectors"], &["embedding model"]);
    }
}

#[test]
fn vectors_are_exported_in_every_format() {
    if !has_onnx_runtime("vectors_are_exported_in_every_format") {
        return;
    }
    for database in databases() {
        let program = Program::with_database(&database.url).with_default_model();
        let texts = program.write("posts.ndjson", posts(7));
        let labels = program.write("two.toml", LABELS);
        let scene = Scene { program };
        scene.ok(&["import", &texts]);
        scene.ok(&["classify", "--pipeline", &labels]);
        for out in ["v.jsonl", "v.csv", "v.parquet"] {
            scene.ok(&["export", out, "--vectors"]);
        }
        let rows = scene.jsonl("v.jsonl");
        let vectors: Vec<Vec<f32>> = rows
            .iter()
            .map(|row| serde_json::from_value(row["vector"].clone()).unwrap())
            .collect();
        for vector in &vectors {
            let length: f32 = vector.iter().map(|x| x * x).sum();
            assert!(
                vector.len() == 384 && (length - 1.0).abs() < 1e-4,
                "{length}"
            );
        }
        let mut csv = csv::Reader::from_path(scene.path("v.csv")).unwrap();
        let column = csv
            .headers()
            .unwrap()
            .iter()
            .position(|name| name == "vector");
        for (vector, record) in vectors.iter().zip(csv.records().map(Result::unwrap)) {
            let read: Vec<f32> = serde_json::from_str(&record[column.unwrap()]).unwrap();
            assert_eq!(&read, vector);
        }
        let file = File::open(scene.path("v.parquet")).unwrap();
        let file = SerializedFileReader::new(file).unwrap();
        let column = column.unwrap();
        let mut count = 0;
        for (vector, read) in vectors.iter().zip(file.get_row_iter(None).unwrap()) {
            let read = read.unwrap();
            let list = read.get_list(column).unwrap().elements().iter();
            let read: Vec<f32> = list
                .map(|field| match field {
                    parquet::record::Field::Float(x) => *x,
                    other => panic!("{other}"),
                })
                .collect();
            assert_eq!(&read, vector);
            count += 1;
        }
        assert_eq!(count, rows.len());
    }
}
