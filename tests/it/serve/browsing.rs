//! Tests the pages in a real browser, at both widths and in both colour schemes.

use super::pages::evil;
use super::{Served, labelled, posts};
use crate::support::browser::{Browser, Scheme, VIEWS};
use crate::support::program::Program;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "deep: browser widths"]
async fn every_page_fits_its_viewport_and_loads_nothing_external() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let program = labelled(Program::new(), &(posts(80) + evil().as_str()));
    let served = Served::start(&program);
    for (name, path) in [
        ("overview", "/"),
        ("posts", "/posts"),
        (
            "posts-filtered",
            "/posts?q=boss&outcome=gaming&sort=score&since=2023-01-01",
        ),
        ("post", "/posts/t3_k00003"),
        ("post-evil", "/posts/t3_e2"),
        ("post-long", "/posts/t3_e3"),
        ("post-script", "/posts/t3_e0"),
        ("missing", "/posts/t3_zz"),
        ("login", "/login"),
    ] {
        for (width, scheme) in VIEWS {
            browser.go(&served.url(path), width, scheme).await;
            let mut problems = browser.problems().await;
            if name == "missing" {
                problems.retain(|problem| !problem.contains("status of 404"));
            }
            assert!(problems.is_empty(), "{path} at {width}: {problems:#?}");
            browser
                .screenshot(&format!("serve-{name}-{width}-{}", scheme.as_str()))
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_can_search_filter_and_page() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let program = labelled(Program::new(), &posts(130));
    let served = Served::start(&program);
    browser.open(&served.url("/"), 1400, Scheme::Light).await;
    browser.click(".outcomes a").await;
    browser.until("location.pathname === '/posts'").await;
    browser.check().await;
    browser.click(".count a").await;
    browser.until("location.search === ''").await;
    assert_eq!(browser.text(".count strong").await, "130");
    assert_eq!(browser.count(".posts li").await, 50);
    browser.click("a[rel=next]").await;
    browser.until("location.search.includes('after=')").await;
    assert_eq!(browser.count(".posts li").await, 50);
    browser.click("a[rel=next]").await;
    browser
        .until("document.querySelectorAll('.posts li').length === 30")
        .await;
    assert_eq!(browser.count("a[rel=next]").await, 0);
    browser.click(".pages a").await;
    browser.until("!location.search.includes('after=')").await;

    browser.type_into("#q", "chicken").await;
    browser.press("\u{e007}").await;
    browser.until("location.search.includes('q=chicken')").await;
    browser.check().await;
    assert_eq!(browser.count(".posts li").await, 22);
    browser.click("summary").await;
    browser.type_into("input[name=subreddit]", "gaming").await;
    browser.click("button.first").await;
    browser.until("!document.querySelector('.posts li')").await;
    browser.check().await;

    browser
        .open(&served.url("/posts?q=chicken"), 380, Scheme::Dark)
        .await;
    browser.click(".posts .title").await;
    browser
        .until("location.pathname.startsWith('/posts/t3_')")
        .await;
    browser.check().await;
    assert!(browser.text("h1").await.contains("roast a chicken"));
    assert_eq!(browser.count(".scores tbody tr").await, 2);
}
