//! Tests `labels suggest`: the topics of posts that fit no label, on both databases.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::support::builders;
use crate::support::postgres::{TestDatabase, databases, sqlite};
use crate::support::program::Program;

/// Topics of the sample Reddit that have a label.
const FIVE: [(&str, &str); 5] = [
    ("gaming", "video games"),
    ("food", "food and cooking"),
    ("movies", "movies and television"),
    ("finance", "personal finance and investing"),
    ("sports", "sports"),
];
const BACKGROUND: &str = "background = \"reddit\"\n";

fn five(settings: &str) -> String {
    let topics =
        FIVE.map(|(slug, label)| format!("[[topic]]\nslug = \"{slug}\"\nlabel = \"{label}\"\n"));
    format!("name = \"five\"\n{settings}{}", topics.concat())
}

/// The program with a database of the sample posts on sixteen topics, labelled with five labels.
struct Scene {
    program: Program,
    /// The pipeline file.
    five: String,
}

impl std::ops::Deref for Scene {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

/// The bytes of a SQLite file with these posts and labels, created once.
static LABELLED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let database = sqlite();
    let program = Program::with_database(&database.url).with_default_model();
    let five = program.write("five.toml", five(BACKGROUND));
    program.ok(&["collect", "--source", "sample"]);
    program.ok(&["classify", "--pipeline", &five]);
    std::fs::read(database.url.strip_prefix("sqlite:").unwrap()).unwrap()
});

impl Scene {
    fn new(database: &TestDatabase) -> Self {
        let program = Program::with_database(&database.url).with_default_model();
        let five = program.write("five.toml", five(BACKGROUND));
        if let Some(path) = database.url.strip_prefix("sqlite:") {
            std::fs::write(path, &*LABELLED).unwrap();
        } else {
            let labelled = program.write("labelled.db", &*LABELLED);
            Program::new().ok(&["db", "copy", &format!("sqlite:{labelled}"), &database.url]);
        }
        Self { program, five }
    }

    fn suggest(&self, more: &[&str]) -> Value {
        self.json(&[&["labels", "suggest"][..], more].concat())
    }

