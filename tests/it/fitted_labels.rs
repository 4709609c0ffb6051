//! Tests `topicmill labels fit`: labels learn from gold answers without inference.

mod edited;
mod rejected;

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use crate::evaluate::{labelled, labelled_on_each};
use crate::support::builders::{LABELS, line, pipeline};
use crate::support::engine::repository;
use crate::support::program::{Program, finished};

/// Returns `none` for the posts about games, which are every third one.
fn not_games(i: usize) -> Option<&'static str> {
    i.is_multiple_of(3).then_some("none")
}

/// Writes the gold labels of the first posts to a file. A fit to 24 of them is named `first-fit24`.
fn first_answers(program: &Program, name: &str, posts: usize) -> String {
    program.gold_file(name, not_games);
    let all = program.read(name);
    let some: Vec<&str> = all.lines().take(posts + 1).collect();
    program.write(name, some.join("\n"))
}

/// Returns the number of posts with the right label, and the number of gold labels.
fn correct(program: &Program, gold: &str) -> [u64; 2] {
    let found = program.evaluate(gold);
    ["of", "all"].map(|key| found["evaluation"]["outcome"][key].as_u64().unwrap())
}

/// Returns what the only fitted label set learned.
fn learned(program: &Program) -> Value {
    // SQLite stores JSON as text.
    match program.scalar("SELECT fitted FROM label_sets WHERE fitted IS NOT NULL") {
        Value::String(text) => serde_json::from_str(&text).unwrap(),
        json => json,
    }
}

const FIT: &str = "labels fit --gold answers.csv --make-current";
const ALL_LABELS: &str = "SELECT fullname, label, score FROM labeled_posts ORDER BY fullname";
const LABEL_OF: &str = "SELECT label, ROUND(CAST(score AS NUMERIC), 5) FROM labeled_posts WHERE fullname = 't3_k00025'";

/// Returns a program for each backend whose labels are fitted to 24 answers, which are in `answers.csv`.
fn fitted_on_each() -> impl Iterator<Item = Program> {
    labelled_on_each().inspect(|program| {
        first_answers(program, "answers.csv", 24);
        program.ok(FIT);
    })
}

#[test]
fn a_fit_corrects_posts_with_and_without_an_answer() {
    for program in labelled_on_each() {
        first_answers(&program, "answers.csv", 24);
        let all = program.gold_file("all.csv", not_games);
        // By the label texts alone.
        assert_eq!(correct(&program, &all), [20, 30]);
        let found = program.json(FIT);
        assert_eq!([&found["answers"], &found["none"]], [24, 8]);
        assert!(found["gain"][0].as_f64().unwrap() > 0.1, "{found}");
        assert_eq!(correct(&program, &all), [30, 30]);
        // The stored fit reads back as the same version; otherwise later posts would get a different label set.
        let read = program.evaluate(&all);
        assert_eq!(read["label_set"]["hash"], found["hash"]);
        // A fit always starts from the label texts, so a fit to the same answers produces the same version.
        let again = program.json(FIT);
        assert_eq!(again["hash"], found["hash"]);
        assert_eq!(again["before"], found["before"]);
    }
}

#[test]
fn an_answer_about_a_comment_is_none_about_posts() {
    let program = labelled();
    first_answers(&program, "answers.csv", 24);
    let comment = json!({
        "name": "t1_c1", "link_id": "t3_k00001", "body": "a tasty soup", "created_utc": 1_700_000_000,
        "subreddit": "x",
    });
    program.import(&comment.to_string());
    program.ok("classify --pipeline first.toml");
    let with_comment = format!("{}\nt1_c1,food\n", program.read("answers.csv").trim_end());
    program.write("answers.csv", with_comment);
    assert_eq!(program.json(FIT)["answers"], 24);
}

#[test]
fn classify_continues_the_fit_of_the_labels_in_its_file_until_they_change() {
    for program in fitted_on_each() {
        // The fit does not count as a difference from the file.
        let settings = [("pipeline", "first.toml")];
        let status = program.run_with(&settings, "status --format json").json();
        assert_eq!(status["next"]["command"], Value::Null, "{status}");
        program.import(&line(30, "a new boss fight in this game 30"));
        let ran = program.ok("classify --pipeline first.toml");
        ran.expect_stderr("labelling with `first-fit24`");
        let outcome = "SELECT outcome FROM labeled_posts WHERE fullname = 't3_k00030'";
        assert_eq!(program.scalar(outcome), "other");
        let changed = pipeline("first", "", &[LABELS[0], LABELS[1], ("music", "songs")]);
        program.write("first.toml", changed);
        let ran = program.ok("classify --pipeline first.toml");
        ran.expect_stderr("the labels of `first` have changed since they were fitted");
    }
}

