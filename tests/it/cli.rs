//! Tests the program as a user runs it: its output, its exit codes, and what it leaves behind after misuse,
//! interruption or a kill.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use topicmill_core::clock::SystemClock;

use crate::support::builders;
use crate::support::postgres::databases;
use crate::support::program::{Program, finished, signal};

fn posts(n: usize) -> String {
    builders::lines(n, n)
}

fn number(program: &Program, sql: &str) -> i64 {
    let rows: Value =
        serde_json::from_str(&program.ok(&["sql", sql, "--format", "json"]).stdout).unwrap();
    rows[0]
        .as_object()
        .unwrap()
        .values()
        .next()
        .unwrap()
        .as_i64()
        .unwrap()
}

#[test]
fn without_a_command_or_a_database_the_program_explains_how_to_begin() {
    let program = Program::new();
    let shown = program.ok("").stdout;
    assert_eq!(shown.lines().count(), 8, "{shown}");
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    // The suggested commands work in this order, with the user's own posts and labels.
    let file = program.write(
        "posts.csv",
        "id,subreddit,created_utc,title\na1,gaming,1700000000,a new boss fight in this game\n",
    );
    program.ok(&["labels", "new", "my-topics.toml", "video games", "cooking"]);
    program.ok(&["import", &file]);
    program.ok(&["classify", "--pipeline", "my-topics.toml"]);
    for command in [
        "demo",
        "labels new my-topics.toml",
        "run --pipeline",
        "import posts.csv",
        "classify",
    ] {
        assert!(
            shown.contains(&format!("topicmill {command}")),
            "{command}: {shown}"
        );
    }
    // With a database, the program prints its usual help.
    program.run("").expect_exit(2, "Usage: topicmill");
}

#[test]
fn the_demo_runs_end_to_end_and_its_suggested_commands_work() {
    let program = Program::new();
    let demo = program.ok(&["demo"]);
    assert!(
        demo.stdout.contains("agreement") && demo.stdout.contains("climate"),
        "{}",
        demo.stdout
    );
    demo.expect_stderr("r/sports is missing");
    demo.expect_stderr("r/education is private");

    let commands: Vec<&str> = demo
        .stdout
        .lines()
        .filter(|line| line.contains("--database"))
        .collect();
    assert_eq!(commands.len(), 3, "{}", demo.stdout);
    let sql = "SELECT COUNT(*) FROM labeled_posts WHERE label = topic";
    let ran = program.ok(&[
        "--database",
        "sqlite:demo.db",
        "sql",
        sql,
        "--format",
        "csv",
    ]);
    let agreed: u32 = ran.stdout.lines().nth(1).unwrap().parse().unwrap();
    let percent = (f64::from(agreed) / 5.12).round();
    let total = format!(
        "\n{agreed} of 512 posts ({percent} %) are labelled as the topic of their subreddit.\n"
    );
    assert!(demo.stdout.contains(&total), "{}", demo.stdout);
    for line in commands {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let ran = program.ok(&words);
        let shown = ran.stdout.lines().count() > 5 || ran.stderr.contains("wrote the data set to");
        assert!(shown, "{line}");
    }

    let again = program.ok(&["demo"]);
    assert!(
        again.stderr.contains("classifying done posts=0"),
        "nothing is labelled twice: {}",
        again.stderr
    );
    assert_eq!(again.stdout, demo.stdout);
}

