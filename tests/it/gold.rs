//! Tests gold answers on both databases: `labels gold`, `--gold db`, and tasks for Label Studio.

use serde_json::{Value, json};
use sqlx::{Connection, Executor, PgConnection};
use topicmill_core::table;
use topicmill_store::ReviewOrder;

use crate::support::builders::{self, LABELS, pipeline};
use crate::support::postgres::{postgres, sqlite};
use crate::support::program::{Program, RunOutput};

impl Program {
    fn import_gold(&self, text: &str, flags: &str) -> RunOutput {
        self.write("gold.csv", text);
        self.run(&format!("labels gold import gold.csv {flags}"))
    }

    /// Imports gold labels, and returns the counts.
    #[track_caller]
    fn imported_gold(&self, text: &str, flags: &str) -> Value {
        let ran = self.import_gold(text, &format!("{flags} --format json"));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.json()
    }

    fn listed_gold(&self) -> Value {
        self.json("labels gold list")
    }
}

#[test]
fn answers_are_imported_from_a_file_and_exported_unchanged() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(12);
        let csv = "ID,Label,annotator,answered_at,note\n\
                   k00000,Video Games,ada,2026-11-20T08:00:00+01:00,\"half of it, \"\"a recipe\"\"\"\n\
                   t3_k00001,none,ada,2026-11-20T08:01:00Z,\nk00001,food,ben,2026-11-20T08:02:00Z,\nk00002,MUSIC,,,\n";
        let expected = json!({"added": 4, "changed": 0, "same": 0, "missing": [], "left_out": 0});
        assert_eq!(program.imported_gold(csv, "--annotator carl"), expected);
        let out = program.ok("labels gold export").stdout;
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            lines[0],
            "id,label,annotator,answered_at,chosen,source,text_hash,note"
        );
        for (line, start, end) in table! {
            1, "t3_k00000,gaming,ada,2026-11-20T07:00:00Z,import,import,", ",\"half of it, \"\"a recipe\"\"\"";
            2, "t3_k00001,,ada,2026-11-20T08:01:00Z,import,import,", ",";
        } {
            let hash = lines[line].strip_prefix(start);
            let hash = hash.and_then(|rest| rest.strip_suffix(end));
            assert!(hash.is_some_and(|hash| hash.len() == 32), "{out}");
        }
        assert!(lines[4].starts_with("t3_k00002,music,carl,"), "{out}");
        let again = program.imported_gold(&out, "");
        assert_eq!([&again["same"], &again["changed"]], [4, 0]);
        let listed = program.listed_gold();
        let labels = json!({"food": 1, "gaming": 1, "music": 1, "(none of these)": 1});
        assert_eq!(listed["labels"], labels);
        assert_eq!(listed["annotators"], json!({"ada": 2, "ben": 1, "carl": 1}));
    }
}

#[test]
fn a_newer_answer_replaces_an_older_one_and_keeps_its_note() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(12);
        let answer = |label: &str, day: u32, note: &str| {
            let row = format!("k00000,{label},ada,2026-11-{day}T08:00:00Z,{note}");
            let head = "id,label,annotator,answered_at,note";
            let counts = program.imported_gold(&format!("{head}\n{row}\n"), "");
            let stored = program.rows("SELECT label, note FROM gold")[0].take();
            (counts["changed"].clone(), stored)
        };
        answer("food", 20, "half of it");
        let kept = json!(["food", "half of it"]);
        assert_eq!(answer("music", 19, ""), (json!(0), kept));
        let newer = json!(["gaming", "half of it"]);
        assert_eq!(answer("gaming", 21, ""), (json!(1), newer));
        let (_, long) = answer("gaming", 22, &"x".repeat(600));
        assert_eq!(
            long[1],
            "x".repeat(500),
            "a note has at most 500 characters"
        );
    }
}

#[test]
fn answers_of_an_annotator_are_removed_one_by_one_or_all_at_once_if_confirmed() {
    let program = Program::on(sqlite()).labelled_in_turn(12);
    let answers = "k00000,food,ada\nk00001,food,ada\nk00001,food,ben\n";
    program.imported_gold(&format!("id,label,annotator\n{answers}"), "");
    let left_after = |flags: &str, code: i32| {
        let ran = program.run(&format!("labels gold remove --annotator {flags}"));
        assert_eq!(ran.code, code, "{}", ran.stderr);
        program.listed_gold()["answers"].clone()
    };
    assert_eq!(left_after("ada", 2), 3);
    assert_eq!(left_after("ada --post k00001 --yes", 0), 2);
    assert_eq!(left_after("ben --yes", 0), 1);
    assert_eq!(left_after("ben --yes", 2), 1, "no answer is left to remove");
}

