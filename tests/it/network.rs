//! Tests network failures in the client and the collector: servers that are silent, endless or gone, clock jumps, and
//! redirects that would leak a secret.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};
use topicmill::collect::ReadOptions;
use topicmill_core::{Listing, Outcome};
use topicmill_http::{HttpError, Timeouts};
use topicmill_sources::reddit::RedditSettings;
use topicmill_sources::{Source as _, SourceError};
use wiremock::matchers::{method, path, query_param};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::collect::{Scene, child, climate, outcomes};
use crate::support::program::{Program, finished, on_reddit};
use crate::support::reddit::{
    client, client_with, mount_listing, page, read, requests, server, settings,
};
use crate::support::scene::READ_OPTIONS;
use crate::support::wait::until;
use crate::support::wire::{Act, Wire, head};

const LONG: Duration = Duration::from_mins(1);
/// A timeout that tests wait for in real time. A busy machine can still fetch a token within it.
const SHORT: Duration = Duration::from_secs(1);

fn with_short_timeouts(url: &str, read: Duration, total: Duration) -> RedditSettings {
    let mut settings = settings(url);
    settings.client.tries = 2;
    settings.client.timeouts = Timeouts {
        connect: LONG,
        read,
        total,
    };
    settings
}

#[tokio::test]
async fn a_response_that_stalls_after_its_headers_hits_the_read_timeout() {
    let silent = [Vec::new(), head("content-length: 10\r\n"), head("")];
    let asked = silent.map(|silent| async move {
        let wire = Wire::start(move |_, _| Act::Silence(silent.clone())).await;
        let (reddit, clock) = client_with(with_short_timeouts(&wire.url, SHORT, LONG));
        let error = read(&reddit).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Server);
        assert!(error.to_string().contains("timeouts"), "{error}");
        assert_eq!((wire.requests(), clock.sleeps().len()), (2, 1));
        let traffic = reddit.traffic();
        assert_eq!((traffic.no_answer, traffic.retries), (2, 1));
        assert_eq!(traffic.waits.backoff.times, 1);
    });
    futures_util::future::join_all(asked).await;
}

#[tokio::test]
async fn a_trickling_body_hits_the_total_timeout() {
    let wire = Wire::start(|_, _| Act::Drip(head(""))).await;
    let (reddit, _) = client_with(with_short_timeouts(&wire.url, LONG, SHORT));
    let error = read(&reddit).await.unwrap_err();
    assert!(error.to_string().contains("timeouts"), "{error}");
    assert_eq!(wire.requests(), 2);
}

#[tokio::test]
async fn an_oversized_body_is_abandoned() {
    for (announced, most) in [("", 64 << 20), ("content-length: 1073741824\r\n", 32 << 20)] {
        let wire = Wire::start(move |_, _| Act::Endless(head(announced))).await;
        let (reddit, _) = client(&wire.url);
        let error = read(&reddit).await.unwrap_err();
        assert!(
            matches!(error, SourceError::Http(HttpError::TooLarge { .. })),
            "{error}"
        );
        assert_eq!(wire.requests(), 1);
        assert!(wire.spaces_sent() < most, "{} of 1 GiB", wire.spaces_sent());
    }
}

#[tokio::test]
async fn a_redirect_sends_neither_token_nor_secret_to_another_host() {
    let elsewhere = MockServer::start().await;
    let redirect = |status: u16, path: &str| {
        let to = format!("{}{path}", elsewhere.uri());
        ResponseTemplate::new(status).insert_header("location", to)
    };
    for status in [301, 302, 307, 308] {
        let on_listing = server().await;
        mount_listing(&on_listing, redirect(status, "/r/climate/hot"), u64::MAX).await;
        let on_token = MockServer::start().await;
        Mock::given(method("POST"))
            .respond_with(redirect(status, "/api/v1/access_token"))
            .mount(&on_token)
            .await;
        for server in [&on_listing, &on_token] {
            let (reddit, _) = client(&server.uri());
            let error = read(&reddit).await.unwrap_err();
            assert_eq!(error.outcome(), Outcome::Server, "{error}");
        }
        assert_eq!(requests(&on_token, "POST").await, 1);
    }
    assert_eq!(elsewhere.received_requests().await.unwrap().len(), 0);
}

#[tokio::test]
async fn a_retry_after_date_works_despite_clock_jumps() {
    // The header names a time nine seconds after the clock's start, but the client's clock has jumped.
    for (jump, waited) in [
        (TimeDelta::zero(), Some(9)),
        (TimeDelta::days(400), Some(1)),
        (TimeDelta::days(-400), None),
    ] {
        let server = server().await;
        let busy = ResponseTemplate::new(429)
            .insert_header("retry-after", "Mon, 21 Sep 2026 14:13:29 GMT");
        mount_listing(&server, busy, 1).await;
        mount_listing(&server, page(&["a1"]), 1).await;
        let (reddit, clock) = client(&server.uri());
        clock.jump(jump);
        let answer = read(&reddit).await;
        if let Some(secs) = waited {
            answer.unwrap();
            assert_eq!(clock.sleeps(), [Duration::from_secs(secs)]);
        } else {
            // The wait is limited to the cap, which still exceeds the budget.
            let error = answer.unwrap_err().to_string();
            assert!(error.contains("must wait 3600 s"), "{error}");
            assert_eq!(clock.sleeps(), []);
        }
    }
}