#[test]
fn the_engine_and_a_stored_vector_give_the_same_fitted_score() {
    for program in fitted_on_each() {
        let stored = program.query(LABEL_OF);
        program.execute(
            "DELETE FROM classifications WHERE fullname = 't3_k00025'; DELETE FROM text_vectors \
              WHERE text_hash = (SELECT text_hash FROM things WHERE fullname = 't3_k00025')",
        );
        let counts = program.run_counts("classify --pipeline first.toml");
        assert_eq!(counts["posts"], 1, "{counts}");
        assert_eq!(program.query(LABEL_OF), stored);
    }
}

#[test]
fn a_fit_that_is_not_current_changes_no_label() {
    let program = labelled();
    first_answers(&program, "answers.csv", 24);
    let before = program.query(ALL_LABELS);
    let ran = program.ok("labels fit --gold answers.csv --target-precision 0.9");
    ran.expect_stderr("stored as `first-fit24`");
    assert_eq!(program.query(ALL_LABELS), before);
    // The training data is recorded with the fit.
    assert_eq!(learned(&program)["provenance"]["answers"], 24);
    // A fit that is not current can be selected by name.
    program.ok("labels fit --gold answers.csv --label-set first --make-current");
    let all = program.gold_file("all.csv", not_games);
    assert_eq!(correct(&program, &all), [30, 30]);
}

#[test]
fn a_purged_post_leaves_the_labels_of_others_and_no_id_in_the_fit() {
    let program = labelled();
    first_answers(&program, "answers.csv", 24);
    program.ok("labels gold import answers.csv --annotator ada");
    let fitted = program.json("labels fit --make-current");
    let version = &fitted["hash"].as_str().unwrap()[..12];
    let mut before = program.query(ALL_LABELS);
    before.retain(|row| row["fullname"] != "t3_k00001");
    let drop = format!("topicmill labels drop {version}");
    let kept = "`first-fit24` keeps what it learned";
    program
        .purge("t3_k00001\n")
        .expect_stderr_all(&[kept, "gold=1", &drop]);
    let counts = program.run_counts("classify --pipeline first.toml");
    assert_eq!(counts["posts"], 0, "{counts}");
    assert_eq!(program.query(ALL_LABELS), before);
    let kept = learned(&program);
    assert!(!kept.to_string().contains("k00001"), "{kept}");
    let crossed = program.column("SELECT fullname FROM cross_fitted");
    assert!(crossed.len() == 23 && !crossed.contains(&json!("t3_k00001")));
    assert_eq!(kept["provenance"]["by"], json!(["ada"]));
    // The next fit excludes the purged post.
    let again = program.json("labels fit --make-current");
    assert_eq!(again["answers"], 23);
    // A purge without gold labels does not mention fits.
    let purged = program.purge("t3_k00029\n");
    assert!(!purged.stderr.contains("keeps what"), "{}", purged.stderr);
}

#[test]
fn removing_an_annotators_answers_removes_the_name_from_fits_and_reports_what_they_keep() {
    for program in labelled_on_each() {
        first_answers(&program, "answers.csv", 24);
        program.ok("labels gold import answers.csv --annotator ada");
        program.imported_gold("id,label\nk00028,food\n", "--annotator ben");
        let found = program.json("labels fit --make-current");
        let version = found["hash"].as_str().unwrap();
        let names = || learned(&program)["provenance"]["by"].clone();
        let before = program.query(ALL_LABELS);
        assert_eq!(names(), json!(["ada", "ben"]));
        // If only one of several answers is removed, the name is kept.
        let remove = "labels gold remove --annotator ada --yes";
        let ran = program.ok(&format!("{remove} --post k00001"));
        ran.expect_stderr("`first-fit25` keeps what it learned from 25 gold labels");
        assert_eq!(names(), json!(["ada", "ben"]));
        let ran = program.ok(remove);
        ran.expect_stderr_all(&["answers=23", "`first-fit25` keeps what it learned"]);
        assert_eq!(names(), json!(["ben"]));
        // Nothing is left to remove.
        program.run(remove).expect_code(2);
        // The label set's labels and version are the same.
        assert_eq!(program.query(ALL_LABELS), before);
        let all = program.gold_file("all.csv", not_games);
        assert_eq!(program.evaluate(&all)["label_set"]["hash"], version);
    }
}

const MEASURE: &str = "labels evaluate --gold db";

