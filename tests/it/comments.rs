//! Tests of comments: imported from each layout, labelled, exported and purged like posts, and shown by their own
//! views.

mod layouts;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::program::Program;

/// Returns a comment as in a dump.
fn comment(id: &str, parent: &str, body: &str) -> Value {
    json!({
        "id": id, "link_id": "t3_p1", "parent_id": parent, "subreddit": "food", "author": format!("author_{id}"),
        "body": body, "score": 3, "created_utc": 1_700_000_100, "retrieved_on": 1_800_000_000, "is_submitter": id == "c2",
        "permalink": format!("/r/food/comments/p1/rye/{id}/"), "stickied": false, "distinguished": null,
    })
}

/// Returns a post as in a dump.
fn post() -> Value {
    json!({
        "id": "p1", "subreddit": "food", "author": "baker", "title": "My rye bread", "selftext": "It is dense.",
        "score": 9, "num_comments": 3, "over_18": false, "created_utc": 1_700_000_000, "retrieved_on": 1_800_000_000,
        "permalink": "/r/food/comments/p1/rye/", "is_self": true,
    })
}

/// Returns rows as NDJSON.
fn lines(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

/// Imports a post and five comments; only the first two comments have text of their own.
fn with_comments(program: Program) -> Program {
    let comments = [
        comment(
            "c1",
            "t3_p1",
            "More water makes an airy bread.\n\n> not mine",
        ),
        comment(
            "c2",
            "t1_c1",
            "> More water makes an airy bread.\n\nI tried this recipe.",
        ),
        comment("c3", "t1_c2", "> only a quote"),
        comment(
            "c4",
            "t3_p1",
            "*I am a bot, and this action was performed automatically. Please [contact us](/x).*",
        ),
        comment("c5", "t3_p1", "[removed]"),
    ];
    program.write("RS_2023-11.ndjson", lines(&[post()]));
    let packed = zstd::encode_all(lines(&comments).as_bytes(), 3).unwrap();
    program.write("RC_2023-11.zst", packed);
    program.ok("import RS_2023-11.ndjson RC_2023-11.zst --subreddit food");
    program
}

/// Returns [`with_comments`] for each backend.
fn with_comments_on_each() -> impl Iterator<Item = Program> {
    Program::on_each_database().map(with_comments)
}

/// Imports comments as [`with_comments`] does, and labels them and their post.
fn labelled() -> Program {
    let program = with_comments(Program::new());
    program.ok("classify");
    program
}

#[test]
fn comments_are_stored_with_their_parents_and_without_the_text_of_quotes_and_bots() {
    for program in with_comments_on_each() {
        let comments = program.rows(
            "SELECT fullname, post, parent, CASE WHEN is_submitter THEN 1 ELSE 0 END, topic, \
                    CASE WHEN has_text THEN 1 ELSE 0 END FROM comments ORDER BY fullname",
        );
        let expected = json!([
            ["t1_c1", "t3_p1", "t3_p1", 0, "food", 1],
            ["t1_c2", "t3_p1", "t1_c1", 1, "food", 1],
            ["t1_c3", "t3_p1", "t1_c2", 0, "food", 0],
            ["t1_c4", "t3_p1", "t3_p1", 0, "food", 0],
            ["t1_c5", "t3_p1", "t3_p1", 0, "food", 0],
        ]);
        assert_eq!(comments, expected);
        let body = program.scalar("SELECT body FROM comments WHERE fullname = 't1_c1'");
        assert_eq!(body, "More water makes an airy bread.\n\n> not mine");
        assert_eq!(program.count("posts"), 1);
    }
}

#[test]
fn labelled_comments_are_in_the_views_of_comments_and_not_in_those_of_posts() {
    for program in with_comments_on_each() {
        // The post, and the two comments with text.
        assert_eq!(program.run_counts("classify")["posts"], 3);
        let shown = "SELECT fullname, post, post_title FROM labeled_comments \
                      WHERE classified_at IS NOT NULL ORDER BY fullname";
        let title = "My rye bread";
        let expected = json!([["t1_c1", "t3_p1", title], ["t1_c2", "t3_p1", title]]);
        assert_eq!(program.rows(shown), expected);
        let labelled =
            |view: &str| program.count(&format!("{view} WHERE classified_at IS NOT NULL"));
        assert_eq!(
            [labelled("labeled_posts"), labelled("labeled_things")],
            [1, 3]
        );
        let daily = "SELECT CAST(SUM(posts) AS BIGINT) FROM topic_daily";
        assert_eq!(program.scalar(daily), 1);
        let agreement = "SELECT labelled FROM topic_agreement WHERE topic = 'food'";
        assert_eq!(program.scalar(agreement), 1);
        program.ok("db check");
    }
}

#[test]
fn an_edited_comment_is_labelled_again_unless_only_a_quote_was_edited() {
    let program = labelled();
    for (body, posts) in [
        ("> More water\n\nI tried this recipe.", 0),
        ("I tried that recipe.", 1),
    ] {
        program.import(&lines(&[comment("c2", "t1_c1", body)]));
        assert_eq!(program.run_counts("classify")["posts"], posts, "{body}");
    }
}

#[test]
fn an_export_has_the_columns_of_comments_or_of_posts() {
    let program = labelled();
    program.ok("export comments.jsonl --kind comments --unlabelled");
    let rows = program.read_lines("comments.jsonl");
    let names: Vec<&Value> = rows.iter().map(|row| &row["fullname"]).collect();
    assert_eq!(json!(names), json!(["t1_c1", "t1_c2"]));
    assert_eq!([&rows[1]["parent"], &rows[1]["post"]], ["t1_c1", "t3_p1"]);
    assert!(rows[0].get("title").is_none() && rows[0]["selftext"].is_string());
    program.ok("export posts.csv");
    let table = program.read("posts.csv");
    assert_eq!(table.lines().count(), 2);
    assert!(!table.contains("parent"), "{table}");
    // Random samples contain posts only, whatever an imported file says.
    program.imported_gold("id,label\nt1_c1,food\n", "--annotator ada");
    program.execute("UPDATE gold SET in_random_sample = TRUE");
    program.ok("export answers.jsonl --kind comments --answers");
    let answer = &program.read_lines("answers.jsonl")[0];
    assert_eq!(answer["gold"], "food");
    assert_eq!(answer["in_random_sample"], false);
    assert_eq!(answer["wave"], Value::Null);
    // Tasks for Label Studio are posts.
    program
        .run("export tasks.json --format label-studio --kind comments")
        .expect_exit(2, "/review");
}

#[test]
fn the_data_card_of_comments_speaks_of_comments() {
    let program = labelled();
    program.imported_gold("id,label\nt1_c1,food\np1,food\n", "--annotator ada");
    program.ok("export set --kind comments");
    let card = program.read("set/README.md");
    for part in [
        "made by topicmill: Reddit comments,",
        "labels: not measured,",
        "| comments | 2 |",
        "## Number of comments by label\n\n| label | comments |\n",
        "| food | 2 |",
        "comments = load_dataset",
        "--format ids --kind comments`",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
    for absent in ["% correct", "title"] {
        assert!(!card.contains(absent), "{absent}: {card}");
    }
}

#[test]
fn answers_about_comments_measure_only_the_labels_of_comments() {
    let program = labelled();
    program.imported_gold(
        "id,label\nt1_c1,food\nt1_c2,food\np1,food\n",
        "--annotator ada",
    );
    for (kind, answers) in [("posts", 1), ("comments", 2)] {
        let evaluated = program.json(&format!("labels evaluate --kind {kind}"));
        assert_eq!(evaluated["posts"], answers, "{kind}");
    }
    let status = program.json("status");
    assert_eq!(status["quality"]["outcome"]["all"], 1);
    let backlog = &status["backlog"];
    assert_eq!([&backlog["posts"], &backlog["comments"]], [6, 5]);
}

#[test]
fn a_purge_takes_a_comment_and_leaves_its_replies() {
    for program in with_comments_on_each() {
        program.ok("classify");
        program.write("bare.txt", "c3\n");
        program.run("purge --ids bare.txt").expect_exit(2, "t1_c3");
        program.purge("t1_C1\nhttps://www.reddit.com/r/food/comments/p1/rye/c3/\n");
        let left = "SELECT fullname FROM things ORDER BY fullname";
        let expected = ["t1_c2", "t1_c4", "t1_c5", "t3_p1"];
        assert_eq!(program.column(left), expected);
        // The dump does not bring it back.
        program.ok("import RC_2023-11.zst --subreddit food --again");
        assert_eq!(program.count("comments"), 3);
        program.ok("purge --author author_c2");
        program.ok("purge --author baker");
        assert_eq!(program.column(left), ["t1_c4", "t1_c5"]);
        assert_eq!(program.count("tombstones WHERE fullname LIKE 't1%'"), 3);
        assert_eq!(program.count("pair_logits"), 0);
        program.ok("db check");
    }
}

#[test]
fn comments_are_read_with_the_title_of_their_post_until_it_is_purged() {
    for program in with_comments_on_each() {
        assert_eq!(program.run_counts("classify")["posts"], 3);
        let import = |file: &str| {
            let settings = [("collect.comment_text", "title and body")];
            let line = format!("import {file} --subreddit food --again --run-json run.json");
            program.run_with(&settings, &line).expect_code(0);
            program.read_json("run.json")["counts"].take()
        };
        let states = || {
            program.rows(
                "SELECT t.fullname, t.title, CASE WHEN t.has_text THEN 1 ELSE 0 END, CASE WHEN c.context_purged THEN 1 ELSE 0 END, \
                        CASE WHEN c.classified_at IS NULL THEN 0 ELSE 1 END \
                   FROM things t JOIN labeled_comments c ON c.fullname = t.fullname ORDER BY t.fullname LIMIT 3",
            )
        };
        assert_eq!(import("RC_2023-11.zst")["edited"], 2);
        // A comment without text of its own has none with a title either.
        assert_eq!(program.run_counts("classify")["posts"], 2);
        let title = "My rye bread";
        assert_eq!(
            states(),
            json!([
                ["t1_c1", title, 1, 0, 1],
                ["t1_c2", title, 1, 0, 1],
                ["t1_c3", title, 0, 0, 0]
            ])
        );
        assert_eq!(import("RC_2023-11.zst")["edited"], 0);
        program.ok("db check");

        program.purge("p1\n");
        let purged = |c2: Value| json!([["t1_c1", "", 0, 1, 1], c2, ["t1_c3", "", 0, 1, 0]]);
        assert_eq!(states(), purged(json!(["t1_c2", "", 0, 1, 1])));
        // Reddit's permalinks of comments contain the post's title.
        let permalink = "SELECT permalink FROM comments WHERE fullname = 't1_c2'";
        assert_eq!(program.scalar(permalink), "/r/food/comments/p1/comment/c2/");
        assert_eq!(program.run_counts("classify")["posts"], 0);
        assert_eq!(program.count("text_vectors"), 0);
        program.ok("db check");
        // A comment that is imported again is labelled by its body alone; a deleted one is purged.
        let (again, mut gone) = (
            comment("c2", "t1_c1", "I tried this recipe."),
            comment("c1", "t3_p1", "[deleted]"),
        );
        gone["author"] = json!("[deleted]");
        program.write("again.ndjson", format!("{again}\n{gone}\n"));
        let counts = import("again.ndjson");
        assert_eq!([&counts["edited"], &counts["purged"]], [1, 1]);
        assert_eq!(program.run_counts("classify")["posts"], 1);
        let left = states();
        assert_eq!(left[0], json!(["t1_c2", "", 1, 0, 1]));
        program.ok("db check");
    }
}

#[test]
fn both_ways_to_collect_comments_work_with_reddit() {
    // With `of posts`, there is at most one request for the comments of each of a hundred posts.
    for (comments, most_requests) in [("true", 10), ("\"of posts\"", 100)] {
        let program = Program::new();
        let topic =
            "[[topic]]\nlabel = \"climate\"\nsubreddits = [\"climate\"]\nlisting = \"new\"\n";
        let other = "[[topic]]\nlabel = \"food\"\n";
        program.write("p.toml", format!("{topic}comments = {comments}\n{other}"));
        let collect = "collect --source sample --pipeline p.toml";
        let planned = program.json(&format!("{collect} --dry-run"));
        let requests = [&planned[0]["requests"], &planned[1]["requests"]];
        assert_eq!(requests, [1, most_requests]);
        let counts = program.run_counts(collect);
        assert_eq!([&counts["posts"], &counts["comments"]], [52, 20]);
        assert_eq!(program.count("comments WHERE parent LIKE 't1%'"), 6);
        assert_eq!(program.run_counts(collect)["new"], 0);
        program.ok("purge --check-deleted --source sample");
        // One of them was deleted before it was stored.
        let left = ["posts", "comments"].map(|table| program.count(table));
        assert_eq!(left, [32, 19]);
    }
}

#[test]
fn a_report_on_comments_counts_and_names_only_comments() {
    let program = Program::with_database("sqlite:demo.db");
    program.ok("demo");
    let report = |kind: &str| {
        let flags = format!("--kind {kind} --by subreddit --svg {kind} --json");
        let summary = program.ok(&format!("report r.html {flags}")).json();
        (summary, program.read("r.html"))
    };
    let (summary, page) = report("comments");
    for (name, comments) in [
        ("comments", "labeled_comments"),
        (
            "labelled",
            "labeled_comments WHERE classified_at IS NOT NULL",
        ),
    ] {
        assert_eq!(summary[name], program.count(comments), "{name}");
    }
    assert_eq!(summary["comments"], 40);
    let stored = program.query(
        "SELECT outcome, COUNT(*) AS comments FROM labeled_comments \
          WHERE classified_at IS NOT NULL GROUP BY outcome",
    );
    let mut expected: BTreeMap<&str, &Value> = BTreeMap::new();
    for row in &stored {
        expected.insert(row["outcome"].as_str().unwrap(), &row["comments"]);
    }
    for share in summary["shares"].as_array().unwrap() {
        let slug = share["label"].as_str().unwrap();
        let comments = expected.remove(slug).unwrap_or(&json!(0)).clone();
        assert_eq!(share["comments"], comments, "{slug}");
        assert_eq!(share["estimated"], Value::Null);
    }
    assert!(expected.is_empty(), "{expected:?}");
    // Quotes may speak of posts. The page, its charts and the summary may not.
    let (page, _) = page.split_once("id=\"closest\"").unwrap();
    let (_, shown) = page.split_once("</style>").unwrap();
    let shown = shown
        .replace("class=\"post ", "")
        .replace("class=\"n posts\"", "");
    for text in [shown, summary.to_string()] {
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        let post = words.position(|word| ["post", "posts"].contains(&&*word.to_lowercase()));
        assert_eq!(post, None, "{text}");
    }
    assert!(page.contains("40 comments,"), "{page}");
    let (_, page) = report("posts");
    let (page, _) = page.split_once("id=\"closest\"").unwrap();
    assert!(page.contains("512 posts,") && !page.contains("comment"));
}