    fn refused(&self, args: &[&str], message: &str) {
        let ran = self.run(args);
        assert_eq!(ran.code, 2, "{args:?}\n{}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(message), "{args:?}\n{}", ran.stderr);
        assert_eq!(ran.stdout, "");
    }

    fn count(&self, sql: &str) -> u64 {
        let rows = self.json(&["sql", sql]);
        rows[0]["n"].as_u64().unwrap()
    }

    /// Returns the outcome of a post and the topic that it was collected for.
    fn post(&self, fullname: &Value) -> (String, String) {
        let name = fullname.as_str().unwrap();
        let sql = format!("SELECT outcome, topic FROM labeled_posts WHERE fullname = '{name}'");
        let rows = self.json(&["sql", &sql]);
        let text = |key: &str| rows[0][key].as_str().unwrap().to_owned();
        (text("outcome"), text("topic"))
    }
}

fn clusters(found: &Value) -> &Vec<Value> {
    found["clusters"].as_array().unwrap()
}

fn examples(found: &Value) -> impl Iterator<Item = &Value> {
    let of = |cluster: &'_ Value| cluster["examples"].as_array().unwrap().len();
    let all = clusters(found).iter();
    all.flat_map(move |cluster| (0..of(cluster)).map(move |at| &cluster["examples"][at]))
}

#[test]
fn topics_without_a_label_are_found_reproducibly_on_both_databases() {
    let mut before: Option<Value> = None;
    for database in databases() {
        let scene = Scene::new(&database);
        let found = scene.suggest(&[]);
        let other = scene.count("SELECT COUNT(*) AS n FROM labeled_posts WHERE outcome = 'other'");
        assert_eq!(
            (&found["outcome"], &found["posts"]),
            (&json!("other"), &json!(other))
        );
        assert_eq!(
            (&found["sampled"], &found["min_posts"]),
            (&json!(other), &json!(4))
        );
        let mut last = u64::MAX;
        let mut topics = HashSet::new();
        for cluster in clusters(&found) {
            let posts = cluster["posts"].as_u64().unwrap();
            assert!((4..=last).contains(&posts), "the largest first: {found}");
            last = posts;
            assert!(!cluster["label"].as_str().unwrap().is_empty());
            let middle = scene.post(&cluster["examples"][0]["fullname"]);
            assert_eq!(middle.0, "other");
            topics.insert(middle.1);
        }
        let hidden = topics
            .iter()
            .filter(|topic| FIVE.iter().all(|(slug, _)| slug != topic));
        // 11 topics have no label.
        assert!(hidden.count() >= 8, "{topics:?}");
        assert_eq!(scene.suggest(&["--label-set", "five"]), found);
        assert_eq!(scene.suggest(&["--label-set", &scene.five]), found);
        // The same posts yield the same clusters, in any insertion order.
        if let Some(before) = &before {
            assert_eq!(before["clusters"], found["clusters"]);
        }
        before = Some(found);

        let shown = scene.ok(&["labels", "suggest", "--limit", "3"]);
        let rows = shown.stdout.lines().take_while(|line| !line.is_empty());
        let rows: Vec<&str> = rows.collect();
        assert_eq!(rows.len(), 2 + 3, "{}", shown.stdout);
        let csv = scene.ok(&["labels", "suggest", "--format", "csv"]);
        assert!(
            csv.stdout
                .starts_with("posts,share,label,terms,background,title_1,title_2\n")
        );
    }
}

#[test]
#[ignore = "deep: the sample posts"]
fn suggested_labels_go_into_a_valid_copy_and_need_no_inference() {
    let database = sqlite();
    let scene = Scene::new(&database);
    let out = scene.program.folder.path().join("more.toml");
    let out = out.to_str().unwrap();
    let ask = [
        "labels",
        "suggest",
        "--label-set",
        &scene.five,
        "--limit",
        "6",
        "--out",
        out,
    ];
    scene.ok(&ask);
    let text = std::fs::read_to_string(out).unwrap();
    // With the same name, the two label sets would be ambiguous.
    let renamed = five(BACKGROUND).replace("name = \"five\"", "name = \"more\"");
    assert_ne!(renamed, five(BACKGROUND));
    assert!(
        text.starts_with(&renamed),
        "the rest of the file is unchanged: {text}"
    );
    let more = scene.json(&["labels", "validate", "--pipeline", out]);
    let labels = more["labels"].as_array().map_or(0, Vec::len);
    assert_eq!(labels, 5 + 6, "{more}");
    for example in examples(&scene.suggest(&[])) {
        let title = example["title"].as_str().unwrap();
        assert!(
            !text.contains(title),
            "the file contains a title, which a purge would not remove"
        );
    }
    scene.refused(
        &ask,
        "already exists: choose a different name for --out, or add --overwrite",
    );
    scene.ok(&[&ask[..], &["--overwrite"]].concat());
    let diff = scene.json(&["labels", "diff", "current", out]);
    assert_eq!(diff["cost"]["pairs_missing"], 0, "{diff}");
    let moved = &diff["moved"];
    assert_eq!(moved["posts"], moved["looked_at"]);
    let (before, after) = (
        &moved["none_of_these_before"],
        &moved["none_of_these_after"],
    );
    assert!(after.as_u64() < before.as_u64(), "{moved}");

    // A file with a list of labels, one of which uses a suggested slug.
    let words = clusters(&scene.suggest(&[]))[0]["label"].clone();
    let short = format!("labels = [\"video games\", {words}]\n{BACKGROUND}");
    let base = scene.program.write("base.toml", &short);
    let ask = [
        "labels",
        "suggest",
        "--pipeline",
        &base,
        "--limit",
        "2",
        "--overwrite",
    ];
    scene.ok(&[&ask[..], &["--out", out]].concat());
    let written = scene.json(&["labels", "validate", "--pipeline", out]);
    assert_eq!(written["labels"].as_array().unwrap().len(), 4, "{written}");
    // On a full disk, the advice is to free space, not to use a different file.
    scene
        .run(&[&ask[..], &["--out", "/dev/full"]].concat())
        .expect_exit(1, "free some space");
    let inline = format!("{BACKGROUND}topic = [{{ label = \"video games\" }}]\n");
    let inline = scene.program.write("inline.toml", inline);
    let ask = ["labels", "suggest", "--pipeline", &inline, "--overwrite"];
    scene.refused(
        &[&ask[..], &["--out", out]].concat(),
        "below a line [[topic]]",
    );
    // It is unknown which file the current labels came from.
    let ask = ["labels", "suggest", "--overwrite", "--out", out];
    scene.refused(&ask, "name it with --pipeline");
}

#[test]
fn without_unlabelled_posts_the_message_gives_advice() {
    let database = sqlite();
    let program = Program::with_database(&database.url);
    let five = program.write("five.toml", five(""));
    let scene = Scene { program, five };
    let posts = scene.program.write("posts.ndjson", builders::lines(3, 3));
    scene.ok(&["import", &posts]);
    scene.ok(&["classify", "--pipeline", &scene.five]);
    let ask = ["labels", "suggest"];
    scene.refused(&ask, "add `background = \"reddit\"` to its pipeline file");
    scene.refused(
        &[&ask[..], &["--outcome", "unsure"]].concat(),
        "its threshold is 0",
    );
    scene.refused(
        &[&ask[..], &["--label-set", "nothing"]].concat(),
        "nor the name or version of a stored",
    );
    let new = scene.program.write("new.toml", "labels = [\"music\"]\n");
    scene.refused(
        &[&ask[..], &["--label-set", &new]].concat(),
        "no post has a label of the label set",
    );
    let bad = scene.run(&[&ask[..], &["--min-posts", "1"]].concat());
    assert_eq!(bad.code, 2, "{}", bad.stderr);
}
