//! Tests that imports keep the topic of each post, decode texts once, and do not delete posts that Reddit shows.

use serde_json::{Value, json};
use topicmill_core::{Post, PurgeReason, SourceKind, Stage, Timestamp};
use topicmill_sources::listing::parse_listing;
use topicmill_store::{Checked, Page};

use crate::support::builders;
use crate::support::postgres::databases;
use crate::support::program::Program;

/// Two topics. The slug of the first differs from its label and its subreddit.
const PIPELINE: &str = r#"
name = "mine"
mode = "single"
[[topic]]
slug = "games"
label = "gaming"
subreddits = ["gaming"]
[[topic]]
slug = "food"
label = "food and cooking"
subreddits = ["food"]
"#;

const TOPICS: &str = "SELECT topic FROM posts ORDER BY fullname";

/// Imports a table with `mine.toml`; returns the numbers of new and changed posts.
fn imported(program: &Program, table: &str, flags: &str) -> [u64; 2] {
    program.write("mine.toml", PIPELINE);
    program.write("posts.csv", table);
    let import = format!("import posts.csv --pipeline mine.toml {flags}");
    let counts = program.run_counts(&import);
    ["new", "changed"].map(|count| counts[count].as_u64().unwrap_or(0))
}

#[test]
fn the_topic_in_a_file_is_kept_unless_the_subreddit_decides() {
    let program = Program::new();
    let table = "id,title,subreddit,created_utc,topic,score\n\
         a1,A boss fight,x,1700000000,gaming,1\n\
         a2,A speedrun,x,1700000001,games,1\n\
         a3,Rye bread,x,1700000002,Food and Cooking,1\n\
         a4,A bond,x,1700000003,finance,1\n\
         a5,Soup,food,1700000004,,1\n";
    assert_eq!(imported(&program, table, ""), [5, 0]);
    let as_written = ["gaming", "games", "Food and Cooking", "finance", "food"];
    assert_eq!(program.column(TOPICS), as_written);
    let seen = "SELECT topic FROM sightings ORDER BY fullname";
    assert_eq!(program.column(seen), as_written);
    assert_eq!(imported(&program, table, ""), [0, 0]);

    program.ok("classify --pipeline mine.toml");
    // A topic may be named by its label.
    let counted = "SELECT topic, posts, labelled FROM topic_agreement ORDER BY topic";
    assert_eq!(
        program.rows(counted),
        json!([["food", 1, 1], ["games", 2, 2]])
    );
}

#[test]
fn a_topic_that_differs_from_the_subreddits_is_kept_with_a_warning_until_it_is_replaced() {
    let program = Program::new();
    let other = "id,title,subreddit,created_utc,topic\n\
        a6,Bread,food,1700000005,baking\na7,Tea,x,1700000006,baking\n";
    assert_eq!(imported(&program, other, ""), [2, 0]);
    assert_eq!(program.read_json("run.json")["counts"]["topics_differ"], 1);
    let kept = program.ok("import posts.csv --pipeline mine.toml");
    kept.expect_stderr("--topics-from-subreddits");
    assert_eq!(
        imported(&program, other, "--topics-from-subreddits"),
        [0, 1]
    );
    assert_eq!(program.column(TOPICS), ["food", "baking"]);
    program.ok("classify --pipeline mine.toml");
    let evaluate = "labels evaluate --gold topic";
    let ran = program.run(evaluate);
    ran.expect_exit(2, "--topics-from-subreddits");
    program.ok(&format!("{evaluate} --others-out-of-scope"));
}

#[test]
fn importing_again_with_another_pipeline_file_updates_topics() {
    let program = Program::new();
    let table = "id,title,subreddit,created_utc\na1,A boss fight,gaming,1700000000\na2,Soup,food,1700000001\n";
    program.write("former.toml", PIPELINE.replace("games", "play"));
    program.write("posts.csv", table);
    program.ok("import posts.csv --pipeline former.toml");
    program.write("mine.toml", PIPELINE);
    program.ok("classify --pipeline mine.toml");
    assert_eq!(program.column(TOPICS), ["play", "food"]);
    let ran = program.run("labels evaluate --gold topic");
    ran.expect_exit(2, "--pipeline FILE");
    ran.expect_stderr("--label-set");
    assert_eq!(imported(&program, table, ""), [0, 1]);
    assert_eq!(program.column(TOPICS), ["games", "food"]);
    program.ok("labels evaluate --gold topic");
}

/// Returns a post with every character that Reddit escapes, in every field.
fn escaped(id: &str) -> Value {
    json!({
        "id": id, "title": "Salt &amp; pepper &lt;3", "selftext": "I typed &amp;amp; &#39;once&#39;",
        "subreddit": "food", "created_utc": 1_700_000_000, "is_self": false, "link_flair_text": "Q&amp;A",
        "url": "https://a.example/?x=1&amp;y=2",
        "permalink": "/r/food/comments/x/salt/",
    })
}

