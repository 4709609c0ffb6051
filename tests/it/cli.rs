//! Tests the program as a user runs it: its first steps, its output, and its exit codes after misuse.

use std::fs;
use std::process::Command;

use topicmill_core::table;

use crate::support::builders::lines;
use crate::support::program::{Program, find_row, finished};

#[test]
fn without_a_command_or_a_database_the_program_explains_how_to_begin() {
    let program = Program::new();
    let shown = program.ok("").stdout;
    assert_eq!(shown.lines().count(), 8, "{shown}");
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    // The suggested commands work in this order, with the user's own posts and labels.
    program.write(
        "posts.csv",
        "id,subreddit,created_utc,title\na1,gaming,1700000000,a new boss fight in this game\n",
    );
    program.ok("labels new my-topics.toml 'video games' cooking");
    program.ok("import posts.csv");
    program.ok("classify --pipeline my-topics.toml");
    for command in [
        "demo",
        "labels new my-topics.toml",
        "run --pipeline",
        "import posts.csv",
        "classify",
    ] {
        let command = format!("topicmill {command}");
        assert!(shown.contains(&command), "{command}: {shown}");
    }
    // With a database, the program prints its usual help.
    program.run("").expect_exit(2, "Usage: topicmill");
}

#[test]
fn the_demo_runs_end_to_end_and_its_suggested_commands_work() {
    let program = Program::new();
    let demo = program.ok("demo");
    for word in ["agreement", "climate"] {
        assert!(demo.stdout.contains(word), "{word}: {}", demo.stdout);
    }
    demo.expect_stderr_all(&["r/sports is missing", "r/education is private"]);
    // Comments are read once all posts are stored, which give them their titles.
    let (_, later) = demo.stderr.split_once("/comments topic=").unwrap();
    let mut collected = later.lines().filter(|line| line.contains("collected r/"));
    let are_comments = collected.all(|line| line.contains("/comments"));
    assert!(are_comments, "{}", demo.stderr);

    let count = |rows: &str| {
        let query = format!("SELECT COUNT(*) AS n FROM {rows}");
        let found = program.json(&format!("--database sqlite:demo.db sql '{query}'"));
        found[0]["n"].as_u64().unwrap()
    };
    // A bot's signature and a deleted comment have no text.
    let labelled = "labeled_comments WHERE classified_at IS NOT NULL";
    assert_eq!([count("comments"), count(labelled)], [40, 37]);
    let agreed = count("labeled_posts WHERE label = topic");
    let percent = 100.0 * agreed as f64 / 512.0;
    let total = format!(
        "\n{agreed} of 512 posts ({percent:.0} %) are labelled as the topic of their subreddit."
    );
    assert!(demo.stdout.contains(&total), "{}", demo.stdout);
    let lines = demo.stdout.lines();
    let commands: Vec<&str> = lines.filter(|line| line.contains("--database")).collect();
    assert_eq!(commands.len(), 4, "{}", demo.stdout);
    for line in commands {
        let ran = program.ok(line.trim().split_once(' ').unwrap().1);
        let shown = ran.stdout.lines().count() > 5 || ran.stderr.contains("wrote the data set to");
        assert!(shown, "{line}");
    }

    // Nothing is labelled twice.
    let again = program.ok("demo");
    again.expect_stderr("classifying done posts=0");
    assert_eq!(again.stdout, demo.stdout);
}

#[test]
fn every_named_query_runs_on_both_databases() {
    for program in Program::on_each_database() {
        let program = program.with_default_model();
        program.import(&lines(30, 30));
        program.ok("classify");
        let queries = program.json("sql --list");
        assert!(queries.as_array().unwrap().len() >= 5);
        for query in queries.as_array().unwrap() {
            let named = format!("sql --named {}", query["name"].as_str().unwrap());
            for format in ["table", "csv", "json"] {
                let ran = program.ok(&format!("{named} --format {format}"));
                assert!(!ran.stdout.is_empty(), "{named} {format}");
            }
        }
        let csv = program.ok("sql --named agreement --format csv").stdout;
        let expected = "topic,posts,labelled,agreed,agreement\ngaming,30,30,10,0.333";
        assert!(csv.starts_with(expected), "{csv}");
        let runs = program.json("sql --named runs");
        let finished = runs[0]["finished"].as_str().unwrap();
        let digits = finished.replace(|c: char| c.is_ascii_digit(), "0");
        assert_eq!(digits, "00:00:00", "{runs}");
        let status = program.json("status");
        assert_eq!(status["backlog"]["labelled"], 30);
        assert_eq!(status["runs"][0]["status"], "done");
        let info = program.ok("db info --format csv").stdout;
        assert!(info.contains("rows of things,30"), "{info}");
    }
}

