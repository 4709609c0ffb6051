//! Tests gold answers: `labels gold`, `--gold db`, and tasks for Label Studio.

mod groups;
mod samples;
mod tools;

use serde_json::{Value, json};
use topicmill_core::table;

use crate::support::builders::{self, LABELS};
use crate::support::postgres::sqlite;
use crate::support::program::Program;

impl Program {
    fn listed_gold(&self) -> Value {
        self.json("labels gold list")
    }
}

/// Returns a program with labelled posts; see [`Program::labelled_in_turn`].
fn labelled(posts: usize) -> Program {
    Program::on(sqlite()).labelled_in_turn(posts)
}

/// Returns [`labelled`] for each backend.
fn labelled_on_each(posts: usize) -> impl Iterator<Item = Program> {
    Program::on_each_database().map(move |program| program.labelled_in_turn(posts))
}

/// Returns the right label of a post of [`labelled`].
fn right(post: usize) -> &'static str {
    LABELS[post % 3].0
}

/// Returns a gold file with these columns after the post and the label, and the same values of them in each row.
fn gold_file<'l>(
    columns: &str,
    answers: impl IntoIterator<Item = (usize, &'l str)>,
    values: &str,
) -> String {
    let rows = answers
        .into_iter()
        .map(|(post, label)| format!("k{post:05},{label}{values}\n"));
    format!("id,label{columns}\n{}", rows.collect::<String>())
}

/// Returns the right answers about these posts.
fn right_answers(
    posts: impl IntoIterator<Item = usize>,
) -> impl Iterator<Item = (usize, &'static str)> {
    posts.into_iter().map(|post| (post, right(post)))
}

#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
}

/// Four answers in a file; the last names neither its annotator nor its time.
const ANSWERS: &str = "ID,Label,annotator,answered_at,note\n\
    k00000,Video Games,ada,2026-11-20T08:00:00+01:00,\"half of it, \"\"a recipe\"\"\"\n\
    t3_k00001,none,ada,2026-11-20T08:01:00Z,\nk00001,food,ben,2026-11-20T08:02:00Z,\nk00002,MUSIC,,,\n";

#[test]
fn answers_are_imported_by_the_text_or_slug_of_a_label() {
    for program in labelled_on_each(12) {
        let expected = json!({"added": 4, "changed": 0, "same": 0, "missing": [], "left_out": 0});
        assert_eq!(program.imported_gold(ANSWERS, "--annotator carl"), expected);
        let listed = program.listed_gold();
        let labels = json!({"food": 1, "gaming": 1, "music": 1, "(none of these)": 1});
        assert_eq!(listed["labels"], labels);
        assert_eq!(listed["annotators"], json!({"ada": 2, "ben": 1, "carl": 1}));
    }
}

#[test]
fn exported_answers_are_the_same_when_they_are_imported_again() {
    for program in labelled_on_each(12) {
        program.imported_gold(ANSWERS, "--annotator carl");
        let exported = program.ok("labels gold export").stdout;
        let lines: Vec<&str> = exported.lines().collect();
        assert_eq!(lines.len(), 5, "{exported}");
        assert_eq!(
            lines[0],
            "id,label,annotator,answered_at,chosen,source,text_hash,note"
        );
        // The hash of the post's text stands between the two parts.
        for (line, start, end) in table! {
            1, "t3_k00000,gaming,ada,2026-11-20T07:00:00Z,import,import,", ",\"half of it, \"\"a recipe\"\"\"";
            2, "t3_k00001,,ada,2026-11-20T08:01:00Z,import,import,", ",";
        } {
            let hash = lines[line].strip_prefix(start);
            let hash = hash.and_then(|rest| rest.strip_suffix(end));
            assert!(hash.is_some_and(|hash| hash.len() == 32), "{exported}");
        }
        assert!(lines[4].starts_with("t3_k00002,music,carl,"), "{exported}");
        let again = program.imported_gold(&exported, "");
        assert_eq!([&again["same"], &again["changed"]], [4, 0]);
    }
}

#[test]
fn a_newer_answer_replaces_an_older_one_and_keeps_its_note() {
    for program in labelled_on_each(12) {
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
        // A note has at most 500 characters.
        let (_, long) = answer("gaming", 22, &"x".repeat(600));
        assert_eq!(long[1], "x".repeat(500));
    }
}

