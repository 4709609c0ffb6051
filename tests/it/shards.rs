//! `score` over folders of Parquet in shards: the rows of all shards are those of one run, whatever dies on the way.
//!
//! No database takes part in any of this.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::Row;
use parquet::schema::parser::parse_message_type;
use serde_json::Value;

use crate::support::engine::repository;
use crate::support::program::{Program, Ran, finished};

const LABELS: [&str; 4] = ["--label", "cooking", "--label", "football"];

/// A text, an id, and a list that only a copy keeps.
const SCHEMA: &str = "message schema {
    required int64 id;
    optional binary text (STRING);
    optional group tags (LIST) { repeated group list { optional binary element (STRING); } }
}";

fn command(program: &Program, more: &[&str]) -> Command {
    let words: Vec<&str> = ["score"]
        .iter()
        .chain(more)
        .chain(&LABELS)
        .copied()
        .collect();
    program.command(&words)
}

fn score(program: &Program, more: &[&str]) -> Ran {
    finished(command(program, more).output().unwrap())
}

fn ok(program: &Program, more: &[&str]) -> Ran {
    let ran = score(program, more);
    assert_eq!(ran.code, 0, "{more:?}\n{}", ran.stderr);
    ran
}

fn path(program: &Program, name: &str) -> PathBuf {
    program.folder.path().join(name)
}

/// Writes rows with the ids of a range, in row groups of `group` rows; a row whose id ends in 7 has no text where `nulls`.
fn table(program: &Program, name: &str, ids: std::ops::Range<i64>, group: usize, nulls: bool) {
    table_of(program, name, ids, group, |id| {
        let is_null = nulls && id % 10 == 7;
        (!is_null).then(|| {
            let what = [
                "a roast chicken",
                "a goal in the last minute",
                "something else",
            ];
            format!("{} number {id}", what[usize::try_from(id).unwrap() % 3])
        })
    });
}

fn table_of(
    program: &Program,
    name: &str,
    ids: std::ops::Range<i64>,
    group: usize,
    text: impl Fn(i64) -> Option<String>,
) {
    tagged(program, name, ids, group, text, "");
}

/// `more` stands in each tag.
fn tagged(
    program: &Program,
    name: &str,
    ids: std::ops::Range<i64>,
    group: usize,
    text: impl Fn(i64) -> Option<String>,
    more: &str,
) {
    let path = path(program, name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = WriterProperties::builder()
        .set_data_page_row_count_limit(50)
        .build();
    let file = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
    let ids: Vec<i64> = ids.collect();
    for ids in ids.chunks(group) {
        let mut out = writer.next_row_group().unwrap();
        let mut column = out.next_column().unwrap().unwrap();
        column
            .typed::<Int64Type>()
            .write_batch(ids, None, None)
            .unwrap();
        column.close().unwrap();
        let texts: Vec<Option<String>> = ids.iter().map(|id| text(*id)).collect();
        let there: Vec<i16> = texts.iter().map(|text| i16::from(text.is_some())).collect();
        let texts: Vec<ByteArray> = texts
            .iter()
            .flatten()
            .map(|text| text.as_str().into())
            .collect();
        let mut column = out.next_column().unwrap().unwrap();
        let typed = column.typed::<ByteArrayType>();
        typed.write_batch(&texts, Some(&there), None).unwrap();
        column.close().unwrap();
        // As many tags as the id's last digit, up to three; none at all for each fifth row.
        let (mut tags, mut defs, mut reps) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            if id % 5 == 0 {
                defs.push(0);
                reps.push(0);
            } else {
                for tag in 0..=id % 3 {
                    tags.push(ByteArray::from(
                        format!("tag {id} {tag}{}", noise(more, *id)).as_str(),
                    ));
                    defs.push(3);
                    reps.push(i16::from(tag > 0));
                }
            }
        }
        let mut column = out.next_column().unwrap().unwrap();
        let typed = column.typed::<ByteArrayType>();
        typed.write_batch(&tags, Some(&defs), Some(&reps)).unwrap();
        column.close().unwrap();
        out.close().unwrap();
    }
    writer.close().unwrap();
}

