//! Tests that models read the same text as the post's readers, and that posts without text get no label.

use serde_json::{Value, json};
use topicmill_score::reddit::TEXT_RULE;

use crate::support::postgres::databases;
use crate::support::program::Program;

fn line(id: &str, title: &str, body: &str) -> String {
    let post = json!({"id": id, "title": title, "selftext": body, "subreddit": "food", "created_utc": 1_700_000_000});
    format!("{post}\n")
}

fn column(program: &Program, query: &str) -> Vec<String> {
    let ran = program.ok(&["sql", query, "--format", "csv"]);
    ran.stdout.lines().skip(1).map(str::to_owned).collect()
}

const LABELLED: &str =
    "SELECT fullname FROM labeled_posts WHERE label IS NOT NULL OR abstained ORDER BY fullname";

#[test]
fn placeholder_texts_get_no_label_in_any_command() {
    let placeholders = [
        line("a1", "[deleted by user]", "[removed]"),
        line(
            "a2",
            "[ Removed by Reddit ]",
            "[ Removed by Reddit on account of violating the [content policy](/help/contentpolicy). ]",
        ),
        line("a3", "[removed]", ""),
    ];
    let posts = placeholders.concat()
        + line("b1", "Rye bread", "[removed]").as_str()
        + line("b2", "Soup", "Hot.").as_str();
    for database in databases() {
        let program = Program::with_database(&database.url);
        let file = program.write("posts.ndjson", &posts);
        program.ok(&["import", &file]).expect_stderr("new=5");
        program.ok(&["classify"]).expect_stderr("posts=2");
        assert_eq!(column(&program, LABELLED), ["t3_b1", "t3_b2"]);
        let empty = "SELECT fullname FROM posts WHERE NOT has_text ORDER BY fullname";
        assert_eq!(column(&program, empty), ["t3_a1", "t3_a2", "t3_a3"]);
        let status = program.json(&["status"]);
        let backlog = &status["backlog"];
        assert_eq!(
            (
                &backlog["labelled"],
                &backlog["unlabelled"],
                &backlog["without_text"]
            ),
            (&json!(2), &json!(0), &json!(3)),
            "{status}"
        );
        program.ok(&["export", "labels.csv"]);
        assert_eq!(program.read("labels.csv").lines().count(), 3);
        program.ok(&["classify", "--dry-run"]).expect_stderr("0");

        // A post whose text is restored gets a label, and a post whose text is removed loses its label.
        let file = program.write(
            "again.ndjson",
            line("a1", "Sourdough", "It rose.") + line("b2", "[removed]", "").as_str(),
        );
        program.ok(&["import", &file]).expect_stderr("edited=2");
        program.ok(&["classify"]).expect_stderr("posts=1");
        assert_eq!(column(&program, LABELLED), ["t3_a1", "t3_b1"]);
    }
    let program = Program::new();
    let file = program.write("posts.ndjson", &posts);
    let ran = program.run(&["score", &file, "scores.ndjson"]);
    ran.expect_exit(1, "only a placeholder for removed text");
    let labels: Vec<Value> = program
        .read("scores.ndjson")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let labelled: Vec<bool> = labels.iter().map(|row| row["label"].is_string()).collect();
    assert_eq!(labelled, [false, false, false, true, true]);
}

#[test]
fn reddit_markup_is_not_an_edit_and_changes_no_score() {
    let plain = line("a1", "My loaf", "First day.\n\nIt *rose*, and 2*3*4 is 24.");
    let marked = line(
        "a1",
        "My loaf",
        "https://preview.redd.it/a1.jpg?width=640&amp;s=0f\n\n&amp;#x200B;\n\n**First day**.\n\n\
            It \\*rose\\*, and 2*3*4 is 24.",
    );
    let plain = plain.replace("*rose*", "\\\\*rose\\\\*");
    for database in databases() {
        let program = Program::with_database(&database.url);
        let before = program.write("before.ndjson", &plain);
        program.ok(&["import", &before]).expect_stderr("new=1");
        program.ok(&["classify"]).expect_stderr("posts=1");
        let after = program.write("after.ndjson", &marked);
        let ran = program.ok(&["import", &after]);
        assert!(!ran.stderr.contains("edited"), "{}", ran.stderr);
        program.ok(&["classify"]).expect_stderr("posts=0");

        // After a change to the text rule, only the texts that it affects are labelled again.
        program.ok(&[
            "import",
            &program.write("other.ndjson", line("a2", "Soup", "Hot.")),
        ]);
        program.ok(&["classify"]).expect_stderr("posts=1");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let stale = "UPDATE posts SET text_hash = BYTES(0000000000000000) WHERE fullname = 't3_a1'";
        runtime.block_on(crate::support::rows::execute(&database.url, stale));
        runtime.block_on(crate::support::rows::execute(
            &database.url,
            "UPDATE meta SET value = '0' WHERE key = 'text_rule'",
        ));
        program
            .ok(&["classify"])
            .expect_stderr_all(&["the rule that builds the text of posts", "posts=1"]);
        let rule = "SELECT value FROM meta WHERE key = 'text_rule'";
        assert_eq!(column(&program, rule), [TEXT_RULE.to_string()]);
        program.ok(&["classify"]).expect_stderr("posts=0");

        // A text removed by retention keeps its hash under any rule.
        let hash = "SELECT text_hash FROM posts WHERE fullname = 't3_a2'";
        let kept = column(&program, hash);
        for sql in [
            "UPDATE posts SET title = '', selftext = '', text_purged_at = collected_at WHERE fullname = 't3_a2'",
            "UPDATE meta SET value = '0' WHERE key = 'text_rule'",
        ] {
            runtime.block_on(crate::support::rows::execute(&database.url, sql));
        }
        program.ok(&["classify"]).expect_stderr("posts=0");
        assert_eq!(column(&program, rule), [TEXT_RULE.to_string()]);
        assert_eq!(column(&program, hash), kept);
    }
    let program = Program::new();
    let file = program.write(
        "both.ndjson",
        plain + marked.replace("a1\"", "a2\"").as_str(),
    );
    program.ok(&["score", &file, "given.ndjson"]);
    program.ok(&["score", &file, "seen.ndjson", "--reddit-text"]);
    let scores = |name: &str| -> Vec<Value> {
        program
            .read(name)
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["scores"].clone())
            .collect()
    };
    let (given, seen) = (scores("given.ndjson"), scores("seen.ndjson"));
    assert_eq!(seen[0], seen[1]);
    assert_ne!(given[0], given[1]);
}