#[test]
fn every_named_query_runs_on_both_databases() {
    for database in databases() {
        let program = Program::new().with_default_model();
        let url = ["--database", database.url.as_str()];
        let file = program.write("posts.ndjson", posts(30));
        program.ok(&[&url[..], &["import", &file]].concat());
        program.ok(&[&url[..], &["classify"]].concat());
        let list = program.ok(&["sql", "--list", "--format", "ndjson"]).stdout;
        let names: Vec<Value> = list
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(names.len() >= 5);
        for name in names.iter().map(|query| query["name"].as_str().unwrap()) {
            for format in ["table", "csv", "json", "ndjson"] {
                let ran =
                    program.ok(&[&url[..], &["sql", "--named", name, "--format", format]].concat());
                assert!(
                    !ran.stdout.is_empty() || format == "ndjson",
                    "{name} {format}"
                );
            }
        }
        let csv = program
            .ok(&[
                &url[..],
                &["sql", "--named", "agreement", "--format", "csv"],
            ]
            .concat())
            .stdout;
        assert!(
            csv.starts_with("topic,posts,labelled,agreed,agreement\ngaming,30,30,10,0.333"),
            "{csv}"
        );
        let args = [&url[..], &["sql", "--named", "runs", "--format", "json"]].concat();
        let runs: Value = serde_json::from_str(&program.ok(&args).stdout).unwrap();
        let finished = runs[0]["finished"].as_str().unwrap();
        let digits = finished.replace(|c: char| c.is_ascii_digit(), "0");
        assert_eq!(digits, "00:00:00", "{runs}");
        let status = program
            .ok(&[&url[..], &["status", "--format", "json"]].concat())
            .stdout;
        let status: Value = serde_json::from_str(&status).unwrap();
        assert_eq!(status["backlog"]["labelled"], 30);
        assert_eq!(status["runs"][0]["status"], "done");
        let info = program
            .ok(&[&url[..], &["db", "info", "--format", "csv"]].concat())
            .stdout;
        assert!(info.contains("rows of posts,30"), "{info}");
    }
}

#[test]
fn a_dry_run_predicts_the_work_of_classify_on_both_databases() {
    for database in databases() {
        let program = Program::new().with_default_model();
        let run = |args: &[&str]| {
            let url = ["--database", database.url.as_str()];
            program.ok(&[&url[..], args].concat())
        };
        // 40 posts with 30 different texts.
        let again = posts(10).replace("\"id\":\"k", "\"id\":\"again");
        run(&["import", &program.write("posts.ndjson", posts(30))]);
        run(&["import", &program.write("again.ndjson", again)]);
        let output = |pipeline: &[&str]| {
            let dry = run(&[&["classify", "--dry-run", "--format", "json"][..], pipeline].concat());
            let rows: Value = serde_json::from_str(&dry.stdout).unwrap();
            let value = |i: usize| rows[i]["value"].as_i64().unwrap();
            [value(0), value(1), value(2), value(3)]
        };
        let did = |pipeline: &[&str]| {
            let record = program.folder.path().join("run.json");
            let record = record.to_str().unwrap();
            run(&[&["classify", "--run-json", record][..], pipeline].concat());
            let record: Value =
                serde_json::from_str(&std::fs::read_to_string(record).unwrap()).unwrap();
            let count = |name: &str| record["counts"][name].as_i64().unwrap();
            [count("posts"), count("pairs"), count("pairs_reused")]
        };
        assert_eq!(output(&[]), [40, 30, 30, 0]);
        assert_eq!(output(&[]), [40, 30, 30, 0], "nothing is written");
        assert_eq!(did(&[]), [40, 480, 160]);
        assert_eq!(output(&[]), [0, 0, 0, 0]);

        let sixteen = include_str!("../../pipelines/sixteen-topics.toml");
        let seventeen = "[[topic]]\nslug = \"pets\"\nlabel = \"pets\"\nsubreddits = [\"aww\"]\n";
        let seventeen = program.write("17.toml", format!("{sixteen}\n{seventeen}"));
        let seventeen = ["--pipeline", seventeen.as_str()];
        assert_eq!(output(&seventeen), [40, 30, 0, 30]);
        assert_eq!(did(&seventeen), [40, 0, 680]);
        let strict = sixteen.replace("threshold = 0.0", "threshold = 0.9");
        let strict = program.write("strict.toml", strict);
        assert_eq!(did(&["--pipeline", strict.as_str()]), [40, 0, 640]);
    }
}

