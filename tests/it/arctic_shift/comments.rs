//! Comments of a subreddit are collected like its posts: back to a limit first, then all new ones, with gaps.

use topicmill_core::clock::SystemClock;
use wiremock::Mock;
use wiremock::matchers::path;

use super::*;
use crate::support::postgres::databases;
use crate::support::wait::until;

/// Returns a comment in r/climate, created a number of minutes after [`START`].
pub fn comment(minute: i64) -> Value {
    json!({
        "id": format!("c{minute}"), "link_id": "t3_m1", "parent_id": "t3_m1", "subreddit": "climate", "author": "someone",
        "body": format!("Body {minute}"), "created_utc": START + 60 * minute, "score": 4,
        "retrieved_on": START + 60 * minute + 20, "_meta": {"retrieved_2nd_on": START + 60 * minute + 130_000},
    })
}

const FILE: &str = "[[topic]]\nlabel = \"climate\"\nsubreddits = [\"climate\"]\ncomments = true\n\
    [[topic]]\nlabel = \"food\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn comments_are_collected_like_posts_with_their_own_watermark() {
    for database in databases() {
        let archive = Archive::start(Bounds::Exclusive).await;
        archive.state.add_rows(minutes(0..5));
        archive.state.add_rows((0..300).map(comment));
        let program = Program::on(database);
        program.write("p.toml", FILE);
        let url = archive.server.uri();
        let collect = |flags: &str| {
            let settings = [
                ("arctic_shift.api_url", url.as_str()),
                ("arctic_shift.requests_per_minute", "60000"),
                ("collect.comments_limit", "150"),
            ];
            let line = format!(
                "collect --pipeline p.toml --source arctic-shift {flags} --run-json run.json"
            );
            program.run_with(&settings, &line).expect_exit(0, "");
            program.read_json("run.json")["counts"].take()
        };
        let counts = collect("");
        assert_eq!(
            (&counts["posts"], &counts["comments"]),
            (&json!(155), &json!(150))
        );
        assert_eq!(
            [program.count("posts"), program.count("comments")],
            [5, 150]
        );
        let first = "SELECT MIN(created_at), MAX(topic), MAX(source) FROM comments";
        let first = program.rows(first);
        assert_eq!([&first[0][1], &first[0][2]], ["climate", "arctic-shift"]);
        let marks = "SELECT subreddit FROM watermarks ORDER BY subreddit";
        assert_eq!(
            program.rows(marks),
            json!([["climate"], ["climate/comments"]])
        );
        // Later runs read all comments since then, but no posts twice.
        archive.state.add_rows((300..700).map(comment));
        let new = collect("")["new"].as_u64().unwrap();
        assert!((400..450).contains(&new), "{new}");
        let since_first = "comments WHERE CAST(substr(fullname, 5) AS INTEGER) >= 150";
        assert_eq!(program.count(since_first), 550);
        // An earlier time range is read as a whole and leaves no gap.
        assert_eq!(
            collect("--since 2026-09-10 --until 2026-09-10")["comments"],
            700
        );
        assert_eq!([program.count("comments"), program.count("gaps")], [700, 0]);
        // A comment that the archive reports as deleted is purged, and is not stored again.
        let mut gone = comment(650);
        gone["body"] = json!("[deleted]");
        gone["author"] = json!("[deleted]");
        archive.state.add_rows([gone]);
        assert_eq!(
            collect("--since 2026-09-10 --until 2026-09-10")["purged"],
            1
        );
        assert_eq!(program.count("comments"), 699);
        program.write("ids.txt", "t1_c1\nt1_c2\nm1\nt1_none\n");
        let settings = [("arctic_shift.api_url", url.as_str())];
        let line = "import --format ids ids.txt --refresh --source arctic-shift --pipeline p.toml --run-json run.json";
        program.run_with(&settings, line).expect_exit(0, "");
        let counts = program.read_json("run.json")["counts"].take();
        assert_eq!(
            (&counts["posts"], &counts["missing"]),
            (&json!(3), &json!(1))
        );
        // The comments neither count as posts of the subreddit nor change its periods.
        let spans = "SELECT COUNT(*) FROM posts WHERE topic = 'climate'";
        assert_eq!(program.scalar(spans), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_of_posts_are_read_with_their_replies_until_they_are_complete() {
    for database in databases() {
        let archive = Archive::start(Bounds::Exclusive).await;
        // One post is two days old, one is new, and one has no comments.
        let now = SystemClock::shared().now().timestamp() - START;
        archive.state.set_now(now);
        let posts = [("old", 0, 2), ("young", now - 3_600, 1), ("bare", 60, 0)];
        for (id, at, replies) in posts {
            let fields = json!({"num_comments": replies, "title": if id == "bare" { "floods" } else { "Storms" }});
            archive.state.add_rows([row_with(id, at, &fields)]);
        }
        let reply = |id: &str, post: &str, parent: &str| {
            let mut reply = comment(10);
            reply["id"] = json!(id);
            reply["link_id"] = json!(format!("t3_{post}"));
            reply["parent_id"] = json!(parent);
            reply
        };
        archive.state.add_rows([
            reply("r1", "old", "t3_old"),
            reply("r2", "old", "t1_r1"),
            reply("r3", "old", "t1_r2"),
            reply("r4", "young", "t3_young"),
        ]);
        let program = Program::on(database);
        program.write(
            "p.toml",
            FILE.replace(
                "comments = true",
                "comments = \"of posts\"\nmatch = [\"storm*\"]",
            ),
        );
        let url = archive.server.uri();
        let collect_with = |exit: i32| {
            let settings = [
                ("arctic_shift.api_url", url.as_str()),
                ("arctic_shift.requests_per_minute", "60000"),
            ];
            let line = "collect --pipeline p.toml --source arctic-shift --run-json run.json";
            program.run_with(&settings, line).expect_exit(exit, "");
            program.read_json("run.json")["counts"].take()
        };
        // A thread that the archive rejects is read again.
        let rejected = Mock::given(path("/api/comments/tree"))
            .respond_with(ResponseTemplate::new(400))
            .with_priority(1)
            .up_to_n_times(2);
        archive.server.register(rejected).await;
        // While the archive is behind, it may lack later comments on the old post.
        archive.state.set_lag(now - 3_600);
        assert_eq!(collect_with(1)["comments"], 0);
        let collect = || collect_with(0);
        assert_eq!(collect()["comments"], 4);
        archive.state.set_lag(0);
        assert_eq!(collect()["comments"], 4);
        let stored = "SELECT fullname, post, parent, topic FROM comments ORDER BY fullname";
        let expected = json!([
            ["t1_r1", "t3_old", "t3_old", "climate"],
            ["t1_r2", "t3_old", "t1_r1", "climate"],
            ["t1_r3", "t3_old", "t1_r2", "climate"],
            ["t1_r4", "t3_young", "t3_young", "climate"],
        ]);
        assert_eq!(program.rows(stored), expected);
        // A new comment on a young post is read, one on a complete post is not.
        archive
            .state
            .add_rows([reply("r5", "young", "t1_r4"), reply("r6", "old", "t3_old")]);
        assert_eq!(collect()["comments"], 2);
        assert_eq!(program.count("comments"), 5);
        let trees = archive.server.received_requests().await.unwrap();
        let trees = trees
            .iter()
            .filter(|request| request.url.path().ends_with("/tree"));
        assert_eq!(trees.count(), 7, "five, and two that were rejected");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_leaves_only_the_thread_that_it_was_reading() {
    for database in databases() {
        let archive = Archive::start(Bounds::Exclusive).await;
        for post in 0..40 {
            let fields = json!({"num_comments": 2});
            archive
                .state
                .add_rows([row_with(&format!("q{post}"), post, &fields)]);
            archive.state.add_rows((0..2).map(|n| {
                let mut reply = comment(post * 10 + n);
                for name in ["link_id", "parent_id"] {
                    reply[name] = json!(format!("t3_q{post}"));
                }
                reply
            }));
        }
        let program = Program::on(database);
        program.write("p.toml", FILE.replace("true", "\"of posts\""));
        let collect = |per_minute: &str| {
            let line = "collect --pipeline p.toml --source arctic-shift --run-json run.json";
            let mut command = program.command(line);
            command
                .env("TOPICMILL__ARCTIC_SHIFT__API_URL", archive.server.uri())
                .env("TOPICMILL__ARCTIC_SHIFT__REQUESTS_PER_MINUTE", per_minute);
            command
        };
        // Two requests a second, so that the kill falls between the threads.
        let mut killed = collect("120").spawn().unwrap();
        let stored = "sql 'SELECT fullname FROM comments' --format csv";
        until("a thread is stored", async || {
            assert_eq!(killed.try_wait().unwrap(), None);
            program.run(stored).stdout.lines().count() >= 3
        })
        .await;
        killed.kill().unwrap();
        killed.wait().unwrap();
        let before = program.count("comments");
        assert!((2..80).contains(&before), "{before}");
        assert!(collect("60000").status().unwrap().success());
        let counts = program.read_json("run.json")["counts"].take();
        assert_eq!(
            [&counts["comments"], &counts["new"]],
            [80 - before, 80 - before]
        );
        assert_eq!(
            program.count(
                "comments WHERE post = 't3_q' || (CAST(substr(fullname, 5) AS INTEGER) / 10)"
            ),
            80
        );
        program.ok("db check");
    }
}
