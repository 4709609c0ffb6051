//! Tests pipeline files: the shortest valid ones, and the commands that write or name one.

mod mistakes;

use serde_json::{Value, json};
use topicmill_core::table;

use crate::support::engine::repository;
use crate::support::program::{Program, RunOutput, find_row};

fn posts() -> String {
    let titles = [
        "I lost it all at the poker table in the casino",
        "the new console has great games and a tough last level",
        "how long do you roast a chicken",
        "an old bread recipe of my grandmother",
    ];
    let posts = titles.iter().enumerate().map(|(i, title)| {
        let post = json!({
            "id": format!("pf{i}"), "title": title, "selftext": "", "subreddit": "talk",
            "created_utc": 1_700_000_000 + i, "score": i,
        });
        format!("{post}\n")
    });
    posts.collect()
}

/// Returns the label of each post, as text and slug.
fn labels(program: &Program) -> String {
    let query = "SELECT label_name, label FROM labeled_posts ORDER BY fullname";
    program.ok(&["sql", query, "--format", "csv"]).stdout
}

#[test]
fn a_list_of_labels_is_a_complete_file() {
    let program = Program::new().with_default_model();
    program.write(
        "short.toml",
        "labels = [\"Gambling & casinos\", \"video games\", \"cooking\"]",
    );
    program.write("posts.ndjson", posts());
    program.ok("import posts.ndjson --pipeline short.toml");
    program.ok("classify --pipeline short.toml");
    assert_eq!(
        labels(&program),
        "label_name,label\nGambling & casinos,gambling-and-casinos\nvideo games,video-games\n\
         cooking,cooking\ncooking,cooking\n"
    );
    // The same labels with all defaults written out are the same version.
    let long = "name = \"long\"\nmode = \"single\"\nhypothesis_template = \"This text is about {}.\"\n\
         [[topic]]\nslug = \"gambling-and-casinos\"\nlabel = \"Gambling & casinos\"\nsubreddits = [\"poker\"]\n\
         [[topic]]\nlabel = \"video games\"\n[[topic]]\nlabel = \"cooking\"\ndescriptions = []\n";
    program.write("long.toml", long);
    let counts = program.run_counts("classify --pipeline long.toml");
    assert_eq!(counts["posts"], 0);
    program.ok("labels diff current short.toml");
}

#[test]
fn a_list_of_labels_serves_files_and_names_no_subreddit_to_collect_from() {
    let program = Program::new().with_default_model();
    program.write("short.toml", "labels = [\"cooking\", \"video games\"]");
    program.write("texts.ndjson", "{\"id\": 1, \"text\": \"roast chicken\"}\n");
    program.ok("score texts.ndjson out.ndjson --pipeline short.toml");
    assert_eq!(program.read_lines("out.ndjson")[0]["label"], "cooking");
    program.write("posts.ndjson", posts());
    for (line, message) in [
        (
            "collect --source sample",
            "no subreddits are named in pipeline `short`",
        ),
        ("import --format dump posts.ndjson", "--all-subreddits"),
    ] {
        let ran = program.run(&format!("{line} --pipeline short.toml"));
        ran.expect_exit(2, message);
    }
}

const SHARES: &str = "[[topic]]\nslug = \"fun\"\nlabel = \"fun\"\nsubreddits = [\"gaming\", \"food\", \"books\"]\n\
     read = \"all\"\nshare = [3, 2, 1]\nlimit = 12\nlisting = \"hot\"\n\
     [[topic]]\nslug = \"first\"\nlabel = \"first\"\nsubreddits = [\"history\", \"travel\"]\nread = \"first\"\n\
     limit = 5\n\
     [[topic]]\nslug = \"bare\"\nlabel = \"a label only\"\n";

/// Collects with a pipeline file of this text.
fn collect(program: &Program, pipeline: &str, flags: &str) -> RunOutput {
    program.write("all.toml", pipeline);
    program.run(&format!(
        "collect --source sample --pipeline all.toml {flags}"
    ))
}

#[test]
fn a_topic_splits_its_limit_among_its_subreddits() {
    for program in Program::on_each_database() {
        let counted = || {
            program.rows(
                "SELECT topic, subreddit, COUNT(*) AS posts FROM posts \
                  GROUP BY topic, subreddit ORDER BY topic, subreddit",
            )
        };
        let ran = collect(&program, SHARES, "");
        ran.expect_exit(0, "collected 2 topics");
        ran.expect_stderr("topics without subreddits are not collected");
        // Two posts in each subreddit are pinned and do not count towards its share.
        let all = json!([
            ["first", "history", 5 + 2],
            ["fun", "books", 2 + 2],
            ["fun", "food", 4 + 2],
            ["fun", "gaming", 6 + 2],
        ]);
        assert_eq!(counted(), all);
        // A second run reads the same posts.
        collect(&program, SHARES, "--topic fun").expect_code(0);
        assert_eq!(counted(), all);
    }
}

