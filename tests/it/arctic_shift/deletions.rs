//! Tests that deletions which the archive reports reach the database without a key, and leave no byte of the text.

use topicmill_core::clock::SystemClock;

use super::*;
use crate::purge::holds;

const HOUR: i64 = 3_600;

/// Returns a post with a word that identifies its text in the bytes of a file.
fn secret(id: &str, secs: i64) -> Value {
    row_with(
        id,
        secs,
        &json!({"title": format!("zq{id}qz title"), "selftext": format!("zq{id}qz text")}),
    )
}

fn later(removal_type: &str) -> Value {
    json!({"_meta": {"was_deleted_later": true, "removal_type": removal_type}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_the_second_reading_reports_is_a_purge_at_once() {
    let archive = Archive::start(Bounds::Exclusive).await;
    let now = SystemClock::shared().now().timestamp() - START;
    let posted = now - 50 * HOUR;
    archive
        .state
        .add_post(&secret("kept", posted), 20, &json!({}));
    archive
        .state
        .add_post(&secret("gone", posted + 60), 20, &later("deleted"));
    archive
        .state
        .add_post(&secret("modded", posted + 120), 20, &later("moderator"));
    let placeholder = json!({"title": "[deleted by user]", "selftext": "[removed]"});
    archive
        .state
        .add_post(&secret("blank", posted + 180), 20, &placeholder);
    // This one arrives with its second reading.
    archive
        .state
        .add_post(&secret("late", posted + 240), 49 * HOUR, &later("deleted"));
    // The archive reads this one a second time in a few minutes, which does not call the comparison into question.
    archive
        .state
        .add_post(&secret("young", now - 36 * HOUR - 100), 20, &json!({}));
    let program = Program::new();
    let collect = "collect --source arctic-shift --topic climate --run-json run.json";
    let counts = || program.read_json("run.json")["counts"].clone();
    let compared = || {
        let status = program.json("status");
        let at = &status["archive_reconciled_at"];
        (at.is_string(), status["backlog"]["unchecked"].clone())
    };
    let file = program.url().trim_start_matches("sqlite:").to_owned();

    archive.state.set_now(posted + HOUR);
    ok_with(&archive, &program, collect);
    assert_eq!(program.classify("")["posts"], 4);
    assert!(holds(&file, "zqgoneqz") && holds(&file, "zqkeptqz"));
    assert_eq!(compared(), (false, json!(4)));

    archive.state.set_now(now);
    ok_with(&archive, &program, collect);
    assert_eq!(compared(), (true, json!(1)));
    assert_eq!(
        (&counts()["purged"], &counts()["new"]),
        (&json!(3), &json!(2)),
        "{}",
        counts()
    );
    for word in ["gone", "modded", "blank", "late"] {
        assert!(!holds(&file, &format!("zq{word}qz")), "{word}");
    }
    let left = "SELECT fullname, reason FROM tombstones ORDER BY fullname";
    let reasons = json!([
        ["t3_blank", "removed"],
        ["t3_gone", "deleted"],
        ["t3_modded", "removed"]
    ]);
    assert_eq!(program.rows(left), reasons);
    let stored =
        "SELECT fullname, title, permalink, removed_at IS NOT NULL FROM posts ORDER BY fullname";
    let rows = program.rows(stored);
    assert_eq!(rows[0][0], "t3_kept");
    assert_eq!(rows[1], json!(["t3_late", "[deleted]", null, 1]));
    assert_eq!(program.count("classifications"), 1);
    assert_eq!(program.classify("")["posts"], 1);

    // The third run reads the same rows.
    ok_with(&archive, &program, collect);
    let figures = ["purged", "tombstoned", "changed"].map(|name| counts()[name].clone());
    assert_eq!(figures, [0, 3, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_posts_are_checked_with_the_archive_by_id_without_a_key() {
    let archive = Archive::start(Bounds::Exclusive).await;
    let now = SystemClock::shared().now().timestamp() - START;
    archive.state.set_now(now);
    let old = now - 40 * HOUR;
    let ids: Vec<String> = (0..700).map(|i| format!("p{i:03}")).collect();
    let mut rows: Vec<Value> = ids.iter().map(|id| secret(id, old)).collect();
    rows.push(secret("young", now - HOUR));
    rows.push(comments::comment(old / 60));
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    let program = Program::new();
    program.import(&lines.join("\n"));
    for (id, removal_type) in [
        ("p003", "deleted"),
        ("p650", "moderator"),
        ("young", "deleted"),
    ] {
        let gone = row_with(id, old, &later(removal_type));
        archive.state.add_rows([gone]);
    }
    // The archive does not know the last hundred posts, which says nothing about them.
    let known = ids[..600].iter().filter(|id| *id != "p003");
    archive.state.add_rows(known.map(|id| secret(id, old)));
    let file = program.url().trim_start_matches("sqlite:").to_owned();
    let check =
        "purge --check-deleted --source arctic-shift --older-than-hours 24 --run-json run.json";
    // Posts and comments take a request each.
    ok_with(&archive, &program, &format!("{check} --max-requests 1"));
    assert_eq!(archive.requests().await, 1);
    let ran = ok_with(&archive, &program, check);
    ran.expect_stderr_all(&["36 hours", "--retention"]);
    let counts = program.read_json("run.json")["counts"].clone();
    let figures = [
        "checked", "purged", "deleted", "removed", "missing", "requests", "left",
    ];
    let figures: Vec<&Value> = figures.iter().map(|name| &counts[*name]).collect();
    assert_eq!(json!(figures), json!([700, 2, 1, 1, 0, 2, 0]), "{counts:#}");
    assert_eq!(program.count("posts"), 699);
    assert!(!holds(&file, "zqp003qz") && holds(&file, "zqp004qz"));
    let status = program.json("status");
    assert!(status["archive_reconciled_at"].is_string(), "{status:#}");
    assert!(status["backlog"]["reconciled_at"].is_null(), "{status:#}");
    ok_with(&archive, &program, check);
    assert_eq!(program.read_json("run.json")["counts"]["requests"], 0);
    // A request for a post by its id is a report, too.
    program.write("ids.txt", "young");
    let again = "import ids.txt --format ids --refresh --source arctic-shift --run-json run.json";
    ok_with(&archive, &program, again);
    assert_eq!(program.read_json("run.json")["counts"]["purged"], 1);
    assert_eq!(program.count("posts"), 698);
    assert!(!holds(&file, "zqyoungqz"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_says_nothing_about_deletions_is_reported() {
    let now = SystemClock::shared().now().timestamp() - START;
    for (meta, is_reported) in [
        (json!(null), true),
        (json!({"retrieved_2nd_on": START + now}), false),
    ] {
        let archive = Archive::start(Bounds::Exclusive).await;
        archive.state.set_now(now);
        let row = |id: &str, hours: i64| row_with(id, now - hours * HOUR, &json!({"_meta": meta}));
        archive.state.add_rows([row("a", 40), row("b", 1)]);
        let program = Program::new();
        let collect = "collect --source arctic-shift --topic climate";
        let stderr = ok_with(&archive, &program, collect).stderr;
        assert_eq!(stderr.contains("`_meta`"), is_reported, "{stderr}");
    }
}