/// Imports a random sample of 24 answers, and fits the labels to them; returns what the fit printed.
fn fitted_to_sample(program: &Program) -> Value {
    first_answers(program, "some.csv", 24);
    program.ok("labels gold import some.csv --random --annotator ada");
    program.json("labels fit --make-current")
}

#[test]
fn answers_that_a_fit_learned_measure_fits_without_them() {
    for program in labelled_on_each() {
        let fit = fitted_to_sample(&program);
        let crossed = program.json(MEASURE);
        assert_eq!([&crossed["posts"], &crossed["cross_fitted"]], [24, 24]);
        let accuracy = &crossed["evaluation"]["outcome"];
        assert_eq!(accuracy["of"], fit["held_out"]["accuracy"]["of"]);
        assert_eq!(accuracy["all"], 24);
        // The label set without the fit learned from no answers, so all answers can measure it.
        let before = program.json(&format!("{MEASURE} --label-set first"));
        assert_eq!(before["posts"], 24);
        program.ok("export data-set");
        let card = program.read("data-set/README.md");
        assert!(card.contains("24 gold labels"), "{card}");
    }
}

#[test]
fn answers_in_a_file_do_not_measure_a_fit_that_learned_them() {
    for program in labelled_on_each() {
        fitted_to_sample(&program);
        program
            .run("labels evaluate --gold some.csv")
            .expect_exit(2, "`first-fit24` was fitted to all 24 gold posts");
        let measured = program.ok("labels evaluate --gold topic --others-out-of-scope");
        measured.expect_stderr("gold posts that `first-fit24` was fitted to are left out");
    }
    // If the answers are not in the database, it is unknown which of them the fit learned.
    let program = labelled();
    first_answers(&program, "answers.csv", 24);
    program.ok(FIT);
    let ran = program.ok("labels evaluate --gold answers.csv");
    ran.expect_stderr("not in the database");
}

#[test]
fn added_repeated_and_removed_answers_are_measured_alike_by_all_commands() {
    for program in labelled_on_each() {
        fitted_to_sample(&program);
        let later: String = (24..30).map(|i| format!("k{i:05},none\n")).collect();
        let later = format!("id,label\n{later}");
        program.imported_gold(&later, "--random --annotator ada");
        assert_eq!(program.json(MEASURE)["posts"], 30);
        // The same answers, imported again, are still those that the fit learned from.
        program.ok("labels gold import some.csv --random --annotator ada");
        assert_eq!(program.json(MEASURE)["cross_fitted"], 24);
        program.ok("labels gold remove --annotator ada --post k00000 --yes");
        let crossed = program.json(MEASURE);
        assert_eq!([&crossed["posts"], &crossed["cross_fitted"]], [29, 23]);
        let both = format!("{MEASURE} --label-set first --label-set first-fit24");
        let both = program.json(&both);
        assert_eq!(both["posts"], 29, "{both}");
        let quality = program.json("status")["quality"].take();
        assert_eq!(quality["cross_fitted"], 23);
        for evaluation in [&both["b"]["evaluation"], &crossed["evaluation"]] {
            assert_eq!(evaluation["outcome"], quality["outcome"]);
        }
    }
}

#[test]
fn too_few_answers_for_a_calibration_are_counted() {
    let program = labelled();
    first_answers(&program, "some.csv", 24);
    program.ok("labels gold import some.csv --random --annotator ada");
    let few = "only 24 of 24 gold posts can be used";
    program.run("labels calibrate").expect_exit(2, few);
}

#[test]
fn fits_to_equally_many_answers_have_different_names() {
    let program = labelled();
    first_answers(&program, "some.csv", 24);
    let all = program.read("some.csv");
    let (header, answers) = all.split_once('\n').unwrap();
    let others = answers.lines().map(|line| line.split_once(',').unwrap().0);
    let others = others.collect::<Vec<_>>().join(",music\n");
    program.write("others.csv", format!("{header}\n{others},food\n"));
    let fit = |gold: &str| {
        program.json(&format!("labels fit --gold {gold} --make-current"))["name"].clone()
    };
    assert_eq!(fit("some.csv"), "first-fit24");
    assert_eq!(fit("others.csv"), "first-fit24-2");
    assert_eq!(fit("some.csv"), "first-fit24", "the same fit");
}

/// Fits the labels with these flags; returns the target of the threshold.
fn target_of_fit(program: &Program, flags: &str) -> Value {
    program.ok(&format!("labels fit --make-current --gold {flags}"));
    let sql = "SELECT fitted FROM label_sets JOIN current_target ON id = label_set_id";
    let fitted = program.scalar(sql);
    let fitted: Value = serde_json::from_str(fitted.as_str().unwrap()).unwrap();
    fitted["provenance"]["target"].clone()
}