/// Arguments, exit code, and a required part of the message.
const MISUSE: &[(&str, i32, &str)] = &[
    ("import missing.ndjson", 2, "missing.ndjson"),
    ("import .", 2, "is a directory"),
    ("import empty.ndjson", 2, "is empty"),
    ("classify --model nowhere", 5, "nowhere"),
    ("classify --device tpu", 2, "tpu"),
    ("classify --mode triple", 2, "`triple` is not a mode"),
    ("classify --device cuda", 5, "CUDA"),
    ("classify --pipeline missing.toml", 2, "missing.toml"),
    ("classify --pipeline text.ndjson", 2, "text.ndjson"),
    ("collect", 3, "client_id"),
    ("collect --source mars", 2, "mars"),
    ("collect --source sample --topic knitting", 2, "knitting"),
    ("collect --source sample --listing worst", 2, "worst"),
    ("sql SELECT(1)", 4, "topicmill db create"),
    ("sql --named nothing", 2, "agreement"),
    ("sql", 2, "QUERY"),
    ("status", 4, "topicmill db create"),
    ("--database mysql://x/y status", 2, "sqlite:PATH"),
    (
        "--database sqlite:. collect --source sample",
        4,
        "directory",
    ),
    (
        "--database sqlite:no/such/folder/x.db collect --source sample",
        4,
        "folder",
    ),
    (
        "--database postgres://u:s3cret@127.0.0.1:1/x status",
        4,
        "is the server running",
    ),
    (
        "--database postgres://u:s3cret@127.0.0.1:1#x@localhost/x status",
        4,
        "`#` as `%23`",
    ),
    ("--config missing.toml status", 2, "missing.toml"),
    (
        "--config unknown.toml status",
        2,
        "`reddit.client_secrte` in unknown.toml",
    ),
    ("--log-format xml status", 2, "xml"),
    ("--config long-lease.toml classify", 2, "lease_secs"),
    (
        "--config no-limit.toml collect --source sample",
        2,
        "collect.limit",
    ),
    (
        "--config no-page.toml collect --source sample",
        2,
        "collect.page_cap",
    ),
    (
        "--config no-attempt.toml classify",
        2,
        "classify.max_attempts is 0",
    ),
    (
        "--config threads.toml classify",
        2,
        "threads is 1000000: set it to 0",
    ),
    (
        "--config workers.toml classify",
        2,
        "workers is 300: set it to a number from 1 to 64",
    ),
    (
        "--config crowd.toml classify",
        2,
        "`classify.workers` in crowd.toml: `1000000` is too large: write a number from 1 to 64",
    ),
    (
        "--config open.toml status",
        2,
        "settings of open.toml: line 2, column 15: invalid basic string",
    ),
    (
        "--config latin.toml status",
        2,
        "settings of latin.toml: line 1 is not UTF-8; save the file as UTF-8",
    ),
    (
        "--config half.toml classify",
        2,
        "`2.5` is not a whole number",
    ),
    (
        "--config true.toml classify",
        2,
        "`true` is not a whole number",
    ),
    ("export - --format csv", 2, "instead of `-`"),
    (
        "--config no-try.toml collect --source sample",
        2,
        "`reddit.tries`",
    ),
    (
        "collect --source sample --pipeline slash.toml",
        2,
        "topic `food`: `r/food` is not a subreddit name",
    ),
    ("classify --run-json no/such/folder/run.json", 2, "run.json"),
    ("score empty.ndjson out.ndjson", 2, "empty.ndjson"),
    (
        "score texts.ndjson out.ndjson --label x --template none",
        2,
        "{}",
    ),
    ("score texts.ndjson no/such/folder/out.ndjson", 2, "folder"),
    ("nonsense", 2, "nonsense"),
];

#[test]
fn misuse_is_rejected_with_advice_and_its_exit_code() {
    let program = Program::new();
    for (name, text) in [
        ("empty.ndjson", &b""[..]),
        ("text.ndjson", b"this is no JSON\n"),
        ("texts.ndjson", b"{\"id\": 1, \"text\": \"hello\"}\n"),
        ("unknown.toml", b"[reddit]\nclient_secrte = \"x\"\n"),
        (
            "long-lease.toml",
            b"[classify]\nlease_secs = 99999999999999\n",
        ),
        ("no-limit.toml", b"[collect]\nlimit = 0\n"),
        ("no-page.toml", b"[collect]\npage_cap = 0\n"),
        ("no-attempt.toml", b"[classify]\nmax_attempts = 0\n"),
        ("threads.toml", b"[classify]\nthreads = 1000000\n"),
        ("workers.toml", b"[classify]\nworkers = 300\n"),
        ("crowd.toml", b"[classify]\nworkers = 1000000\n"),
        ("open.toml", b"[collect]\nlisting = \"new\nlimit = 3\n"),
        ("latin.toml", b"# caf\xe9\n"),
        ("half.toml", b"[classify]\nthreads = 2.5\n"),
        ("true.toml", b"[classify]\nthreads = true\n"),
        ("no-try.toml", b"[reddit]\ntries = 0\n"),
        (
            "slash.toml",
            b"[[topic]]\nlabel = \"food\"\nsubreddits = [\"r/food\"]\n",
        ),
    ] {
        program.write(name, text);
    }
    for (args, code, message) in MISUSE {
        let ran = program.run(&args.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.code, *code, "topicmill {args}\n{}", ran.stderr);
        assert!(
            ran.stderr.contains(message),
            "topicmill {args} does not print `{message}`:\n{}",
            ran.stderr
        );
        assert!(
            !ran.stderr.contains("panicked") && !ran.stderr.contains("s3cret"),
            "{}",
            ran.stderr
        );
    }
    for name in ["topicmill.db", "out.ndjson"] {
        let left = program.folder.path().join(name);
        assert!(!left.exists(), "a command that failed left {name} behind");
    }
}