#[test]
fn all_errors_in_a_gold_file_are_reported_together_and_nothing_is_stored() {
    let program = Program::on(sqlite()).labelled_in_turn(12);
    program.write("ids.txt", "t3_k00007\n");
    program.ok("purge --ids ids.txt");
    let csv = "id,label\nk00000,gaming\nzz1,food\nk00001,sailing\nk00002,sailing\nk00007,food\nk00003,rowing\n";
    let ran = program.import_gold(csv, "");
    assert_eq!(ran.code, 2);
    ran.expect_stderr_all(&[
        "`rowing` (line 7), `sailing` (lines 4, 5)",
        "gaming, food, music",
        "(1 of them purged): t3_k00007 (line 6), t3_zz1 (line 3)",
        "--skip-unknown",
    ]);
    assert_eq!(program.listed_gold()["answers"], 0);
    assert_eq!(program.imported_gold(csv, "--skip-unknown")["added"], 1);
    // Invalid ids and contradictory answers from one annotator are rejected.
    for (text, messages) in table! {
        "id,label\na-1,food\nk00001,food\nb 2,food\n", ["line 2: `a-1`", "line 4: `b 2`"];
        "id,label,text_hash\nk00001,food,zzzz-not-a-hash\n", ["line 2: ", "32 hexadecimal digits"];
        "id,label\nk00004,food\nk00004,music\n", ["t3_k00004", "in lines 2 and 3"];
        "", ["no rows", ""];
        "id,label\n", ["no rows", ""];
    } {
        let ran = program.import_gold(text, "--skip-unknown");
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        ran.expect_stderr_all(&messages);
    }
    assert_eq!(program.listed_gold()["answers"], 1);
}

#[test]
fn evaluate_uses_the_random_sample_with_the_posts_on_which_annotators_disagree() {
    let program = Program::on(sqlite()).labelled_in_turn(60);
    // 30 random posts, 3 of them wrong; 20 close calls, all wrong.
    let random = (30..60).map(|i| {
        let label = if i < 33 { "none" } else { LABELS[i % 3].0 };
        format!("k{i:05},{label},ada,random\n")
    });
    let closest = (0..20).map(|i| format!("k{i:05},{},ada,closest\n", LABELS[(i + 1) % 3].0));
    let rows: String = random.chain(closest).collect();
    let rows = format!("id,label,annotator,chosen\n{rows}k00059,none,ben,closest\n");
    program.imported_gold(&rows, "");
    let evaluate = || program.json("labels evaluate --gold db");
    let found = evaluate();
    assert_eq!(found["sample"], "random");
    assert_eq!(found["posts"], 30);
    let outcome = |found: &Value| {
        let outcome = &found["evaluation"]["outcome"];
        let [share, most] = ["share", "share_if_right"].map(|key| outcome[key].as_f64());
        (outcome["of"].as_u64().unwrap(), share, most)
    };
    assert_eq!(outcome(&found), (26, Some(26.0 / 30.0), Some(27.0 / 30.0)));
    assert_eq!(found["all_answers"]["posts"], 50);
    assert_eq!(found["all_answers"]["outcome"]["of"], 26);
    // Of the third of posts that are labelled music, 8 or 9 of 10 are right.
    let music = found["shares"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["label"] == "music");
    let value = music.unwrap()["estimated"]["value"].as_f64().unwrap();
    assert!((value - 8.5 / 30.0).abs() < 1e-9, "{found}");
    // A named annotator decides, or a majority.
    for (name, right) in [("ada", 27), ("ben", 26)] {
        let decided = program.json(&["labels", "evaluate", "--decides", name]);
        let expected = (
            right,
            Some(f64::from(u32::try_from(right).unwrap()) / 30.0),
            None,
        );
        assert_eq!(outcome(&decided), expected, "{name}");
    }
    program
        .run("labels evaluate --decides eve")
        .expect_exit(2, "ada, ben");
    program.imported_gold("id,label,annotator\nk00059,music,carl\n", "");
    assert_eq!(outcome(&evaluate()), (27, Some(0.9), None));
    assert_eq!(program.listed_gold()["alpha"]["posts"], 1);
    program.ok("labels gold remove --annotator carl --yes");
    let disputed = &program.listed_gold()["disagreements"][0]["answers"];
    assert_eq!(*disputed, json!([["ada", "music"], ["ben", null]]));
    // Calibration uses the 30 random posts.
    let calibrated = "labels calibrate --label-set first --target-precision 0.1 --format json";
    let calibrated: Value = serde_json::from_str(&program.ok(calibrated).stdout).unwrap();
    assert_eq!(calibrated["before"]["accuracy"]["all"], 30);
    assert_eq!(calibrated["sample"], "random");
    // Without close calls, every answer counts, but no share is estimated if the posts are not known to be random; with
    // close calls only, a warning is logged.
    program.execute("UPDATE gold SET in_random_sample = FALSE, chosen = 'import'");
    let found = evaluate();
    assert_eq!(
        (&found["sample"], &found["posts"]),
        (&json!("all"), &json!(50))
    );
    assert_eq!(found.get("shares"), None);
    program.execute("UPDATE gold SET chosen = 'closest'");
    program
        .ok("labels evaluate --gold db")
        .expect_stderr("are not representative");
}

