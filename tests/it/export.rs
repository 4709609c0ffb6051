//! Tests `topicmill export`: the contents of a data set, and that a data set is written atomically.

mod atomic;
mod columns;

use std::collections::BTreeMap;
use std::fs::{self, File};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::{Value, json};
use topicmill_core::table;

use crate::support::builders::LABELS;
use crate::support::engine::repository;
use crate::support::postgres::sqlite;
use crate::support::program::Program;

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

/// Imports posts with special characters.
fn unlabelled(program: Program, posts_count: usize) -> Program {
    program.import(&posts(posts_count));
    program
}

/// Imports posts as [`unlabelled`] does, and labels them with `two.toml`.
fn labelled(program: Program, posts_count: usize) -> Program {
    let program = unlabelled(program, posts_count);
    program.pipeline("two", "", &LABELS[..2]);
    program.ok("classify --pipeline two.toml");
    program
}

impl Program {
    /// Returns the rows of the view, by fullname.
    fn view(&self) -> BTreeMap<String, Value> {
        let rows = self.query("SELECT * FROM labeled_posts").into_iter();
        rows.map(|row| (row["fullname"].as_str().unwrap().to_owned(), row))
            .collect()
    }

    /// Returns the rows of a Parquet file, by column.
    fn read_parquet(&self, name: &str) -> Vec<BTreeMap<String, Field>> {
        let file = SerializedFileReader::new(File::open(self.path(name)).unwrap()).unwrap();
        let rows = file.get_row_iter(None).unwrap().map(Result::unwrap);
        rows.map(|row| row.into_columns().into_iter().collect())
            .collect()
    }
}