#[test]
fn a_later_fit_keeps_the_target_of_the_threshold() {
    let program = labelled();
    first_answers(&program, "some.csv", 24);
    program.gold_file("all.csv", not_games);
    let target_of = |flags: &str| target_of_fit(&program, flags);
    let (precision, recall) = (json!({"precision": 0.9}), json!({"recall": 0.8}));
    assert_eq!(target_of("some.csv --target-precision 0.9"), precision);
    assert_eq!(target_of("all.csv"), precision);
    assert_eq!(target_of("all.csv --target-recall 0.8"), recall);
    // A change to the labels keeps the target: in the printed command, and for the current label set.
    let changed = pipeline("first", "", &[LABELS[0], LABELS[1], ("music", "songs")]);
    program.write("changed.toml", changed);
    let ran = program.ok("classify --pipeline changed.toml --make-current");
    let fit = "`topicmill labels fit --label-set ";
    let (_, command) = ran.stderr.split_once(fit).unwrap();
    let (version, flags) = command.split_once(' ').unwrap();
    let target = "--target-recall 0.8 --make-current`";
    assert!(flags.starts_with(target), "{flags}");
    assert_eq!(target_of("all.csv"), recall);
    let printed = format!("all.csv --label-set {version} --target-recall 0.8");
    assert_eq!(target_of(&printed), recall);
}

#[test]
fn a_target_ends_with_its_label_set_or_on_request() {
    let program = labelled();
    first_answers(&program, "some.csv", 24);
    program.gold_file("all.csv", not_games);
    let target_of = |flags: &str| target_of_fit(&program, flags);
    let recall = json!({"recall": 0.8});
    assert_eq!(target_of("all.csv --target-recall 0.8"), recall);
    // A label set that is named without its fit has no target.
    assert_eq!(target_of("all.csv --label-set first.toml"), Value::Null);
    assert_eq!(target_of("all.csv --target-recall 0.8"), recall);
    // Also for later fits.
    assert_eq!(target_of("all.csv --no-target"), Value::Null);
    assert_eq!(target_of("some.csv"), Value::Null);
    let both = "labels fit --gold all.csv --no-target --target-recall 0.8";
    program.run(both).expect_exit(2, "--no-target");
}

#[test]
fn diff_separates_the_loss_of_a_fit_from_the_change_of_labels() {
    for program in fitted_on_each() {
        let moved = |args: &str| program.json(args)["moved"].clone();
        let lost = moved("labels diff current first");
        assert!(lost["moved"].as_u64().unwrap() > 0, "{lost}");
        assert_eq!(lost["without_fit"]["moved"], 0);
        let mut labels = LABELS;
        labels[0].1 = "board games";
        program.write("reworded.toml", pipeline("reworded", "", &labels));
        let changed = moved("labels diff first reworded.toml");
        assert_eq!(changed["without_fit"], Value::Null);
        for args in [
            "labels diff current reworded.toml",
            "labels diff reworded.toml current",
        ] {
            let without = &moved(args)["without_fit"];
            for figure in ["posts", "moved", "agreement"] {
                assert_eq!(without[figure], changed[figure], "{figure}");
            }
        }
    }
}

#[test]
fn labels_that_a_fit_takes_from_posts_are_named() {
    let program = labelled();
    // Ten posts are about music. One of them has this gold label; the others are out of scope.
    let rare = program.gold_file("rare.csv", |i| (i % 3 == 2 && i > 2).then_some("none"));
    let ran = program.ok(&format!("labels fit --gold {rare} --format json"));
    let found = ran.json();
    let [_, food, music, ..] = &found["labels"].as_array().unwrap()[..] else {
        panic!("{found}")
    };
    for (label, slug, expected) in [(food, "food", [10, 10, 10]), (music, "music", [1, 1, 0])] {
        assert_eq!(label["slug"], slug);
        let counts = ["answers", "gold", "given"].map(|key| &label[key]);
        assert_eq!(counts, expected, "{slug}");
    }
    assert_eq!(food["recall"]["share"], 1.0);
    ran.expect_stderr_all(&[
        "1 answer for `music`",
        "`music` (gold label of 1, assigned to 0)",
    ]);
    assert!(!ran.stderr.contains("`food`"), "{}", ran.stderr);
}