#[test]
fn only_the_file_that_is_declared_random_counts_as_a_random_sample() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(60);
        let rows = |posts: std::ops::Range<usize>, chosen: &str| {
            let rows = posts.map(|i| format!("k{i:05},{},ada,{chosen}\n", LABELS[i % 3].0));
            format!(
                "id,label,annotator,chosen,source\n{}",
                rows.collect::<String>()
            )
        };
        let sample = || {
            let found = program.json("labels evaluate --gold db");
            (found["sample"].clone(), found["posts"].clone())
        };
        // It is unknown how the posts in the file were chosen. The close call is from the review page.
        program.imported_gold(&rows(50..51, "closest,review"), "");
        program.imported_gold(&rows(0..40, "import,import"), "");
        assert_eq!(sample(), (json!("all"), json!(41)));
        // Rows that name the review page as their source do not draw others into the sample.
        program.imported_gold(&rows(0..40, "closest,review"), "--random");
        assert_eq!(sample(), (json!("random"), json!(40)));
        assert_eq!(program.listed_gold()["random"], 40);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_reuses_earlier_answers_for_the_sample() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(20);
        let store = program.store().await;
        let target = store.labels().current_target().await.unwrap().unwrap();
        let order = store
            .gold()
            .posts_to_review(target, None, ReviewOrder::Random, 100)
            .await
            .unwrap();
        assert_eq!(order.len(), 20);
        for (place, chosen) in [(2, "closest"), (9, "closest"), (5, "random")] {
            let row = format!("{},food,ada,{chosen},review", order[place]);
            program.imported_gold(&format!("id,label,annotator,chosen,source\n{row}\n"), "");
        }
        let answers = store.gold().answers().await.unwrap().into_iter();
        let drawn = answers.map(|one| (one.answer.fullname, one.in_random_sample));
        let drawn: Vec<_> = drawn.collect();
        for (place, is_drawn) in [(2, true), (5, true), (9, false)] {
            assert!(
                drawn.contains(&(order[place].clone(), is_drawn)),
                "{place}: {drawn:?}"
            );
        }
        // Answered posts are offered again only to other annotators.
        let rest = store
            .gold()
            .posts_to_review(target, None, ReviewOrder::Random, 100)
            .await
            .unwrap();
        assert_eq!(rest.len(), 17);
        assert!(!rest.contains(&order[5]));
        let of_ben = store
            .gold()
            .posts_to_review(target, Some("ben"), ReviewOrder::Random, 100)
            .await;
        assert_eq!(of_ben.unwrap(), order);
        let closest = store
            .gold()
            .posts_to_review(target, None, ReviewOrder::Margin, 3)
            .await
            .unwrap();
        let mut expected = rest;
        expected.sort();
        assert_eq!(closest, expected[..3]);
        store.close().await.unwrap();
    }
}

#[test]
fn a_purge_deletes_gold_retention_keeps_it_and_an_edit_invalidates_it() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(12);
        let csv = "id,label\nk00000,food\nk00001,food\nk00002,food\nk00003,food\n";
        program.imported_gold(csv, "--annotator ada");
        program.write("ids.txt", "t3_k00000\n");
        program.ok("purge --ids ids.txt");
        let out = program.ok("labels gold export").stdout;
        assert!(!out.contains("k00000") && out.contains("k00001"), "{out}");
        program.write("edited.ndjson", builders::line(1, "another title"));
        program.ok("import edited.ndjson");
        // Retention removes the text.
        program.execute("UPDATE things SET title = '', selftext = '', text_purged_at = collected_at WHERE fullname = \
                't3_k00002'");
        assert_eq!(
            program.listed_gold()["answers"],
            3,
            "retention removes only the text"
        );
        let ran = program.ok("labels evaluate --gold db --format json");
        let found = ran.json();
        assert_eq!(found["left_out"]["without_text"], 0);
        assert_eq!(found["posts"], 2);
        ran.expect_stderr("edited since");
        // An import of the purged post's answer finds no post.
        assert_eq!(program.import_gold(csv, "").code, 2);
    }
}

