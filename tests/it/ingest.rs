//! Tests that imports keep the topic of each post, decode texts once, and do not delete posts that Reddit shows.

use serde_json::{Value, json};
use topicmill_core::{AuthorPolicy, Post, PurgeReason, SourceKind, Stage, Timestamp};
use topicmill_sources::listing::parse_listing;
use topicmill_store::{Checked, Page};

use crate::support::postgres::databases;
use crate::support::program::{Program, RunOutput};

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

/// Returns the rows of a query as CSV without the header.
fn sql(program: &Program, query: &str) -> Vec<String> {
    let ran = program.ok(&["sql", query, "--format", "csv"]);
    ran.stdout.lines().skip(1).map(str::to_owned).collect()
}

fn imported(program: &Program, args: &[&str]) -> RunOutput {
    program.ok(&[&["import"], args].concat())
}

#[test]
fn the_topic_in_a_file_is_kept_unless_it_is_mapped() {
    for database in databases() {
        let program = Program::with_database(&database.url);
        let pipeline = program.write("mine.toml", PIPELINE);
        let table = program.write(
            "posts.csv",
            "id,title,subreddit,created_utc,topic,score\n\
             a1,A boss fight,x,1700000000,gaming,1\n\
             a2,A speedrun,x,1700000001,games,1\n\
             a3,Rye bread,x,1700000002,Food and Cooking,1\n\
             a4,A bond,x,1700000003,finance,1\n\
             a5,Soup,food,1700000004,,1\n",
        );
        let args = ["--format", "csv", &table, "--pipeline", &pipeline];
        imported(&program, &args).expect_stderr_all(&["new=5", "changed=0"]);
        let topics = "SELECT fullname, topic FROM posts ORDER BY fullname";
        let as_written = [
            "t3_a1,gaming",
            "t3_a2,games",
            "t3_a3,Food and Cooking",
            "t3_a4,finance",
            "t3_a5,food",
        ];
        assert_eq!(sql(&program, topics), as_written, "{}", database.url);
        let seen = "SELECT fullname, topic FROM sightings ORDER BY fullname";
        assert_eq!(sql(&program, seen), as_written);
        // A second import changes nothing.
        let ran = imported(&program, &args);
        ran.expect_stderr_all(&["new=0", "changed=0"]);
        assert!(!ran.stderr.contains("topics_mapped"), "{}", ran.stderr);

        program.ok(&["classify", "--pipeline", &pipeline]);
        let counted = "SELECT topic, posts, labelled FROM topic_agreement ORDER BY topic";
        assert_eq!(
            sql(&program, counted),
            ["food,1,1", "games,2,2"],
            "{}",
            database.url
        );

        let ran = imported(&program, &[&args[..], &["--map-topics"]].concat());
        ran.expect_stderr_all(&["new=0", "changed=1", "topics_mapped=1"]);
        assert!(!ran.stderr.contains("edited"), "{}", ran.stderr);
        assert_eq!(sql(&program, topics)[..2], ["t3_a1,games", "t3_a2,games"]);

        // The file's topic is kept although the pipeline reads the subreddit for another topic, and a warning is
        // logged.
        let other = program.write(
            "other.csv",
            "id,title,subreddit,created_utc,topic\na6,Bread,food,1700000005,baking\na7,Tea,x,1700000006,baking\n",
        );
        let args = ["--format", "csv", &other, "--pipeline", &pipeline];
        imported(&program, &args).expect_stderr_all(&[
            "posts=1",
            "--topics-from-subreddits uses the pipeline's topic",
        ]);
        let ran = imported(
            &program,
            &[&args[..], &["--topics-from-subreddits"]].concat(),
        );
        assert!(
            !ran.stderr.contains("uses the pipeline's topic"),
            "{}",
            ran.stderr
        );
        assert_eq!(sql(&program, topics)[5..], ["t3_a6,food", "t3_a7,baking"]);
        program.ok(&["classify", "--pipeline", &pipeline]);
        let judge = ["labels", "evaluate", "--gold", "topic"];
        program.run(&judge).expect_exit(
            2,
            "with --topics-from-subreddits if it has a `topic` column",
        );
        let ran = program.ok(&[&judge[..], &["--others-out-of-scope"]].concat());
        assert!(
            ran.stdout
                .contains("are the topics that posts were collected for"),
            "{}",
            ran.stdout
        );
    }
}