#[test]
fn a_wrong_library_fails_in_one_sentence_with_exit_5() {
    let program = Program::new();
    let foreign = program.write("libforeign.so", "not a library");
    for library in [foreign.as_str(), "/no/such/libonnxruntime.so"] {
        let mut command = program.command(&["classify"]);
        let ran = finished(
            command
                .env("TOPICMILL__ONNXRUNTIME__LIBRARY", library)
                .output()
                .unwrap(),
        );
        ran.expect_exit(5, library);
        ran.expect_stderr("onnxruntime.library");
    }
}

#[test]
fn a_library_whose_dependency_is_missing_names_it() {
    let program = Program::new();
    let folder = program.folder.path();
    let link = |arguments: &[&str]| {
        let linked = Command::new("cc")
            .args(["-shared", "-x", "c", "/dev/null"])
            .args(arguments)
            .current_dir(folder)
            .status();
        assert!(linked.expect("a C compiler, as for the build").success());
    };
    link(&["-o", "libneeded.so"]);
    link(&[
        "-o",
        "libforeign.so",
        "-Wl,--no-as-needed",
        "-L.",
        "-lneeded",
    ]);
    fs::remove_file(folder.join("libneeded.so")).unwrap();
    let library = folder.join("libforeign.so");
    let mut command = program.command(&["classify"]);
    let ran = finished(
        command
            .env("TOPICMILL__ONNXRUNTIME__LIBRARY", &library)
            .output()
            .unwrap(),
    );
    ran.expect_exit(5, "it needs `libneeded.so`, which is not on this system");
}

#[test]
fn a_read_only_database_is_reported_and_unchanged() {
    let program = Program::new();
    let file = program.write("posts.ndjson", posts(3));
    program.ok(&["import", &file]);
    let more = program.write("more.ndjson", posts(6));
    program
        .run(&["--database", "sqlite:topicmill.db?mode=ro", "import", &more])
        .expect_exit(4, "read-only");
    assert_eq!(number(&program, "SELECT COUNT(*) FROM posts"), 3);
}

#[test]
fn secrets_are_never_printed() {
    let program = Program::new();
    program.write(
        "broken.toml",
        "[reddit]\nclient_secret = \"hush-hush\npassword = hush-hush\n",
    );
    let urls = [
        "postgres://me:hush-hush@127.0.0.1:1/db",
        "postgres://127.0.0.1:1/db?user=me&password=hush-hush",
        "postgres://me:hush-hush?@/@127.0.0.1:1/db",
    ];
    for url in urls {
        for args in [
            &["config", "show", "--origin"][..],
            &["-vv", "collect"],
            &["-vv", "doctor", "--offline"],
            &["-vv", "status"],
            &["-vv", "demo"],
            &["--config", "broken.toml", "status"],
        ] {
            let mut command = program.command(args);
            command
                .env("TOPICMILL__REDDIT__CLIENT_ID", "an-id")
                .env("TOPICMILL__REDDIT__CLIENT_SECRET", "hush-hush")
                .env("TOPICMILL__REDDIT__PASSWORD", "hush-hush")
                .env("TOPICMILL__DATABASE__URL", url);
            if args.contains(&"demo") {
                command.args(["--database", url]);
            }
            let ran = finished(command.output().unwrap());
            let all = ran.stdout + ran.stderr.as_str();
            assert!(!all.contains("hush-hush"), "{args:?} {url}\n{all}");
            assert!(!args.contains(&"config") || all.contains("***"), "{all}");
        }
    }
}