/// As long as a text, and nothing that a codec makes small.
fn noise(like: &str, id: i64) -> String {
    let mut random = fastrand::Rng::with_seed(id.unsigned_abs());
    like.chars().map(|_| random.alphanumeric()).collect()
}

/// The input of most tests: three files in two folders, 1,000 rows.
fn inputs(program: &Program) {
    table(program, "in/b.parquet", 300..700, 90, true);
    table(program, "in/a.parquet", 0..300, 300, true);
    table(program, "in/more/c.parquet", 700..1000, 77, true);
    fs::write(path(program, "in/_SUCCESS"), "").unwrap();
}

fn reader(path: &Path) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(path).unwrap()).unwrap()
}

fn rows(program: &Program, name: &str) -> Vec<Row> {
    let path = path(program, name);
    reader(&path).into_iter().map(Result::unwrap).collect()
}

fn part(index: u32, count: u32) -> String {
    format!("part-{index:05}-of-{count:05}")
}

/// The rows of all shards, one behind the other, as text.
fn all(program: &Program, folder: &str, count: u32) -> Vec<String> {
    let parts = (1..=count).map(|index| format!("{folder}/{}.parquet", part(index, count)));
    let rows = parts.flat_map(|part| rows(program, &part));
    rows.map(|row| row.to_string()).collect()
}

/// Whether rows are the same, with the scores to what an engine promises: a row that is computed beside others may differ
/// in the last digits.
fn alike(rows: &[String], others: &[String]) -> bool {
    let words = |row: &str| -> Vec<String> {
        let words = row.split([' ', ',', '{', '}']);
        words.map(str::to_owned).collect()
    };
    let is_near = |word: &String, other: &String| {
        let numbers = word.parse::<f64>().ok().zip(other.parse::<f64>().ok());
        word == other
            || numbers.is_some_and(|(one, two)| word.contains('.') && (one - two).abs() < 1e-4)
    };
    let is_alike = |(row, other): (&String, &String)| {
        let (row, other) = (words(row), words(other));
        row.len() == other.len() && row.iter().zip(&other).all(|(one, two)| is_near(one, two))
    };
    rows.len() == others.len() && rows.iter().zip(others).all(is_alike)
}

fn json(program: &Program, name: &str) -> Value {
    serde_json::from_slice(&fs::read(path(program, name)).unwrap()).unwrap()
}

/// Files in the folder of descriptions whose names end like this.
fn left(program: &Program, folder: &str, ending: &str) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(path(program, &format!("{folder}/_topicmill"))) else {
        return Vec::new();
    };
    let files = files.map(|file| file.unwrap().path());
    files
        .filter(|file| file.to_string_lossy().ends_with(ending))
        .collect()
}