#[test]
fn a_dry_run_predicts_the_work_of_classify() {
    let program = Program::new().with_default_model();
    // 40 posts with 30 different texts.
    program.import(&lines(30, 30));
    program.import(&lines(10, 10).replace("\"id\":\"k", "\"id\":\"again"));
    let predicted = |flags: &str| {
        let rows = program.json(&format!("classify --dry-run {flags}"));
        let value = |name: &str| find_row(&rows, "dry run", name)["value"].as_i64().unwrap();
        let posts = value("posts without a label");
        let texts = value("distinct texts in these posts");
        let computed = value("texts already computed");
        [posts, texts, value("texts to compute"), computed]
    };
    let did = |flags: &str| {
        let counts = program.run_counts(&format!("classify {flags}"));
        ["posts", "pairs", "pairs_reused"].map(|name| counts[name].as_i64().unwrap())
    };
    assert_eq!(predicted(""), [40, 30, 30, 0]);
    assert_eq!(predicted(""), [40, 30, 30, 0], "nothing is written");
    assert_eq!(did(""), [40, 480, 160]);
    assert_eq!(predicted(""), [0, 0, 0, 0]);

    let sixteen = include_str!("../../pipelines/sixteen-topics.toml");
    let pets = "[[topic]]\nslug = \"pets\"\nlabel = \"pets\"\nsubreddits = [\"aww\"]\n";
    program.write("17.toml", format!("{sixteen}\n{pets}"));
    assert_eq!(predicted("--pipeline 17.toml"), [40, 30, 0, 30]);
    assert_eq!(did("--pipeline 17.toml"), [40, 0, 680]);
    let strict = sixteen.replace("threshold = 0.0", "threshold = 0.9");
    program.write("strict.toml", strict);
    assert_eq!(did("--pipeline strict.toml"), [40, 0, 640]);
}

/// Arguments, exit code, and a required part of the message.
const MISUSE: &[(&str, i32, &str)] = &table! {
    "import missing.ndjson", 2, "missing.ndjson";
    "import .", 2, "is a directory";
    "import empty.ndjson", 2, "is empty";
    "classify --model nowhere", 5, "nowhere";
    "classify --device tpu", 2, "tpu";
    "classify --mode triple", 2, "`triple` is not one of single, multi, raw";
    "classify --device cuda", 5, "CUDA";
    "classify --pipeline missing.toml", 2, "missing.toml";
    "classify --pipeline text.ndjson", 2, "text.ndjson";
    "collect --source reddit", 3, "client_id";
    "collect --source mars", 2, "mars";
    "collect --source sample --topic knitting", 2, "knitting";
    "collect --source sample --listing worst", 2, "worst";
    "sql SELECT(1)", 4, "topicmill db create";
    "sql --named nothing", 2, "agreement";
    "sql", 2, "QUERY";
    "status", 4, "topicmill db create";
    "--database mysql://x/y status", 2, "sqlite:PATH";
    "--database sqlite:. collect --source sample", 4, "directory";
    "--database sqlite:no/such/folder/x.db collect --source sample", 4, "folder";
    "--database postgres://u:s3cret@127.0.0.1:1/x status", 4, "is the server running";
    "--database postgres://u:s3cret@127.0.0.1:1#x@localhost/x status", 4, "`#` as `%23`";
    "--config missing.toml status", 2, "missing.toml";
    "--config unknown.toml status", 2, "`reddit.client_secrte` in unknown.toml";
    "--log-format xml status", 2, "xml";
    "--config long-lease.toml classify", 2, "lease_secs";
    "--config no-limit.toml collect --source sample", 2, "collect.limit";
    "--config no-page.toml collect --source sample", 2, "collect.page_cap";
    "--config no-attempt.toml classify", 2, "`classify.max_attempts` in no-attempt.toml, line 2";
    "--config threads.toml classify", 2, "`1000000` is not a whole number from 0 to 1024";
    "--config workers.toml classify", 2, "`300` is not a whole number from 1 to 64";
    "--config crowd.toml classify", 2,
        "`classify.workers` in crowd.toml, line 2: `1000000` is not a whole number from 1 to 64";
    "--config open.toml status", 2, "settings of open.toml: line 2, column 15: invalid basic string";
    "--config latin.toml status", 2, "settings of latin.toml: line 1 is not UTF-8; save the file as UTF-8";
    "--config half.toml classify", 2, "`2.5` is not a whole number";
    "--config true.toml classify", 2, "`true` is not a whole number";
    "export - --format csv", 2, "instead of `-`";
    "--config no-try.toml collect --source sample", 2, "`reddit.tries`";
    "collect --source sample --pipeline slash.toml", 2, "topic `food`: `r/food` is not a subreddit name";
    "classify --run-json no/such/folder/run.json", 2, "run.json";
    "score empty.ndjson out.ndjson", 2, "empty.ndjson";
    "score texts.ndjson out.ndjson --label x --template none", 2, "{}";
    "score texts.ndjson no/such/folder/out.ndjson", 2, "folder";
    "nonsense", 2, "nonsense";
};

