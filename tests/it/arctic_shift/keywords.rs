//! Tests that a topic's `match` selects the same posts from every source, and that its changes are recorded.

use topicmill_core::Keywords;

use super::*;
use crate::collect::child;
use crate::support::program::on_reddit;

const PIPELINE: &str = "[[topic]]\nlabel = \"vaccines\"\nsubreddits = [\"climate\"]\n\
    match = ['vaccin*', '\"long covid\"']\n[[topic]]\nlabel = \"storms\"\nsubreddits = [\"climate\"]\nmatch = ['storm']\n";

/// Returns 250 posts, and the rows `fullname topic` that should be stored.
fn posts() -> (Vec<Value>, Vec<String>) {
    let texts = [
        ("Vaccines!", "A text", Some("vaccines")),
        ("Help", "I have LONG\ncovid", Some("vaccines")),
        ("Unvaccinated", "long covids", None),
        ("The storm.", "A text", Some("storms")),
        ("Stormy", "", None),
    ];
    let each = (0..250).map(|i| (i, texts[usize::try_from(i).unwrap() % texts.len()]));
    let rows = each.clone().map(|(i, (title, text, _))| {
        row_with(
            &format!("p{i:03}"),
            60 * i,
            &json!({"title": title, "selftext": text}),
        )
    });
    let stored = each.filter_map(|(i, (.., topic))| Some(format!("t3_p{i:03} {}", topic?)));
    (rows.collect(), stored.collect())
}

/// Serves the posts as `r/climate`'s new listing to each of the two topics.
async fn reddit(rows: &[Value]) -> wiremock::MockServer {
    let server = crate::support::reddit::server().await;
    let newest: Vec<Value> = rows
        .iter()
        .rev()
        .map(|row| child(row["id"].as_str().unwrap(), row))
        .collect();
    let scene =
        scene::Scene::<wiremock::MockServer, topicmill_sources::reddit::Reddit>::with(server).await;
    for _ in 0..2 {
        scene.new_page(None, &newest[..100], Some("t3_1")).await;
        scene
            .new_page(Some("t3_1"), &newest[100..200], Some("t3_2"))
            .await;
        scene.new_page(Some("t3_2"), &newest[200..], None).await;
    }
    scene.server
}