#[test]
fn none_of_these_counts_only_if_all_labels_were_offered() {
    let program = Program::on(sqlite()).with_default_model();
    let program = program.labelled_in_turn(40);
    let rest = (1..36).map(|i| format!("k{i:05},{}\n", LABELS[i % 3].0));
    let csv = format!("id,label\nk00000,none\n{}", rest.collect::<String>());
    program.imported_gold(&csv, "--annotator ada --random");
    let found = program.json("labels evaluate --gold db");
    assert!(found["shares"].is_array(), "{found}");
    let more = [&LABELS[..], &[("sailing", "boats and sailing")]].concat();
    program.write("wider.toml", pipeline("wider", "", &more));
    let ran = program.ok("labels evaluate --gold db --label-set wider.toml --format json");
    let found = ran.json();
    assert_eq!(found["posts"], 35);
    ran.expect_stderr("annotators were not offered");
    // Answers are left out because of what they say, so the others are not a random sample.
    assert!(found["shares"].is_null(), "{found}");
    assert!(!ran.stdout.contains("so far"), "{}", ran.stdout);
    let quality = || program.json("status")["quality"].clone();
    assert_eq!(quality()["sample"], "random");
    program.ok("classify --pipeline wider.toml --make-current");
    let measured = quality();
    assert_eq!(measured["sample"], "selected");
    assert_eq!(
        [
            &measured["outcome"]["all"],
            &measured["left_out"]["other_labels"]
        ],
        [35, 1]
    );
    // The same answers count for the new labels once they are imported again.
    program.imported_gold(&csv, "--annotator ada --random");
    assert_eq!(quality()["sample"], "random");
    assert_eq!(quality()["outcome"]["all"], 36);
    // In a set with fewer labels, every label was offered.
    program.write("narrow.toml", pipeline("narrow", "", &LABELS[..2]));
    let args = "labels evaluate --gold db --label-set narrow.toml --others-out-of-scope";
    let found = program.json(args);
    assert_eq!(found["posts"], 36);
    assert_eq!(found["evaluation"]["out_of_scope"]["all"], 13);
}

#[test]
fn tasks_are_exported_to_label_studio_and_answers_imported() {
    let program = Program::on(sqlite()).labelled_in_turn(40);
    let export = "export tasks.json --format label-studio";
    let ran = program.ok(&format!("{export} --limit 10 --json"));
    let output = ran.json();
    assert_eq!([&output["tasks"], &output["random"]], [10, 2]);
    let config = program.read("tasks.xml");
    let choice = "<Choice value=\"food and cooking\" hotkey=\"2\"/>";
    assert!(config.contains(choice), "{config}");
    let mut tasks = program.read_json("tasks.json");
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
    program.write("project.json", tasks.to_string());
    program.ok("labels gold import project.json");
    let listed = program.listed_gold();
    assert_eq!(listed["answers"], 9);
    assert_eq!(listed["annotators"], json!({"ada@example.org": 9}));
    assert_eq!(listed["labels"]["(none of these)"], 1);
    let found = program.json("labels evaluate --gold db");
    assert_eq!(found["sample"], "random");
    assert_eq!(found["all_answers"]["posts"], 9);
    assert_eq!(found["all_answers"]["outcome"]["of"], 8);
    // An existing file is not replaced without a flag, and answered posts are not exported again.
    assert_eq!(program.run(export).code, 2);
    program.ok(&format!("{export} --overwrite --random-share 0"));
    let again = program.read_json("tasks.json");
    assert_eq!(again.as_array().unwrap().len(), 31);
    for wrong in ["--label food", "--random-share 2"] {
        assert_eq!(program.run(&format!("{export} {wrong}")).code, 2, "{wrong}");
    }
}

/// Edits a post and labels it again.
fn edit(program: &Program, i: usize, title: &str) {
    program.write("edited.ndjson", builders::line(i, title));
    program.ok("import edited.ndjson");
    program.ok("classify --pipeline first.toml");
}

#[test]
fn imported_answers_apply_to_the_text_that_annotators_saw() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(12);
        let before_an_edit = || program.listed_gold()["before_an_edit"].clone();
        // Tasks are exported and answered, and a post is edited before the answers are imported.
        program.ok("export tasks.json --format label-studio --random-share 0");
        let mut tasks = program.read_json("tasks.json");
        for task in tasks.as_array_mut().unwrap() {
            let result = task["predictions"][0]["result"].clone();
            task["annotations"] = json!([{"completed_by": 1, "result": result}]);
        }
        // An annotation with two choices is not an answer and does not affect others.
        let two = json!([{"type": "choices", "value": {"choices": ["food", "music"]}}]);
        let first = tasks[0]["annotations"].as_array_mut().unwrap();
        first.push(json!({"completed_by": 2, "result": two}));
        edit(&program, 0, "a new text");
        program.write("answered.json", tasks.to_string());
        let ran = program.ok("labels gold import answered.json");
        ran.expect_stderr("several choices");
        assert_eq!(program.listed_gold()["answers"], 12);
        assert_eq!(before_an_edit(), 1);
        // Answers are exported, a post is edited, and the answers are imported, with and without the hash of the text.
        let out = program.ok("labels gold export").stdout;
        edit(&program, 1, "another new text");
        let bare = out.lines().map(|line| line.rsplitn(3, ',').last().unwrap());
        let bare = bare.collect::<Vec<&str>>().join("\n");
        assert_eq!(before_an_edit(), 2);
        for again in [out, bare] {
            program.imported_gold(&again, "");
            assert_eq!(before_an_edit(), 2);
        }
        // An answer with a later time is a new one, about the current text.
        let head = "id,label,annotator,answered_at";
        program.execute("UPDATE gold SET answered_at = '2020-11-20T08:00:00+00:00'");
        let later = format!("{head}\nk00000,food,label-studio:1,2020-11-20T09:00:00Z\n");
        program.imported_gold(&later, "");
        assert_eq!(before_an_edit(), 1);
    }
}