const DECODED: &str = "Salt & pepper <3|I typed &amp; 'once'|https://a.example/?x=1&y=2|Q&A";

#[test]
fn every_format_is_imported_once_and_a_second_import_changes_nothing() {
    let (ndjson, listing) = (escaped("c1"), escaped("c2"));
    let listing =
        json!({"kind": "Listing", "data": {"children": [{"kind": "t3", "data": listing}]}});
    let mut crosspost = escaped("c4");
    crosspost["selftext"] = json!("");
    crosspost["crosspost_parent_list"] =
        json!([{"name": "t3_c1", "selftext": escaped("c1")["selftext"]}]);
    let field = |name: &str| escaped("c3")[name].as_str().unwrap().to_owned();
    let csv = format!(
        "id,title,selftext,subreddit,created_utc,is_self,url,link_flair_text\nc3,{},{},food,1700000000,false,{},{}\n",
        field("title"),
        field("selftext"),
        field("url"),
        field("link_flair_text"),
    );
    let program = Program::new();
    program.write("c.ndjson", format!("{ndjson}\n"));
    program.write("c.json", listing.to_string());
    program.write("c.csv", csv);
    program.write("RS", format!("{crosspost}\n"));
    for new in [1, 0] {
        for import in [
            "ndjson c.ndjson",
            "listing c.json",
            "csv c.csv",
            "dump --again RS",
        ] {
            let counts = program.run_counts(&format!("import --format {import}"));
            assert_eq!(
                (&counts["new"], &counts["changed"]),
                (&json!(new), &json!(0)),
                "{import}"
            );
        }
    }
    let texts = "SELECT title || '|' || selftext || '|' || url || '|' || flair FROM posts";
    assert_eq!(program.column(texts), [DECODED; 4]);
}

fn shown_by(source: SourceKind, fullname: &str, parent: Option<&str>) -> Post {
    let fields = json!({
        "name": fullname, "title": fullname, "selftext": "A text", "subreddit": "s", "created_utc": 1_700_000_000,
        "crosspost_parent": parent,
    });
    let listing =
        json!({"kind": "Listing", "data": {"children": [{"kind": "t3", "data": fields}]}});
    let page = parse_listing(listing.to_string().as_bytes(), source, None, |_| ()).unwrap();
    page.posts.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_file_that_names_a_purged_parent_does_not_delete_a_post_from_reddit() {
    use SourceKind::{ArcticShift, Import, Reddit};
    for database in databases() {
        let store = database.open().await;
        let now = Timestamp::from_epoch_secs(1_800_000_000).unwrap();
        let run = store.runs().begin_run(Stage::Import, "w", now).await;
        let run = run.unwrap();
        let save = async |source, posts: &[Post]| {
            let page = Page {
                source,
                ..builders::page(run, "t", posts, now)
            };
            store.posts().save_pages(&[page], None).await.unwrap()
        };
        let rows = async |sql: &str| json!(store.query(sql).await.unwrap().rows);
        // A file contained all three; later Reddit showed one of them, and a crosspost of it.
        let all = ["t3_a", "t3_b", "t3_c"].map(|name| shown_by(Import, name, None));
        save(Import, &all).await;
        let live = [
            shown_by(Reddit, "t3_a", None),
            shown_by(Reddit, "t3_x", Some("t3_a")),
        ];
        save(Reddit, &live).await;
        let gone = Checked {
            gone: vec![("t3_parent".parse().unwrap(), PurgeReason::Deleted)],
            ..Checked::default()
        };
        store.purging().purge(run, &gone, now).await.unwrap();
        for source in [Import, ArcticShift] {
            let late = ["t3_a", "t3_b"].map(|name| shown_by(source, name, Some("t3_parent")));
            let stored = save(source, &late).await;
            assert_eq!((stored.unchanged, stored.tombstoned), (1, 1));
            let left = rows("SELECT fullname, crosspost_parent FROM posts ORDER BY fullname").await;
            let expected = json!([["t3_a", null], ["t3_c", null], ["t3_x", "t3_a"]]);
            assert_eq!(left, expected);
            // `t3_a`, which the file calls a crosspost of a purged post, is due for a check.
            let due =
                rows("SELECT fullname FROM posts WHERE checked_at IS NULL ORDER BY fullname").await;
            assert_eq!(due, json!([["t3_a"], ["t3_c"]]));
        }
        // Reddit's own data takes precedence.
        let stored = save(Reddit, &[shown_by(Reddit, "t3_a", Some("t3_parent"))]).await;
        assert_eq!(stored.tombstoned, 1);
        assert_eq!(rows("SELECT fullname FROM posts").await, json!([["t3_c"]]));
    }
}