#[test]
fn a_limit_too_small_for_all_subreddits_goes_to_those_with_the_largest_shares() {
    let program = Program::new();
    let flags = "--topic fun --limit 2 --run-json run.json";
    collect(&program, SHARES, flags)
        .expect_exit(0, "r/books is not read: of 2 posts, none is left");
    let record = program.read_json("run.json");
    let read = record["outcomes"].as_array().unwrap().iter();
    let read: Vec<&Value> = read.map(|outcome| &outcome["subreddit"]).collect();
    assert_eq!(read, ["gaming", "food"]);
}

#[test]
fn a_subreddit_that_cannot_be_read_fails_alone() {
    let program = Program::new();
    let private = SHARES.replace("\"food\"", "\"education\"");
    let ran = collect(&program, &private, "--topic fun");
    ran.expect_exit(1, "collected 1 topic:");
    ran.expect_stderr("1 subreddit private");
    collect(&program, SHARES, "--topic fun --topic bare")
        .expect_exit(2, "collect bare: no subreddits");
}

const NLI: &str = "tests/it/fixtures/models/tiny-bert-nli";

const SHARED: &str = "[[topic]]\nslug = \"play\"\nlabel = \"gaming\"\n\
    descriptions = \"Video games and consoles.\"\n\
     [[topic]]\nslug = \"bets\"\nlabel = \"gaming\"\ndescriptions = [\"Casinos, poker and betting.\"]\n\
     [[topic]]\nlabel = \"cooking\"\n";

#[test]
fn labels_may_have_the_same_text_if_the_model_reads_descriptions() {
    let program = Program::new().with_default_model();
    program.import(&posts());
    program.write("shared.toml", SHARED);
    let ran = program.ok("classify --pipeline shared.toml");
    assert!(!ran.stderr.contains("always equal"), "{}", ran.stderr);
    assert_eq!(
        labels(&program),
        "label_name,label\ngaming,bets\ngaming,play\ncooking,cooking\ncooking,cooking\n"
    );
    assert_eq!(program.count("post_scores"), 12, "one per post and label");
    program.write("one.toml", SHARED.replace("\"bets\"", "\"odds\""));
    let diff = program.json("labels diff current one.toml");
    let changes = diff["labels"].as_array().unwrap();
    assert_eq!(changes.len(), 2, "{diff}");
    // An NLI model reads the same text for both labels and scores it once.
    let nli = repository(NLI);
    let ran = program.ok(&format!(
        "classify --pipeline shared.toml --model {}",
        nli.display()
    ));
    ran.expect_stderr("`play` and `bets`, so their scores are always equal");
}

#[test]
fn labels_with_the_same_text_are_rejected_if_the_model_cannot_distinguish_them() {
    let program = Program::new().with_default_model();
    program.write("shared.toml", SHARED);
    let validate = "labels validate --pipeline shared.toml";
    let ran = program.ok(validate);
    assert!(!ran.stderr.contains("nearly the same"), "{}", ran.stderr);
    let nli = repository(NLI);
    let ran = program.run(&format!("{validate} --model {}", nli.display()));
    ran.expect_exit(2, "does not read descriptions");
    let same = SHARED.replace("Casinos, poker and betting", "video games and consoles");
    program.write("shared.toml", same);
    program.run(validate).expect_exit(2, "have the same text");
}

#[test]
fn labels_new_writes_a_valid_file_and_overwrites_nothing() {
    let program = Program::new();
    for labels in [
        &[][..],
        &["climate change", "C++", "C", "…"],
        &["gaming", "\"quoted\" and \\ more"],
    ] {
        program.ok(&[&["labels", "new", "my.toml"], labels].concat());
        let written = program.read("my.toml");
        program
            .run("labels new my.toml another")
            .expect_exit(2, "exists");
        assert_eq!(program.read("my.toml"), written);
        let set = program.json("labels validate --pipeline my.toml");
        assert_eq!(set["name"], "my");
        // On stdout the same text appears, except for the names.
        let printed = program.ok(&[&["labels", "new", "-"], labels].concat());
        assert_eq!(printed.stdout.lines().count(), written.lines().count());
        std::fs::remove_file(program.path("my.toml")).unwrap();
    }
}

#[test]
fn labels_new_rejects_what_it_cannot_write() {
    let program = Program::new();
    for (line, message) in [
        ("labels new no/such/folder.toml", "no/such/folder.toml"),
        ("labels new my.toml gaming Gaming", "given twice"),
        ("labels new my.toml a --from current", "--from"),
        ("labels new", "FILE"),
    ] {
        program.run(line).expect_exit(2, message);
    }
    assert!(!program.path("my.toml").exists());
    // Control characters are no reason to reject a label.
    program.ok("labels new my.toml 'a\nb\u{1b}'");
    program.ok("labels validate --pipeline my.toml");
}

