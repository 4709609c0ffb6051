//! Tests that in-memory lists and the search index follow the database, and report their limits.

use super::{Served, labelled, posts};
use crate::support::postgres::databases;

fn total(served: &Served, words: &str) -> u64 {
    let page = served.json(&format!("/api/posts?q={words}"));
    page["total"].as_u64().unwrap()
}

#[test]
fn search_covers_the_newest_posts_that_have_text() {
    for database in databases() {
        let program = labelled(&database, &posts(20));
        let served = Served::with(&program, &["--search-posts", "10"]);
        served.until("/api/overview", |overview| overview["searched"] == 10);
        assert_eq!((total(&served, "10"), total(&served, "9")), (1, 0));
        let more = program.write("more.ndjson", posts(26));
        program.ok(&["import", &more]);
        served.until("/api/posts?q=25", |page| page["total"] == 1);
        // Posts older than the newest ten are no longer indexed.
        assert_eq!((total(&served, "16"), total(&served, "10")), (1, 0));
        served.until("/api/overview", |overview| overview["searched"] == 10);

        // Retention removes a text, and the text of an older post takes its place.
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(database.run(
            "UPDATE posts SET title = '', selftext = '', text_purged_at = created_at WHERE fullname = 't3_k00025'; \
             UPDATE runs SET finished_at = NULL WHERE id = 1",
        ));
        served.until("/api/posts?q=15", |page| page["total"] == 1);
        assert_eq!((total(&served, "25"), total(&served, "14")), (0, 0));
        served.until("/api/overview", |overview| overview["searched"] == 10);
    }
}

#[test]
fn search_ignores_placeholder_texts() {
    for database in databases() {
        let program = labelled(&database, &posts(6));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let removed = "UPDATE posts SET selftext = '[removed]' WHERE fullname = 't3_k00001'";
        runtime.block_on(database.run(removed));
        let served = Served::start(&program);
        served.searched(6);
        assert_eq!(total(&served, "removed"), 0);
        assert_eq!(total(&served, "roast"), 1);
    }
}