#[test]
fn all_shards_together_are_one_run() {
    let program = Program::new();
    inputs(&program);
    let one = score(&program, &["in", "one/", "--label-scores"]);
    // 100 rows have no text.
    assert_eq!(one.code, 1, "{}", one.stderr);
    assert!(one.stderr.contains("in/a.parquet line 8"), "{}", one.stderr);
    let whole = all(&program, "one", 1);
    assert_eq!(whole.len(), 1000);
    for (at, row) in whole.iter().enumerate() {
        assert!(row.starts_with(&format!("{{id: {at}, ")), "{row}");
        assert_eq!(row.contains("has no `text`"), at % 10 == 7, "{row}");
        assert_eq!(row.contains("tags: null"), at % 5 == 0, "{row}");
    }
    for index in ["3/3", "1/3", "2/3"] {
        let more = [
            "in/**/*.parquet",
            "three/",
            "--shard",
            index,
            "--label-scores",
        ];
        let more = [&more[..], &["--row-group-rows", "100"]].concat();
        let ran = score(&program, &more);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(
            ran.stderr
                .contains(&format!("shard {} of 3 (--shard)", &index[..1]))
        );
    }
    assert!(alike(&all(&program, "three", 3), &whole));
    let second = path(&program, "three/part-00002-of-00003.parquet");
    let reader = reader(&second);
    let groups = reader.metadata().row_groups();
    let sizes: Vec<i64> = groups.iter().map(RowGroupMetaData::num_rows).collect();
    assert_eq!(sizes, [100, 100, 100, 33]);
    let has_all = |group: &RowGroupMetaData| {
        group
            .columns()
            .iter()
            .all(|column| column.statistics().is_some())
    };
    assert!(groups.iter().all(has_all));
    let manifest = json(&program, "three/_topicmill/part-00002-of-00003.json");
    assert_eq!(manifest["rows"]["read"], 333);
    assert_eq!(manifest["bytes"], second.metadata().unwrap().len());
    let inputs = manifest["inputs"].as_array().unwrap();
    assert_eq!(inputs[0]["name"], "b.parquet", "{manifest}");
    assert_eq!(inputs[0]["first_row"], 33, "{manifest}");
    assert!(left(&program, "three", ".ndjson").is_empty());
    assert!(left(&program, "three", ".holder").is_empty());
    assert!(left(&program, "three", ".draft").is_empty());
    // What it says is true.
    let sum = Command::new("sha256sum").arg(&second).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert!(
        sum.starts_with(manifest["sha256"].as_str().unwrap()),
        "{sum}"
    );
}

