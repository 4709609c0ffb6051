//! Tests which answers are a random sample, which posts it covers, and what is estimated from it.

use topicmill_core::Fullname;
use topicmill_store::{ReviewOrder, Store};

use super::*;
use crate::support::builders::pipeline;

/// Returns a program with Ada's answers about 30 random posts, 3 of them wrong, and about 20 close calls, all wrong.
/// Ben disagrees about one of the random posts.
fn sampled() -> Program {
    let program = labelled(60);
    let random = (30..60).map(|post| (post, if post < 33 { "none" } else { right(post) }));
    let closest = (0..20).map(|post| (post, right(post + 1)));
    for (annotator, chosen, answers) in [
        ("ada", "random", random.collect::<Vec<_>>()),
        ("ada", "closest", closest.collect()),
        ("ben", "closest", vec![(59, "none")]),
    ] {
        let values = format!(",{annotator},{chosen}");
        program.imported_gold(&gold_file(",annotator,chosen", answers, &values), "");
    }
    program
}

/// Returns the number of right labels, and their share: the lowest one, and if annotators disagree, the highest one.
fn outcome(evaluated: &Value) -> (u64, f64, Option<f64>) {
    let outcome = &evaluated["evaluation"]["outcome"];
    let share = outcome["share"].as_f64().unwrap();
    let highest = outcome["share_if_right"].as_f64();
    (outcome["of"].as_u64().unwrap(), share, highest)
}

#[test]
fn estimates_come_from_random_answers_and_leave_disputed_posts_open() {
    let evaluated = sampled().json("labels evaluate --gold db");
    assert_eq!(evaluated["sample"], "random");
    assert_eq!(evaluated["posts"], 30);
    assert_eq!(outcome(&evaluated), (26, 26.0 / 30.0, Some(27.0 / 30.0)));
    assert_eq!(evaluated["all_answers"]["posts"], 50);
    assert_eq!(evaluated["all_answers"]["outcome"]["of"], 26);
    // Of the third of posts that are labelled music, 8 or 9 of 10 are right.
    let mut shares = evaluated["shares"].as_array().unwrap().iter();
    let music = shares.find(|one| one["label"] == "music").unwrap();
    assert_close(music["estimated"]["value"].as_f64().unwrap(), 8.5 / 30.0);
}

#[test]
fn a_named_annotator_or_the_majority_decides_about_disputed_posts() {
    let program = sampled();
    for (annotator, right) in [("ada", 27), ("ben", 26)] {
        let decided = program.json(&["labels", "evaluate", "--decides", annotator]);
        let share = f64::from(u32::try_from(right).unwrap()) / 30.0;
        assert_eq!(outcome(&decided), (right, share, None), "{annotator}");
    }
    program
        .run("labels evaluate --decides eve")
        .expect_exit(2, "ada, ben");
    let listed = program.listed_gold();
    assert_eq!(listed["alpha"]["posts"], 1);
    let disputed = &listed["disagreements"][0]["answers"];
    assert_eq!(*disputed, json!([["ada", "music"], ["ben", null]]));
    program.imported_gold("id,label,annotator\nk00059,music,carl\n", "");
    let evaluated = program.json("labels evaluate --gold db");
    assert_eq!(outcome(&evaluated), (27, 0.9, None));
}

#[test]
fn calibration_uses_the_random_answers() {
    let calibrate = "labels calibrate --label-set first --target-precision 0.1";
    let calibrated = sampled().json(calibrate);
    assert_eq!(calibrated["before"]["accuracy"]["all"], 30);
    assert_eq!(calibrated["sample"], "random");
}

#[test]
fn no_share_is_estimated_from_answers_that_may_not_be_random() {
    let program = sampled();
    program.execute("UPDATE gold SET in_random_sample = FALSE, chosen = 'import'");
    let evaluated = program.json("labels evaluate --gold db");
    assert_eq!(evaluated["sample"], "all");
    assert_eq!(evaluated["posts"], 50);
    assert_eq!(evaluated.get("shares"), None);
    program.execute("UPDATE gold SET chosen = 'closest'");
    program
        .ok("labels evaluate --gold db")
        .expect_stderr("are not representative");
}

#[test]
fn only_the_file_that_is_declared_random_counts_as_a_random_sample() {
    for program in labelled_on_each(60) {
        let file = |posts: std::ops::Range<usize>, origin: &str| {
            let columns = ",annotator,chosen,source";
            gold_file(columns, right_answers(posts), &format!(",ada,{origin}"))
        };
        let sample = || {
            let evaluated = program.json("labels evaluate --gold db");
            (evaluated["sample"].clone(), evaluated["posts"].clone())
        };
        // It is unknown how the posts in the file were chosen. The close call is from the review page.
        program.imported_gold(&file(50..51, "closest,review"), "");
        program.imported_gold(&file(0..40, "import,import"), "");
        assert_eq!(sample(), (json!("all"), json!(41)));
        // Rows that name the review page as their source do not draw others into the sample.
        program.imported_gold(&file(0..40, "closest,review"), "--random");
        assert_eq!(sample(), (json!("random"), json!(40)));
        assert_eq!(program.listed_gold()["random"], 40);
    }
}

