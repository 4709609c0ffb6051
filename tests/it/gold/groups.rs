//! Tests `labels evaluate --by`: estimates for groups of posts, and their comparison.

use super::*;

/// Returns a program with posts 0 to 49 in `one`, of May; 50 to 99 in `two`, of June; and 100 to 119 in `three`, of June.
/// In random answers, all labels in `one` are right, and none fits a post of the others. Only five are about `three`.
fn grouped(program: Program) -> Program {
    let program = program.labelled_in_turn(120);
    for (from, subreddit, month, flair) in [
        (0, "one", "2026-05", "'q'"),
        (50, "two", "2026-06", "''"),
        (100, "three", "2026-06", "NULL"),
    ] {
        program.execute(&format!(
            "UPDATE things SET subreddit = '{subreddit}', created_at = '{month}-30T23:59:59+00:00', flair = {flair} \
             WHERE CAST(substr(fullname, 5) AS INTEGER) >= {from}"
        ));
    }
    let right = right_answers(0..40);
    let wrong = (50..90).chain(100..105).map(|post| (post, "none"));
    let answers = gold_file("", right.chain(wrong), "");
    program.imported_gold(&answers, "--random --annotator ada --yes");
    program
}

/// Returns the groups by a column, and their differences.
fn groups_by(program: &Program, column: &str) -> Value {
    program.json(&["labels", "evaluate", "--by", column])["groups"].take()
}

/// Returns the name of each group, and its number of answers.
fn answers_by(program: &Program, column: &str) -> Value {
    let found = groups_by(program, column);
    let groups = found["groups"].as_array().unwrap().iter();
    groups
        .map(|one| json!([one["group"], one["answers"]]))
        .collect()
}

#[test]
fn a_group_has_its_own_estimates_unless_it_has_too_few_answers() {
    for program in Program::on_each_database().map(grouped) {
        let found = groups_by(&program, "subreddit");
        // Posts, answers, and the assigned and the estimated share of food.
        for (name, posts, answers, assigned, estimated) in table! {
            "one", 50, 40, 17.0 / 50.0, Some(17.0 / 50.0);
            "two", 50, 40, 16.0 / 50.0, Some(0.0);
            "three", 20, 5, 7.0 / 20.0, None;
        } {
            let mut groups = found["groups"].as_array().unwrap().iter();
            let group = groups.find(|one| one["group"] == name).unwrap();
            assert_eq!([&group["posts"], &group["answers"]], [posts, answers]);
            let mut shares = group["shares"].as_array().unwrap().iter();
            let food = shares.find(|one| one["label"] == "food").unwrap();
            assert_eq!(food["assigned"], assigned, "{name}");
            assert_eq!(food["estimated"]["value"].as_f64(), estimated, "{name}");
        }
    }
}

#[test]
fn the_report_keeps_the_row_of_a_share_that_is_estimated_at_zero() {
    let program = grouped(Program::on(sqlite()));
    program.ok("report out.html --by subreddit");
    // Posts, answers, and the assigned and the estimated share.
    let row = "<td>two</td><td>food and cooking</td><td class=\"n\">50</td><td class=\"n\">40</td>\
        <td class=\"n\">32 %</td><td class=\"n\">0 %</td>";
    let page = program.read("out.html");
    assert!(page.contains(row), "{page}");
}

#[test]
fn groups_with_estimates_are_compared_in_every_label() {
    let program = grouped(Program::on(sqlite()));
    let found = groups_by(&program, "subreddit");
    // Three labels and none of these, between `one` and `two`.
    let differences = found["differences"].as_array().unwrap();
    assert_eq!(differences.len(), 4);
    for one in differences {
        let [p, corrected] = ["p", "p_holm"].map(|key| one[key].as_f64().unwrap());
        assert!(p < 0.001 && corrected >= p && corrected <= 4.0 * p, "{one}");
        let [low, high] = ["low", "high"].map(|end| one["difference"][end].as_f64().unwrap());
        // A third of the posts, or all of them; the interval excludes zero, on the side of the first group.
        let is_more_in_two = one["label"] == "(none of these)";
        let grows = is_more_in_two == (one["first"] == "one");
        assert!(if grows { low > 0.0 } else { high < 0.0 }, "{one}");
    }
}

#[test]
fn posts_are_grouped_by_month_flair_or_flag() {
    for program in Program::on_each_database().map(grouped) {
        let by = |column: &str| answers_by(&program, column);
        assert_eq!(by("month"), json!([["2026-05", 40], ["2026-06", 45]]));
        assert_eq!(by("flair"), json!([[null, 45], ["q", 40]]));
        assert_eq!(by("is_self").as_array().unwrap().len(), 1);
    }
    let program = labelled(3);
    program
        .run("labels evaluate --by label")
        .expect_exit(2, "over_18");
}

#[test]
fn groups_without_a_random_sample_have_no_estimates() {
    let program = grouped(Program::on(sqlite()));
    program.execute("UPDATE gold SET in_random_sample = FALSE, chosen = 'import'");
    assert_eq!(
        answers_by(&program, "month"),
        json!([["2026-05", 0], ["2026-06", 0]])
    );
    assert_eq!(groups_by(&program, "month")["differences"], json!([]));
}