#[test]
fn posts_stored_after_a_random_sample_are_not_covered_until_they_have_answers() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(60);
        let earlier = "UPDATE things SET collected_at = '2026-01-01T00:00:00+00:00' \
            WHERE CAST(substr(fullname, 5) AS INTEGER) < 40";
        program.execute(earlier);
        let rows = |posts: std::ops::Range<usize>, label: Option<&str>, at: &str| {
            let rows =
                posts.map(|i| format!("k{i:05},{},ada,{at}\n", label.unwrap_or(LABELS[i % 3].0)));
            format!(
                "id,label,annotator,answered_at\n{}",
                rows.collect::<String>()
            )
        };
        program.imported_gold(&rows(0..30, None, "2026-01-02T00:00:00Z"), "--random");
        let evaluate = || program.json("labels evaluate");
        let found = evaluate();
        let frame = &found["frame"];
        let expected = json!([40, 20, 15, "2026-01-02T00:00:01Z"]);
        let keys = ["posts", "not_covered", "answers_needed", "until"];
        assert_eq!(
            Value::from_iter(keys.map(|key| frame[key].clone())),
            expected,
            "{found}"
        );
        assert_eq!(
            program.json("status")["quality"]["frame"]["not_covered"],
            20
        );
        // Calibrating scores the posts itself, so its labels differ from the stored ones.
        let calibrated = || {
            let ran = program.json("labels calibrate --target-precision 0.1");
            let accuracy = &ran["before"]["accuracy"];
            ["of", "all", "share"].map(|key| accuracy[key].as_f64().unwrap())
        };
        program.imported_gold(&rows(40..45, Some("none"), ""), "--random");
        let [earlier, all, share] = calibrated();
        let differences = [all - 30.0, share - earlier / 30.0];
        assert!(
            differences.iter().all(|one| one.abs() < 1e-9),
            "{differences:?}"
        );
        // The later posts are labelled wrongly. They are a third of all posts, with 20 of 50 answers.
        program.imported_gold(&rows(40..60, Some("none"), ""), "--random");
        let found = evaluate();
        assert_eq!(
            [&found["frame"]["posts"], &found["frame"]["waves"]],
            [60, 2]
        );
        let outcome = &found["evaluation"]["outcome"];
        assert_eq!([&outcome["of"], &outcome["all"]], [30, 50]);
        assert!(
            (outcome["share"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-9,
            "{outcome}"
        );
        let [right, all, share] = calibrated();
        let weighted = (40.0 * earlier / 30.0 + (right - earlier)) / 60.0;
        let differences = [all - 50.0, share - weighted];
        assert!(
            differences.iter().all(|one| one.abs() < 1e-9),
            "{differences:?}"
        );
        let shares = found["shares"].as_array().unwrap();
        let value = |share: &Value| share["estimated"]["value"].as_f64().unwrap();
        let none = shares.last().unwrap();
        assert!((value(none) - 1.0 / 3.0).abs() < 1e-9, "{shares:?}");
        assert!(
            (shares.iter().map(value).sum::<f64>() - 1.0).abs() < 1e-9,
            "{shares:?}"
        );
        assert_eq!(program.json("status")["quality"]["outcome"], *outcome);
        program.ok("export set");
        let card = program.read("set/README.md");
        assert!(card.contains("weighted by 2 waves"), "{card}");
        assert!(!card.contains("alpha"), "one annotator: {card}");
        // The exported columns give the same estimates.
        for share in shares.iter().take(LABELS.len()) {
            let found = share_from_export(&program, share["label"].as_str().unwrap());
            assert!((found - value(share)).abs() < 1e-9, "{share} {found}");
        }
    }
}

