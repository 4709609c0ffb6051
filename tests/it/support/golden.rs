//! Compares pages with committed ones in tests/it/golden. With `UPDATE_GOLDEN=1`, writes these files instead.

use crate::support::engine::repository;

/// Asserts that a page equals a committed one. Style sheets and drawings are left out, and so is the text between each
/// pair of `hidden` strings, which depends on the machine or the time.
#[track_caller]
pub fn assert_golden(name: &str, page: &str, hidden: &[(&str, &str)]) {
    let mut page = page.to_owned();
    for (start, end) in [("<style>", "</style>"), ("<svg", "</svg>")]
        .iter()
        .chain(hidden)
    {
        let mut shown = String::new();
        let mut rest = page.as_str();
        while let Some((before, after)) = rest.split_once(start) {
            let (_, after) = after.split_once(end).expect("the end follows");
            shown += before;
            shown += "…";
            rest = after;
        }
        page = shown + rest;
    }
    let path = repository(&format!("tests/it/golden/{name}"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    for (shown, expected) in page.lines().zip(golden.lines()) {
        assert_eq!(shown, expected, "{name}");
    }
    assert_eq!(page, golden, "{name}");
}
