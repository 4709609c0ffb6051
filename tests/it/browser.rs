//! Tests that the browser's page checks detect errors, since a check that detects nothing would always pass.

use crate::support::browser::{Browser, Scheme, VIEWS};
use topicmill_core::table;

fn page(body: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let text = format!(
        "<!doctype html><html lang=en><title>A page</title><meta name=color-scheme content='light dark'>{body}"
    );
    std::fs::write(&path, text).unwrap();
    let url = format!("file://{}", path.display());
    (folder, url)
}

#[tokio::test]
async fn the_browser_checks_detect_page_errors() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let (_folder, good) = page(
        "<svg width=90 viewBox='0 0 90 20'><text x=2 y=15>inside</text></svg>\
         <details><summary>more</summary>text</details><input>\
         <p id=typed></p><script>document.querySelector('input').oninput = e => \
         document.querySelector('#typed').textContent = e.target.value</script>",
    );
    for (width, scheme) in VIEWS {
        browser.open(&good, width, scheme).await;
        assert_eq!(browser.width().await, u64::from(width));
        let dark = "return matchMedia('(prefers-color-scheme: dark)').matches";
        assert_eq!(browser.eval(dark).await, scheme == Scheme::Dark);
    }
    browser.click("summary").await;
    assert_eq!(browser.count("details[open]").await, 1);
    browser.type_into("input", "a").await;
    browser.press("b").await;
    browser
        .until("document.querySelector('#typed').textContent == 'ab'")
        .await;
    assert_eq!(browser.text("#typed").await, "ab");
    let png = browser.screenshot("good").await;
    assert!(png.starts_with(b"\x89PNG"), "{} bytes", png.len());
    browser.check().await;

    for (wrong, fault) in table! {
        "<script>console.error('broken')</script>", "console message";
        "<script>nothing()</script>", "console message";
        "<img src='http://127.0.0.1:9/a.png' alt=''>", "a request left the page: http://127.0.0.1:9/a.png";
        "<link rel=stylesheet href='https://elsewhere.invalid/a.css'>",
            "a request left the page: https://elsewhere.invalid/";
        "<div style='width:600px'>wide</div>", "the page is 608 wide in a window of 380";
        "<svg width=50 viewBox='0 0 50 20'><text x=20 y=15>sticks out</text></svg>", "extends beyond its chart";
        "<svg width=90 viewBox='0 0 90 20'><text x=2 y=15>one</text><text x=4 y=15>two</text></svg>", "overlaps";
        "<svg width=90 viewBox='0 0 180 40'><text x=2 y=15>small</text></svg>", "pixels high";
    } {
        let (_folder, url) = page(wrong);
        browser.go(&url, 380, Scheme::Light).await;
        let faults = browser.problems().await.join("\n");
        assert!(faults.contains(fault), "{wrong}: {faults}");
    }
}
