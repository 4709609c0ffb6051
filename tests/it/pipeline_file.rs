//! Tests pipeline files: the shortest valid ones, the errors of invalid ones, and the commands that write or name
//! one.

use serde_json::{Value, json};

use crate::support::engine::repository;
use crate::support::postgres::{databases, sqlite};
use crate::support::program::{Program, finished, words};

const BAD: &str = "# mine\n\
nmae = \"x\"\n\
mode = \"singel\"\n\
threshold = 1.5\n\
temperature = \"warm\"\n\
hypothesis_template = \"no braces\"\n\
[[topic]]\n\
slug = \"a\"\n\
lable = \"A thing\"\n\
subredits = [\"xx\"]\n\
[[topic]]\n\
label = \"B\"\n\
subreddits = [\"no good name\", 3]\n\
limit = 0\n\
read = \"both\"\n\
share = [1]\n\
[[topic]]\n\
slug = \"a\"\n\
descriptions = 5\n\
threshold = 0.2\n\
colour = \"red\"\n\
[[topic]]\n\
label = \"b\"\n";

/// Positions of the mistakes in [`BAD`], and the message for each.
const MISTAKES: [(&str, &str); 17] = [
    ("line 2, column 1", "`nmae`: did you mean `name`?"),
    ("line 3, column 8", "`singel` is not a mode"),
    ("line 4, column 13", "the threshold 1.5"),
    ("line 5, column 15", "`temperature` is the text `warm`"),
    ("line 6, column 23", "needs exactly one `{}`"),
    ("line 9, column 1", "`lable`: did you mean `label`?"),
    (
        "line 10, column 1",
        "`subredits`: did you mean `subreddits`?",
    ),
    (
        "line 13, column 15",
        "topic `B`: `no good name` is not the name",
    ),
    ("line 13, column 31", "`subreddits` lists the number `3`"),
    (
        "line 14, column 9",
        "topic `B`: its limit is 0; Reddit lists 1 to 1000",
    ),
    ("line 15, column 8", "`both` is none of first, all"),
    ("line 17, column 1", "topic `a` has no `label`"),
    ("line 17, column 1", "(slug `a`) is listed twice"),
    ("line 19, column 16", "`descriptions` is the number `5`"),
    (
        "line 20, column 1",
        "`threshold` here: it belongs above the first [[topic]]",
    ),
    (
        "line 21, column 1",
        "unknown key `colour`: there are slug, label,",
    ),
    (
        "line 22, column 1",
        "slug `b` is used twice, for `B` and for `b`",
    ),
];

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

/// Runs `labels validate` on a file with this text.
fn refusal(program: &Program, text: impl AsRef<[u8]>) -> String {
    let path = program.write("refused.toml", text);
    let ran = program.run(&["labels", "validate", "--pipeline", &path]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    ran.stderr
}

/// Returns the words and the slug of each label, in order.
fn labels(program: &Program) -> String {
    let query = "SELECT label_name, label FROM labeled_posts ORDER BY fullname";
    program.ok(&["sql", query, "--format", "csv"]).stdout
}

#[test]
fn all_mistakes_are_reported_at_once_with_line_and_nearest_key() {
    let program = Program::new();
    let message = refusal(&program, BAD);
    let mut lines = message.lines();
    let first = lines.next().unwrap();
    assert!(first.ends_with("refused.toml` has 17 mistakes:"), "{first}");
    for (place, what) in MISTAKES {
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with(&format!("  {place}: ")), "{place}: {line}");
        assert!(line.contains(what), "{what}: {line}");
    }
    assert_eq!(lines.next(), None);

    // Commands that only read labels and those that collect report the same mistakes.
    let path = program.write("bad.toml", BAD);
    for args in [
        &["classify", "--pipeline", &path][..],
        &["run", "--source", "sample", "--pipeline", &path],
        &["import", "x.ndjson", "--pipeline", &path],
        &["labels", "validate", "--pipeline", &path],
    ] {
        let ran = program.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        ran.expect_stderr("has 17 mistakes");
    }
}

