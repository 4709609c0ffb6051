//! Tests the requests to the archive: one at a time, their headers, and the commands that send them.

use super::*;

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
    let source = archive;
    let collected = context.collect(&source, &topics, options, false, &|_| {});
    collected.await.unwrap();
    assert_eq!(load.all.load(Ordering::SeqCst), 6);
    assert_eq!(load.most.load(Ordering::SeqCst), 1);
    assert_eq!(clock.sleeps(), [SECOND; 5]);
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
        source.page("climate", way, None, 5).await.unwrap();
        let requests = archive.server.received_requests().await.unwrap();
        assert_eq!(requests[0].headers["user-agent"], sent);
        assert!(!requests[0].headers.contains_key("authorization"));
    }
}

/// Returns a command that collects from an archive without waiting between requests.
fn collecting(
    program: &Program,
    archive: &str,
    database: &str,
    more: &[&str],
) -> std::process::Command {
    let mut args = vec![
        "--database",
        database,
        "collect",
        "--source",
        "arctic-shift",
    ];
    args.extend(["--topic", "climate"]);
    args.extend(more);
    let mut command = program.command(&args);
    command
        .env("TOPICMILL__ARCTIC_SHIFT__API_URL", archive)
        .env("TOPICMILL__ARCTIC_SHIFT__REQUESTS_PER_MINUTE", "60000");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_new_listing_is_accepted_for_the_archive() {
    let archive = Archive::start(Bounds::Exclusive).await;
    archive.state.add_rows(minutes(0..5));
    let (program, uri) = (Program::new(), archive.server.uri());
    let run = |more: &[&str]| {
        finished(
            collecting(&program, &uri, "sqlite:a.db", more)
                .output()
                .unwrap(),
        )
    };
    for listing in ["hot", "top", "rising"] {
        run(&["--listing", listing]).expect_exit(2, "--listing new");
    }
    assert_eq!(archive.requests().await, 0);
    let ran = run(&["--listing", "new"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        !ran.stderr.contains("only be read in chronological order"),
        "{}",
        ran.stderr
    );
    // Without the flag, the posts are read in chronological order, and a log line says so.
    run(&[]).expect_exit(0, "only be read in chronological order");

    let ran = program
        .command("collect --source arctic-shift")
        .env("TOPICMILL__ARCTIC_SHIFT__API_URL", "http://10.0.0.1")
        .output()
        .unwrap();
    finished(ran).expect_exit(2, "arctic_shift.api_url");
    // Without credentials, the message names the source that needs none.
    program
        .run("collect")
        .expect_exit(3, "--source arctic-shift");
}
