//! Tests that this version reads what each earlier release stored: databases, label sets and label files.
//!
//! scripts/upgrade-fixtures wrote a folder in fixtures/upgrade/ at each release. Nobody edits these files, so a change
//! of `0001_schema.sql` fails here. Current labels are those of the tests' own model, so that a new default model
//! changes nothing.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::support::engine::{has_onnx_runtime, repository};
use crate::support::postgres::{postgres, sqlite};
use crate::support::program::Program;

const LABELLED: &str = "SELECT label_set, model, fullname, label, score, classified_at FROM labeled_posts_all \
    WHERE is_current ORDER BY fullname";

/// Returns the fixtures of each release.
fn releases() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository("tests/it/fixtures/upgrade")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let folders: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    assert!(!folders.is_empty());
    folders
}

fn unpacked(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let file = std::fs::File::open(path).unwrap();
    let mut unpacker = flate2::read::GzDecoder::new(file);
    unpacker.read_to_end(&mut content).unwrap();
    content
}

fn csv(program: &Program, query: &str) -> String {
    program.ok(&["sql", "--format", "csv", query]).stdout
}

/// Checks that commands and views read the database of a release, and that `classify` continues where the release
/// stopped.
fn check_database(url: &str, release: &Path) {
    let is_sqlite = url.starts_with("sqlite:");
    let program = Program::with_database(url);
    program.ok(&["db", "migrate"]);
    program.ok(&["db", "check"]);

    let read = |name: &str| std::fs::read_to_string(release.join(name)).unwrap();
    let queries = std::fs::read_to_string(release.with_file_name("queries.sql")).unwrap();
    let results: String = queries.lines().map(|line| csv(&program, line)).collect();
    assert_eq!(
        results,
        read(if is_sqlite {
            "sqlite.csv"
        } else {
            "postgres.csv"
        }),
        "{}",
        release.display()
    );
    assert_eq!(program.json(&["status"])["backlog"]["unlabelled"], 2);
    let label_sets = program.json(&["labels", "list"]);
    assert_eq!(label_sets.as_array().unwrap().len(), 3, "{label_sets}");
    // The two databases were fitted at different times.
    let fitted_labels = |file: &str| {
        let lines = file.lines().filter(|line| !line.starts_with("at = "));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    assert_eq!(
        fitted_labels(&program.ok(&["labels", "export", "-"]).stdout),
        fitted_labels(&read("labels.toml"))
    );

    let before = csv(&program, LABELLED);
    let labels = release.join("labels.toml").display().to_string();
    let counts = program.run_counts(&["classify", "--pipeline", &labels]);
    assert_eq!(counts["posts"], 2, "{counts}");
    let after = csv(&program, LABELLED);
    assert!(before.lines().all(|line| after.contains(line)), "{after}");
    assert_eq!(after.lines().count(), before.lines().count() + 2);

    // A purged post stays purged.
    let purged = csv(&program, "SELECT fullname FROM tombstones");
    let fullname = purged.lines().nth(1).unwrap();
    let again = format!(
        r#"{{"name": "{fullname}", "title": "Again", "subreddit": "food", "created_utc": 1700000000}}"#
    );
    let file = program.write("again.ndjson", again);
    program.ok(&["import", &file]);
    let stored = format!("SELECT fullname FROM posts WHERE fullname = '{fullname}'");
    assert_eq!(csv(&program, &stored), "fullname\n");
}

#[test]
fn sqlite_databases_of_earlier_releases_are_read() {
    if !has_onnx_runtime("databases of earlier releases") {
        return;
    }
    for release in releases() {
        let database = sqlite();
        let path = database.url.strip_prefix("sqlite:").unwrap();
        std::fs::write(path, unpacked(&release.join("sqlite.db.gz"))).unwrap();
        check_database(&database.url, &release);
    }
}

#[tokio::test]
async fn postgresql_databases_of_earlier_releases_are_read() {
    if !has_onnx_runtime("databases of earlier releases") {
        return;
    }
    for release in releases() {
        let Some(database) = postgres() else { return };
        // Creates the database, which the store does.
        database.open().await.close().await.unwrap();
        database
            .run("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            .await;
        let dump = unpacked(&release.join("postgres.sql.gz"));
        database.run(&String::from_utf8(dump).unwrap()).await;
        check_database(&database.url, &release);
    }
}

#[test]
fn label_files_of_earlier_releases_are_read() {
    if !has_onnx_runtime("label files of earlier releases") {
        return;
    }
    for release in releases() {
        let program = Program::new();
        let labels = release.join("labels.toml").display().to_string();
        program.ok(&["labels", "validate", "--pipeline", &labels]);
        // The texts and outcomes of the release.
        let scored = std::fs::read_to_string(release.join("scored.csv")).unwrap();
        let file = program.write("in.csv", &scored);
        program.ok(&[
            "score",
            &file,
            "out.csv",
            "--text",
            "title",
            "--pipeline",
            &labels,
        ]);
        let outcomes = |csv: &str| {
            let lines = csv.lines().map(|line| line.rsplit(',').nth(1).unwrap());
            lines.map(str::to_owned).collect::<Vec<String>>()
        };
        assert_eq!(outcomes(&program.read("out.csv")), outcomes(&scored));
    }
}