#[test]
fn a_check_says_which_shards_are_missing() {
    let program = Program::new();
    table(&program, "in/a.parquet", 0..60, 10, false);
    let check = |folder: &str| program.run(&["score", "--check", folder]);
    assert_eq!(check("out").code, 2);
    for index in ["2/7", "5/7"] {
        ok(&program, &["in", "out/", "--shard", index]);
    }
    let ran = check("out");
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stdout.contains("2 of 7 shards are whole"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout.contains("missing: 1, 3-4, 6-7"),
        "{}",
        ran.stdout
    );
    for index in ["1/7", "3/7", "4/7", "6/7", "7/7"] {
        ok(&program, &["in", "out/", "--shard", index]);
    }
    let ran = check("out/");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout
            .contains("7 of 7 shards are whole: 60 rows read, 60 written")
    );
    // A file that is cut short is not what its manifest says.
    let cut = path(&program, "out/part-00003-of-00007.parquet");
    let bytes = fs::read(&cut).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    let ran = check("out");
    assert!(
        ran.code == 2 && ran.stderr.contains("--shard 3/7 --overwrite"),
        "{}",
        ran.stderr
    );
    ok(&program, &["in", "out/", "--shard", "3/7", "--overwrite"]);
    assert_eq!(fs::read(&cut).unwrap(), bytes);
    // A part that nobody's plan has.
    fs::copy(&cut, path(&program, "out/part-00001-of-00050.parquet")).unwrap();
    let ran = check("out");
    assert!(
        ran.code == 2 && ran.stderr.contains("part-00001-of-00050"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_whole_shard_needs_no_model_and_other_work_is_refused() {
    let program = Program::new();
    table(&program, "in/a.parquet", 0..40, 10, false);
    table(&program, "in/b.parquet", 40..80, 10, false);
    ok(&program, &["in", "out/", "--shard", "1/2"]);
    let mut again = command(&program, &["in", "out/", "--shard", "1/2"]);
    again.env("ORT_DYLIB_PATH", "/no/such/library.so");
    let ran = finished(again.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("shard 1 of 2 is whole already"),
        "{}",
        ran.stderr
    );
    // The same inputs under another path, with other dates.
    fs::create_dir(path(&program, "elsewhere")).unwrap();
    for name in ["a.parquet", "b.parquet"] {
        let from = path(&program, "in").join(name);
        fs::copy(from, path(&program, "elsewhere").join(name)).unwrap();
    }
    let ran = ok(&program, &["elsewhere/*.parquet", "out/", "--shard", "1/2"]);
    assert!(ran.stderr.contains("whole already"), "{}", ran.stderr);

    let refused = |more: &[&str], what: &str| {
        let ran = score(&program, more);
        assert_eq!(ran.code, 2, "{more:?}\n{}", ran.stderr);
        assert!(
            ran.stderr.contains(what) && ran.stderr.contains("--overwrite"),
            "{}",
            ran.stderr
        );
    };
    refused(&["in", "out/", "--shard", "2/3"], "2 shards, and not 3");
    refused(
        &["in", "out/", "--shard", "2/2", "--label", "chess"],
        "the labels",
    );
    refused(
        &["in", "out/", "--shard", "2/2", "--where", "score > 0.5"],
        "no --where, and not --where",
    );
    refused(
        &["in/a.parquet", "out/", "--shard", "2/2"],
        "an input `b.parquet` more",
    );
    table(&program, "in/b.parquet", 40..90, 10, false);
    refused(
        &["in", "out/", "--shard", "2/2"],
        "an input `b.parquet` with 40 rows",
    );
    let mut model = command(&program, &["elsewhere", "out/", "--shard", "2/2"]);
    model.env("TOPICMILL__CLASSIFY__MODEL", tiny());
    let ran = finished(model.output().unwrap());
    assert!(
        ran.code == 2 && ran.stderr.contains("the model"),
        "{}",
        ran.stderr
    );
    // Begun anew, nothing of the other work is left.
    ok(&program, &["in", "out/", "--shard", "2/3", "--overwrite"]);
    assert!(!path(&program, "out/part-00001-of-00002.parquet").exists());
    let ran = program.run(&["score", "--check", "out"]);
    assert!(
        ran.stdout.contains("missing: 1, 3"),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    // Files of somebody else stay.
    fs::create_dir(path(&program, "theirs")).unwrap();
    fs::write(
        path(&program, "theirs/part-00001-of-00001.parquet"),
        "theirs",
    )
    .unwrap();
    refused(&["in", "theirs/"], "it exists already");
}

#[test]
fn the_environment_says_which_shard() {
    let program = Program::new();
    table(&program, "in/a.parquet", 0..30, 10, false);
    let with = |more: &[&str], set: &[(&str, &str)]| {
        let mut command = command(&program, more);
        command.envs(set.iter().copied());
        finished(command.output().unwrap())
    };
    let ran = with(
        &["in", "out/", "--shards", "3"],
        &[("JOB_COMPLETION_INDEX", "2")],
    );
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("shard 3 of 3 (JOB_COMPLETION_INDEX=2)"),
        "{}",
        ran.stderr
    );
    let ran = with(
        &["in", "out/", "--shards", "3"],
        &[("SLURM_ARRAY_TASK_ID", "2")],
    );
    assert!(
        ran.stderr.contains("shard 2 of 3 (SLURM_ARRAY_TASK_ID=2)"),
        "{}",
        ran.stderr
    );
    assert!(path(&program, "out/part-00002-of-00003.parquet").exists());
    for (more, set, what) in [
        (&["in", "out/"][..], "JOB_COMPLETION_INDEX", "--shards N"),
        (&["in", "out/"], "SLURM_ARRAY_TASK_ID", "--shards N"),
        (&["in", "out/", "--shards", "3"], "HOME", "--shard 1/3"),
    ] {
        let ran = with(more, &[(set, "2")]);
        assert!(ran.code == 2 && ran.stderr.contains(what), "{}", ran.stderr);
    }
    for wrong in ["0/3", "4/3", "3"] {
        let ran = score(&program, &["in", "out/", "--shard", wrong]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
    }
    // One file as the output is no shard, whatever a scheduler says.
    let ran = with(&["in", "out.parquet"], &[("JOB_COMPLETION_INDEX", "2")]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(rows(&program, "out.parquet").len(), 30);
}

/// Starts a shard, and waits until it has scored some rows.
fn begun(program: &Program, more: &[&str], bytes: u64) -> std::process::Child {
    let mut command = command(program, more);
    let mut running = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let scored = || {
        let journals = left(program, "out", ".ndjson").into_iter();
        journals
            .filter_map(|path| Some(path.metadata().ok()?.len()))
            .sum::<u64>()
    };
    while scored() < bytes && running.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    running
}

/// A model that scores thousands of rows in a second.
fn tiny() -> String {
    let folder = repository("tests/it/fixtures/models/tiny-bert-nli");
    folder.to_str().unwrap().to_owned()
}

/// Rows of three windows, in one row group.
fn many(program: &Program) {
    table_of(program, "in/a.parquet", 0..12_000, 12_000, |id| {
        Some(format!(
            "{} {id}",
            "roast chicken with rice and a goal ".repeat(6)
        ))
    });
}

#[test]
fn a_killed_shard_goes_on_and_ends_as_if_nothing_had_happened() {
    let program = Program::new();
    many(&program);
    let tiny = tiny();
    let into = |folder| {
        let rows = ["--row-group-rows", "5000"];
        [
            "in",
            folder,
            rows[0],
            rows[1],
            "--label-scores",
            "--model",
            &tiny,
        ]
    };
    let more = into("out/");
    ok(&program, &into("whole/"));
    let mut resumed = Vec::new();
    for (bytes, wait) in [(0, 30), (1, 0), (1, 300), (1_000_000, 50)] {
        let mut running = begun(&program, &more, bytes);
        std::thread::sleep(Duration::from_millis(wait));
        running.kill().unwrap();
        running.wait().unwrap();
        assert!(!path(&program, "out/_topicmill/part-00001-of-00001.json").exists());
        resumed.push(
            left(&program, "out", ".ndjson")
                .iter()
                .map(|path| {
                    fs::read_to_string(path)
                        .unwrap()
                        .lines()
                        .filter(|line| *line == "[]")
                        .count()
                })
                .sum::<usize>(),
        );
    }
    // What was scored stays scored.
    assert!(resumed.is_sorted() && resumed[3] >= 1, "{resumed:?}");
    // Half a line, as a crash of the machine may leave it.
    let journal = left(&program, "out", ".ndjson").pop().unwrap();
    let mut file = fs::File::options().append(true).open(&journal).unwrap();
    std::io::Write::write_all(&mut file, b"{\"label\":\"coo").unwrap();
    let ran = ok(&program, &more);
    let told = ran.stderr.split("resumed=").nth(1).unwrap_or_default();
    let told: String = told.chars().take_while(char::is_ascii_digit).collect();
    assert!(told.parse::<u64>().unwrap_or(0) > 0, "{}", ran.stderr);
    let of = |folder: &str| {
        let part = path(&program, &format!("{folder}/part-00001-of-00001.parquet"));
        fs::read(part).unwrap()
    };
    assert!(of("out") == of("whole"), "other bytes after four kills");
    assert_eq!(
        json(&program, "out/_topicmill/part-00001-of-00001.json")["sha256"],
        json(&program, "whole/_topicmill/part-00001-of-00001.json")["sha256"],
    );
    assert!(left(&program, "out", ".ndjson").is_empty());
}

#[test]
fn two_processes_do_not_score_one_shard() {
    let program = Program::new();
    many(&program);
    let tiny = tiny();
    let more = ["in", "out/", "--model", &tiny, "--shard", "1/1"];
    let mut running = begun(&program, &more, 1);
    // Alive, and not done before the second one has begun.
    let id = running.id().to_string();
    let stopped = Command::new("kill").args(["-STOP", &id]).status();
    assert!(stopped.unwrap().success());
    let second = score(&program, &more);
    assert_eq!(second.code, 75, "{}", second.stderr);
    assert!(second.stderr.contains("shard 1 of 1"), "{}", second.stderr);
    assert!(
        second.stderr.contains(&format!("process {id} on ")),
        "{}",
        second.stderr
    );
    // Nor is it deleted under the one that is at work.
    let other = score(
        &program,
        &[
            "in",
            "out/",
            "--model",
            &tiny,
            "--shard",
            "1/2",
            "--overwrite",
        ],
    );
    assert_eq!(other.code, 75, "{}", other.stderr);
    // A lock dies with its process.
    running.kill().unwrap();
    running.wait().unwrap();
    let third = ok(&program, &more);
    assert!(
        third.stderr.contains("shard 1 of 1 is written to"),
        "{}",
        third.stderr
    );
    assert_eq!(
        rows(&program, "out/part-00001-of-00001.parquet").len(),
        12_000
    );
}

#[test]
fn what_is_wrong_with_an_input_is_said_before_anything_is_scored() {
    let program = Program::new();
    table(&program, "good/a.parquet", 0..20, 10, false);
    let copy = |to: &str| {
        let to = path(&program, to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path(&program, "good/a.parquet"), to).unwrap();
    };
    for folder in ["broken", "typed", "csv", "out"] {
        copy(&format!("{folder}/a.parquet"));
    }
    let bytes = fs::read(path(&program, "good/a.parquet")).unwrap();
    program.write("broken/b.parquet", &bytes[..bytes.len() - 20]);
    fs::copy(
        repository("tests/it/fixtures/typed.parquet"),
        path(&program, "typed/b.parquet"),
    )
    .unwrap();
    program.write("csv/b.csv", "text\nx\n");
    fs::create_dir(path(&program, "empty")).unwrap();
    for (input, more, what) in [
        ("broken", &[][..], "broken/b.parquet"),
        (
            "typed",
            &[],
            "its columns are not those of `typed/a.parquet`",
        ),
        ("good", &["--text", "tags"], "its column `tags` is a list"),
        (
            "good",
            &["--text", "id"],
            "its column `id` is required INT64",
        ),
        ("good", &["--text", "txet"], "did you mean `text`"),
        (
            "good",
            &["--where", "scroe > 1"],
            "there is no column `scroe`",
        ),
        ("csv/b.csv", &[], "only Parquet files"),
        ("good", &["--format", "csv"], "only Parquet files"),
        ("empty", &[], "there is no Parquet file in it"),
        ("missing", &[], "there is no such file"),
        ("good/*.csv", &[], "there is no such file"),
        ("good/[a.parquet", &[], "it is no pattern"),
        ("out", &[], "it is one of the inputs"),
    ] {
        let args = [&[input, "out/"], more].concat();
        let ran = score(&program, &args);
        assert_eq!(ran.code, 2, "{args:?}\n{}", ran.stderr);
        assert!(ran.stderr.contains(what), "{args:?}\n{}", ran.stderr);
        assert!(!path(&program, "out/_topicmill").exists(), "{args:?}");
    }
    // The file alone is sound.
    ok(&program, &["good", "new/", "--text", "text"]);
}

#[test]
fn rows_without_a_text_and_shards_without_a_row_are_written() {
    let program = Program::new();
    table_of(&program, "nulls/a.parquet", 0..1200, 1200, |_| None);
    let ran = score(&program, &["nulls", "nothing/"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let written = all(&program, "nothing", 1);
    assert!(
        written.len() == 1200 && written[0].contains("has no `text`"),
        "{}",
        written[0]
    );
    // More shards than rows, and a file without any.
    table(&program, "few/a.parquet", 0..2, 10, false);
    table(&program, "few/b.parquet", 0..0, 10, false);
    for index in ["1/3", "2/3", "3/3"] {
        ok(&program, &["few", "few-out/", "--shard", index]);
    }
    let first = path(&program, "few-out/part-00001-of-00003.parquet");
    let schema = |path: &Path| reader(path).metadata().file_metadata().schema().clone();
    let third = path(&program, "few-out/part-00003-of-00003.parquet");
    assert_eq!(schema(&first), schema(&third));
    assert_eq!(
        rows(&program, "few-out/part-00001-of-00003.parquet").len(),
        0
    );
    assert_eq!(all(&program, "few-out", 3).len(), 2);
    // A condition that no row meets.
    ok(&program, &["few", "none/", "--where", "score > 2"]);
    assert_eq!(all(&program, "none", 1).len(), 0);
}

#[test]
fn a_condition_and_dropped_columns_go_with_shards() {
    let program = Program::new();
    inputs(&program);
    let more = ["--where", "label = 'cooking' and id != 3", "--drop-columns"];
    let ran = score(&program, &[&["in", "one.parquet"], &more[..]].concat());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    let whole: Vec<String> = rows(&program, "one.parquet")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(whole.len() > 50 && whole.len() < 900, "{}", whole.len());
    for index in ["1/4", "2/4", "3/4", "4/4"] {
        let args = [&["in", "out/", "--shard", index], &more[..]].concat();
        assert_eq!(
            score(&program, &[&args[..], &["--row-group-rows", "60"]].concat()).code,
            1
        );
    }
    assert!(alike(&all(&program, "out", 4), &whole));
    // Without an id of its own, a row has its number among all rows.
    let ran = score(
        &program,
        &[
            "in", "n/", "--shard", "2/2", "--id", "text", "--text", "text",
        ],
    );
    assert_eq!(ran.code, 1, "{}", ran.stderr);
}

#[test]
fn outputs_of_an_earlier_run_are_no_inputs() {
    let program = Program::new();
    table(&program, "in/a.parquet", 0..20, 10, false);
    ok(&program, &["in", "in/out/", "--shard", "1/2"]);
    ok(&program, &["in", "in/out/", "--shard", "2/2"]);
    assert_eq!(all(&program, "in/out", 2).len(), 20);
    let ran = score(&program, &["in", "in/", "--shard", "1/2"]);
    assert!(
        ran.code == 2 && ran.stderr.contains("one of the inputs"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_input_that_changes_on_the_way_is_found() {
    let program = Program::new();
    many(&program);
    table(&program, "in/b.parquet", 0..10, 10, false);
    let tiny = tiny();
    let more = ["in", "out/", "--model", &tiny];
    let mut command = command(&program, &more);
    let running = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while left(&program, "out", ".ndjson").is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    fs::remove_file(path(&program, "in/b.parquet")).unwrap();
    let ran = finished(running.wait_with_output().unwrap());
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("in/b.parquet") && ran.stderr.contains("it is gone"),
        "{}",
        ran.stderr
    );
    table(&program, "in/b.parquet", 0..10, 10, false);
    ok(&program, &more);
    assert_eq!(all(&program, "out", 1).len(), 12_010);
}

/// On a disk of its own, which takes root or a namespace for mounts. Where neither is to be had it says so.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_says_so_and_a_second_run_goes_on() {
    let program = Program::new();
    // Other columns that no codec makes small: the output needs more room than there is.
    let text = |id: i64| Some(format!("roast chicken {id}"));
    tagged(
        &program,
        "in/a.parquet",
        0..600,
        200,
        text,
        &"x".repeat(8_000),
    );
    let words = command(&program, &["in", "small/out/"]);
    let told: Vec<String> = std::iter::once(words.get_program())
        .chain(words.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let script = format!(
        "mkdir -p small && mount -t tmpfs -o size=2m small small || exit 99; {}; code=$?; \
         mkdir -p kept && cp -r small/out kept/ && exit $code",
        told.join(" ")
    );
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--map-root-user", "sh", "-c", &script]);
    shell.current_dir(&program.folder);
    for (name, value) in words.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let ran = match shell.output() {
        Ok(output)
            if output.status.code() != Some(99) && !output.stderr.starts_with(b"unshare") =>
        {
            finished(output)
        }
        _ => {
            let told =
                "*** NOT RUN: a_full_disk_says_so_and_a_second_run_goes_on: no mount here ***\n";
            std::io::Write::write_all(&mut std::io::stderr(), told.as_bytes()).unwrap();
            return;
        }
    };
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("the disk is full"), "{}", ran.stderr);
    assert!(!path(&program, "kept/out/part-00001-of-00001.parquet").exists());
    let ran = ok(&program, &["in", "kept/out/"]);
    assert!(ran.stderr.contains("resumed=600"), "{}", ran.stderr);
    assert_eq!(all(&program, "kept/out", 1).len(), 600);
}

/// The examples of the page: the lines of the Job and the script of the array.
#[test]
fn the_examples_for_clusters_are_commands_that_run() {
    let page = fs::read_to_string(repository("docs/shards.md")).unwrap();
    let block = |fence: &str| {
        let rest = page.split_once(fence).expect("the page has one").1;
        rest.split_once("```").unwrap().0.to_owned()
    };
    let program = Program::new();
    table(&program, "in/a.parquet", 0..30, 10, false);
    let folder = program.folder.path().display().to_string();

    let yaml = block("```yaml\n");
    checked_yaml(&yaml);
    let args = yaml
        .lines()
        .find_map(|line| line.trim().strip_prefix("args: "))
        .unwrap();
    let args: Vec<String> = serde_json::from_str(args).unwrap();
    let completions = yaml
        .lines()
        .find_map(|line| line.trim().strip_prefix("completions: "));
    assert_eq!(args.last().map(String::as_str), completions);
    let args: Vec<String> = args
        .iter()
        .map(|arg| arg.replace("/data", &folder))
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).chain(LABELS).collect();
    let mut command = program.command(&args);
    let ran = finished(command.env("JOB_COMPLETION_INDEX", "99").output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(path(&program, "out/part-00100-of-00100.parquet").exists());

    let script = block("```bash\n").replace("/data", &folder);
    program.write("score.sh", &script);
    let checked = Command::new("sh")
        .arg("-n")
        .arg("score.sh")
        .current_dir(&folder)
        .status();
    assert!(checked.unwrap().success());
    // The same as the Job, so that both agree on one folder: its labels are those of the pipeline.
    fs::remove_dir_all(path(&program, "out")).unwrap();
    let known = program.command(&[]);
    let mut shell = Command::new("sh");
    shell.arg("score.sh").current_dir(&folder);
    for (name, value) in known.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let bin = Path::new(known.get_program())
        .parent()
        .unwrap()
        .display()
        .to_string();
    shell.env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()));
    shell.envs([("SLURM_ARRAY_TASK_ID", "7"), ("SLURM_CPUS_PER_TASK", "1")]);
    let ran = finished(shell.output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(path(&program, "out/part-00007-of-00100.parquet").exists());
}

/// What YAML asks of a page like ours: a key or an entry a line, two blanks a level, and deeper only behind a bare key.
fn checked_yaml(text: &str) {
    let mut may_be_deeper = false;
    let mut before = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        assert!(!line.contains('\t'), "{line}");
        let depth = line.len() - line.trim_start().len();
        let body = line.trim_start();
        let key = body.strip_prefix("- ").unwrap_or(body);
        let (name, value) = key.split_once(':').unwrap_or_else(|| panic!("{line}"));
        assert!(name.chars().all(char::is_alphanumeric), "{line}");
        assert!(value.is_empty() || value.starts_with(' '), "{line}");
        assert!(
            depth % 2 == 0 && (depth <= before || may_be_deeper),
            "{line}"
        );
        may_be_deeper = value.is_empty() || body.starts_with("- ");
        before = depth;
    }
}
