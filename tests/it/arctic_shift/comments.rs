//! Comments of a subreddit are collected like its posts: back to a limit first, then all new ones, with gaps.

use topicmill_core::clock::SystemClock;
use wiremock::Mock;
use wiremock::matchers::path;

use super::*;
use crate::support::postgres::{TestDatabase, databases};
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

/// A program that collects comments from an archive.
struct Collector {
    program: Program,
    archive: Archive,
}

impl Collector {
    /// Starts an empty archive.
    async fn on(database: TestDatabase, pipeline: &str) -> Self {
        let program = Program::on(database);
        program.write("p.toml", pipeline);
        let archive = Archive::start(Bounds::Exclusive).await;
        Self { program, archive }
    }

    /// Starts an archive with five posts and 300 comments, and collects the newest 150 of the comments.
    async fn with_comments(database: TestDatabase) -> Self {
        let collector = Self::on(database, FILE).await;
        let (program, state) = (&collector.program, &collector.archive.state);
        program.write("topicmill.toml", "[collect]\ncomments_limit = 150\n");
        state.add_rows(minutes(0..5));
        state.add_rows((0..300).map(comment));
        let counts = collector.run("collect");
        assert_eq!([&counts["posts"], &counts["comments"]], [155, 150]);
        collector
    }

    /// Runs a command; returns the run's counts.
    #[track_caller]
    fn run(&self, line: &str) -> Value {
        let flags = "--pipeline p.toml --source arctic-shift --run-json run.json";
        ok_with(&self.archive, &self.program, &format!("{line} {flags}"));
        self.program.read_json("run.json")["counts"].take()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_are_collected_like_posts_with_their_own_watermark() {
    for database in databases() {
        let collector = Collector::with_comments(database).await;
        let program = &collector.program;
        assert_eq!(
            [program.count("posts"), program.count("comments")],
            [5, 150]
        );
        assert_eq!(
            program.rows("SELECT DISTINCT topic, source FROM comments"),
            json!([["climate", "arctic-shift"]])
        );
        let watermarks = program.column("SELECT subreddit FROM watermarks ORDER BY subreddit");
        assert_eq!(watermarks, ["climate", "climate/comments"]);
        // The next run has no limit.
        collector.archive.state.add_rows((300..700).map(comment));
        collector.run("collect");
        let since_first = "comments WHERE CAST(substr(fullname, 5) AS INTEGER) >= 150";
        assert_eq!(program.count(since_first), 550);
        // The comments do not count as posts of the subreddit.
        assert_eq!(program.count("posts WHERE topic = 'climate'"), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_range_of_comments_is_read_completely_and_leaves_no_gap() {
    let collector = Collector::with_comments(sqlite()).await;
    let counts = collector.run("collect --since 2026-09-10 --until 2026-09-10");
    assert_eq!(counts["comments"], 300);
    let program = &collector.program;
    assert_eq!([program.count("comments"), program.count("gaps")], [300, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_that_the_archive_reports_as_deleted_is_purged_and_not_stored_again() {
    let collector = Collector::with_comments(sqlite()).await;
    let mut gone = comment(250);
    gone["body"] = json!("[deleted]");
    gone["author"] = json!("[deleted]");
    collector.archive.state.add_rows([gone]);
    for purged in [1, 0] {
        assert_eq!(collector.run("collect")["purged"], purged);
        let stored = "comments WHERE fullname = 't1_c250'";
        assert_eq!(collector.program.count(stored), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_are_refreshed_by_id() {
    let collector = Collector::with_comments(sqlite()).await;
    collector
        .program
        .write("ids.txt", "t1_c151\nt1_c152\nm1\nt1_none\n");
    let counts = collector.run("import --format ids ids.txt --refresh");
    let numbers = ["posts", "comments", "missing"].map(|name| &counts[name]);
    assert_eq!(numbers, [3, 2, 1]);
}

/// Returns a comment on a post, or a reply to a comment on it.
fn reply(id: &str, post: &str, parent: &str) -> Value {
    let mut reply = comment(10);
    reply["id"] = json!(id);
    reply["link_id"] = json!(format!("t3_{post}"));
    reply["parent_id"] = json!(parent);
    reply
}

impl Collector {
    /// Starts an archive with a post that is days old, a new one, and one without comments that the topic does not
    /// match. The topic collects the comments of its posts.
    async fn with_threads(database: TestDatabase) -> Self {
        let of_posts = "comments = \"of posts\"\nmatch = [\"storm*\"]";
        let file = FILE.replace("comments = true", of_posts);
        let collector = Self::on(database, &file).await;
        let state = &collector.archive.state;
        let now = SystemClock::shared().now().timestamp() - START;
        state.set_now(now);
        let post = |id: &str, at: i64, title: &str, comments: u32| {
            row_with(id, at, &json!({"title": title, "num_comments": comments}))
        };
        state.add_rows([
            post("old", 0, "Storms", 2),
            post("young", now - 3_600, "Storms", 1),
            post("bare", 60, "floods", 0),
            reply("r1", "old", "t3_old"),
            reply("r2", "old", "t1_r1"),
            reply("r3", "old", "t1_r2"),
            reply("r4", "young", "t3_young"),
        ]);
        collector
    }

    /// Counts the requests for the comments of a post.
    async fn requested_threads(&self) -> usize {
        let requests = self.archive.server.received_requests().await.unwrap();
        let paths = requests.iter().map(|request| request.url.path());
        paths.filter(|path| path.ends_with("/tree")).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_of_posts_are_read_with_their_replies_until_they_are_complete() {
    for database in databases() {
        let collector = Collector::with_threads(database).await;
        // While the archive is behind, it may lack later comments on the old post.
        let now = SystemClock::shared().now().timestamp() - START;
        collector.archive.state.set_lag(now - 3_600);
        assert_eq!(collector.run("collect")["comments"], 4);
        collector.archive.state.set_lag(0);
        assert_eq!(collector.run("collect")["comments"], 4);
        let stored = "SELECT fullname, post, parent, topic FROM comments ORDER BY fullname";
        let expected = json!([
            ["t1_r1", "t3_old", "t3_old", "climate"],
            ["t1_r2", "t3_old", "t1_r1", "climate"],
            ["t1_r3", "t3_old", "t1_r2", "climate"],
            ["t1_r4", "t3_young", "t3_young", "climate"],
        ]);
        assert_eq!(collector.program.rows(stored), expected);
        // The comments on a young post are read again, those on a complete post are not.
        let later = [reply("r5", "young", "t1_r4"), reply("r6", "old", "t3_old")];
        collector.archive.state.add_rows(later);
        assert_eq!(collector.run("collect")["comments"], 2);
        assert_eq!(collector.program.count("comments"), 5);
        assert_eq!(collector.requested_threads().await, 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_the_archive_rejects_is_read_again() {
    let collector = Collector::with_threads(sqlite()).await;
    let rejected = Mock::given(path("/api/comments/tree"))
        .respond_with(ResponseTemplate::new(400))
        .with_priority(1)
        .up_to_n_times(2);
    collector.archive.server.register(rejected).await;
    let collect = "collect --pipeline p.toml --source arctic-shift";
    let url = collector.archive.server.uri();
    run_at(&url, &collector.program, collect).expect_code(1);
    assert_eq!(collector.program.count("comments"), 0);
    assert_eq!(collector.run("collect")["comments"], 4);
    assert_eq!(collector.requested_threads().await, 4);
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