#[test]
fn a_non_utf8_environment_variable_is_ignored() {
    use std::os::unix::ffi::OsStrExt;
    let program = Program::new();
    let mut command = program.command(&["config", "show"]);
    command.env("FOO", std::ffi::OsStr::from_bytes(b"\xff"));
    assert_eq!(finished(command.output().unwrap()).code, 0);
}

#[test]
fn completions_and_help_need_no_settings() {
    let program = Program::new();
    program.write("topicmill.toml", "broken [");
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            program
                .ok(&["completions", shell])
                .stdout
                .contains("topicmill")
        );
    }
    program.ok(&["classify", "--help"]);
    assert_eq!(program.run(&["status"]).code, 2);
}

/// Starts `classify` and waits until it has written some labels.
fn start_classify(program: &Program) -> Child {
    let mut child = program
        .command(&["classify", "--threads", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut lines = stderr.lines();
    let seen = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("classify: posts"));
    assert!(seen, "no progress was logged");
    // Keep reading, because a closed pipe would end the program.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

#[test]
fn a_watcher_labels_imported_posts_and_stops_on_a_signal_on_both_databases() {
    for database in databases() {
        let program = Program::new();
        let url = database.url.as_str();
        let (a, b) = (
            program.write("a.ndjson", posts(5)),
            program.write("b.ndjson", posts(9)),
        );
        program.ok(&["--database", url, "import", &a]);
        let mut watcher = program
            .command(&["--database", url, "classify", "--watch"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let labelled = || {
            let count = "SELECT COUNT(*) AS n FROM classifications";
            let rows = program.json(&["--database", url, "sql", count]);
            rows[0]["n"].as_i64().unwrap()
        };
        // The labels appear well before the watcher's next poll, which is once a minute.
        let clock = SystemClock::shared();
        let mut wait_for = |posts: i64| {
            while labelled() < posts {
                assert!(watcher.try_wait().unwrap().is_none(), "the watcher ended");
                assert!(clock.elapsed().as_secs() < 50, "{} of {posts}", labelled());
            }
        };
        wait_for(5);
        program.ok(&["--database", url, "import", &b]);
        wait_for(9);
        signal(&watcher, "-TERM");
        assert_eq!(watcher.wait().unwrap().code(), Some(143));
    }
}

#[test]
fn a_watcher_stops_when_its_database_file_is_replaced() {
    let program = Program::new();
    let file = program.write("posts.ndjson", posts(5));
    let path = file.replace("posts.ndjson", "watched.db");
    let url = &format!("sqlite:{path}");
    program.ok(&["--database", url, "import", &file]);
    let watcher = program
        .command(&["--database", url, "classify", "--watch"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let count = "SELECT COUNT(*) AS n FROM classifications";
    while program.json(&["--database", url, "sql", count])[0]["n"] != 5 {}
    for end in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{path}{end}")));
    }
    program.ok(&["--database", url, "db", "create"]);
    let ended = watcher.wait_with_output().unwrap();
    assert!(!ended.status.success());
    let message = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        message.contains("was replaced since this command began"),
        "{message}"
    );
}

#[test]
fn an_interrupted_run_finishes_its_batch_and_the_next_run_continues() {
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let program = Program::new();
        let file = program.write("posts.ndjson", posts(3_000));
        program.ok(&["import", &file]);
        let mut child = start_classify(&program);
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(code));

        let labelled = number(&program, "SELECT COUNT(*) FROM classifications");
        assert!(labelled > 0 && labelled < 3_000, "{labelled}");
        assert_eq!(
            number(&program, "SELECT COUNT(*) FROM leases"),
            0,
            "the claimed posts were released"
        );
        assert_eq!(
            number(&program, "SELECT COALESCE(MAX(attempts), 0) FROM backlog"),
            0
        );
        program.ok(&["classify", "--limit", "50"]);
        assert_eq!(
            number(&program, "SELECT COUNT(*) FROM classifications"),
            labelled + 50
        );
    }
}