#[test]
fn importing_again_with_another_pipeline_file_updates_topics() {
    for database in databases() {
        let program = Program::with_database(&database.url);
        let former = program.write("former.toml", PIPELINE.replace("games", "play"));
        let pipeline = program.write("mine.toml", PIPELINE);
        let table = program.write(
            "posts.csv",
            "id,title,subreddit,created_utc\na1,A boss fight,gaming,1700000000\na2,Soup,food,1700000001\n",
        );
        let import = ["--format", "csv", &table, "--pipeline"];
        imported(&program, &[&import[..], &[former.as_str()]].concat());
        program.ok(&["classify", "--pipeline", &pipeline]);
        let topics = "SELECT topic FROM posts ORDER BY fullname";
        assert_eq!(sql(&program, topics), ["play", "food"]);
        let judge = ["labels", "evaluate", "--gold", "topic"];
        let ran = program.run(&judge);
        ran.expect_exit(2, "import the file again with --pipeline FILE");
        ran.expect_stderr("name a different label set with --label-set");
        let ran = imported(&program, &[&import[..], &[pipeline.as_str()]].concat());
        ran.expect_stderr("changed=1");
        assert_eq!(sql(&program, topics), ["games", "food"]);
        program.ok(&judge);
    }
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
    for database in databases() {
        let program = Program::with_database(&database.url);
        let files = [
            ("ndjson", program.write("c.ndjson", format!("{ndjson}\n"))),
            ("listing", program.write("c.json", listing.to_string())),
            ("csv", program.write("c.csv", &csv)),
            ("dump", program.write("RS", format!("{crosspost}\n"))),
        ];
        for round in 0..2 {
            for (format, file) in &files {
                let ran = imported(&program, &["--format", format, file]);
                let again = ran.stderr.contains("imported on");
                assert!(
                    again || ran.stderr.contains(&format!("new={}", 1 - round)),
                    "{}",
                    ran.stderr
                );
                assert!(
                    again || ran.stderr.contains("changed=0"),
                    "{format}: {}",
                    ran.stderr
                );
            }
        }
        let texts = "SELECT title || '|' || selftext || '|' || url || '|' || flair FROM posts";
        assert_eq!(sql(&program, texts), [DECODED; 4], "{}", database.url);
    }
}

fn shown_by(source: SourceKind, fullname: &str, parent: Option<&str>) -> Post {
    let fields = json!({
        "name": fullname, "title": fullname, "selftext": "A text", "subreddit": "s", "created_utc": 1_700_000_000,
        "crosspost_parent": parent,
    });
    let listing =
        json!({"kind": "Listing", "data": {"children": [{"kind": "t3", "data": fields}]}});
    let page = parse_listing(listing.to_string().as_bytes(), source).unwrap();
    page.posts.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_file_that_names_a_purged_parent_does_not_delete_a_post_from_reddit() {
    use SourceKind::{ArcticShift, Import, Reddit};
    for database in databases() {
        let store = database.open().await;
        let now = Timestamp::from_epoch_secs(1_800_000_000).unwrap();
        let run = store
            .runs()
            .begin_run(Stage::Import, "w", now)
            .await
            .unwrap();
        let save = async |source, posts: &[Post]| {
            let page = Page {
                run,
                source,
                topic: Some("t"),
                subreddit: "",
                listing: None,
                after: None,
                newest: None,
                posts: AuthorPolicy::Stored.prepare(posts.to_vec()),
                now,
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
            assert_eq!(
                (stored.unchanged, stored.tombstoned),
                (1, 1),
                "{}",
                database.url
            );
            let left = rows("SELECT fullname, crosspost_parent FROM posts ORDER BY fullname").await;
            let expected = json!([["t3_a", null], ["t3_c", null], ["t3_x", "t3_a"]]);
            assert_eq!(left, expected, "{}", database.url);
            // `t3_a`, which the file calls a crosspost of a purged post, is due for a check.
            let due =
                rows("SELECT fullname FROM posts WHERE checked_at IS NULL ORDER BY fullname").await;
            assert_eq!(due, json!([["t3_a"], ["t3_c"]]));
        }
        // Reddit's own data takes precedence.
        let stored = save(Reddit, &[shown_by(Reddit, "t3_a", Some("t3_parent"))]).await;
        assert_eq!(stored.tombstoned, 1);
        assert_eq!(
            rows("SELECT fullname FROM posts").await,
            json!([["t3_c"]]),
            "{}",
            database.url
        );
    }
}
