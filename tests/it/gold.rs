//! Tests gold answers on both databases: `labels gold`, `--gold db`, and tasks for Label Studio.

use serde_json::{Value, json};

use crate::support::builders::{LABELS, line, pipeline};
use crate::support::postgres::{TestDatabase, databases, sqlite};
use crate::support::program::{Program, RunOutput, words};

/// The program with a database of labelled posts. Post `i` has the label `LABELS[i % 3]`; the margin between its two
/// best labels grows with `i`.
pub struct Scene {
    pub program: Program,
}

impl std::ops::Deref for Scene {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Scene {
    pub async fn new(database: &TestDatabase, posts: usize) -> Self {
        Self::of(Program::with_database(&database.url), database, posts).await
    }

    #[expect(clippy::unused_async, reason = "its callers await it")]
    pub async fn of(program: Program, _database: &TestDatabase, posts: usize) -> Self {
        let program = program.labelled_in_turn(posts);
        Self { program }
    }

    fn import(&self, name: &str, text: &str, more: &[&str]) -> RunOutput {
        let path = self.program.write(name, text);
        self.run(&[&["labels", "gold", "import", &path], more].concat())
    }

    fn count(&self) -> u64 {
        self.json(&["labels", "gold", "list"])["answers"]
            .as_u64()
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_imported_from_a_file_and_exported_unchanged() {
    for database in databases() {
        let scene = Scene::new(&database, 12).await;
        let csv = "ID,Label,annotator,answered_at\nk00000,Video Games,ada,2026-11-20T08:00:00+01:00\n\
                   t3_k00001,none,ada,2026-11-20T08:01:00Z\nk00001,food,ben,2026-11-20T08:02:00Z\nk00002,MUSIC,,\n";
        let ran = scene.import(
            "gold.csv",
            csv,
            &["--annotator", "carl", "--format", "json"],
        );
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        let expected = json!({"added": 4, "changed": 0, "same": 0, "missing": [], "left_out": 0});
        assert_eq!(found, expected);
        let out = scene.ok(&["labels", "gold", "export"]).stdout;
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            lines[0],
            "id,label,annotator,answered_at,chosen,source,text_hash,note"
        );
        for (line, start) in [
            (
                1,
                "t3_k00000,gaming,ada,2026-11-20T07:00:00Z,import,import,",
            ),
            (2, "t3_k00001,,ada,2026-11-20T08:01:00Z,import,import,"),
        ] {
            let hash = lines[line].strip_prefix(start);
            let hash = hash.and_then(|rest| rest.strip_suffix(','));
            assert!(hash.is_some_and(|hash| hash.len() == 32), "{out}");
        }
        assert!(lines[4].starts_with("t3_k00002,music,carl,"), "{out}");
        // A second import changes nothing. A newer answer replaces an older one, but not the reverse.
        let again = scene.import("again.csv", &out, &["--format", "json"]);
        let found: Value = serde_json::from_str(&again.stdout).unwrap();
        assert_eq!((&found["same"], &found["changed"]), (&json!(4), &json!(0)));
        let newer = "id,label,annotator,answered_at\nk00000,food,ada,2026-11-19T08:00:00Z\n\
            k00001,food,ada,2026-11-21T08:00:00Z\n";
        let ran = scene.import("newer.csv", newer, &["--format", "json"]);
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&found["same"], &found["changed"]), (&json!(1), &json!(1)));
        let listed = scene.json(&["labels", "gold", "list"]);
        assert_eq!(
            listed["labels"],
            json!({"food": 2, "gaming": 1, "music": 1})
        );
        assert_eq!(listed["annotators"], json!({"ada": 2, "ben": 1, "carl": 1}));
        // An annotator's answers can be deleted one by one or all at once.
        let remove = ["labels", "gold", "remove", "--annotator"];
        scene.ok(&[&remove[..], &["ada", "--post", "k00001"]].concat());
        assert_eq!(scene.count(), 3);
        scene.ok(&[&remove[..], &["ben"]].concat());
        assert_eq!(scene.count(), 2);
        assert_eq!(scene.run(&[&remove[..], &["ben"]].concat()).code, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_errors_in_a_gold_file_are_reported_together_and_nothing_is_stored() {
    let database = sqlite();
    let scene = Scene::new(&database, 12).await;
    let ids = scene.program.write("ids.txt", "t3_k00007\n");
    scene.ok(&["purge", "--ids", &ids]);
    let csv = "id,label\nk00000,gaming\nzz1,food\nk00001,sailing\nk00002,sailing\nk00007,food\nk00003,rowing\n";
    let ran = scene.import("gold.csv", csv, &[]);
    assert_eq!(ran.code, 2);
    ran.expect_stderr_all(&[
        "`rowing` (line 7), `sailing` (lines 4, 5)",
        "known labels: gaming, food, music",
        "(1 of them purged): t3_k00007 (line 6), t3_zz1 (line 3)",
        "Nothing was stored",
        "--skip-unknown",
    ]);
    assert_eq!(scene.count(), 0);
    let ran = scene.import("gold.csv", csv, &["--skip-unknown", "--annotator", "ada"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(scene.count(), 1);
    // Invalid ids and contradictory answers from one annotator are rejected.
    let odd = scene.import(
        "odd.csv",
        "id,label\na-1,food\nk00001,food\nb 2,food\n",
        &[],
    );
    odd.expect_exit(2, "line 2: `a-1` is neither");
    odd.expect_stderr("line 4: `b 2`");
    let hashed = "id,label,text_hash\nk00001,food,zzzz-not-a-hash\n";
    let hashed = scene.import("hashed.csv", hashed, &[]);
    hashed.expect_exit(2, "line 2: a text hash must have 32 hexadecimal digits");
    let twice = "id,label\nk00004,food\nk00004,music\n";
    scene
        .import("twice.csv", twice, &["--skip-unknown"])
        .expect_exit(2, "t3_k00004 in lines 2 and 3");
    for (name, text) in [("empty.csv", ""), ("header.csv", "id,label\n")] {
        assert_eq!(scene.import(name, text, &[]).code, 2, "{name}");
    }
    assert_eq!(scene.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn evaluate_uses_the_random_sample_without_disputed_posts() {
    for database in databases() {
        let scene = Scene::new(&database, 60).await;
        // 30 random posts, 3 of them wrong; 20 close calls, all wrong.
        let random = (30..60).map(|i| {
            let label = if i < 33 { "none" } else { LABELS[i % 3].0 };
            format!("k{i:05},{label},ada,random\n")
        });
        let closest = (0..20).map(|i| format!("k{i:05},{},ada,closest\n", LABELS[(i + 1) % 3].0));
        let head = "id,label,annotator,chosen\n".to_owned();
        let ben = "k00059,none,ben,closest\n".to_owned();
        let lines = [head].into_iter().chain(random).chain(closest);
        let rows: String = lines.chain([ben]).collect();
        let ran = scene.import("gold.csv", &rows, &[]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let found = scene.json(&["labels", "evaluate", "--gold", "db"]);
        assert_eq!(found["sample"], "random");
        assert_eq!(found["posts"], 29, "annotators disagree on one post");
        let share = &found["evaluation"]["outcome"];
        assert_eq!((&share["of"], &share["all"]), (&json!(26), &json!(29)));
        assert_eq!(found["all_answers"]["posts"], 49);
        assert_eq!(found["all_answers"]["outcome"]["of"], 26);
        let shown = scene.ok(&["labels", "evaluate", "--gold", "db"]);
        assert!(
            shown.stdout.contains("sampled at random")
                && shown.stdout.contains("All 49 posts with gold labels"),
            "{}",
            shown.stdout
        );
        shown.expect_stderr("annotators disagree");
        let listed = scene.json(&["labels", "gold", "list"]);
        let message = &listed["disagreements"][0]["answers"];
        assert_eq!(message, &json!([["ada", "music"], ["ben", null]]));
        // Calibration needs 30 posts: it uses all answers and reports that.
        scene
            .ok(&words(
                "labels calibrate --gold db --label-set first --target-precision 0.1",
            ))
            .expect_stderr("are not representative");
        // Without close calls, every answer counts; with close calls only, a warning is logged.
        database
            .run("UPDATE gold SET in_random_sample = FALSE, chosen = 'import'")
            .await;
        let found = scene.json(&["labels", "evaluate", "--gold", "db"]);
        assert_eq!(
            (&found["sample"], &found["posts"]),
            (&json!("all"), &json!(49))
        );
        database.run("UPDATE gold SET chosen = 'closest'").await;
        scene
            .ok(&["labels", "evaluate", "--gold", "db"])
            .expect_stderr("are not representative");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_random_posts_counts_once_it_is_declared_random() {
    for database in databases() {
        let scene = Scene::new(&database, 60).await;
        let rows = (0..40).map(|i| format!("k{i:05},{},ada\n", LABELS[i % 3].0));
        let rows: String = ["id,label,annotator\n".to_owned()]
            .into_iter()
            .chain(rows)
            .collect();
        let close = "id,label,annotator,chosen\nk00050,none,ben,closest\n";
        assert_eq!(scene.import("close.csv", close, &[]).code, 0);
        assert_eq!(scene.import("mine.csv", &rows, &[]).code, 0);
        let sample = || {
            let found = scene.json(&["labels", "evaluate", "--gold", "db"]);
            (found["sample"].clone(), found["posts"].clone())
        };
        // It is unknown how the posts in the file were chosen.
        assert_eq!(sample(), (json!("all"), json!(41)));
        assert_eq!(scene.import("mine.csv", &rows, &["--random"]).code, 0);
        assert_eq!(
            sample(),
            (json!("random"), json!(40)),
            "the close call does not count"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_declared_random_do_not_affect_others() {
    for database in databases() {
        let scene = Scene::new(&database, 40).await;
        let in_sample = || scene.json(&["labels", "gold", "list"])["random"].clone();
        // Close calls from the review page, written to a file.
        let close: String = (0..10)
            .map(|i| format!("k{i:05},food,ada,closest,review\n"))
            .collect();
        let head = "id,label,annotator,chosen,source\n";
        assert_eq!(
            scene
                .import("close.csv", &format!("{head}{close}"), &[])
                .code,
            0
        );
        // The user's own random sample. Its rows name the review page as their source.
        let mine: String = (20..40)
            .map(|i| format!("k{i:05},food,ada,closest,review\n"))
            .collect();
        let ran = scene.import("mine.csv", &format!("{head}{mine}"), &["--random"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(in_sample(), 20, "the close calls are not in the sample");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_is_imported_exported_and_kept_by_files_without_one() {
    for database in databases() {
        let scene = Scene::new(&database, 12).await;
        let csv = "id,label,annotator,note\nk00000,food,ada,\"half of it, \"\"a recipe\"\"\"\nk00001,food,ada,\n";
        assert_eq!(scene.import("gold.csv", csv, &[]).code, 0);
        let noted = || {
            let rows = scene.json(&["sql", "SELECT note FROM gold ORDER BY fullname"]);
            [0, 1].map(|row| rows[row]["note"].clone())
        };
        let expected = [json!("half of it, \"a recipe\""), Value::Null];
        assert_eq!(noted(), expected);
        let out = scene.ok(&["labels", "gold", "export"]).stdout;
        database.run("DELETE FROM gold").await;
        assert_eq!(scene.import("out.csv", &out, &[]).code, 0);
        assert_eq!(noted(), expected);
        // A file without notes changes the answer but not the note.
        let bare = "id,label,annotator\nk00000,music,ada\n";
        assert_eq!(scene.import("bare.csv", bare, &[]).code, 0);
        assert_eq!(noted(), expected);
        let long = format!(
            "id,label,annotator,note\nk00000,food,ada,{}\n",
            "x".repeat(600)
        );
        assert_eq!(scene.import("long.csv", &long, &[]).code, 0);
        assert_eq!(noted()[0].as_str().unwrap().len(), 500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_reuses_earlier_answers_for_the_sample() {
    for database in databases() {
        let scene = Scene::new(&database, 20).await;
        let store = database.open().await;
        let target = store.labels().current_target().await.unwrap().unwrap();
        let order = store.gold().random_posts(target, None, 100).await.unwrap();
        assert_eq!(order.len(), 20);
        let close = format!(
            "id,label,annotator,chosen\n{},food,ada,closest\n{},food,ada,closest\n",
            order[2], order[9]
        );
        assert_eq!(scene.import("close.csv", &close, &[]).code, 0);
        let random = format!(
            "id,label,annotator,chosen,source\n{},food,ada,random,review\n",
            order[5]
        );
        assert_eq!(scene.import("random.csv", &random, &[]).code, 0);
        let drawn: Vec<(String, bool)> = store
            .gold()
            .answers()
            .await
            .unwrap()
            .into_iter()
            .map(|one| (one.answer.fullname.to_string(), one.in_random_sample))
            .collect();
        for (place, is_drawn) in [(2, true), (5, true), (9, false)] {
            assert!(
                drawn.contains(&(order[place].to_string(), is_drawn)),
                "{place}: {drawn:?}"
            );
        }
        // Answered posts are offered again only to other annotators.
        let rest = store.gold().random_posts(target, None, 100).await.unwrap();
        assert_eq!(rest.len(), 17);
        assert!(!rest.contains(&order[5]));
        let of_ben = store
            .gold()
            .random_posts(target, Some("ben"), 100)
            .await
            .unwrap();
        assert_eq!(of_ben, order);
        let closest = store
            .gold()
            .lowest_margin_posts(target, None, 3)
            .await
            .unwrap();
        let names: Vec<&str> = closest
            .iter()
            .map(topicmill_core::Fullname::as_str)
            .collect();
        let expected: Vec<String> = (0..20)
            .map(|i| format!("t3_k{i:05}"))
            .filter(|name| ![2, 5, 9].iter().any(|place| order[*place].as_str() == name))
            .take(3)
            .collect();
        assert_eq!(names, expected);
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_deletes_gold_retention_keeps_it_and_an_edit_invalidates_it() {
    for database in databases() {
        let scene = Scene::new(&database, 12).await;
        let rows: String = (0..4).map(|i| format!("k{i:05},food\n")).collect();
        let csv = format!("id,label\n{rows}");
        assert_eq!(
            scene.import("gold.csv", &csv, &["--annotator", "ada"]).code,
            0
        );
        let ids = scene.program.write("ids.txt", "t3_k00000\n");
        scene.ok(&["purge", "--ids", &ids]);
        let out = scene.ok(&["labels", "gold", "export"]).stdout;
        assert!(!out.contains("k00000") && out.contains("k00001"), "{out}");
        let edited = scene
            .program
            .write("edited.ndjson", line(1, "another title"));
        scene.ok(&["import", &edited]);
        // Retention removes the text.
        database
            .run("UPDATE posts SET title = '', selftext = '', text_purged_at = collected_at WHERE fullname = \
                't3_k00002'")
            .await;
        assert_eq!(scene.count(), 3, "retention removes only the text");
        let ran = scene.ok(&["labels", "evaluate", "--gold", "db", "--format", "json"]);
        let found: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(found["left_out"]["without_text"], 1);
        assert_eq!(found["posts"], 1);
        ran.expect_stderr("edited since");
        // An import of the purged post's answer finds no post.
        assert_eq!(scene.import("gold.csv", &csv, &[]).code, 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn none_of_these_counts_only_if_all_labels_were_offered() {
    let database = sqlite();
    let program = Program::with_database(&database.url).with_default_model();
    let scene = Scene::of(program, &database, 40).await;
    let slugs = ["gaming", "food", "music"];
    let rest: String = (1..36)
        .map(|i| format!("k{i:05},{}\n", slugs[i % 3]))
        .collect();
    let csv = &format!("id,label\nk00000,none\n{rest}");
    let of_ada = ["--annotator", "ada", "--random"];
    assert_eq!(scene.import("gold.csv", csv, &of_ada).code, 0);
    let found = scene.json(&words("labels evaluate --gold db"));
    assert!(found["shares"].is_array(), "{found}");
    let more = [&LABELS[..], &[("sailing", "boats and sailing")]].concat();
    let wider = scene
        .program
        .write("wider.toml", pipeline("wider", "", &more));
    let ran = scene.ok(&words(&format!(
        "labels evaluate --gold db --label-set {wider} --format json"
    )));
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["posts"], 35);
    ran.expect_stderr("labels that annotators were not offered");
    // Answers are left out because of what they say, so the others are not a random sample.
    assert!(found["shares"].is_null(), "{found}");
    assert!(!ran.stdout.contains("so far"), "{}", ran.stdout);
    let quality = || scene.json(&["status"])["quality"].clone();
    assert_eq!(quality()["sample"], "random");
    scene.ok(&["classify", "--pipeline", &wider, "--make-current"]);
    let measured = quality();
    assert_eq!(measured["sample"], "selected");
    let sentence = measured["sentence"].as_str().unwrap();
    assert!(
        sentence.contains("from 35 answers; 1 more do not count"),
        "{sentence}"
    );
    // The same answers count for the new labels once they are imported again.
    assert_eq!(scene.import("gold.csv", csv, &of_ada).code, 0);
    assert_eq!(quality()["sample"], "random");
    assert_eq!(quality()["outcome"]["all"], 36);
    // In a set with fewer labels, every label was offered.
    let narrow = scene
        .program
        .write("narrow.toml", pipeline("narrow", "", &LABELS[..2]));
    let found = scene.json(&words(&format!(
        "labels evaluate --gold db --label-set {narrow} --others-out-of-scope"
    )));
    assert_eq!(found["posts"], 36);
    assert_eq!(found["evaluation"]["out_of_scope"]["all"], 13);
}

fn read(scene: &Scene, name: &str) -> Value {
    let path = scene.program.folder.path().join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_exported_to_label_studio_and_answers_imported() {
    let database = sqlite();
    let scene = Scene::new(&database, 40).await;
    let export = ["export", "tasks.json", "--format", "label-studio"];
    let ran = scene.ok(&[&export[..], &["--limit", "10", "--json"]].concat());
    let output: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (&output["tasks"], &output["random"]),
        (&json!(10), &json!(2))
    );
    let config = scene.program.read("tasks.xml");
    assert!(
        config.contains("<Choice value=\"food and cooking\" hotkey=\"2\"/>"),
        "{config}"
    );
    let mut tasks = read(&scene, "tasks.json");
    let list = tasks.as_array_mut().unwrap();
    let task = &list[0];
    assert_eq!(task["data"]["fullname"], "t3_k00000");
    let result = &task["predictions"][0]["result"][0];
    assert_eq!(result["value"]["choices"], json!(["video games"]));
    // As exported by Label Studio: one suggestion changed, one task skipped, the others accepted.
    for (place, task) in list.iter_mut().enumerate() {
        let mut result = task["predictions"][0]["result"][0].clone();
        if place == 3 {
            result["value"]["choices"] = json!(["none of these"]);
        }
        task["id"] = json!(place + 1);
        task["annotations"] = json!([{
            "id": place, "completed_by": {"id": 1, "email": "ada@example.org"}, "result": [result],
            "was_cancelled": place == 4, "updated_at": "2026-11-20T08:00:00.123456Z",
        }]);
    }
    let text = serde_json::to_string(&tasks).unwrap();
    let ran = scene.import("project.json", &text, &[]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let listed = scene.json(&["labels", "gold", "list"]);
    assert_eq!(listed["answers"], 9);
    assert_eq!(listed["annotators"], json!({"ada@example.org": 9}));
    assert_eq!(listed["labels"]["(none of these)"], 1);
    let found = scene.json(&["labels", "evaluate", "--gold", "db"]);
    assert_eq!(found["sample"], "random");
    assert_eq!(found["all_answers"]["posts"], 9);
    assert_eq!(found["all_answers"]["outcome"]["of"], 8);
    // An existing file is not replaced without a flag, and answered posts are not exported again.
    assert_eq!(scene.run(&export).code, 2);
    scene.ok(&[&export[..], &["--overwrite", "--random-share", "0"]].concat());
    let again = read(&scene, "tasks.json");
    assert_eq!(again.as_array().unwrap().len(), 31);
    for wrong in [["--label", "food"], ["--random-share", "2"]] {
        let ran = scene.run(&[&export[..], &wrong[..]].concat());
        assert_eq!(ran.code, 2, "{wrong:?}: {}", ran.stderr);
    }
}

/// Edits a post and labels it again.
fn edit(scene: &Scene, i: usize, title: &str) {
    let file = scene.program.write("edited.ndjson", line(i, title));
    scene.ok(&["import", &file]);
    scene.ok(&["classify", "--pipeline", "first.toml"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn imported_answers_apply_to_the_text_that_annotators_saw() {
    for database in databases() {
        let scene = Scene::new(&database, 12).await;
        let before_an_edit = || scene.json(&["labels", "gold", "list"])["before_an_edit"].clone();
        // Tasks are exported and answered, and a post is edited before the answers are imported.
        let to = ["export", "tasks.json", "--format", "label-studio"];
        scene.ok(&[&to[..], &["--random-share", "0"]].concat());
        let mut tasks = read(&scene, "tasks.json");
        for task in tasks.as_array_mut().unwrap() {
            let result = task["predictions"][0]["result"].clone();
            task["annotations"] = json!([{"completed_by": 1, "result": result}]);
        }
        // An annotation with two choices is not an answer and does not affect others.
        let two = json!([{"type": "choices", "value": {"choices": ["food", "music"]}}]);
        let first = &mut tasks[0]["annotations"];
        first
            .as_array_mut()
            .unwrap()
            .push(json!({"completed_by": 2, "result": two}));
        edit(&scene, 0, "a new text");
        let ran = scene.import("answered.json", &tasks.to_string(), &[]);
        ran.expect_exit(0, "ignored an annotation with several choices");
        assert_eq!(before_an_edit(), 1);
        // Answers are exported, a post is edited, and the answers are imported, with and without the hash of the text.
        let out = scene.ok(&["labels", "gold", "export"]).stdout;
        edit(&scene, 1, "another new text");
        assert_eq!(before_an_edit(), 2);
        assert_eq!(scene.import("out.csv", &out, &[]).code, 0);
        assert_eq!(before_an_edit(), 2);
        let bare = out.lines().map(|line| line.rsplitn(3, ',').last().unwrap());
        let bare: Vec<&str> = bare.collect();
        assert_eq!(scene.import("bare.csv", &bare.join("\n"), &[]).code, 0);
        assert_eq!(before_an_edit(), 2);
        // An answer with a later time is a new one, about the current text.
        let later =
            "id,label,annotator,answered_at\nk00000,food,label-studio:1,2036-11-20T08:00:00Z\n";
        assert_eq!(scene.import("later.csv", later, &[]).code, 0);
        assert_eq!(before_an_edit(), 1);
    }
}