#[test]
fn invalid_toml_reports_each_broken_line_and_other_mistakes() {
    let program = Program::new();
    let message = refusal(
        &program,
        "name = \nmode = \"single\nlabels = [\"a\"]\ntresholt = 3\nname = \"again\"\n",
    );
    for place in [
        "line 1, ",
        "line 2, ",
        "line 4, column 1: unknown key `tresholt`",
        "line 5, ",
    ] {
        assert!(message.contains(place), "{place}: {message}");
    }
    assert!(message.contains("has 4 mistakes"), "{message}");
    for (text, what) in [
        ("labels = [\"a\", \"b\"\nthreshold = 3\n", "comma"),
        (
            "labels = [\"a\", \"b\n",
            "line 1, column 18: unclosed array",
        ),
        (
            "labels = [a]\n",
            "line 1, column 11: string values must be quoted",
        ),
        (
            "labels = [\"a\"]\nthreshold = 0.5.5\n",
            "line 2, column 16: ",
        ),
        ("labels\n", "line 1, column 7: key with no value"),
        (
            "background = \"redit\"\nlabels = [\"a\"]",
            "line 1, column 14: the background `redit`",
        ),
        (
            "background = 3\nlabels = [\"a\"]",
            "`background` is the number",
        ),
        (
            "background = \"reddit\"\nlabels = [\"other\"]",
            "use another slug",
        ),
        (
            "background = \"reddit\"\nbackground_without = [\"politics\", \"cheese\"]\nlabels = [\"a\"]",
            "line 2, column 35: the background `reddit`: there is no topic `cheese`",
        ),
        ("labels = []", "has no labels"),
        ("# nothing\n", "has no labels"),
        ("label = [\"a\"]", "did you mean `labels`?"),
        ("topics = []", "did you mean `topic`?"),
        ("topic = [\"a\"]", "a topic is a table"),
        (
            "labels = [\"a\"]\n[[topic]]\nlabel = \"b\"",
            "cannot be combined",
        ),
        ("labels = \"a\"", "`labels` is the text `a`: write a list"),
        ("labels = [\"a\", 3]", "is a string in quotes"),
        ("labels = [\"a\", \" \"]", "empty"),
        ("labels = [\"a\", \"A\"]", "slug `a` is used twice"),
        ("labels = [\"a\", \"a\"]", "is listed twice"),
        ("labels = [\"…\"]", "no slug can be made"),
        ("name = \" \"\nlabels = [\"a\"]", "`name` is empty"),
        ("labels = [\"a\\u0000b\"]", "NUL"),
        ("name = \"a\\u0000b\"\nlabels = [\"a\"]", "NUL"),
        ("temperature = nan\nlabels = [\"a\"]", "temperature NaN"),
        (
            "subreddits = [\"food\"]\nlabels = [\"a\"]",
            "belongs below a [[topic]]",
        ),
        ("[[topic]]\nlabel = \"a\"\nshare = [1]", "read = \"all\""),
        (
            "[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"bb\"]\nread = \"all\"\nshare = [1]",
            "one number for each subreddit",
        ),
        (
            "[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"bb\"]\nread = \"all\"\nshare = [0, 0.5]",
            "a share is a whole number",
        ),
        (
            "[[topic]]\nlabel = \"a\"\nsubreddits = [\"aa\", \"AA\"]",
            "r/AA is listed twice",
        ),
    ] {
        let message = refusal(&program, text);
        assert!(message.contains(what), "{what}: {message}");
        // A name that is long or contains a newline stays within its line.
        assert!(
            message.contains(", line ") || message.contains("  line "),
            "{message}"
        );
    }
    let long = format!(
        "labels = [\"a\"]\n\"{}\\n  line 1: none\" = 1\n",
        "x".repeat(5_000)
    );
    let message = refusal(&program, long);
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.len() < 400, "{message}");
    let many = refusal(&program, "x = 1\n".repeat(500));
    assert!(many.contains("and 480 more"), "{many}");
}