/// Returns the posts that the review page offers to an annotator, the first of them first.
async fn offered(store: &Store, annotator: Option<&str>, order: ReviewOrder<'_>) -> Vec<Fullname> {
    let target = store.labels().current_target().await.unwrap().unwrap();
    let gold = store.gold();
    let posts = gold.posts_to_review(target, annotator, order, 100);
    posts.await.unwrap()
}

/// Imports Ada's answer about a post, as from the review page.
fn answer_on_the_review_page(program: &Program, post: &Fullname, chosen: &str) {
    let row = format!("{post},food,ada,{chosen},review");
    program.imported_gold(&format!("id,label,annotator,chosen,source\n{row}\n"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_reuses_earlier_answers_for_the_sample() {
    for program in labelled_on_each(20) {
        let store = program.store().await;
        let order = offered(&store, None, ReviewOrder::Random).await;
        assert_eq!(order.len(), 20);
        // The draw reaches the sixth post, so the answer about the third one counts, and that about the tenth does not.
        for (place, chosen) in [(2, "closest"), (9, "closest"), (5, "random")] {
            answer_on_the_review_page(&program, &order[place], chosen);
        }
        let answers = store.gold().answers().await.unwrap().into_iter();
        let drawn: Vec<_> = answers
            .map(|one| (one.answer.fullname, one.in_random_sample))
            .collect();
        for (place, is_drawn) in [(2, true), (5, true), (9, false)] {
            let expected = (order[place].clone(), is_drawn);
            assert!(drawn.contains(&expected), "{place}: {drawn:?}");
        }
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answered_posts_are_offered_again_only_to_other_annotators() {
    let program = labelled(20);
    let store = program.store().await;
    let all = offered(&store, None, ReviewOrder::Random).await;
    answer_on_the_review_page(&program, &all[5], "random");
    let mut rest = offered(&store, None, ReviewOrder::Random).await;
    assert_eq!(rest.len(), 19);
    assert!(!rest.contains(&all[5]));
    assert_eq!(offered(&store, Some("ben"), ReviewOrder::Random).await, all);
    // The margin of a post grows with its number.
    rest.sort();
    assert_eq!(offered(&store, None, ReviewOrder::Margin).await, rest);
    store.close().await.unwrap();
}

#[test]
fn none_of_these_counts_only_if_all_labels_were_offered() {
    let program = Program::on(sqlite()).with_default_model();
    let program = program.labelled_in_turn(40);
    let answers = std::iter::once((0, "none")).chain(right_answers(1..36));
    let csv = gold_file("", answers, "");
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

/// Returns a program with 40 posts stored before a random sample of 30 answers, which are all right, and 20 stored later.
fn with_later_posts(program: Program) -> Program {
    let program = program.labelled_in_turn(60);
    program.execute(
        "UPDATE things SET collected_at = '2026-01-01T00:00:00+00:00' \
          WHERE CAST(substr(fullname, 5) AS INTEGER) < 40",
    );
    let values = ",ada,2026-01-02T00:00:00Z";
    let answers = gold_file(",annotator,answered_at", right_answers(0..30), values);
    program.imported_gold(&answers, "--random");
    program
}

/// Imports random answers about some of the later posts: none of the labels fits.
fn answer_later_posts(program: &Program, posts: std::ops::Range<usize>) {
    let answers = posts.map(|post| (post, "none"));
    program.imported_gold(&gold_file(",annotator", answers, ",ada"), "--random");
}

fn estimate(share: &Value) -> f64 {
    share["estimated"]["value"].as_f64().unwrap()
}

#[test]
fn posts_stored_after_a_random_sample_are_not_covered() {
    for program in Program::on_each_database().map(with_later_posts) {
        let frame = program.json("labels evaluate")["frame"].take();
        let frame = ["posts", "not_covered", "answers_needed", "until"].map(|key| &frame[key]);
        assert_eq!(json!(frame), json!([40, 20, 15, "2026-01-02T00:00:01Z"]));
        let quality = program.json("status")["quality"].take();
        assert_eq!(quality["frame"]["not_covered"], 20);
    }
}

#[test]
fn later_posts_are_covered_by_answers_of_their_own() {
    for program in Program::on_each_database().map(with_later_posts) {
        answer_later_posts(&program, 40..60);
        let evaluated = program.json("labels evaluate");
        let frame = &evaluated["frame"];
        assert_eq!([&frame["posts"], &frame["waves"]], [60, 2]);
        // The later posts, all labelled wrongly, are a third of all posts, but have 20 of 50 answers.
        let outcome = &evaluated["evaluation"]["outcome"];
        assert_eq!([&outcome["of"], &outcome["all"]], [30, 50]);
        assert_close(outcome["share"].as_f64().unwrap(), 2.0 / 3.0);
        let shares = evaluated["shares"].as_array().unwrap();
        assert_close(estimate(shares.last().unwrap()), 1.0 / 3.0);
        assert_close(shares.iter().map(estimate).sum(), 1.0);
        assert_eq!(program.json("status")["quality"]["outcome"], *outcome);
        program.ok("export set");
        let card = program.read("set/README.md");
        assert!(card.contains("weighted by 2 waves"), "{card}");
        assert!(!card.contains("alpha"), "one annotator: {card}");
    }
}

#[test]
fn calibration_weights_later_posts_by_their_number() {
    let program = with_later_posts(Program::on(sqlite()));
    // Calibrating scores the posts itself, so its labels differ from the stored ones.
    let calibrated = || {
        let calibrated = program.json("labels calibrate --target-precision 0.1");
        let accuracy = &calibrated["before"]["accuracy"];
        ["of", "all", "share"].map(|key| accuracy[key].as_f64().unwrap())
    };
    // Five answers are too few to cover the later posts.
    answer_later_posts(&program, 40..45);
    let [earlier, all, share] = calibrated();
    assert_close(all, 30.0);
    assert_close(share, earlier / 30.0);
    answer_later_posts(&program, 40..60);
    let [right, all, share] = calibrated();
    assert_close(all, 50.0);
    let later = right - earlier;
    assert_close(share, (40.0 * earlier / 30.0 + later) / 60.0);
}

#[test]
fn the_exported_answers_of_two_waves_give_the_same_estimates() {
    let program = with_later_posts(Program::on(sqlite()));
    answer_later_posts(&program, 40..60);
    let evaluated = program.json("labels evaluate");
    program.ok("export answers.jsonl --answers");
    let answers = program.read_lines("answers.jsonl");
    for share in &evaluated["shares"].as_array().unwrap()[..LABELS.len()] {
        let label = share["label"].as_str().unwrap();
        assert_close(share_from_export(&answers, label), estimate(share));
    }
}

/// Estimates a label's share from exported answers alone: in each wave, by post-stratification.
fn share_from_export(answers: &[Value], label: &str) -> f64 {
    let float = |n: usize| f64::from(u32::try_from(n).unwrap());
    let ratio = |part: usize, all: usize| match all {
        0 => 0.0,
        all => float(part) / float(all),
    };
    let of_wave = |wave: u64| {
        let posts: Vec<&Value> = answers.iter().filter(|row| row["wave"] == wave).collect();
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
            ratio(all.len(), answers.len()) * ratio(right, drawn.len())
        };
        stratum(true) + stratum(false)
    };
    of_wave(1) + of_wave(2)
}

#[test]
fn posts_without_text_when_a_sample_was_drawn_are_not_covered() {
    for program in labelled_on_each(70) {
        program.execute("UPDATE things SET collected_at = '2026-01-01T00:00:00+00:00'");
        program.execute(
            "UPDATE things SET title = '', text_purged_at = '2026-01-05T00:00:00+00:00' \
              WHERE CAST(substr(fullname, 5) AS INTEGER) < 40",
        );
        let rows = |posts: std::ops::Range<usize>, at: &str| {
            let values = format!(",ada,{at}");
            gold_file(",annotator,answered_at", right_answers(posts), &values)
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

#[tokio::test(flavor = "multi_thread")]
async fn the_review_page_covers_later_posts_once_it_has_drawn_those_it_had_passed() {
    for program in labelled_on_each(20) {
        let store = program.store().await;
        let order = offered(&store, None, ReviewOrder::Random).await;
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
            let frame = &found["frame"];
            json!([found["posts"], frame["posts"], frame["answers_needed"]])
        };
        // The post at 5 was skipped. Those at 3 and 7 were stored after the draw had passed them; at 15, not yet drawn.
        let found = answer(&[0, 1, 2, 4, 6, 8, 9, 10, 11], "2026-02-01");
        assert_eq!(found, json!([9, 17, 2]));
        assert_eq!(answer(&[3], "2026-03-02"), json!([9, 17, 1]));
        assert_eq!(answer(&[7], "2026-03-02"), json!([11, 20, 0]));
    }
}

#[test]
fn a_file_that_is_hardly_a_random_sample_is_rejected_or_disclosed() {
    for program in labelled_on_each(60) {
        let half = "UPDATE things SET subreddit = 'elsewhere' WHERE CAST(substr(fullname, 5) AS INTEGER) < 30";
        program.execute(half);
        let elsewhere = gold_file("", right_answers(0..30), "");
        let ran = program.import_gold(&elsewhere, "--random");
        ran.expect_exit(2, "subreddits");
        assert_eq!(program.listed_gold()["answers"], 0);
        program.imported_gold(&elsewhere, "--random --yes --annotator ada");
        let p_values = || program.json("labels evaluate")["frame"]["p_values"].clone();
        let found = p_values();
        assert!(found["subreddits"].as_f64().unwrap() < 0.001, "{found}");
        assert!(found["labels"].as_f64().unwrap() > 0.5, "{found}");
        // A mixed sample raises no doubt.
        program.ok("labels gold remove --annotator ada --yes");
        let mixed = gold_file("", right_answers(15..45), "");
        program.imported_gold(&mixed, "--random --annotator ada");
        assert!(p_values()["subreddits"].as_f64().unwrap() > 0.5);
    }
}
