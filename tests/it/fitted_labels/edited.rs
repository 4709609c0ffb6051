//! Tests a fit in a pipeline file: exported, edited, and used without a database.

use super::*;
use topicmill_core::table;

/// Fits the labels, and exports the fit to `exported.toml`. Returns what `labels fit` prints, and the file's text.
fn exported(program: &Program) -> (Value, String) {
    first_answers(program, "answers.csv", 24);
    let fitted = program.json(FIT);
    let text = program.ok("labels export").stdout;
    program.write("exported.toml", &text);
    (fitted, text)
}

#[test]
fn an_exported_fit_assigns_the_same_labels_in_another_database_and_without_one() {
    let others = Program::on_each_database().collect::<Vec<_>>();
    for (program, there) in labelled_on_each().zip(others.into_iter().rev()) {
        let there = there.with_default_model().imported(30);
        let (fitted, text) = exported(&program);
        let set = program.json("labels validate --pipeline exported.toml");
        assert_eq!(set["hash"], fitted["hash"]);
        assert_eq!(set["fitted_to"]["answers"], 24);
        let printed = program.ok("labels export --label-set first-fit24");
        assert_eq!(printed.stdout, text);

        there.write("exported.toml", text);
        there.ok("classify --pipeline exported.toml");
        assert_eq!(there.query(ALL_LABELS), program.query(ALL_LABELS));

        program.ok("score posts.ndjson scored.ndjson --reddit-text --pipeline exported.toml");
        let outcomes = "SELECT outcome FROM labeled_posts ORDER BY fullname";
        let mut scored = program.read_lines("scored.ndjson");
        let scored: Vec<Value> = scored.iter_mut().map(|row| row["outcome"].take()).collect();
        assert_eq!(scored, program.column(outcomes));
    }
}

#[test]
fn an_edited_fit_is_rejected_with_the_cause() {
    let program = labelled();
    let (_, text) = exported(&program);
    // Drops the first weight of every class, so that all have the same wrong length.
    let parts: Vec<&str> = text.split("weights = [").collect();
    let shorter = |part: &&str| part.split_once(", ").unwrap().1.to_owned();
    let tail: Vec<String> = parts[1..].iter().map(shorter).collect();
    assert_eq!(tail.len(), 4);
    let all_shorter = [parts[0].to_owned(), tail.join("weights = [")].join("weights = [");
    let (_, model) = text.split_once("\nmodel = \"").unwrap();
    let of_other = text.replacen(&model[..8], "00000000", 2);
    let with = |from: &str, to: &str| text.replacen(from, to, 1);
    for (edited, expected) in table! {
        all_shorter, "has a fit with 383 weights for each label";
        of_other, "was fitted with the model 00000000";
        with("weights = [", "weights = [0.5, "), "weights of different lengths";
        with("weights = [", "weights = [nan, "), "line ";
        with("bias = ", "bias = inf # "), "a number of the fit is not finite";
        with("scale = ", "scale = \"x\" # "), "column 9: invalid type: string \"x\", expected f64";
        with("label = \"video games\"", "label = \"chess\""), "have changed since the fit";
    } {
        assert_ne!(edited, text, "{expected}");
        program.write("edited.toml", edited);
        for line in [
            "classify --pipeline edited.toml",
            "score posts.ndjson scored.ndjson --overwrite --pipeline edited.toml",
        ] {
            program.run(line).expect_exit(2, expected);
        }
    }
    for (line, expected) in table! {
        "classify --mode multi --pipeline exported.toml", "was fitted in mode single";
        "labels calibrate --gold answers.csv --label-set exported.toml", "is fitted to gold labels";
    } {
        program.run(line).expect_exit(2, expected);
    }
    let ran = program.ok("labels new - --from current");
    ran.expect_stderr("without what `labels fit` learned");

    program.execute(
        "UPDATE label_sets SET fitted = json_remove(fitted, '$.labels[0].weights[0]') WHERE fitted IS NOT NULL",
    );
    let ran = program.run("labels evaluate --gold answers.csv");
    ran.expect_exit(4, "was edited or damaged");
}

#[test]
fn a_fit_without_labels_gets_a_command_that_labels_the_posts() {
    let program = labelled();
    first_answers(&program, "answers.csv", 24);
    let fitted = program.json("labels fit --gold answers.csv");
    let version = &fitted["hash"].as_str().unwrap()[..12];
    let export = format!("labels export --label-set {version}");
    let classify = "classify --pipeline FILE --make-current";
    program.run("labels use first-fit24").expect_exit(
        2,
        &format!("`topicmill {export} > FILE && topicmill {classify}`"),
    );
    // The commands work as printed.
    let printed = program.ok(&export).stdout;
    program.write("FILE", printed);
    program.ok(classify);
    let list = program.json("labels list");
    assert_eq!(list[0]["label_set"], "first-fit24", "{list}");
    assert_eq!(list[0]["current"], true, "{list}");
}
