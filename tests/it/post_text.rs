//! Tests that models read the same text as the post's readers, and that posts without text get no label.

use std::collections::BTreeMap;

use serde_json::json;
use topicmill_core::reddit::TEXT_RULE;

use crate::support::program::Program;
use crate::support::rows::execute;

fn line(id: &str, title: &str, body: &str) -> String {
    let post = json!({"id": id, "title": title, "selftext": body, "subreddit": "food", "created_utc": 1_700_000_000});
    format!("{post}\n")
}

/// Imports posts; returns the numbers of new and edited ones.
fn imported(program: &Program, posts: &str) -> [u64; 2] {
    program.write("posts.ndjson", posts);
    let counts = program.run_counts("import posts.ndjson");
    ["new", "edited"].map(|count| counts[count].as_u64().unwrap_or(0))
}

fn classified(program: &Program) -> u64 {
    let counts = program.run_counts("classify");
    counts["posts"].as_u64().unwrap()
}

const LABELLED: &str =
    "SELECT fullname FROM labeled_posts WHERE label IS NOT NULL OR abstained ORDER BY fullname";

#[test]
fn placeholder_texts_get_no_label_in_any_command() {
    let posts = [
        line("a1", "[deleted by user]", "[removed]"),
        line(
            "a2",
            "[ Removed by Reddit ]",
            "[ Removed by Reddit on account of violating the [content policy](/help/contentpolicy). ]",
        ),
        line("a3", "[removed]", ""),
        line("b1", "Rye bread", "[removed]"),
        line("b2", "Soup", "Hot."),
    ]
    .concat();
    let program = Program::new();
    assert_eq!(imported(&program, &posts), [5, 0]);
    let ran = program.run("score posts.ndjson scores.ndjson");
    ran.expect_code(1);
    let rows = program.read_lines("scores.ndjson");
    let labelled: Vec<bool> = rows.iter().map(|row| row["label"].is_string()).collect();
    assert_eq!(labelled, [false, false, false, true, true]);

    // In the database, a post that was removed has no title either.
    assert_eq!(classified(&program), 1);
    assert_eq!(program.column(LABELLED), ["t3_b2"]);
    let empty = "SELECT fullname FROM posts WHERE NOT has_text ORDER BY fullname";
    let without_text = ["t3_a1", "t3_a2", "t3_a3", "t3_b1"];
    assert_eq!(program.column(empty), without_text);
    let backlog = program.json("status")["backlog"].take();
    let counts = ["labelled", "unlabelled", "without_text"].map(|count| &backlog[count]);
    assert_eq!(counts, [1, 0, 4]);
    program.ok("export labels.csv");
    assert_eq!(program.read("labels.csv").lines().count(), 2);
    program.ok("classify --dry-run").expect_stderr("0");

    // A post whose text is restored gets a label, and a post that is removed loses its label.
    let changed = [
        line("a1", "Sourdough", "It rose."),
        line("b2", "[removed]", ""),
    ]
    .concat();
    // The file reports the removal, so the stored post is purged.
    assert_eq!(imported(&program, &changed), [0, 1]);
    assert_eq!(classified(&program), 1);
    assert_eq!(program.column(LABELLED), ["t3_a1"]);
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
    let program = Program::new();
    assert_eq!(imported(&program, &plain), [1, 0]);
    assert_eq!(classified(&program), 1);
    assert_eq!(imported(&program, &marked), [0, 0]);
    assert_eq!(classified(&program), 0);

    program.write(
        "both.ndjson",
        [plain, marked.replace("a1\"", "a2\"")].concat(),
    );
    program.ok("score both.ndjson given.ndjson");
    program.ok("score both.ndjson seen.ndjson --reddit-text");
    let (given, seen) = (
        program.read_lines("given.ndjson"),
        program.read_lines("seen.ndjson"),
    );
    assert_eq!(seen[0]["scores"], seen[1]["scores"]);
    assert_ne!(given[0]["scores"], given[1]["scores"]);
}

#[test]
fn score_reads_escaped_reddit_text_as_import_does() {
    let bodies = [
        "&gt;!The butler did it!&lt; says **Q&amp;amp;A**.",
        "&gt; quoted\n\n`5 &amp;lt; 6`",
        "Bread &amp; butter.",
    ];
    let lines = (0..).zip(bodies);
    let lines: Vec<String> = lines
        .map(|(i, body)| line(&format!("e{i}"), "Ham &amp; eggs", body))
        .collect();
    let program = Program::new();
    assert_eq!(imported(&program, &lines.concat()), [3, 0]);
    assert_eq!(classified(&program), 3);
    program.ok("score posts.ndjson scored.ndjson --reddit-text");
    let query = "SELECT label, score FROM post_scores ORDER BY fullname, label";
    let expected: Vec<f64> = program
        .rows(query)
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[1].as_f64().unwrap())
        .collect();
    let scored: Vec<f64> = program
        .read_lines("scored.ndjson")
        .iter()
        .flat_map(|row| {
            let scores: BTreeMap<String, f64> =
                serde_json::from_value(row["scores"].clone()).unwrap();
            scores.into_values()
        })
        .collect();
    assert_eq!(expected.len(), scored.len());
    let differ = |(a, b): (&f64, &f64)| (a - b).abs() >= 1e-6;
    assert!(
        !expected.iter().zip(&scored).any(differ),
        "{expected:?} {scored:?}"
    );
}

#[test]
fn a_changed_text_rule_corrects_the_hashes_of_stored_texts() {
    for program in Program::on_each_database() {
        let posts = [
            line("a1", "My loaf", "It rose."),
            line("a2", "Soup", "Hot."),
        ]
        .concat();
        assert_eq!(imported(&program, &posts), [2, 0]);
        assert_eq!(classified(&program), 2);
        let hashes = "SELECT text_hash FROM things ORDER BY fullname";
        let right = program.rows(hashes);
        let stale =
            "UPDATE things SET text_hash = BYTES(0000000000000000) WHERE fullname = 't3_a1'";
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(execute(&program.url(), stale));
        let older = "UPDATE meta SET value = '0' WHERE key = 'text_rule'";
        program.execute(older);
        assert_ne!(program.rows(hashes), right);
        // The labels of the right hash are still stored.
        assert_eq!(classified(&program), 0);
        assert_eq!(program.rows(hashes), right);
        // `sql` does not read this table. This statement breaks its key unless it has the current rule.
        let rule = format!(
            "SELECT 1 FROM meta WHERE key = 'text_rule' AND value = '{}'",
            *TEXT_RULE
        );
        let is_current = format!(
            "INSERT INTO meta (key, value) SELECT key, value FROM meta WHERE NOT EXISTS ({rule})"
        );
        program.execute(&is_current);
        assert_eq!(classified(&program), 0);

        // A text removed by retention keeps its hash under any rule.
        let hash = "SELECT text_hash FROM things WHERE fullname = 't3_a2'";
        let kept = program.scalar(hash);
        program.execute(
            "UPDATE things SET title = '', selftext = '', text_purged_at = collected_at WHERE fullname = 't3_a2'",
        );
        program.execute(older);
        assert_eq!(classified(&program), 0);
        program.execute(&is_current);
        assert_eq!(program.scalar(hash), kept);
    }
}
