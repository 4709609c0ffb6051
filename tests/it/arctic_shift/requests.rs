//! Tests the requests to the archive: one at a time, their headers, and the commands that send them.

use super::*;
use topicmill_core::table;

/// Requests in progress, and their maximum so far.
#[derive(Default)]
struct Load {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

async fn answer_slowly(State(load): State<Arc<Load>>) -> axum::Json<Value> {
    let now = load.now.fetch_add(1, Ordering::SeqCst) + 1;
    load.most.fetch_max(now, Ordering::SeqCst);
    load.all.fetch_add(1, Ordering::SeqCst);
    // Long enough for a concurrent request to arrive.
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
    load.now.fetch_sub(1, Ordering::SeqCst);
    axum::Json(json!({"data": [row("a", 0)]}))
}

#[tokio::test]
async fn topics_read_concurrently_send_one_request_at_a_time() {
    let load = Arc::new(Load::default());
    let router = axum::Router::new()
        .fallback(answer_slowly)
        .with_state(load.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let (archive, clock) = client(&base_url);
    let database = sqlite();
    let store = database.open().await;
    let context = Context::new(store, clock.clone(), CancellationToken::new(), "w".into());
    let names: Vec<String> = (0..6).map(|i| format!("topic{i}")).collect();
    let topics: Vec<Topic> = names.iter().map(|name| topic(name, &[name], 1)).collect();
    let options = ReadOptions {
        concurrency: 6,
        ..READ_OPTIONS
    };
    let collected = context.collect(&archive, &topics, options, false, &|_| {});
    collected.await.unwrap();
    assert_eq!(load.all.load(Ordering::SeqCst), 7);
    assert_eq!(load.most.load(Ordering::SeqCst), 1);
    assert_eq!(clock.sleeps(), [SECOND; 6]);
}

#[tokio::test]
async fn requests_send_a_user_agent_and_no_key() {
    let named = "linux:topicmill:v0 (by /u/tester)";
    let ours = concat!("topicmill/", env!("CARGO_PKG_VERSION"));
    for (given, sent) in [(named, named), ("", ours), ("Mozilla/5.0 (X11)", ours)] {
        let archive = Archive::start(Bounds::Exclusive).await;
        let mut settings = settings(&archive.server.uri());
        settings.client.user_agent = given.to_owned();
        let (_, clock) = client(&archive.server.uri());
        let source = ArcticShift::new(&settings, clock).unwrap();
        let way = topicmill_sources::page::TimeOrder::NewestFirst;
        source
            .page(("climate", topicmill_core::ThingKind::Post), way, None, 5)
            .await
            .unwrap();
        let requests = archive.server.received_requests().await.unwrap();
        assert_eq!(requests[0].headers["user-agent"], sent);
        assert!(!requests[0].headers.contains_key("authorization"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn posts_are_read_by_id_five_hundred_a_request() {
    let archive = Archive::start(Bounds::Exclusive).await;
    archive.state.add_rows((0..600).map(|i| match i {
        7 => row_with(
            "i7",
            7,
            &json!({"_meta": {"was_deleted_later": true, "removal_type": "deleted"}}),
        ),
        8 => row_with(
            "i8",
            8,
            &json!({"_meta": {"was_deleted_later": true, "removal_type": "moderator"}}),
        ),
        9 => json!({"id": "i9"}),
        i => row(&format!("i{i}"), i),
    }));
    let program = Program::new();
    let ids: String = (0..601).map(|i| format!("t3_i{i}\n")).collect();
    program.write("ids.txt", ids);
    let line = "import --format ids ids.txt --source arctic-shift --run-json run.json";
    let ran = run_at(&archive.server.uri(), &program, line);
    // A row without a title is no post.
    ran.expect_code(1);
    let counts = &program.read_json("run.json")["counts"];
    let counts = [
        "posts", "deleted", "removed", "missing", "rejected", "requests",
    ]
    .map(|n| &counts[n]);
    assert_eq!(counts, [597, 1, 1, 1, 1, 2]);
    assert_eq!(archive.requests().await, 2);
    assert_eq!(program.count("posts WHERE topic = 'climate'"), 597);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_new_listing_is_accepted_for_the_archive() {
    let archive = Archive::start(Bounds::Exclusive).await;
    archive.state.add_rows(minutes(0..5));
    let program = Program::new();
    let run = |url: &str, flags: &str| {
        let line = format!("collect --source arctic-shift --topic climate {flags}");
        run_at(url, &program, &line)
    };
    let url = archive.server.uri();
    for listing in ["hot", "top", "rising"] {
        run(&url, &format!("--listing {listing}")).expect_exit(2, "--listing new");
    }
    assert_eq!(archive.requests().await, 0);
    // If the settings name another order, a log line says that it is not used.
    let line = "collect --source arctic-shift --topic climate";
    for (listing, is_logged) in [("new", false), ("auto", false), ("top", true)] {
        let settings = [
            ("arctic_shift.api_url", &*url),
            ("collect.listing", listing),
        ];
        let ran = program.run_with(&settings, line);
        ran.expect_code(0);
        let order = ran.stderr.contains("chronological order");
        assert_eq!(order, is_logged, "{}", ran.stderr);
    }
    run("http://10.0.0.1", "").expect_exit(2, "arctic_shift.api_url");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_source_is_the_flag_or_the_setting_or_reddit_if_its_credentials_are_set() {
    let archive = Archive::start(Bounds::Exclusive).await;
    archive.state.add_rows(minutes(0..5));
    // Nothing listens on Reddit's port, so a run that reads Reddit fails temporarily.
    let dead = "http://127.0.0.1:1";
    let reddit = [
        ("reddit.auth_url", dead),
        ("reddit.api_url", dead),
        ("reddit.tries", "1"),
        ("arctic_shift.api_url", &archive.server.uri()),
    ];
    let key = [
        ("reddit.client_id", "an-id"),
        ("reddit.client_secret", "a-secret"),
        ("reddit.user_agent", "linux:topicmill:v1 (by /u/someone)"),
    ];
    let (secret, agent) = (&key[1..2], &key[2..]);
    let set = |source| ("collect.source", source);
    let from = |settings: &[(&str, &str)], flags: &str| {
        let program = Program::new();
        let settings = [&reddit[..], settings].concat();
        let line = format!("collect --topic climate --run-json run.json {flags}");
        let ran = program.run_with(&settings, &line);
        let first = ran.stderr.lines().next().unwrap_or_default().to_owned();
        let read = std::fs::read_to_string(program.path("run.json")).unwrap_or_default();
        let read = ["\"arctic_shift\"", "\"reddit\""].map(|section| read.contains(section));
        (ran.code, read, first)
    };
    let with_key = |more: (&'static str, &'static str)| [&key[..], &[more]].concat();
    for (settings, flags, code, read, named) in table! {
        &[][..], "", 0, [true, false], "arctic-shift";
        agent, "", 0, [true, false], "arctic-shift";
        &key, "", 75, [false, true], "reddit";
        &with_key(set("arctic-shift")), "", 0, [true, false], "arctic-shift";
        &with_key(set("reddit")), "--source arctic-shift", 0, [true, false], "arctic-shift";
        &[set("sample")], "", 0, [false, true], "sample";
        &[set("reddit")], "", 3, [false, false], "reddit";
        // A key that is only partly set is a mistake, not a wish for the archive.
        secret, "", 3, [false, false], "reddit";
        &[set("import")], "", 2, [false, false], "collect.source";
        &[], "--source import", 2, [false, false], "--source";
    } {
        let (exit, from, first) = from(settings, flags);
        assert_eq!((exit, from), (code, read), "{settings:?} {flags}: {first}");
        assert!(first.contains(named), "{settings:?} {flags}: {first}");
    }
}

#[tokio::test]
async fn an_archive_that_is_down_ends_the_run_after_one_topic() {
    let names: Vec<String> = (0..16).map(|i| format!("topic{i}")).collect();
    let topics: Vec<Topic> = names.iter().map(|name| topic(name, &[name], 1)).collect();
    let refused = ResponseTemplate::new(429).insert_header("Retry-After", "7200");
    for (answer, most) in [
        (ResponseTemplate::new(503), 5),
        // The page is made smaller seven times, and the archive is asked whether it is slow for another subreddit too.
        (timeout(), 20),
        (refused, 1),
    ] {
        let scene = Scene::new().await;
        scene.respond_instead(answer, 1_000);
        let options = ReadOptions {
            concurrency: 4,
            ..READ_OPTIONS
        };
        let collected = scene
            .context
            .collect(&scene.source, &topics, options, false, &|_| {});
        let error = collected.await.map(drop).unwrap_err();
        assert_eq!(error.kind(), FailureKind::Temporary, "{error}");
        assert!(scene.server.requests().await <= most, "{error}");
        let record = scene.record();
        assert_eq!(record.status, RunStatus::Partial);
        let outcomes = record.outcomes.as_array().unwrap();
        let stopped = outcomes
            .iter()
            .filter(|report| report["outcome"] == "stopped");
        assert_eq!(stopped.count(), 15);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_without_the_archive_is_a_problem() {
    let archive = Archive::start(Bounds::Exclusive).await;
    let refused = ResponseTemplate::new(429).insert_header("Retry-After", "7200");
    archive.state.respond_instead(refused, 2);
    let program = Program::new();
    let topic = "[[topic]]\nlabel = \"climate\"\nsubreddits = [\"climate\"]\n";
    let schedule = "[[schedule]]\nname = \"daily\"\ncron = \"* * * * *\"\nstages = [\"collect\"]\n";
    program.write("scheduled.toml", format!("{topic}{schedule}"));
    let run = |line: &str| run_at(&archive.server.uri(), &program, line).code;
    let checks = || {
        let found = program.run("status --check --format json").json();
        let problems = found["problems"].as_array().unwrap().iter();
        let checks = problems.map(|problem| problem["check"].clone());
        (found["ok"].clone(), checks.collect::<Vec<_>>())
    };
    assert_eq!(run("schedule run --once --pipeline scheduled.toml"), 1);
    assert_eq!(
        program.scalar("SELECT status FROM scheduled_runs"),
        "partial"
    );
    assert_eq!(checks(), (json!(true), vec![]));
    assert_eq!(run("collect --topic climate"), 75);
    assert_eq!(program.count("runs WHERE status = 'partial'"), 2);
    assert_eq!(checks(), (json!(false), vec![json!("run_failed")]));
    archive.state.add_rows(minutes(0..1));
    assert_eq!(run("collect --topic climate"), 0);
    assert_eq!(checks(), (json!(true), vec![]));
}

#[tokio::test]
async fn a_subreddit_that_is_too_slow_does_not_stop_the_others() {
    let scene = Scene::new().await;
    scene.put(minutes(0..3));
    // The tries for the first topic, down to a page of one row.
    scene.respond_instead(timeout(), 8);
    let topics = [topic("slow", &["slow"], 100), climate(3)];
    let reports = scene.collect(&topics).await;
    let outcomes = reports.iter().map(|report| report.outcome);
    assert_eq!(
        outcomes.collect::<Vec<_>>(),
        [Outcome::RateLimited, Outcome::Ok]
    );
}
