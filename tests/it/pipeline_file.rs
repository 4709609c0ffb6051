//! Tests pipeline files: the shortest valid ones, and the commands that write or name one.

mod mistakes;

use serde_json::{Value, json};
use topicmill_core::table;

use crate::support::engine::repository;
use crate::support::program::{Program, finished, words};

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
    let file = program.write("posts.ndjson", posts());
    let short = program.write(
        "short.toml",
        "labels = [\"Gambling & casinos\", \"video games\", \"cooking\"]",
    );
    program.ok(&["import", &file, "--pipeline", &short]);
    program.ok(&["classify", "--pipeline", &short]);
    assert_eq!(
        labels(&program),
        "label_name,label\nGambling & casinos,gambling-and-casinos\nvideo games,video-games\n\
         cooking,cooking\ncooking,cooking\n"
    );
    // The same labels with all defaults written out are the same version.
    let long = "name = \"long\"\nmode = \"single\"\nhypothesis_template = \"This text is about {}.\"\n\
         [[topic]]\nslug = \"gambling-and-casinos\"\nlabel = \"Gambling & casinos\"\nsubreddits = [\"poker\"]\n\
         [[topic]]\nlabel = \"video games\"\n[[topic]]\nlabel = \"cooking\"\ndescriptions = []\n";
    let long = program.write("long.toml", long);
    assert_eq!(
        program.run_counts(&["classify", "--pipeline", &long])["posts"],
        0
    );
    program.ok(&["labels", "diff", "current", &short]);
    program.ok(&["purge", "--retention", "1"]);

    // Such a file names no subreddit to collect from.
    let collect = ["collect", "--source", "sample", "--pipeline", &short];
    program
        .run(&collect)
        .expect_exit(2, "no subreddits are named in pipeline `short`");
    let dump = ["import", "--format", "dump", &file, "--pipeline", &short];
    program.run(&dump).expect_exit(2, "--all-subreddits");
    let program = Program::new().with_default_model();
    let short = program.write("short.toml", "labels = [\"cooking\", \"video games\"]");
    let texts = program.write("texts.ndjson", "{\"id\": 1, \"text\": \"roast chicken\"}\n");
    program.ok(&["score", &texts, "out.ndjson", "--pipeline", &short]);
    let out = program.read("out.ndjson");
    assert!(out.contains("\"cooking\""), "{out}");
}