#[test]
fn other_formats_are_read_or_identified() {
    let program = Program::new();
    let text = "labels = [\"süße Sachen\", \"gaming\"]\n";
    let wide = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
        let units = std::iter::once(0xFEFF).chain(text.encode_utf16());
        units.flat_map(unit).collect()
    };
    for bytes in [
        text.as_bytes().to_vec(),
        [b"\xEF\xBB\xBF", text.as_bytes()].concat(),
        text.replace('\n', "\r\n").into_bytes(),
        wide(u16::to_le_bytes),
        wide(u16::to_be_bytes),
    ] {
        let path = program.write("read.toml", bytes);
        let ran = program.ok(&words(&format!(
            "labels validate --pipeline {path} --format json"
        )));
        let set: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(set["labels"][0]["slug"], "süße-sachen");
        // A file without a label set name uses its file name.
        assert_eq!(set["name"], "read");
    }
    for (bytes, what) in [
        (&b""[..], "is empty"),
        (b"\xEF\xBB\xBF \n\t\n", "is empty"),
        (b"labels = [\"\xFF\"]\n", "line 1 is not UTF-8"),
        (b"\n\nl\0a\0b\0", "line 3 is not UTF-8"),
    ] {
        let path = program.write("other.toml", bytes);
        let ran = program.run(&["labels", "validate", "--pipeline", &path]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(what), "{what}: {}", ran.stderr);
    }
    let folder = program.folder.path().display().to_string();
    // Paths that are not readable pipeline files.
    for (path, what) in [
        (folder.as_str(), "it is a folder"),
        ("/dev/zero", "larger than 16 MiB"),
        ("nowhere.toml", "topicmill labels new"),
    ] {
        let ran = program.run(&["labels", "validate", "--pipeline", path]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(ran.stderr.contains(what), "{what}: {}", ran.stderr);
    }
}

#[test]
fn a_list_of_labels_is_a_complete_file() {
    let database = sqlite();
    let program = Program::with_database(&database.url).with_default_model();
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

    // Such a file has no source to collect from.
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
    for database in databases() {
        let program = Program::with_database(&database.url);
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
        // Two posts of each subreddit are pinned, and do not count towards its share.
        let all = "topic,subreddit,posts\nfirst,history,7\nfun,books,4\nfun,food,6\nfun,gaming,8\n";
        assert_eq!(counted(), all);
        // A second run reads the same posts.
        let ran = collect(&["--topic", "fun"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(counted(), all);
        collect(&["--topic", "fun", "--topic", "bare"])
            .expect_exit(2, "collect bare: no subreddits");
    }
    // Too few for all of them: the largest shares go first.
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

    // An unreadable subreddit fails alone, and is reported.
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
fn labels_may_share_words_if_the_model_reads_descriptions() {
    const SHARED: &str = "[[topic]]\nslug = \"play\"\nlabel = \"gaming\"\n\
        descriptions = \"Video games and consoles.\"\n\
         [[topic]]\nslug = \"bets\"\nlabel = \"gaming\"\ndescriptions = [\"Casinos, poker and betting.\"]\n\
         [[topic]]\nlabel = \"cooking\"\n";
    let nli = repository("tests/it/fixtures/models/tiny-bert-nli");
    let nli = nli.to_str().unwrap();
    let database = sqlite();
    let program = Program::with_database(&database.url).with_default_model();
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
    assert_eq!(scores.stdout, "n\n12\n", "one score a post and label");
    let one = program.write("one.toml", SHARED.replace("\"bets\"", "\"odds\""));
    let diff = program.json(&["labels", "diff", "current", &one]);
    let changes = diff["labels"].as_array().unwrap();
    assert_eq!(changes.len(), 2, "{diff}");
    // An NLI model reads the same words for both, and computes them once.
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

    // Of several concurrent commands, one writes.
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
fn a_full_disk_leaves_no_partial_pipeline_file() {
    let program = Program::new();
    let new = ["labels", "new", "my.toml", "gaming", "food"];
    program
        .run_on_full_disk(&new)
        .expect_exit(1, "free some space");
    assert_eq!(program.folder.path().read_dir().unwrap().count(), 0);
    program.ok(&new);
}

#[test]
fn labels_new_can_start_from_a_stored_set() {
    let database = sqlite();
    let program = Program::with_database(&database.url).with_default_model();
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

    // If the user names no file, a log line says where the labels come from.
    for (args, env, what) in [
        (
            &["classify"][..],
            "nowhere.toml",
            "setting `pipeline` in $TOPICMILL__PIPELINE: read the pipeline file",
        ),
        (
            &["labels", "calibrate", "--gold", "gold.csv"],
            "conf",
            "setting `pipeline` in $TOPICMILL__PIPELINE",
        ),
        (&["doctor", "--offline"], "nowhere.toml", "wrong"),
    ] {
        let ran = run(args, Some(env));
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.stderr);
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(all.contains(what), "{what}: {all}");
    }
    // Below a section it would be a key of that section.
    program.write(
        "below.toml",
        "[log]\nformat = \"text\"\npipeline = \"mine.toml\"\n",
    );
    program
        .run(&["--config", "below.toml", "config", "show"])
        .expect_exit(2, "write `pipeline` above the first section");
}