#[test]
fn every_format_contains_the_rows_of_the_view() {
    let mut first: Option<Vec<Value>> = None;
    for program in Program::on_each_database() {
        let program = labelled(program, 60);
        let view = program.view();
        for out in ["a.jsonl", "a.csv", "a.parquet"] {
            program.ok(&["export", out]);
        }
        let mut rows = program.read_lines("a.jsonl");
        assert_eq!(rows.len(), 60);
        let same =
            "title selftext subreddit reddit_score num_comments label label_name score outcome";
        for row in &rows {
            let shown = &view[row["fullname"].as_str().unwrap()];
            for column in same.split(' ') {
                assert_eq!(row[column], shown[column], "{column}");
            }
            let scores = [&row["score_gaming"], &row["score_food"]];
            let best = scores.map(|score| score.as_f64().unwrap());
            assert_eq!(row["score"], json!(best[0].max(best[1])));
            assert!(row["created_at"].as_str().unwrap().ends_with('Z'));
            assert_eq!(row["label_set"], "two");
        }
        let mut csv = csv::Reader::from_path(program.path("a.csv")).unwrap();
        let header = csv.headers().unwrap().clone();
        let records: Vec<_> = csv.records().map(Result::unwrap).collect();
        assert_eq!(records.len(), 60);
        for (row, record) in rows.iter().zip(records) {
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
        let records = program.read_parquet("a.parquet");
        assert_eq!(records.len(), 60);
        for (row, record) in rows.iter().zip(records) {
            for name in ["fullname", "title"] {
                let text = row[name].as_str().unwrap().to_owned();
                assert_eq!(record[name], Field::Str(text));
            }
            let reddit_score = row["reddit_score"].as_i64().unwrap();
            assert_eq!(record["reddit_score"], Field::Long(reddit_score));
            assert_eq!(record["num_comments"], Field::Null);
            let Field::Double(score) = record["score"] else {
                panic!("{record:?}")
            };
            assert!((score - row["score"].as_f64().unwrap()).abs() < 1e-15);
            let abstained = row["abstained"].as_bool().unwrap();
            assert_eq!(record["abstained"], Field::Bool(abstained));
        }
        // Both databases return the same rows, except for the labelling times.
        for row in &mut rows {
            row["classified_at"].take();
        }
        let first = first.get_or_insert_with(|| rows.clone());
        assert_eq!(*first, rows);
    }
}

#[test]
fn filters_select_the_matching_rows() {
    for program in Program::on_each_database() {
        let program = labelled(program, 48);
        program.ok("export all.jsonl");
        let all = program.read_lines("all.jsonl");
        let expect = |args: &[&str], passes: &dyn Fn(&Value) -> bool| {
            program.ok(&[&["export", "some.jsonl", "--overwrite"], args].concat());
            let wanted: Vec<&Value> = all.iter().filter(|row| passes(row)).collect();
            let some = program.read_lines("some.jsonl");
            assert!(some.iter().eq(wanted), "{args:?}: {} rows", some.len());
            assert!(
                some.len() < all.len() && !some.is_empty(),
                "{args:?}: all rows or none"
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
        for more in ["1=1); DELETE FROM things; --", "1 = 1) UNION SELECT (1"] {
            program
                .run(&["export", "x.csv", "--where", more])
                .expect_code(2);
        }
        // Exported ids can be passed to other commands with `--ids`.
        program.ok("export ids.txt --format ids --label gaming");
        let ids = program.read("ids.txt");
        let wanted = all.iter().filter(|row| row["label"] == "gaming");
        let wanted = wanted.map(|row| row["fullname"].as_str().unwrap());
        assert!(ids.lines().eq(wanted));
    }
}

#[test]
fn invalid_input_is_rejected_with_advice_and_writes_nothing() {
    let program = unlabelled(Program::on(sqlite()), 12);
    program
        .run("export x.csv")
        .expect_exit(2, "topicmill classify");
    program.pipeline("two", "", &LABELS[..2]);
    program.ok("classify --pipeline two.toml");
    let before = program.files();
    for (line, messages) in table! {
        "x.ods", &[".parquet", "--format"][..];
        "x.csv --label gamin", &["`gamin`", "gaming"];
        "x.csv --where 'scoer > 1'", &["scoer"];
        "x.csv --since yesterday", &["2026-11-20"];
        "x.csv --since 2026-02-30", &["2026-11-20"];
        "x.csv --since 2026-11-21 --until 2026-11-20", &["--until"];
        "x.csv --min-score 7", &["0 to 1"];
        "x.csv --label-set three", &["`three`", "two"];
        "x.parquet --bom", &["--bom"];
        "two.toml --format csv", &["already exists", "--overwrite"];
    } {
        let ran = program.run(&format!("export {line}"));
        ran.expect_code(2);
        ran.expect_stderr_all(messages);
    }
    let lost = program.run("export no/such/folder/x.csv");
    lost.expect_exit(1, "no/such/folder");
    assert_eq!(program.files(), before);
    assert_eq!(program.view().len(), 12);
}

#[test]
fn an_exported_data_set_is_replaced_and_no_other_file_or_folder() {
    let program = labelled(Program::on(sqlite()), 12);
    fs::create_dir(program.path("mine")).unwrap();
    fs::write(program.path("mine/README.md"), "mine").unwrap();
    program.run("export mine --overwrite").expect_code(1);
    assert_eq!(program.read("mine/README.md"), "mine");
    program.ok("export set");
    program.run("export set").expect_exit(2, "already exists");
    for stranger in ["set/notes.txt", "set/data/mine.parquet"] {
        fs::write(program.path(stranger), "mine").unwrap();
        let kept = program.run("export set --overwrite");
        kept.expect_exit(1, "is not part of the data set");
        assert_eq!(program.read(stranger), "mine");
        fs::remove_file(program.path(stranger)).unwrap();
    }
    program.ok("export set --overwrite --label gaming");
    let card = program.read("set/README.md");
    let posts = program.count("labeled_posts WHERE label = 'gaming'");
    let labels = format!("| label | posts |\n|---|---|\n| gaming | {posts} |\n\n");
    assert!(
        card.contains(&labels) && card.contains("| posted | 20"),
        "{card}"
    );
    let is_temporary = |name: &String| name.starts_with('.') && name.contains("set");
    assert!(!program.files().iter().any(is_temporary));
}

#[test]
fn a_table_without_rows_has_a_header() {
    let program = labelled(Program::on(sqlite()), 1);
    program.ok("export none.csv --since 2999-01-01");
    assert_eq!(program.read("none.csv").lines().count(), 1);
}

#[test]
fn labels_of_a_different_set_come_from_the_model_that_produced_them() {
    let program = labelled(Program::on(sqlite()), 12);
    program.pipeline("also", "threshold = 0.01", &LABELS[..2]);
    let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
    let tiny = tiny.display();
    program.ok(&format!("classify --pipeline also.toml --model {tiny}"));
    // Neither this label set nor this model is current.
    program.ok("export also.jsonl --label-set also");
    let rows = program.read_lines("also.jsonl");
    assert_eq!(rows.len(), 12);
    assert!(rows.iter().all(|row| row["model"] == "tiny-bert-nli"));
    // With labels from both models, the current model's are exported unless the other model is named.
    program.ok("classify --pipeline also.toml");
    let export = "export also.jsonl --overwrite --label-set";
    for (args, model) in [
        ("", "tiny-bart-mnli"),
        (" --model tiny-bert-nli", "tiny-bert-nli"),
    ] {
        program.ok(&format!("{export} also{args}"));
        assert_eq!(program.read_lines("also.jsonl")[0]["model"], model);
    }
    program.pipeline("never", "threshold = 0.02", &LABELS[..2]);
    let never = program.run(&format!("{export} never.toml"));
    never.expect_exit(2, "no post has a label");
    assert_eq!(
        program.read_lines("also.jsonl").len(),
        12,
        "the existing file is unchanged"
    );
}

#[test]
fn spreadsheets_get_no_formulas_and_detect_utf_8() {
    let program = labelled(Program::on(sqlite()), 6);
    program.ok("export a.csv --safe-csv --bom");
    let bytes = fs::read(program.path("a.csv")).unwrap();
    assert!(bytes.starts_with(b"\xef\xbb\xbffullname,"));
    let mut csv = csv::Reader::from_reader(&bytes[3..]);
    let records: Vec<_> = csv.records().map(Result::unwrap).collect();
    let values = || records.iter().flatten();
    assert!(!values().any(|value| value.starts_with(['=', '+', '@'])));
    let formula = "'=HYPERLINK(\"http://x.test\") how long to roast a chicken 1";
    assert!(values().any(|value| value == formula), "{records:?}");
}