#[tokio::test(flavor = "multi_thread")]
async fn every_source_gives_the_same_posts() {
    let (rows, expected) = posts();
    let archive = Archive::start(Bounds::Exclusive).await;
    archive.state.add_rows(rows.clone());
    let reddit = reddit(&rows).await;
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let mut table = csv::Writer::from_writer(Vec::new());
    let columns = ["id", "subreddit", "title", "selftext", "created_utc"];
    table.write_record(columns).unwrap();
    for row in &rows {
        let cell = |name: &&str| match &row[*name] {
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        table.write_record(columns.iter().map(cell)).unwrap();
    }
    let table = table.into_inner().unwrap();
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    let ids: Vec<String> = rows.iter().map(id).collect();
    // Each row names the topic that it matches, or one that it does not match.
    let named: Vec<Value> = rows
        .iter()
        .map(|row| {
            let name = format!("t3_{} ", id(row));
            let topic = expected.iter().find_map(|row| row.strip_prefix(&name));
            let mut row = row.clone();
            row["topic"] = json!(topic.unwrap_or("vaccines"));
            row
        })
        .collect();
    for (i, program) in Program::on_each_database().enumerate() {
        program.write("p.toml", PIPELINE);
        program.write("RS.zst", zstd::encode_all(lines.as_bytes(), 3).unwrap());
        program.write("posts.csv", &table);
        program.write("posts.json", json!(rows).to_string());
        program.write("named.json", json!(named).to_string());
        program.write("ids.txt", ids.join("\n"));
        for line in [
            "collect --source arctic-shift --limit 1000",
            "collect --source reddit --limit 1000 --listing new",
            "import --format dump RS.zst",
            "import posts.csv",
            "import posts.json",
            "import named.json",
            "import --format ids ids.txt --source arctic-shift",
        ] {
            // The fake Reddit serves each page once.
            if i > 0 && line.contains("reddit") {
                continue;
            }
            let mut command = program.command(&format!("{line} --pipeline p.toml"));
            let command = on_reddit(&mut command, &reddit.uri());
            let command = on_archive(command, &archive.server.uri());
            let ran = finished(command.output().unwrap());
            assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
            let stored = program.column("SELECT fullname || ' ' || topic FROM posts ORDER BY 1");
            assert_eq!(stored, expected, "{line}");
            program.execute("DELETE FROM things");
        }
        assert_eq!(program.count("topic_keywords"), 2);
    }
}

fn with_keywords(entries: &[&str], limit: u32) -> Topic {
    Topic {
        keywords: Keywords::parse(entries).unwrap(),
        ..climate(limit)
    }
}

/// Returns a scene with 400 posts, of which four are about floods, after a run with a limit of three floods.
async fn with_floods() -> Scene {
    let scene = Scene::new().await;
    let mut rows = minutes(0..400);
    for place in [20, 120, 220, 320] {
        rows[place]["title"] = json!("Floods");
    }
    scene.put(rows);
    let report = scene.collect_one(with_keywords(&["flood*"], 3)).await;
    let numbers = (report.outcome, report.pages, report.posts, report.unmatched);
    assert_eq!(numbers, (Outcome::Ok, 3, 3, 277));
    assert_eq!(scene.stored().await, ["t3_m120", "t3_m220", "t3_m320"]);
    // All rows were read, so the watermark is that of the newest one.
    assert_eq!(scene.watermark("climate").await, Some(60 * 399));
    scene
}

#[tokio::test]
async fn a_limit_counts_matching_posts_and_stored_ones_get_their_updates() {
    let scene = with_floods().await;
    // An edit reaches a post that no longer matches, and so does a deletion.
    let gone = json!({"was_deleted_later": true, "removal_type": "deleted"});
    scene.put([
        row_with("m320", 60 * 320, &json!({"title": "No water"})),
        row_with("m220", 60 * 220, &json!({"title": "Floods", "_meta": gone})),
        row_with("new", 60 * 400, &json!({"title": "Flood"})),
    ]);
    let options = ReadOptions {
        overlap: Duration::from_hours(48),
        ..READ_OPTIONS
    };
    let topics = [with_keywords(&["flood*"], 3)];
    let again = scene.collect_with(&topics, options).await.remove(0);
    assert_eq!(
        (again.outcome, again.stored.new, again.stored.purged),
        (Outcome::Ok, 1, 1)
    );
    assert_eq!(scene.stored().await, ["t3_m120", "t3_m320", "t3_new"]);
    let text = "SELECT title, selftext, topic FROM posts WHERE fullname = 't3_m320'";
    assert_eq!(scene.rows(text).await, ["No water A text climate"]);
}

#[tokio::test]
async fn keywords_that_nothing_matches_are_searched_up_to_the_page_cap() {
    let scene = with_floods().await;
    let rare = Topic {
        slug: "rare".to_owned(),
        ..with_keywords(&["hail"], 3)
    };
    let capped = ReadOptions {
        page_cap: 2,
        ..READ_OPTIONS
    };
    let report = scene.collect_with(&[rare], capped).await.remove(0);
    assert_eq!(
        (report.outcome, report.pages, report.stored.new),
        (Outcome::Ok, 2, 0)
    );
    // The next run continues from the newest post.
    assert_eq!(scene.watermark("rare").await, Some(60 * 399));
    // It sees two posts of the other topic, which stay there.
    assert_eq!(report.posts, 2);
    let topics =
        "SELECT DISTINCT p.topic, s.topic FROM posts p JOIN sightings s ON s.fullname = p.fullname";
    assert_eq!(scene.rows(topics).await, ["climate climate"]);
}

#[tokio::test]
async fn a_change_of_the_keywords_is_part_of_the_frame() {
    let scene = Scene::new().await;
    scene.put(minutes(0..3));
    let frames = "SELECT topic, keywords FROM topic_keywords ORDER BY since";
    for entries in [&["title"][..], &["title"], &["title", "m*"], &[], &[]] {
        scene.collect_one(with_keywords(entries, 3)).await;
        // A clock that is set back does not change their order.
        scene.clock.jump(chrono::TimeDelta::seconds(-9));
    }
    assert_eq!(
        scene.rows(frames).await,
        [
            "climate [\"title\"]",
            "climate [\"title\",\"m*\"]",
            "climate []"
        ]
    );
}
