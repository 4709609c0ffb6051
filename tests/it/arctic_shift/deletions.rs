//! Tests that deletions which the archive reports reach the database without a key, and leave no byte of the text.

use topicmill_core::clock::SystemClock;
use topicmill_core::table;

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

/// Returns true if the database file contains the word of [`secret`].
fn holds_word(program: &Program, id: &str) -> bool {
    let url = program.url();
    holds(url.trim_start_matches("sqlite:"), &format!("zq{id}qz"))
}

/// An archive, and a program on a database of its posts.
struct Mirror {
    archive: Archive,
    program: Program,
}

impl Mirror {
    fn run(&self, line: &str) -> RunOutput {
        let line = format!("{line} --source arctic-shift --run-json run.json");
        ok_with(&self.archive, &self.program, &line)
    }

    /// Returns the counts of the latest run with these names.
    fn counts<const N: usize>(&self, names: [&str; N]) -> [Value; N] {
        let mut counts = self.program.read_json("run.json")["counts"].take();
        names.map(|name| counts[name].take())
    }

    fn collect(&self) {
        self.run("collect --topic climate");
    }

    /// Collects and labels four posts in their first reading. Then the archive has the second reading of most of them.
    async fn after_second_reading() -> Self {
        let archive = Archive::start(Bounds::Exclusive).await;
        let now = SystemClock::shared().now().timestamp() - START;
        let posted = now - 50 * HOUR;
        let placeholder = json!({"title": "[deleted by user]", "selftext": "[removed]"});
        for (id, at, late, changed) in table! {
            "kept", posted, 20, json!({});
            "gone", posted + 60, 20, later("deleted");
            "modded", posted + 120, 20, later("moderator");
            "blank", posted + 180, 20, placeholder;
            // This one arrives with its second reading.
            "late", posted + 240, 49 * HOUR, later("deleted");
            // This one is read again in a few minutes, which does not call the comparison into question.
            "young", now - 36 * HOUR - 100, 20, json!({});
        } {
            archive.state.add_post(&secret(id, at), late, &changed);
        }
        let mirror = Self {
            archive,
            program: Program::new(),
        };
        mirror.archive.state.set_now(posted + HOUR);
        mirror.collect();
        assert_eq!(mirror.program.classify("")["posts"], 4);
        mirror.archive.state.set_now(now);
        mirror
    }

    /// Imports 700 old posts, a young one and a comment. The archive reports two of the old posts and the young one as
    /// deleted or removed.
    async fn with_old_posts() -> Self {
        let archive = Archive::start(Bounds::Exclusive).await;
        let now = SystemClock::shared().now().timestamp() - START;
        archive.state.set_now(now);
        let old = now - 40 * HOUR;
        let ids: Vec<String> = (0..700).map(|i| format!("p{i:03}")).collect();
        let mut rows: Vec<Value> = ids.iter().map(|id| secret(id, old)).collect();
        rows.push(secret("young", now - HOUR));
        rows.push(comments::comment(old / 60));
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        let program = Program::new();
        program.import(&lines);
        let gone = table! { "p003", "deleted"; "p650", "moderator"; "young", "deleted"; };
        let gone = gone.map(|(id, removal_type)| row_with(id, old, &later(removal_type)));
        archive.state.add_rows(gone);
        // The archive does not know the last hundred posts, which says nothing about them.
        let known = ids[..600].iter().filter(|id| *id != "p003");
        archive.state.add_rows(known.map(|id| secret(id, old)));
        Self { archive, program }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_the_second_reading_reports_is_a_purge_at_once() {
    let mirror = Mirror::after_second_reading().await;
    let program = &mirror.program;
    assert!(holds_word(program, "gone") && holds_word(program, "kept"));
    mirror.collect();
    assert_eq!(mirror.counts(["purged", "new"]), [3, 2]);
    for id in ["gone", "modded", "blank", "late"] {
        assert!(!holds_word(program, id), "{id}");
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
    // A new post with text is labelled.
    assert_eq!(program.classify("")["posts"], 1);
    // The third run reads the same rows.
    mirror.collect();
    let figures = mirror.counts(["purged", "tombstoned", "changed"]);
    assert_eq!(figures, [0, 3, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_that_posts_were_compared_with_their_second_reading() {
    let mirror = Mirror::after_second_reading().await;
    let before = mirror.program.json("status");
    assert!(before["archive_reconciled_at"].is_null(), "{before:#}");
    mirror.collect();
    let after = mirror.program.json("status");
    assert!(after["archive_reconciled_at"].is_string(), "{after:#}");
    let unchecked = [before, after].map(|status| status["backlog"]["unchecked"].clone());
    assert_eq!(unchecked, [4, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_posts_are_checked_with_the_archive_by_id_without_a_key() {
    let mirror = Mirror::with_old_posts().await;
    let program = &mirror.program;
    let check = "purge --check-deleted --older-than-hours 24";
    // Posts and comments take a request each.
    mirror.run(&format!("{check} --max-requests 1"));
    assert_eq!(mirror.archive.requests().await, 1);
    let ran = mirror.run(check);
    ran.expect_stderr_all(&["36 hours", "--retention"]);
    let names = [
        "checked", "purged", "deleted", "removed", "missing", "requests", "left",
    ];
    assert_eq!(mirror.counts(names), [700, 2, 1, 1, 0, 2, 0]);
    assert_eq!(program.count("posts"), 699);
    assert!(!holds_word(program, "p003") && holds_word(program, "p004"));
    let status = program.json("status");
    assert!(status["archive_reconciled_at"].is_string(), "{status:#}");
    assert!(status["backlog"]["reconciled_at"].is_null(), "{status:#}");
    mirror.run(check);
    assert_eq!(mirror.counts(["requests"]), [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_is_requested_by_its_id_and_deleted_is_purged() {
    let mirror = Mirror::with_old_posts().await;
    let program = &mirror.program;
    assert!(holds_word(program, "young"));
    program.write("ids.txt", "young");
    mirror.run("import ids.txt --format ids --refresh");
    assert_eq!(mirror.counts(["purged"]), [1]);
    assert_eq!(program.count("posts"), 700);
    assert!(!holds_word(program, "young"));
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