#[test]
fn an_nli_model_learns_a_shift_and_a_scale_for_each_label() {
    for program in Program::on_each_database() {
        let program = program.labelled(30);
        // The model has random weights. What can be learned is that music is frequent and games are rare.
        let label = |i: usize| ["music", "food", "music", "music", "none"][i % 5];
        let rows = (0..30).map(|i| format!("k{i:05},{}\n", label(i)));
        let rows: String = rows.collect();
        program.write("gold.csv", format!("id,label\n{rows}"));
        let right = || {
            let found = program.json("labels evaluate --gold gold.csv");
            found["evaluation"]["outcome"]["of"].as_u64().unwrap()
        };
        let before = right();
        let fit = "labels fit --gold gold.csv --make-current";
        let found = program.json(fit);
        assert_eq!([&found["answers"], &found["none"]], [30, 6]);
        assert!(found["gain"][0].as_f64().unwrap() > 0.05, "{found}");
        assert!(right() > before.max(12), "{before}, then {}", right());
        // Each class has its own scale and bias, and no weights.
        let kept = learned(&program);
        let classes = kept["labels"].as_array().unwrap();
        assert_eq!(classes.len(), 3);
        let is_bare = |class: &Value| class.get("weights").is_none();
        assert!(classes.iter().all(is_bare), "{kept}");
        let number = |class: usize, name: &str| classes[class][name].as_f64().unwrap();
        assert!(number(2, "bias") > number(0, "bias") + 0.3, "{kept}");
        // A fit uses stored logits: after it is dropped and repeated, each post has the same score.
        let scores = "SELECT fullname, label, ROUND(CAST(score AS NUMERIC), 5) FROM labeled_posts ORDER BY fullname";
        let stored = program.query(scores);
        let again = program.json(fit);
        assert_eq!(again["hash"], found["hash"]);
        program.ok("labels use first");
        program.ok("labels drop first-fit30 --yes");
        program.ok(fit);
        assert_eq!(program.query(scores), stored);
        // A new post is scored by the model and corrected by the fit.
        program.import(&line(31, "an entirely new post"));
        let ran = program.ok("classify --pipeline first.toml");
        ran.expect_stderr("labelling with `first-fit30`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fit_does_not_replace_a_label_set_that_became_current_during_the_fit() {
    use sqlx::{Connection, Executor};
    let program = labelled();
    first_answers(&program, "answers.csv", 24);
    program.pipeline("other", "", &LABELS[..2]);
    program.ok("classify --pipeline other.toml");
    // Another connection holds the write lock: the fit can read but blocks on its first write.
    let mut holder = sqlx::SqliteConnection::connect(&program.url())
        .await
        .unwrap();
    holder.execute("BEGIN IMMEDIATE").await.unwrap();
    let mut fitting = program.spawn(FIT);
    let mut output = String::new();
    let mut stdout = BufReader::new(fitting.stdout.take().unwrap());
    while !output.contains("calibration error") {
        assert!(stdout.read_line(&mut output).unwrap() > 0, "{output}");
    }
    let change =
        "UPDATE current_target SET label_set_id = (SELECT id FROM label_sets WHERE name = 'other')";
    holder.execute(change).await.unwrap();
    holder.execute("COMMIT").await.unwrap();
    let ran = finished(fitting.wait_with_output().unwrap());
    ran.expect_exit(75, "another label set became current during the fit");
    let current = "SELECT name FROM label_sets s JOIN current_target c ON c.label_set_id = s.id";
    assert_eq!(program.column(current), ["other"]);
    // The fit is kept, and can be made current.
    ran.expect_stderr("`first-fit24` is stored but not current");
    program.ok("labels fit --gold answers.csv --label-set first --make-current");
    assert_eq!(program.column(current), ["first-fit24"]);
}

#[test]
fn two_concurrent_fits_make_one_label_set() {
    for program in labelled_on_each() {
        first_answers(&program, "answers.csv", 24);
        let fit = || program.spawn(FIT);
        let both = [fit(), fit()];
        for fitting in both {
            let ran = finished(fitting.wait_with_output().unwrap());
            // The other fit may still hold claims on a few posts.
            assert!([0, 75].contains(&ran.code), "{}: {}", ran.code, ran.stderr);
        }
        assert_eq!(program.count("label_sets"), 2);
        let posts = "SELECT COUNT(DISTINCT fullname) FROM labeled_posts";
        assert_eq!(program.scalar(posts), program.count("labeled_posts"));
        assert_eq!(program.scalar(posts), 30);
        let all = program.gold_file("all.csv", not_games);
        assert_eq!(correct(&program, &all), [30, 30]);
        program.ok("db check");
    }
}
