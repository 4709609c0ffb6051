//! Tests gold labels that cannot be fitted, and damaged fits.

use super::*;

#[test]
fn a_damaged_fit_can_be_listed_dropped_and_replaced() {
    for program in labelled_on_each() {
        first_answers(&program, "answers.csv", 24);
        let damage = if program.url().starts_with("sqlite") {
            "UPDATE label_sets SET fitted = json_remove(fitted, '$.labels[0].weights[0]') WHERE fitted IS NOT NULL"
        } else {
            "UPDATE label_sets SET fitted = fitted #- '{labels,0,weights,0}' WHERE fitted IS NOT NULL"
        };
        let names = || program.column("SELECT name FROM label_sets ORDER BY name");
        let sql = "SELECT name FROM label_sets s JOIN current_target t ON t.label_set_id = s.id";
        let current = || program.column(sql);
        let version = program.json(FIT)["hash"].as_str().unwrap()[..12].to_owned();
        program.execute(damage);

        let remedy = format!("`topicmill labels drop {version}`");
        for command in [
            "labels use first-fit24",
            "labels fit",
            "report out.html",
            "classify --pipeline first.toml",
        ] {
            let ran = program.run(command);
            ran.expect_exit(4, &format!("`first-fit24` (version {version})"));
            ran.expect_stderr(&remedy);
        }
        let listed = program.json("labels list");
        assert_eq!(listed[0]["label_set"], "first-fit24", "{listed}");
        assert_eq!(listed[0]["current"], true, "{listed}");
        program
            .ok("status")
            .expect_stderr("the quality of the labels is unknown");
        let checked = program.run("db check");
        assert!(checked.stdout.contains("first-fit24"), "{}", checked.stdout);

        // A damaged fit can be dropped after another label set has become current.
        program
            .run("labels drop first-fit24 --yes")
            .expect_exit(2, "the views show its labels");
        program.ok("labels use first");
        program.ok("labels drop first-fit24 --yes");
        assert_eq!(names(), ["first"]);

        // A damaged fit can be replaced by the same fit or by the labels in the file, and dropped while it is current.
        program.ok(FIT);
        program.execute(damage);
        program.ok(&format!("{FIT} --label-set first"));
        assert_eq!(current(), ["first-fit24"]);
        program.ok("report out.html");
        program.execute(damage);
        program
            .ok("classify --pipeline first.toml --make-current")
            .expect_stderr("without a fit");
        assert_eq!(current(), ["first"]);
        let the_fit = "(SELECT id FROM label_sets WHERE fitted IS NOT NULL)";
        program.execute(&format!(
            "UPDATE current_target SET label_set_id = {the_fit}"
        ));
        program.ok(&format!("labels drop {version} --yes --current"));
        assert_eq!(names(), ["first"]);
    }
}

#[test]
fn unusable_answers_are_rejected_and_named() {
    let program = labelled();
    first_answers(&program, "few.csv", 3);
    program.gold_file("alike.csv", |_| Some("none"));
    program.gold_file("right.csv", |_| None);
    for (gold, code, message) in [
        ("topic", 2, "is not a gold label"),
        ("db", 2, "the database has no gold labels"),
        ("few.csv", 2, "3 different texts have answers"),
        ("alike.csv", 2, "all 30 answers are the same"),
        ("nothing.csv", 2, "nothing.csv"),
    ] {
        let ran = program.run(&format!("labels fit --gold {gold}"));
        ran.expect_exit(code, message);
    }
    let ran = program.run("labels fit --gold right.csv --target-precision 1.5");
    ran.expect_exit(2, "1.5 is not a share");
    assert_eq!(program.count("label_sets"), 1, "nothing is stored");
}

#[test]
fn answers_that_cannot_be_learned_are_left_out_or_stop_the_fit() {
    let program = labelled();
    let fit = |flags: &str| program.run(&format!("labels fit --gold {flags}"));
    first_answers(&program, "answers.csv", 24);
    // Contradictions in a file, and a label that the set lacks.
    let twice = format!("{}\nk00001,music\n", program.read("answers.csv"));
    program.write("twice.csv", twice);
    fit("twice.csv").expect_exit(2, "`t3_k00001` is `food` in line 3, but `music` in line 26");
    let lacking = program.read("answers.csv").replace("none", "sailing");
    program.write("lacking.csv", lacking);
    fit("lacking.csv").expect_exit(2, "has no label `sailing` (8 rows)");
    // No vectors are stored for the other model.
    let tiny = repository("tests/it/fixtures/models/tiny-bert-nli");
    let tiny = tiny.display();
    fit(&format!("answers.csv --model {tiny}")).expect_exit(
        2,
        "the model `minilm-reddit-topics`: set its folder with --model",
    );
    assert_eq!(program.count("label_sets"), 1, "nothing is stored");
    let ran = program.ok("labels fit --gold lacking.csv --others-out-of-scope");
    ran.expect_stderr("out of scope: sailing");

    // In the database: posts on which annotators disagree, and answers about an earlier text.
    program.ok("labels gold import answers.csv --annotator ada");
    program.imported_gold("id,label\nk00001,music\n", "--annotator ben");
    program.import(&line(2, "a new text"));
    program.ok("classify --pipeline first.toml");
    let ran = program.ok("labels fit --make-current --format json");
    let found = ran.json();
    assert_eq!(found["answers"], 23);
    ran.expect_stderr_all(&["annotators disagree", "edited since"]);
    // A different model cannot use the fit.
    let other = format!("classify --pipeline first.toml --model {tiny} --limit 1");
    program
        .ok(&other)
        .expect_stderr("other than `tiny-bert-nli`");
}

#[test]
fn a_vector_that_is_not_a_number_stops_the_fit() {
    let program = labelled();
    first_answers(&program, "answers.csv", 24);
    // The scale of the vector, NaN as a little-endian f32.
    program.execute(
        "UPDATE text_vectors SET vector = CAST(X'0000C07F' || substr(vector, 5) AS BLOB) \
              WHERE text_hash = (SELECT text_hash FROM things WHERE fullname = 't3_k00004')",
    );
    let ran = program.run(FIT);
    ran.expect_exit(4, "text_vectors");
    assert_eq!(program.count("label_sets"), 1);
}