#[test]
fn posts_without_text_when_a_sample_was_drawn_are_not_covered() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(70);
        program.execute("UPDATE things SET collected_at = '2026-01-01T00:00:00+00:00'");
        program.execute(
            "UPDATE things SET title = '', text_purged_at = '2026-01-05T00:00:00+00:00' \
              WHERE CAST(substr(fullname, 5) AS INTEGER) < 40",
        );
        let rows = |posts: std::ops::Range<usize>, at: &str| {
            let row = |i: usize| format!("k{i:05},{},ada,{at}\n", LABELS[i % 3].0);
            let rows: String = posts.map(row).collect();
            format!("id,label,annotator,answered_at\n{rows}")
        };
        let frame = || {
            let frame = program.json("labels evaluate")["frame"].take();
            let keys = ["posts", "not_covered", "without_text", "answers_needed"];
            keys.map(|key| frame[key].as_u64().unwrap())
        };
        program.imported_gold(&rows(40..70, "2026-01-06T00:00:00Z"), "--random");
        assert_eq!(frame(), [30, 40, 40, 0]);
        // The draw passed this post, whose answer is older than the deletions.
        program.execute(
            "UPDATE gold SET chosen = 'closest', answered_at = '2026-01-04T00:00:00+00:00' \
              WHERE fullname = 't3_k00040'",
        );
        assert_eq!(frame(), [30, 40, 40, 0]);
        let status = program.ok("status").stdout.replace('\n', " ");
        assert!(status.contains("had no text any more"), "{status}");
        program.ok("labels gold remove --annotator ada --yes");
        // An earlier sample is imported after retention, and after further posts were stored.
        let later = "UPDATE things SET collected_at = '2026-01-09T00:00:00+00:00' WHERE text_purged_at IS NULL";
        program.execute(later);
        let undated = rows(0..30, "");
        program
            .import_gold(&undated, "--random")
            .expect_exit(2, "days of collection");
        program.imported_gold(&undated, "--random --yes");
        assert_eq!(frame(), [40, 30, 0, 23]);
        // One more answer does not cover them.
        program.imported_gold(&rows(30..31, ""), "--random --yes");
        assert_eq!(frame()[1], 30);
    }
}

/// Estimates a label's share from exported answers alone: in each wave, by post-stratification.
fn share_from_export(program: &Program, label: &str) -> f64 {
    program.ok("export answers.jsonl --answers --overwrite");
    let rows = program.read_lines("answers.jsonl");
    let float = |n: usize| f64::from(u32::try_from(n).unwrap());
    let ratio = |part: usize, all: usize| match all {
        0 => 0.0,
        all => float(part) / float(all),
    };
    let of_wave = |wave: u64| {
        let posts: Vec<&Value> = rows.iter().filter(|row| row["wave"] == wave).collect();
        let stratum = |is_assigned: bool| {
            let all: Vec<_> = posts
                .iter()
                .filter(|row| (row["outcome"] == label) == is_assigned)
                .collect();
            let drawn: Vec<_> = all
                .iter()
                .filter(|row| row["in_random_sample"] == true)
                .collect();
            let right = drawn.iter().filter(|row| row["gold"] == label).count();
            ratio(all.len(), rows.len()) * ratio(right, drawn.len())
        };
        stratum(true) + stratum(false)
    };
    of_wave(1) + of_wave(2)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_review_page_covers_later_posts_once_it_has_drawn_those_it_had_passed() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(20);
        let store = program.store().await;
        let target = store.labels().current_target().await.unwrap().unwrap();
        let order = store
            .gold()
            .posts_to_review(target, None, ReviewOrder::Random, 100)
            .await
            .unwrap();
        store.close().await.unwrap();
        let later = [3, 7, 15]
            .map(|place| format!("'{}'", order[place]))
            .join(", ");
        for (time, posts) in [
            ("2026-01-01", format!("NOT IN ({later})")),
            ("2026-03-01", format!("IN ({later})")),
        ] {
            let sql = format!(
                "UPDATE things SET collected_at = '{time}T00:00:00+00:00' WHERE fullname {posts}"
            );
            program.execute(&sql);
        }
        let answer = |places: &[usize], at: &str| {
            let row = |place: &usize| {
                format!("{},food,ada,random,review,{at}T00:00:00Z\n", order[*place])
            };
            let rows: String = places.iter().map(row).collect();
            program.imported_gold(
                &format!("id,label,annotator,chosen,source,answered_at\n{rows}"),
                "",
            );
            let found = program.json("labels evaluate");
            (
                found["posts"].clone(),
                found["frame"]["posts"].clone(),
                found["frame"]["answers_needed"].clone(),
            )
        };
        // The post at 5 was skipped. Those at 3 and 7 were stored after the draw had passed them; at 15, not yet drawn.
        let found = answer(&[0, 1, 2, 4, 6, 8, 9, 10, 11], "2026-02-01");
        assert_eq!(found, (json!(9), json!(17), json!(2)));
        assert_eq!(answer(&[3], "2026-03-02"), (json!(9), json!(17), json!(1)));
        assert_eq!(answer(&[7], "2026-03-02"), (json!(11), json!(20), json!(0)));
    }
}