#[test]
fn one_of_several_concurrent_commands_writes_the_file() {
    let program = Program::new();
    let mut racing = [0, 1, 2, 3].map(|i| {
        let mut command = program.command(&format!("labels new my.toml 'label {i}'"));
        command.spawn().unwrap()
    });
    let codes = racing.each_mut().map(|child| child.wait().unwrap().code());
    assert_eq!(codes.iter().filter(|code| **code == Some(0)).count(), 1);
    program.ok("labels validate --pipeline my.toml");
}

#[test]
fn labels_new_can_start_from_a_stored_set() {
    let program = Program::new().with_default_model();
    program.import(&posts());
    program.ok("labels new new.toml cooking gambling 'video games'");
    program.ok("classify --pipeline new.toml");
    let shown = labels(&program);
    assert!(shown.contains("\ncooking,cooking\n"), "{shown}");
    let written = program.read("new.toml");
    assert!(written.contains("\nbackground = \"reddit\"\n"), "{written}");
    let hash = |file: &str| {
        let mut set = program.json(&format!("labels validate --pipeline {file}"));
        set["hash"].take()
    };
    for from in ["current", "new"] {
        program.ok(&format!("labels new copy.toml --from {from}"));
        assert_eq!(hash("copy.toml"), hash("new.toml"));
        std::fs::remove_file(program.path("copy.toml")).unwrap();
    }
    program
        .run("labels new copy.toml --from nowhere")
        .expect_exit(2, "`nowhere`");
    assert!(!program.path("copy.toml").exists());
}

/// Returns a program with a settings file in `conf`, which names the pipeline file next to it, and another pipeline file.
fn configured() -> Program {
    let program = Program::new();
    std::fs::create_dir(program.path("conf")).unwrap();
    program.write("conf/mine.toml", "labels = [\"cooking\", \"gambling\"]");
    program.write(
        "conf/topicmill.toml",
        "pipeline = \"mine.toml\"\n[log]\nformat = \"text\"\n",
    );
    program.write(
        "other.toml",
        "labels = [\"music\", \"travel\", \"video games\"]",
    );
    program
}

const CONFIGURED: &str = "--config conf/topicmill.toml";

#[test]
fn the_pipeline_file_of_the_settings_is_overridden_by_the_environment_and_that_by_a_flag() {
    let program = configured();
    let validate = format!("{CONFIGURED} labels validate --format json");
    for (environment, flags, name) in [
        (None, "", "mine"),
        (Some("other.toml"), "", "other"),
        (Some("nowhere.toml"), "--pipeline other.toml", "other"),
        (Some(""), "", "sixteen-topics"),
    ] {
        let settings: Vec<_> = environment
            .map(|file| ("pipeline", file))
            .into_iter()
            .collect();
        let ran = program.run_with(&settings, &format!("{validate} {flags}"));
        ran.expect_code(0);
        assert_eq!(ran.json()["name"], name, "{environment:?} {flags}");
    }
}

#[test]
fn commands_show_the_pipeline_file_of_the_settings_and_its_origin() {
    let program = configured();
    let shown = program.json(&format!("{CONFIGURED} config show --origin"));
    let row = find_row(&shown, "setting", "pipeline");
    for (column, path) in [
        ("value", "conf/mine.toml"),
        ("origin", "conf/topicmill.toml"),
    ] {
        assert!(row[column].as_str().unwrap().ends_with(path), "{row}");
    }
    let doctor = program.run(&format!("{CONFIGURED} doctor --source sample"));
    assert!(doctor.stdout.contains("mine ("), "{}", doctor.stdout);
}

#[test]
fn a_wrong_pipeline_file_is_reported_with_the_setting_that_names_it() {
    let program = configured();
    for (command, file, message) in table! {
        "classify", "nowhere.toml",
            "setting `pipeline` in $TOPICMILL__PIPELINE: cannot read the pipeline file";
        "labels calibrate --gold gold.csv", "conf", "setting `pipeline` in $TOPICMILL__PIPELINE";
        "doctor --offline", "nowhere.toml", "wrong";
    } {
        let ran = program.run_with(&[("pipeline", file)], &format!("{CONFIGURED} {command}"));
        ran.expect_code(2);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(all.contains(message), "{message}: {all}");
    }
    // Below a section header, `pipeline` would be a key of that section.
    program.write(
        "below.toml",
        "[log]\nformat = \"text\"\npipeline = \"mine.toml\"\n",
    );
    program
        .run("--config below.toml config show")
        .expect_exit(2, "write `pipeline` above the first section");
}