#[test]
fn a_topic_splits_its_limit_among_its_subreddits() {
    const TOPICS: &str = "[[topic]]\nslug = \"fun\"\nlabel = \"fun\"\nsubreddits = [\"gaming\", \"food\", \"books\"]\n\
         read = \"all\"\nshare = [3, 2, 1]\nlimit = 12\nlisting = \"hot\"\n\
         [[topic]]\nslug = \"first\"\nlabel = \"first\"\nsubreddits = [\"history\", \"travel\"]\nread = \"first\"\n\
         limit = 5\n\
         [[topic]]\nslug = \"bare\"\nlabel = \"a label only\"\n";
    for program in Program::on_each_database() {
        let file = program.write("all.toml", TOPICS);
        let collect = |more: &[&str]| {
            let args = ["collect", "--source", "sample", "--pipeline", &file];
            program.run(&[&args[..], more].concat())
        };
        let counted = || {
            let query = "SELECT topic, subreddit, COUNT(*) AS posts FROM posts \
                         GROUP BY topic, subreddit ORDER BY topic, subreddit";
            program.ok(&["sql", query, "--format", "csv"]).stdout
        };
        let ran = collect(&[]);
        ran.expect_exit(0, "collected 2 topics");
        ran.expect_stderr("topics without subreddits are not collected");
        // Two posts in each subreddit are pinned and do not count towards its share.
        let all = "topic,subreddit,posts\nfirst,history,7\nfun,books,4\nfun,food,6\nfun,gaming,8\n";
        assert_eq!(counted(), all);
        // A second run reads the same posts.
        let ran = collect(&["--topic", "fun"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(counted(), all);
        collect(&["--topic", "fun", "--topic", "bare"])
            .expect_exit(2, "collect bare: no subreddits");
    }
    // If the limit is too small for all subreddits, those with the largest shares come first.
    let program = Program::new();
    let file = program.write("all.toml", TOPICS);
    let run = ["--topic", "fun", "--limit", "2", "--run-json", "run.json"];
    let args = ["collect", "--source", "sample", "--pipeline", &file];
    program.ok(&[&args[..], &run].concat());
    let record = program.read_json("run.json");
    let read: Vec<&Value> = record["outcomes"].as_array().unwrap().iter().collect();
    let read: Vec<_> = read
        .iter()
        .map(|of| (&of["subreddit"], &of["topic"]))
        .collect();
    assert_eq!(
        read,
        [
            (&json!("gaming"), &json!("fun")),
            (&json!("food"), &json!("fun"))
        ]
    );

    // An unreadable subreddit fails alone and is reported.
    let file = program.write("private.toml", TOPICS.replace("\"food\"", "\"education\""));
    let args = [
        "collect",
        "--source",
        "sample",
        "--pipeline",
        &file,
        "--topic",
        "fun",
    ];
    let ran = program.run(&args);
    ran.expect_exit(1, "collected 1 topic:");
    ran.expect_stderr("1 subreddit private");
}

#[test]
fn labels_may_have_the_same_text_if_the_model_reads_descriptions() {
    const SHARED: &str = "[[topic]]\nslug = \"play\"\nlabel = \"gaming\"\n\
        descriptions = \"Video games and consoles.\"\n\
         [[topic]]\nslug = \"bets\"\nlabel = \"gaming\"\ndescriptions = [\"Casinos, poker and betting.\"]\n\
         [[topic]]\nlabel = \"cooking\"\n";
    let nli = repository("tests/it/fixtures/models/tiny-bert-nli");
    let nli = nli.to_str().unwrap();
    let program = Program::new().with_default_model();
    let file = program.write("posts.ndjson", posts());
    let shared = program.write("shared.toml", SHARED);
    program.ok(&["import", &file]);
    let ran = program.ok(&["classify", "--pipeline", &shared]);
    assert!(!ran.stderr.contains("always equal"), "{}", ran.stderr);
    assert_eq!(
        labels(&program),
        "label_name,label\ngaming,bets\ngaming,play\ncooking,cooking\ncooking,cooking\n"
    );
    let query = "SELECT COUNT(*) AS n FROM post_scores";
    let scores = program.ok(&["sql", query, "--format", "csv"]);
    assert_eq!(scores.stdout, "n\n12\n", "one score per post and label");
    let one = program.write("one.toml", SHARED.replace("\"bets\"", "\"odds\""));
    let diff = program.json(&["labels", "diff", "current", &one]);
    let changes = diff["labels"].as_array().unwrap();
    assert_eq!(changes.len(), 2, "{diff}");
    // An NLI model reads the same text for both labels and scores it once.
    program
        .ok(&["classify", "--pipeline", &shared, "--model", nli])
        .expect_stderr("`play` and `bets`, so their scores are always equal");
    let program = Program::new().with_default_model();
    let shared = program.write("shared.toml", SHARED);
    let validate = ["labels", "validate", "--pipeline", &shared];
    let ran = program.ok(&validate);
    assert!(!ran.stderr.contains("nearly the same"), "{}", ran.stderr);
    program
        .run(&[&validate[..], &["--model", nli]].concat())
        .expect_exit(2, "does not read descriptions");
    let same = program.write(
        "same.toml",
        SHARED.replace("Casinos, poker and betting", "video games and consoles"),
    );
    program
        .run(&["labels", "validate", "--pipeline", &same])
        .expect_exit(2, "have the same text");
}

#[test]
fn labels_new_writes_a_valid_file_and_overwrites_nothing() {
    let program = Program::new();
    let path = program.folder.path().join("my.toml");
    let my = path.to_str().unwrap();
    for args in [
        &["labels", "new", my][..],
        &["labels", "new", my, "climate change", "C++", "C", "…"],
        &["labels", "new", my, "gaming", "\"quoted\" and \\ more"],
    ] {
        program.ok(args);
        let written = std::fs::read_to_string(&path).unwrap();
        program
            .run(&["labels", "new", my, "another"])
            .expect_exit(2, "exists");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
        let ran = program.ok(&["labels", "validate", "--pipeline", my, "--format", "json"]);
        let set: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(set["name"], "my");
        // On stdout the same text appears, except for the names.
        let printed = program
            .ok(&[&["labels", "new", "-"], &args[3..]].concat())
            .stdout;
        assert_eq!(printed.lines().count(), written.lines().count());
        std::fs::remove_file(&path).unwrap();
    }
    for (args, what) in [
        (
            &["labels", "new", "no/such/folder.toml"][..],
            "no/such/folder.toml",
        ),
        (&["labels", "new", my, "gaming", "Gaming"], "given twice"),
        (&["labels", "new", my, "a\nb\u{1b}"], "exists"),
        (&["labels", "new", my, "a", "--from", "current"], "--from"),
        (&["labels", "new"], "FILE"),
    ] {
        if what == "exists" {
            program.ok(args);
            program.ok(&["labels", "validate", "--pipeline", my]);
        }
        let ran = program.run(args);
        ran.expect_exit(2, what);
    }
    std::fs::remove_file(&path).unwrap();

    // Only one of several concurrent commands writes the file.
    let mut racing: Vec<_> = (0..4)
        .map(|i| {
            program
                .command(&["labels", "new", my, &format!("label {i}")])
                .spawn()
                .unwrap()
        })
        .collect();
    let codes = racing.iter_mut().map(|child| child.wait().unwrap().code());
    assert_eq!(codes.filter(|code| *code == Some(0)).count(), 1);
    program.ok(&["labels", "validate", "--pipeline", my]);
}

#[test]
fn labels_new_can_start_from_a_stored_set() {
    let program = Program::new().with_default_model();
    let file = program.write("posts.ndjson", posts());
    let path = program.folder.path().join("new.toml");
    let new = path.to_str().unwrap();
    program.ok(&["import", &file]);
    program.ok(&["labels", "new", new, "cooking", "gambling", "video games"]);
    program.ok(&["classify", "--pipeline", new]);
    let shown = labels(&program);
    assert!(shown.contains("\ncooking,cooking\n"), "{shown}");
    let written = std::fs::read_to_string(new).unwrap();
    assert!(written.contains("\nbackground = \"reddit\"\n"), "{written}");
    let hash = |file: &str| {
        let set = program.json(&["labels", "validate", "--pipeline", file]);
        set["hash"].clone()
    };
    let copy = program.folder.path().join("copy.toml");
    let copy = copy.to_str().unwrap();
    for from in ["current", "new"] {
        program.ok(&["labels", "new", copy, "--from", from]);
        assert_eq!(hash(copy), hash(new));
        std::fs::remove_file(copy).unwrap();
    }
    program
        .run(&["labels", "new", copy, "--from", "nowhere"])
        .expect_exit(2, "`nowhere`");
    assert!(!std::path::Path::new(copy).exists());
}

#[test]
fn the_setting_names_the_pipeline_file_for_every_command() {
    let program = Program::new();
    let folder = program.folder.path().join("conf");
    std::fs::create_dir(&folder).unwrap();
    program.write("conf/mine.toml", "labels = [\"cooking\", \"gambling\"]");
    program.write(
        "conf/topicmill.toml",
        "pipeline = \"mine.toml\"\n[log]\nformat = \"text\"\n",
    );
    program.write(
        "other.toml",
        "labels = [\"music\", \"travel\", \"video games\"]",
    );
    program.write("posts.ndjson", posts());
    let run = |args: &[&str], env: Option<&str>| {
        let args = [&["--config", "conf/topicmill.toml"], args].concat();
        let mut command = program.command(&args);
        if let Some(file) = env {
            command.env("TOPICMILL__PIPELINE", file);
        }
        finished(command.output().unwrap())
    };
    let name = |args: &[&str], env: Option<&str>| {
        let ran = run(
            &[&["labels", "validate", "--format", "json"], args].concat(),
            env,
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let set: Value = serde_json::from_str(&ran.stdout).unwrap();
        set["name"].as_str().unwrap().to_owned()
    };
    // A path in a settings file is relative to that file; the environment overrides it, and a flag overrides both.
    assert_eq!(name(&[], None), "mine");
    assert_eq!(name(&[], Some("other.toml")), "other");
    assert_eq!(
        name(&["--pipeline", "other.toml"], Some("nowhere.toml")),
        "other"
    );
    assert_eq!(name(&[], Some("")), "sixteen-topics");

    let shown = run(&["config", "show", "--origin", "--format", "json"], None).stdout;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let rows = shown.as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["setting"] == "pipeline")
        .unwrap();
    assert!(
        row["value"].as_str().unwrap().ends_with("conf/mine.toml"),
        "{row}"
    );
    assert!(
        row["origin"]
            .as_str()
            .unwrap()
            .ends_with("conf/topicmill.toml"),
        "{row}"
    );
    let doctor = run(&["doctor", "--source", "sample"], None);
    assert!(doctor.stdout.contains("mine ("), "{}", doctor.stdout);

    // If the file comes from a setting rather than a flag, the message names the setting.
    for (args, env, what) in table! {
        &["classify"][..], "nowhere.toml",
            "setting `pipeline` in $TOPICMILL__PIPELINE: cannot read the pipeline file";
        &["labels", "calibrate", "--gold", "gold.csv"], "conf", "setting `pipeline` in $TOPICMILL__PIPELINE";
        &["doctor", "--offline"], "nowhere.toml", "wrong";
    } {
        let ran = run(args, Some(env));
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(all.contains(what), "{what}: {all}");
    }
    // Below a section header, `pipeline` would be a key of that section.
    program.write(
        "below.toml",
        "[log]\nformat = \"text\"\npipeline = \"mine.toml\"\n",
    );
    program
        .run(&["--config", "below.toml", "config", "show"])
        .expect_exit(2, "write `pipeline` above the first section");
}