#[test]
fn misuse_is_rejected_with_advice_and_its_exit_code() {
    let program = Program::new();
    for (name, text) in table! {
        "empty.ndjson", &b""[..];
        "text.ndjson", b"this is no JSON\n";
        "texts.ndjson", b"{\"id\": 1, \"text\": \"hello\"}\n";
        "unknown.toml", b"[reddit]\nclient_secrte = \"x\"\n";
        "long-lease.toml", b"[classify]\nlease_secs = 99999999999999\n";
        "no-limit.toml", b"[collect]\nlimit = 0\n";
        "no-page.toml", b"[collect]\npage_cap = 0\n";
        "no-attempt.toml", b"[classify]\nmax_attempts = 0\n";
        "threads.toml", b"[classify]\nthreads = 1000000\n";
        "workers.toml", b"[classify]\nworkers = 300\n";
        "crowd.toml", b"[classify]\nworkers = 1000000\n";
        "open.toml", b"[collect]\nlisting = \"new\nlimit = 3\n";
        "latin.toml", b"# caf\xe9\n";
        "half.toml", b"[classify]\nthreads = 2.5\n";
        "true.toml", b"[classify]\nthreads = true\n";
        "no-try.toml", b"[reddit]\ntries = 0\n";
        "slash.toml", b"[[topic]]\nlabel = \"food\"\nsubreddits = [\"r/food\"]\n";
    } {
        program.write(name, text);
    }
    for (args, code, message) in MISUSE {
        let ran = program.run(*args);
        assert_eq!(ran.code, *code, "topicmill {args}\n{}", ran.stderr);
        ran.expect_stderr(message);
        for word in ["panicked", "s3cret"] {
            assert!(!ran.stderr.contains(word), "{}", ran.stderr);
        }
    }
    for name in ["topicmill.db", "out.ndjson"] {
        let left = program.path(name);
        assert!(!left.exists(), "a command that failed left {name} behind");
    }
}

#[test]
fn a_wrong_library_fails_in_one_sentence_with_exit_5() {
    let program = Program::new();
    let foreign = program.write("libforeign.so", "not a library");
    for library in [foreign.as_str(), "/no/such/libonnxruntime.so"] {
        let ran = program.run_with(&[("onnxruntime.library", library)], "classify");
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
    let library = [("onnxruntime.library", library.to_str().unwrap())];
    let ran = program.run_with(&library, "classify");
    ran.expect_exit(5, "it needs `libneeded.so`, which is not on this system");
}

#[test]
fn a_read_only_database_is_reported_and_unchanged() {
    let program = Program::new();
    program.import(&lines(3, 3));
    program.write("more.ndjson", lines(6, 6));
    program
        .run("--database sqlite:topicmill.db?mode=ro import more.ndjson")
        .expect_exit(4, "read-only");
    assert_eq!(program.count("posts"), 3);
}

#[test]
fn a_non_utf8_environment_variable_is_ignored() {
    use std::os::unix::ffi::OsStrExt;
    let program = Program::new();
    let mut command = program.command("config show");
    command.env("FOO", std::ffi::OsStr::from_bytes(b"\xff"));
    finished(command.output().unwrap()).expect_code(0);
}

#[test]
fn completions_and_help_need_no_settings() {
    let program = Program::new();
    program.write("topicmill.toml", "broken [");
    for shell in ["bash", "zsh", "fish"] {
        let script = program.ok(&format!("completions {shell}")).stdout;
        assert!(script.contains("topicmill"));
    }
    program.ok("classify --help");
    program.run("status").expect_code(2);
}

#[test]
fn a_run_record_is_written_to_a_pipe() {
    let program = Program::new();
    program.pipe("pipe");
    let pipe = program.path("pipe");
    let reader = std::thread::spawn(move || fs::read_to_string(pipe).unwrap());
    program.ok("collect --source sample --topic food --run-json pipe");
    assert!(reader.join().unwrap().contains("\"stage\": \"collect\""));
}

#[test]
fn ids_are_read_from_stdin() {
    let program = Program::new();
    let text = "\u{feff}id\nt3_none\n".encode_utf16();
    program.write("ids", text.flat_map(u16::to_le_bytes).collect::<Vec<u8>>());
    let mut command = program.command("import --format ids - --source sample");
    command.stdin(fs::File::open(program.path("ids")).unwrap());
    finished(command.output().unwrap()).expect_stderr("missing=1");
}

#[test]
fn a_dry_run_expects_a_listing_that_shows_no_new_posts_to_stop_at_the_limit() {
    let program = Program::new();
    let collect = "collect --source sample --topic gaming --limit 25";
    program.ok(collect);
    for (listing, requests) in [("top", 1), ("new", 10)] {
        let planned = program.json(&format!("{collect} --listing {listing} --dry-run"));
        assert_eq!(planned[0]["requests"], requests, "{listing}");
    }
}

#[test]
fn a_migration_of_a_missing_database_creates_none() {
    let program = Program::new();
    program
        .run("--database sqlite:mistyped.db db migrate")
        .expect_exit(4, "mistyped.db");
    assert!(!program.path("mistyped.db").exists());
}
