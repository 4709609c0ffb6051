//! Runs every command in the README and in the pages of docs/, in the reader's order.
//!
//! Each page starts in its own folder and shell, in the state that the README leaves: the credentials are set,
//! `topicmill.db` contains posts, and `demo.db` exists if the page uses it. [`INSTEAD`] lists the lines that a test
//! cannot run as written: a make target, a download, another machine. The sample Reddit, a fake archive and a fake hub
//! serve the pages.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use topicmill::pipeline_file::Pipeline;
use topicmill_core::Listing;
use topicmill_core::clock::SystemClock;
use topicmill_core::table;
use topicmill_sources::sample::SampleReddit;

use crate::support::arctic_shift::{Archive, Bounds, row_with};
use crate::support::engine::{copy_files, library, repository};
use crate::support::hub::Hub;
use crate::support::postgres::postgres;
use crate::support::program::{RunOutput, finished};

/// Lines of the pages, and their replacements.
const INSTEAD: &[(&str, &str)] = &table! {
    "make demo", "topicmill demo";
    "make test", "true # this is part of it";
    "export PATH=\"$PWD/target/release:$PATH\"",
        "true # the test's own PATH has it";
    "export DATABASE_URL=postgres://me:secret@localhost/topicmill",
        "export DATABASE_URL=\"$TEST_URL\"";
    "topicmill run",
        "topicmill --database sqlite:archive.db run --source arctic-shift # the sample Reddit knows none of these";
    "topicmill collect --since 2026-11-20 --until 2026-11-21",
        "topicmill --database sqlite:archive.db collect --source arctic-shift --since 2026-11-20 --until 2026-11-21 # \
            the same";
    "topicmill --database sqlite:demo.db serve",
        "topicmill --database sqlite:demo.db serve --listen 127.0.0.1:0 & sleep 2; kill $!; wait $! || test $? = 143";
    "topicmill --database sqlite:demo.db serve --review",
        "topicmill --database sqlite:demo.db serve --review --listen 127.0.0.1:0 & sleep 2; kill $!; wait $! || test \
            $? = 143";
    "topicmill serve --listen 0.0.0.0:8765 --token-file token.txt",
        "topicmill serve --listen 0.0.0.0:0 --token-file token.txt & sleep 2; kill $!; wait $! || test $? = 143";
    "topicmill classify --watch --metrics-listen 127.0.0.1:9187",
        "topicmill classify --watch --metrics-listen 127.0.0.1:0 & sleep 2; kill $!; wait $! || test $? = 143";
    "pip install --target .venv/cuda \"onnxruntime-gpu[cuda,cudnn]==1.31.1\"",
        "true # half a gigabyte";
    "export TOPICMILL__ONNXRUNTIME__LIBRARY=.venv/cuda/onnxruntime/capi/libonnxruntime.so.1.31.1",
        "true # the CPU's library, which has no CUDA";
    "topicmill classify --device cuda",
        "topicmill classify --device cuda || test $? = 5";
};

/// Commands in the README that a reader of docs/ has already run.
const BEFORE: &str = "\
export TOPICMILL__REDDIT__CLIENT_ID=id TOPICMILL__REDDIT__CLIENT_SECRET=secret
export TOPICMILL__REDDIT__USER_AGENT='linux:my-topics:v1 (by /u/your_name)'
topicmill collect --limit 10
";

/// Returns the lines of the `sh` blocks.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page
        .split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap());
    blocks.flat_map(str::lines).collect()
}