#[test]
fn a_file_that_is_hardly_a_random_sample_is_rejected_or_disclosed() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(60);
        let half = "UPDATE things SET subreddit = 'elsewhere' WHERE CAST(substr(fullname, 5) AS INTEGER) < 30";
        program.execute(half);
        let rows = |posts: Vec<usize>| {
            let rows = posts
                .into_iter()
                .map(|i| format!("k{i:05},{}\n", LABELS[i % 3].0));
            format!("id,label\n{}", rows.collect::<String>())
        };
        let ran = program.import_gold(&rows((0..30).collect()), "--random");
        ran.expect_exit(2, "subreddits");
        assert_eq!(program.listed_gold()["answers"], 0);
        program.imported_gold(&rows((0..30).collect()), "--random --yes --annotator ada");
        let p_values = || program.json("labels evaluate")["frame"]["p_values"].clone();
        let found = p_values();
        assert!(found["subreddits"].as_f64().unwrap() < 0.001, "{found}");
        assert!(found["labels"].as_f64().unwrap() > 0.5, "{found}");
        // A mixed sample raises no doubt.
        program.ok("labels gold remove --annotator ada --yes");
        program.imported_gold(&rows((15..45).collect()), "--random --annotator ada");
        assert!(p_values()["subreddits"].as_f64().unwrap() > 0.5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_answer_counts_whatever_the_clocks_say() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(12);
        program.imported_gold("id,label\nk00000,food\n", "--annotator ada");
        // The clock of another host was ahead.
        program.execute("UPDATE gold SET answered_at = '2999-01-01T00:00:00+00:00'");
        let counts = program.imported_gold("id,label\nk00000,music\n", "--annotator ada");
        assert_eq!(counts["changed"], 1);
        let future = "id,label,answered_at\nk00001,food,9998-01-01T00:00:00Z\n";
        program
            .import_gold(future, "--skip-unknown")
            .expect_exit(2, "line 2");
        // A name of any length, or with NUL, would be stored on one database only.
        let long = format!("id,label,annotator\nk00001,food,{}\n", "a".repeat(1 << 20));
        program.import_gold(&long, "").expect_exit(2, "line 2");
        program.imported_gold("id,label,annotator\nk00001,food,b\0en\n", "");
        assert_eq!(
            program.listed_gold()["annotators"],
            json!({"ada": 1, "b en": 1})
        );
    }
    let Some(database) = postgres() else { return };
    let program = Program::on(database).labelled_in_turn(3);
    program.imported_gold("id,label\nk00000,food\n", "--annotator ada");
    let mut annotator = PgConnection::connect(&program.url()).await.unwrap();
    let infinite = "UPDATE gold SET answered_at = 'infinity'";
    assert!(annotator.execute(infinite).await.is_err());
}

#[test]
fn answers_of_other_tools_are_read_and_named() {
    let prodigy = |id: &str, answer: &str| {
        let task = json!({"meta": {"id": id}, "accept": ["food"], "answer": answer, "_task_hash": 1, "_annotator_id": "bo"});
        task.to_string() + "\n"
    };
    let prodigy = ["accept", "REJECT", "ignore"].map(|answer| prodigy("k00000", answer));
    let argilla = json!({
        "id": "t3_k00000", "status": "completed", "text": "x", "topic.responses": ["food", "music", "music"],
        "topic.responses.users": ["bo", "cy", "di"], "topic.responses.status": ["submitted", "discarded", "draft"],
        "topic.suggestion": "music",
    });
    let nested = json!([{
        "id": "t3_k00000", "fields": {"text": "x"}, "suggestions": {"topic": {"value": "music"}}, "_server_id": "1",
        "responses": {"topic": [{"value": "food", "user_id": "bo"}]},
    }]);
    let doccano = "{\"id\":7,\"text\":\"x\",\"label\":[\"food\"],\"Comments\":[],\"fullname\":\"t3_k00000\"}\n\
        {\"id\":8,\"text\":\"x\",\"label\":[],\"Comments\":[],\"fullname\":\"t3_k00001\"}\n";
    let link = "https://www.reddit.com/r/x/comments/k00000/title/";
    for (tool, text) in [
        ("Prodigy", prodigy.concat()),
        ("Argilla", argilla.to_string()),
        ("Argilla", nested.to_string()),
        (
            "Argilla",
            "id,topic.responses,topic.responses.users\nk00000,['food'],['bo']\n".to_owned(),
        ),
        ("doccano", doccano.to_owned()),
        (
            "",
            format!("ID,Label,Annotator\n{link},['food'],bo\n,,\n ,\"\",\n"),
        ),
        ("", format!("id,label\n{link},\"[\"\"food\"\"]\"\n")),
        ("", "{\"k00000\": {\"label\": \"food\"}}".to_owned()),
        (
            "",
            "{}\n{\"id\": \"k00000\", \"label\": \"food\"}\n{\"id\": \"\"}\n".to_owned(),
        ),
    ] {
        let program = Program::on(sqlite()).labelled_in_turn(12);
        program.write("gold.csv", text);
        let annotator = if tool.is_empty() {
            "--annotator bo"
        } else {
            ""
        };
        let ran = program.ok(&format!(
            "labels gold import gold.csv --format json {annotator}"
        ));
        ran.expect_stderr(tool);
        let listed = program.listed_gold();
        assert_eq!(listed["answers"], 1, "{tool}: {listed}");
        assert_eq!(listed["labels"]["food"], 1, "{tool}: {listed}");
    }
    let program = Program::on(sqlite()).labelled_in_turn(12);
    let numbered = doccano.replace(",\"fullname\":\"t3_k00000\"", "");
    program
        .import_gold(&numbered, "")
        .expect_exit(2, "from doccano");
}