#[test]
fn answers_of_an_annotator_are_removed_one_by_one_or_all_at_once_if_confirmed() {
    let program = labelled(12);
    let answers = "k00000,food,ada\nk00001,food,ada\nk00001,food,ben\n";
    program.imported_gold(&format!("id,label,annotator\n{answers}"), "");
    let left_after = |flags: &str, code: i32| {
        let ran = program.run(&format!("labels gold remove --annotator {flags}"));
        ran.expect_code(code);
        program.listed_gold()["answers"].clone()
    };
    assert_eq!(left_after("ada", 2), 3);
    assert_eq!(left_after("ada --post k00001 --yes", 0), 2);
    assert_eq!(left_after("ben --yes", 0), 1);
    assert_eq!(left_after("ben --yes", 2), 1, "no answer is left to remove");
}

#[test]
fn all_errors_in_a_gold_file_are_reported_together_and_nothing_is_stored() {
    let program = labelled(12);
    program.purge("t3_k00007\n");
    let csv = "id,label\nk00000,gaming\nzz1,food\nk00001,sailing\nk00002,sailing\nk00007,food\nk00003,rowing\n";
    let ran = program.import_gold(csv, "");
    ran.expect_exit(2, "`rowing` (line 7), `sailing` (lines 4, 5)");
    ran.expect_stderr_all(&[
        "gaming, food, music",
        "(1 of them purged): t3_k00007 (line 6), t3_zz1 (line 3)",
        "--skip-unknown",
    ]);
    assert_eq!(program.listed_gold()["answers"], 0);
    assert_eq!(program.imported_gold(csv, "--skip-unknown")["added"], 1);
}

#[test]
fn invalid_and_contradictory_answers_are_rejected_with_their_lines() {
    let program = labelled(12);
    for (text, messages) in table! {
        "id,label\na-1,food\nk00001,food\nb 2,food\n", &["line 2: `a-1`", "line 4: `b 2`"][..];
        "id,label,text_hash\nk00001,food,zzzz-not-a-hash\n", &["line 2: ", "32 hexadecimal digits"];
        "id,label\nk00004,food\nk00004,music\n", &["t3_k00004", "in lines 2 and 3"];
        "id,label,answered_at\nk00001,food,9998-01-01T00:00:00Z\n", &["line 2"];
        "", &["no rows"];
        "id,label\n", &["no rows"];
    } {
        let ran = program.import_gold(text, "--skip-unknown");
        ran.expect_code(2);
        ran.expect_stderr_all(messages);
    }
    assert_eq!(program.listed_gold()["answers"], 0);
}

#[test]
fn a_purge_deletes_gold_retention_keeps_it_and_an_edit_invalidates_it() {
    for program in labelled_on_each(12) {
        let csv = gold_file("", (0..4).map(|post| (post, "food")), "");
        program.imported_gold(&csv, "--annotator ada");
        program.purge("t3_k00000\n");
        let out = program.ok("labels gold export").stdout;
        assert!(!out.contains("k00000") && out.contains("k00001"), "{out}");
        program.write("edited.ndjson", builders::line(1, "another title"));
        program.ok("import edited.ndjson");
        program.execute(
            "UPDATE things SET title = '', selftext = '', text_purged_at = collected_at \
              WHERE fullname = 't3_k00002'",
        );
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
        program.import_gold(&csv, "").expect_exit(2, "purged");
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
    for program in labelled_on_each(12) {
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
fn the_latest_answer_counts_whatever_the_clocks_say() {
    for program in labelled_on_each(12) {
        program.imported_gold("id,label\nk00000,food\n", "--annotator ada");
        // The clock of another host was ahead.
        program.execute("UPDATE gold SET answered_at = '2999-01-01T00:00:00+00:00'");
        let counts = program.imported_gold("id,label\nk00000,music\n", "--annotator ada");
        assert_eq!(counts["changed"], 1);
    }
}

#[test]
fn an_annotators_name_is_stored_alike_on_both_databases() {
    for program in labelled_on_each(12) {
        // SQLite would store a name of any length, or with NUL.
        let long = format!("id,label,annotator\nk00001,food,{}\n", "a".repeat(1 << 20));
        program.import_gold(&long, "").expect_exit(2, "line 2");
        program.imported_gold("id,label,annotator\nk00001,food,b\0en\n", "");
        assert_eq!(program.listed_gold()["annotators"], json!({"b en": 1}));
    }
}