/// Defines a test for each page, and the list of pages.
macro_rules! pages {
    ($($(#[$deep:meta])? $test:ident: $page:literal),+ $(,)?) => {
        /// Pages whose commands are run.
        const PAGES: &[&str] = &[$($page),+];
        $(
            #[tokio::test(flavor = "multi_thread")]
            $(#[$deep])?
            async fn $test() {
                every_command_runs($page).await;
            }
        )+
    };
}

pages! {
    every_command_of_the_readme_runs: "README.md",
    #[ignore = "deep: a page"]
    every_command_of_the_tutorial_runs: "docs/tutorial.md",
    #[ignore = "deep: a page"]
    every_command_of_own_topics_runs: "docs/own-topics.md",
    #[ignore = "deep: a page"]
    every_command_of_collect_runs: "docs/collect.md",
    #[ignore = "deep: a page"]
    every_command_of_comments_runs: "docs/comments.md",
    #[ignore = "deep: a page"]
    every_command_of_label_runs: "docs/label.md",
    #[ignore = "deep: a page"]
    every_command_of_evaluate_runs: "docs/evaluate.md",
    #[ignore = "deep: a page"]
    every_command_of_export_runs: "docs/export.md",
    #[ignore = "deep: a page"]
    every_command_of_report_runs: "docs/report.md",
    #[ignore = "deep: a page"]
    every_command_of_models_runs: "docs/models.md",
    #[ignore = "deep: a page"]
    every_command_about_engines_runs: "docs/engines.md",
    #[ignore = "deep: a page"]
    every_command_about_postgresql_runs: "docs/postgres.md",
    #[ignore = "deep: a page"]
    every_command_about_operating_runs: "docs/operate.md",
    #[ignore = "deep: a page"]
    every_command_about_scheduling_runs: "docs/schedule.md",
    #[ignore = "deep: a page"]
    every_command_about_monitoring_runs: "docs/monitor.md",
    #[ignore = "deep: a page"]
    every_command_about_retention_runs: "docs/retention.md",
}

fn text_of(page: &str) -> String {
    std::fs::read_to_string(repository(page)).unwrap()
}

#[test]
fn every_page_with_commands_has_a_test() {
    let pages: BTreeSet<String> = std::fs::read_dir(repository("docs"))
        .unwrap()
        .map(|entry| format!("docs/{}", entry.unwrap().file_name().display()))
        .filter(|name| Path::new(name).extension().is_some_and(|it| it == "md"))
        .filter(|page| !commands(&text_of(page)).is_empty())
        .chain(["README.md".to_owned()])
        .collect();
    let run: BTreeSet<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    assert_eq!(run, pages, "a page in docs/ has commands that no test runs");
}

#[test]
fn every_substituted_line_is_on_a_page() {
    let pages: Vec<String> = PAGES.iter().map(|page| text_of(page)).collect();
    let lines: BTreeSet<&str> = pages.iter().flat_map(|page| commands(page)).collect();
    assert!(lines.len() > 60, "{}", lines.len());
    for (line, _) in INSTEAD {
        assert!(
            lines.contains(line),
            "no page contains the line `{line}` any more"
        );
    }
}

/// Runs the commands of a page in one shell.
async fn every_command_runs(page: &str) {
    let Some(database) = postgres() else { return };
    let reddit = SampleReddit::start(SystemClock::shared().now().into())
        .await
        .unwrap();
    let archive = Archive::start(Bounds::Exclusive).await;
    let pipeline = Pipeline::load(None, Listing::New, 100).unwrap();
    archive.state.add_rows(pipeline.topics.iter().map(|topic| {
        let fields = json!({"subreddit": topic.subreddits[0]});
        row_with(&topic.slug, 0, &fields)
    }));
    let hub = Hub::start().await;
    let models = repository("tests/it/fixtures/models");
    hub.add_folder("Xenova/bart-large-mnli", &models.join("tiny-bart-mnli"));
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(repository("pipelines"), folder.path().join("pipelines")).unwrap();
    copy_model(folder.path(), &models.join("tiny-bart-made"), "made");
    create_example_files(folder.path());
    let quality = repository("tests/it/fixtures/classifiers/models/tiny-bert-quality-made");
    copy_model(folder.path(), &quality, "quality");

    let mut shell = shell(folder.path());
    shell
        .env("TEST_URL", &database.url)
        .env("TOPICMILL__REDDIT__AUTH_URL", reddit.api_url())
        .env("TOPICMILL__REDDIT__API_URL", reddit.api_url())
        .env("TOPICMILL__ARCTIC_SHIFT__API_URL", archive.server.uri())
        .env("HF_ENDPOINT", &hub.url);
    let text = text_of(page);
    let script = script(page, &text);
    let ran = tokio::task::spawn_blocking(move || run(shell, &script));
    let ran = ran.await.unwrap();
    assert_eq!(ran.code, 0, "{page}\n{}\n{}", ran.stdout, ran.stderr);
    assert_shown_results(page, &text, &ran.stdout);
}

/// Returns a shell that ends at the first command that fails.
fn shell(folder: &Path) -> Command {
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", binary_folder().display());
    let model = repository("models/minilm-reddit-topics");
    let mut shell = Command::new("sh");
    shell
        .args(["-e", "-x"])
        .current_dir(folder)
        .env("PATH", path)
        .env("ORT_DYLIB_PATH", library())
        .env("TOPICMILL__CLASSIFY__MODEL", model)
        .env("TOPICMILL__ARCTIC_SHIFT__REQUESTS_PER_MINUTE", "60000")
        .env("HF_HOME", folder.join("hf"))
        .env_remove("HF_TOKEN")
        .env_remove("DATABASE_URL");
    shell
}

/// Returns the commands of a page, after those that its readers have already run.
fn script(page: &str, text: &str) -> String {
    let before: &[&str] = match page {
        "README.md" => &[],
        _ if text.contains("demo.db") => &[BEFORE, "topicmill demo\n"],
        _ => &[BEFORE],
    };
    let lines = commands(text);
    assert!(!lines.is_empty(), "{page}");
    let rest = lines.iter().map(|line| {
        let replaced = INSTEAD.iter().find(|(written, _)| written == line);
        replaced.map_or(*line, |(_, instead)| instead)
    });
    let rest = rest.flat_map(|line| [line, "\n"]);
    before.iter().copied().chain(rest).collect()
}

/// Runs a script in a shell.
fn run(mut shell: Command, script: &str) -> RunOutput {
    shell
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    drop(stdin);
    finished(child.wait_with_output().unwrap())
}

/// Asserts that a page shows results of its commands: each page their headings, and the README every row.
fn assert_shown_results(page: &str, text: &str, stdout: &str) {
    for shown in text.split("```text\n").skip(1) {
        let (block, _) = shown.split_once("```").unwrap();
        let result = block
            .lines()
            .skip_while(|line| line.starts_with("$ ") || line.starts_with("> "));
        let rows = if page == "README.md" { usize::MAX } else { 1 };
        for line in result.take(rows) {
            assert!(
                stdout.contains(line),
                "{page} shows `{line}`, which is not in the result:\n{stdout}"
            );
        }
    }
}

/// Copies a model into the models folder.
fn copy_model(folder: &Path, model: &Path, name: &str) {
    let to = folder.join("models").join(name);
    std::fs::create_dir_all(&to).unwrap();
    copy_files(model, &to);
}

/// Creates an example of each kind of file that the pages use.
fn create_example_files(folder: &Path) {
    let post = r#"{"id": "a1", "title": "A title", "selftext": "", "subreddit": "food", "created_utc": 1700000000}"#;
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("posts.ndjson", post);
    write(
        "listing.json",
        &format!(
            r#"{{"kind": "Listing", "data": {{"after": null, "children": [{{"kind": "t3", "data": {post}}}]}}}}"#
        ),
    );
    write("erase.txt", "t3_a1\n");
    let packed = zstd::encode_all(post.as_bytes(), 1).unwrap();
    std::fs::write(folder.join("RS_2024-01.zst"), packed).unwrap();
    write(
        "posts.csv",
        "post_id,headline,essay,sub,date\na2,Two,A body,food,2024-01-02\n",
    );
    let parquet = repository("tests/it/fixtures/posts.parquet");
    std::fs::copy(parquet, folder.join("posts.parquet")).unwrap();
    std::fs::create_dir(folder.join("in")).unwrap();
    for name in ["in/a.parquet", "in/b.parquet"] {
        let typed = repository("tests/it/fixtures/typed.parquet");
        std::fs::copy(typed, folder.join(name)).unwrap();
    }
    write("texts.ndjson", "{\"id\": 1, \"text\": \"roast chicken\"}\n");
}

fn binary_folder() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_topicmill")).parent().unwrap()
}