#[test]
fn groups_have_their_own_estimates_and_are_compared() {
    for program in Program::on_each_database() {
        let program = program.labelled_in_turn(120);
        // Posts 0 to 49 are of May and `one`, 50 to 99 of June and `two`, and the rest of June and `three`.
        for (from, subreddit, month, flair) in [
            (0, "one", "2026-05", "'q'"),
            (50, "two", "2026-06", "''"),
            (100, "three", "2026-06", "NULL"),
        ] {
            let sql = format!(
                "UPDATE things SET subreddit = '{subreddit}', created_at = '{month}-30T23:59:59+00:00', flair = {flair} \
                 WHERE CAST(substr(fullname, 5) AS INTEGER) >= {from}"
            );
            program.execute(&sql);
        }
        // In `one`, all labels are right; in `two`, none fits any post.
        let row = |i: usize| {
            let right = if i < 50 { LABELS[i % 3].0 } else { "none" };
            format!("k{i:05},{right}\n")
        };
        let rows = (0..40).chain(50..90).chain(100..105).map(row);
        let rows = format!("id,label\n{}", rows.collect::<String>());
        program.imported_gold(&rows, "--random --annotator ada --yes");
        let by =
            |column: &str| program.json(&["labels", "evaluate", "--by", column])["groups"].clone();
        let found = by("subreddit");
        let groups = found["groups"].as_array().unwrap();
        let sizes: Vec<_> = groups
            .iter()
            .map(|one| json!([one["group"], one["posts"], one["answers"]]))
            .collect();
        assert!(sizes.contains(&json!(["one", 50, 40])) && sizes[2] == json!(["three", 20, 5]));
        let shares = |group: &str, label: &str| {
            let group = groups.iter().find(|one| one["group"] == group).unwrap();
            let shares = group["shares"].as_array().unwrap();
            let share = shares.iter().find(|one| one["label"] == label).unwrap();
            let float = |value: &Value| value.as_f64();
            (
                float(&share["assigned"]).unwrap(),
                float(&share["estimated"]["value"]),
            )
        };
        let food = LABELS[1].0;
        assert_eq!(shares("one", food), (17.0 / 50.0, Some(17.0 / 50.0)));
        assert_eq!(shares("two", food), (16.0 / 50.0, Some(0.0)));
        assert_eq!(shares("three", food).1, None);
        // Three labels and none of these differ between `one` and `two`; the other group is not compared.
        let differences = found["differences"].as_array().unwrap();
        assert_eq!(differences.len(), 4);
        for one in differences {
            let [p, corrected] = ["p", "p_holm"].map(|key| one[key].as_f64().unwrap());
            assert!(p < 0.001 && corrected >= p && corrected <= 4.0 * p, "{one}");
            let difference = &one["difference"];
            let is_up = one["label"] == "(none of these)";
            assert_eq!(
                is_up,
                one["first"] == "one" && difference["low"].as_f64() > Some(0.5)
                    || one["first"] == "two" && difference["high"].as_f64() < Some(-0.5),
                "{one}"
            );
        }
        let months = by("month");
        let names = |found: &Value| {
            let groups = found["groups"].as_array().unwrap().iter();
            groups
                .map(|one| json!([one["group"], one["answers"]]))
                .collect::<Value>()
        };
        assert_eq!(names(&months), json!([["2026-05", 40], ["2026-06", 45]]));
        assert_eq!(names(&by("flair")), json!([[null, 45], ["q", 40]]));
        assert_eq!(names(&by("is_self")).as_array().unwrap().len(), 1);
        // Without a random sample, every share is an assigned one.
        program.execute("UPDATE gold SET in_random_sample = FALSE, chosen = 'import'");
        let assigned = by("month");
        assert_eq!(names(&assigned), json!([["2026-05", 0], ["2026-06", 0]]));
        assert_eq!(assigned["differences"], json!([]));
        program
            .run("labels evaluate --by label")
            .expect_exit(2, "over_18");
    }
}