#[tokio::test]
async fn a_clock_jump_neither_stalls_a_run_nor_removes_its_pacing() {
    let server = server().await;
    mount_listing(&server, page(&["a1"]), u64::MAX).await;
    let scene = Scene::with(server).await;
    let mut requests = 0;
    for jump in [
        TimeDelta::zero(),
        TimeDelta::days(1),
        TimeDelta::days(-2),
        TimeDelta::seconds(-30),
        TimeDelta::days(-400),
        TimeDelta::days(4_000),
    ] {
        scene.clock.jump(jump);
        let before = scene.clock.sleeps().len();
        for _ in 0..40 {
            let reports = scene.collect(&[climate(1)]).await;
            assert_eq!(outcomes(&reports), [Outcome::Ok], "after {jump}");
            requests += 1;
        }
        let waited: Duration = scene.clock.sleeps()[before..].iter().sum();
        // 40 requests at 100 a minute take 24 s, plus 30 s for the clock difference.
        assert!(waited <= LONG, "{waited:?} after {jump}");
    }
    let all: Duration = scene.clock.sleeps().iter().sum();
    let due = Duration::from_millis(600) * (requests + 1 - 100);
    assert!(all >= due, "{requests} requests in {all:?}, not {due:?}");
}

#[tokio::test]
async fn an_endless_listing_stops_at_the_page_limit() {
    for listing in [Listing::Hot, Listing::New] {
        let server = server().await;
        let minute = |n: u64| json!({"created_utc": 1_750_000_000 + 60 * n});
        Mock::given(path("/r/climate/new"))
            .respond_with(page_of(&child("known", &minute(0)), None))
            .up_to_n_times(1)
            .mount(&server)
            .await;
        // Every page links to another new post.
        Mock::given(method("GET"))
            .and(wiremock::matchers::path_regex("^/r/"))
            .respond_with(move |request: &Request| {
                let after = request.url.query_pairs().find(|(name, _)| name == "after");
                let number = after.and_then(|(_, after)| after[4..].parse::<u64>().ok());
                let number = number.map_or(1, |number| number + 1);
                let post = child(&format!("n{number}"), &minute(10_000 - number));
                page_of(&post, Some(&format!("t3_n{number}")))
            })
            .mount(&server)
            .await;
        let scene = Scene::with(server).await;
        let mut endless = climate(1_000);
        endless.listing = listing;
        if listing == Listing::New {
            scene.collect_one(endless.clone()).await;
        }
        let options = ReadOptions {
            page_cap: 7,
            ..READ_OPTIONS
        };
        let report = scene.collect_with(&[endless], options).await.remove(0);
        assert_eq!(
            (report.outcome, report.pages, report.posts),
            (Outcome::Ok, 7, 7)
        );
        // For new posts, the unread remainder is recorded as a gap.
        let gaps = scene.store().posts().gaps().await.unwrap();
        assert_eq!(gaps.len(), usize::from(listing == Listing::New));
    }
}

fn page_of(post: &Value, after: Option<&str>) -> ResponseTemplate {
    let listing = json!({"kind": "Listing", "data": {"after": after, "children": [post]}});
    ResponseTemplate::new(200).set_body_json(listing)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_collect_keeps_its_pages_and_the_next_run_fetches_the_rest() {
    for program in Program::on_each_database() {
        let server = server().await;
        let second = || Mock::given(path("/r/climate/hot")).and(query_param("after", "t3_a"));
        let never = ResponseTemplate::new(200).set_delay(Duration::from_mins(10));
        let never = second().respond_with(never).up_to_n_times(1);
        never.mount(&server).await;
        let last = page_of(&child("b", &json!({})), None);
        second().respond_with(last).mount(&server).await;
        let first = page_of(&child("a", &json!({})), Some("t3_a"));
        let hot = Mock::given(path("/r/climate/hot"));
        hot.respond_with(first).mount(&server).await;

        let mut command = program.command("collect --topic climate");
        let mut running = on_reddit(&mut command, &server.uri())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // A token, the first page, and the second, which is requested once the first is stored.
        until("the second page is requested", async || {
            assert_eq!(running.try_wait().unwrap(), None);
            server.received_requests().await.unwrap().len() >= 3
        })
        .await;
        running.kill().unwrap();
        running.wait().unwrap();
        let names = "SELECT fullname FROM posts ORDER BY fullname";
        assert_eq!(program.column(names), ["t3_a"]);

        let ran = finished(command.output().unwrap());
        ran.expect_code(0);
        assert_eq!(program.column(names), ["t3_a", "t3_b"]);
        assert_eq!(
            program.count("watermarks WHERE after_cursor IS NOT NULL"),
            0
        );
    }
}
