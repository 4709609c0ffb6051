//! Tests that figures of the report, the pages, the data card and `status` equal figures computed from the rows and
//! name the posts that they refer to.

use serde_json::{Value, json};
use topicmill_review::calibrate::Proportion;
use topicmill_store::analysis::schema::relations;

use crate::serve::Served;
use crate::support::postgres::{TestDatabase, sqlite};
use crate::support::program::Program;

const LABELS: &str = "name = \"two\"\nbackground = \"reddit\"\n\
    [[topic]]\nslug = \"food\"\nlabel = \"food and cooking\"\n\
    [[topic]]\nslug = \"travel\"\nlabel = \"travel\"\n\
    [[topic]]\nslug = \"sport\"\nlabel = \"a sport that no post was collected for\"\n";

/// Topic, outcome and number of posts.
const POSTS: [(&str, &str, usize); 9] = [
    ("food", "food", 18),
    ("food", "travel", 1),
    ("food", "other", 1),
    ("travel", "travel", 15),
    ("travel", "food", 2),
    ("travel", "unsure", 3),
    ("science", "food", 14),
    ("science", "other", 26),
    ("", "travel", 10),
];

fn post(id: usize, topic: &str, title: &str, seconds: usize) -> Value {
    let mut post = json!({
        "id": format!("k{id:05}"), "subreddit": "trial", "title": format!("{title} {id}"), "selftext": "",
        "created_utc": 1_789_948_800 + seconds, "permalink": format!("/r/trial/comments/k{id:05}/"),
    });
    if !topic.is_empty() {
        post["topic"] = json!(topic);
    }
    post
}

fn lines(posts: impl IntoIterator<Item = Value>) -> String {
    posts.into_iter().map(|post| format!("{post}\n")).collect()
}

/// Imports the posts, labels them, and replaces each label with the outcome in its title.
async fn labelled(posts: &str) -> (Program, TestDatabase) {
    let database = sqlite();
    let program = Program::with_database(&database.url).with_default_model();
    let file = program.write("posts.ndjson", posts);
    let labels = program.write("two.toml", LABELS);
    program.ok(&["import", &file]);
    program.ok(&["classify", "--pipeline", &labels]);
    for (outcome, label, other, abstained, score, margin) in [
        ("food", "food", false, false, 0.8, 0.7),
        ("travel", "travel", false, false, 0.9, 0.85),
        ("other", "food", true, true, 0.07, 0.81),
        ("unsure", "travel", false, true, 0.3, 0.05),
    ] {
        let sql = format!(
            "UPDATE classifications SET label = '{label}', other = {other}, abstained = {abstained}, score = {score}, \
             margin = {margin} WHERE fullname IN (SELECT fullname FROM posts WHERE title LIKE '{outcome} %')"
        );
        database.run(&sql).await;
    }
    (program, database)
}

/// Returns the posts of [`POSTS`], three hours apart, so that they end in the middle of a day.
fn mixed() -> String {
    let outcomes = POSTS
        .iter()
        .flat_map(|(topic, outcome, posts)| std::iter::repeat_n((topic, outcome), *posts));
    let posts = outcomes
        .enumerate()
        // Interleaved in time.
        .map(|(id, (topic, outcome))| post(id, topic, outcome, id * 37 % 90 * 3 * 3_600));
    lines(posts)
}

/// Returns the number in the only cell of a result.
fn count(program: &Program, sql: &str) -> usize {
    let rows = program.json(&["sql", sql]);
    let cell = rows[0].as_object().unwrap().values().next().unwrap();
    usize::try_from(cell.as_u64().unwrap()).unwrap()
}

fn report(program: &Program) -> String {
    program.ok(&["report", "out.html"]);
    program.read("out.html")
}

#[track_caller]
fn has(page: &str, words: &str) {
    assert!(page.contains(words), "{words}: {page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn percentages_name_their_total_and_what_is_left_out() {
    let (program, database) = labelled(&mixed()).await;
    let late = lines((0..5).map(|n| post(500 + n, "food", "late", n)));
    let late = program.write("late.ndjson", late);
    program.ok(&["import", &late]);
    let page = report(&program);
    let posts = |condition: &str| {
        let sql = format!("SELECT COUNT(*) AS n FROM labeled_posts WHERE {condition}");
        count(&program, &sql)
    };
    let scored = posts("outcome IS NOT NULL");
    assert_eq!((scored, posts("TRUE")), (90, 95));
    has(&page, "Left out of all shares: 5 not labelled yet.");
    has(&page, "Shares are of 90 labelled posts.");

    // A third of the posts got no label.
    let none = posts("abstained");
    assert_eq!(none, 30);
    has(&page, "<dt>of 90 posts got no label</dt><dd>33 %</dd>");
    assert_eq!(
        (posts("outcome = 'other'"), posts("outcome = 'unsure'")),
        (27, 3)
    );
    has(&page, "30 % of 90 posts are “other”");
    has(&page, "3.3 % of 90 posts are “unsure”");

    // Only posts whose topic is a label can agree.
    let (agreed, all) = (
        posts("topic IN ('food', 'travel', 'sport') AND outcome = topic"),
        posts("topic IN ('food', 'travel', 'sport') AND outcome IS NOT NULL"),
    );
    assert_eq!((agreed, all), (33, 40));
    has(
        &page,
        "<dt>of 40 posts are labelled as their topic; 50 others have no topic among the labels</dt><dd>82 %</dd>",
    );
    has(
        &page,
        "They cannot agree for 40 of 80 posts, whose topics are not labels.",
    );
    has(&page, "10 posts without a topic are left out.");
    // Science has 35 %, but is left out, because it is not a label.
    assert_eq!(posts("topic = 'travel' AND outcome = 'food'"), 2);
    has(
        &page,
        "Largest disagreement among the 2 topics that are labels: travel, with 10 % of its posts (2 of 20) labelled \
         food and cooking.",
    );
    has(&page, "<td class=\"n\">35 % of 40</td>");

    // A headline about some of the posts would be misread as one about all.
    assert!(
        !page.contains("of posts are labelled as their topic"),
        "{page}"
    );
    // Both halves are shown with their post counts: there are 90 posts, three hours apart.
    let seconds = "CAST(strftime('%s', created_at) AS INTEGER)";
    let half = format!(
        "{seconds} < (SELECT (MIN({seconds}) + MAX({seconds})) / 2.0 FROM posts) AND outcome IS NOT NULL"
    );
    assert_eq!(posts(&half), 45);
    has(
        &page,
        "Compared: the earlier half with 45 labelled posts, the later half with 45",
    );

    // Named queries count no disagreement for a topic that is not a label, and show no score for `(none of these)`.
    let wrong = || {
        let rows = program.json(&["sql", "--named", "disagreements"]);
        let rows = rows.as_array().unwrap().iter();
        let mut posts: Vec<String> = rows.map(|row| row["fullname"].to_string()).collect();
        posts.sort_unstable();
        posts
    };
    let before = wrong();
    assert_eq!(
        before.len(),
        posts("topic IN ('food', 'travel', 'sport') AND label <> topic")
    );
    for row in program
        .json(&["sql", "--named", "topics"])
        .as_array()
        .unwrap()
    {
        let is_none = row["label"] == "(none of these)";
        assert_eq!(row["mean_score"].is_null(), is_none, "{row}");
    }

    // A file may name a topic by its label text, as in the `topic_agreement` view.
    for table in ["posts", "classifications"] {
        let words = format!(
            "UPDATE {table} SET topic = 'food and cooking' WHERE topic = 'food' AND substr(fullname, -1) < '5'"
        );
        database.run(&words).await;
    }
    assert!(posts("topic = 'food and cooking'") > 0 && posts("topic = 'food'") > 0);
    assert_eq!(wrong(), before);
    let agreed = count(&program, "SELECT SUM(agreed) FROM topic_agreement");
    assert_eq!(agreed, 33);
    let page = report(&program);
    has(
        &page,
        "<dt>of 40 posts are labelled as their topic; 50 others have no topic among the labels</dt><dd>82 %</dd>",
    );
    has(
        &page,
        "Largest disagreement among the 3 topics that are labels",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn other_has_its_own_score_and_not_the_best_labels() {
    let (program, _database) = labelled(&mixed()).await;
    let rows = program.json(&[
        "sql",
        "SELECT fullname, outcome, score, margin FROM labeled_posts WHERE abstained ORDER BY outcome, fullname",
    ]);
    let served = Served::start(&program);
    served.searched(90);
    let of = |outcome: &str| {
        let mut rows = rows.as_array().unwrap().iter();
        rows.find(|row| row["outcome"] == outcome).unwrap()
    };
    let number = |row: &Value, column: &str| row[column].as_f64().unwrap();
    let other = of("other");
    let (label, own) = (
        number(other, "score"),
        number(other, "score") + number(other, "margin"),
    );
    assert_eq!(
        (format!("{label:.2}"), format!("{own:.2}")),
        ("0.07".into(), "0.88".into())
    );
    for row in program
        .json(&["sql", "--named", "provenance"])
        .as_array()
        .unwrap()
    {
        let expected = match row["outcome"].as_str().unwrap() {
            "other" => 0.88,
            "unsure" => 0.3,
            "food" => 0.8,
            _ => 0.9,
        };
        assert!((number(row, "score") - expected).abs() < 1e-9, "{row}");
    }
    let page = served.page(&format!("/posts/{}", other["fullname"].as_str().unwrap()));
    has(&page, ", with a score of 0.88. The best label is ");
    has(&page, ", with 0.07.");
    has(&page, "fits better than all labels, with a score of 0.88,");
    let list = served.page("/posts?outcome=other");
    has(&list, "<span class=\"score\">0.88</span>");
    assert!(!list.contains("0.07"), "{list}");
    let unsure = served.page(&format!(
        "/posts/{}",
        of("unsure")["fullname"].as_str().unwrap()
    ));
    has(&unsure, "whose score of 0.30 is below the threshold of ");
    let list = served.page("/posts?outcome=unsure");
    has(&list, "<span class=\"score\">best label 0.30</span>");

    // The row of `other` has no mean score, because such a post has the score of its best label.
    let page = report(&program);
    let (_, row) = page.split_once("soft\">other</th>").unwrap();
    let (row, _) = row.split_once("</tr>").unwrap();
    assert!(row.ends_with("<td class=\"n mean\">–</td>"), "{row}");
    has(&page, "27 posts that are “other” are left out.");
    // A close call whose rival is the background: 0.30 minus the margin of 0.05.
    has(&page, "or other 0.25 · unsure");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_last_day_is_marked_and_not_drawn_as_a_drop() {
    // Ten days of 24 posts, and two hours of an eleventh.
    let posts = (0..242).map(|n| post(n, "food", ["food", "travel"][n % 2], n * 3_600));
    let (program, _database) = labelled(&lines(posts)).await;
    let days = "SELECT COUNT(*) AS n FROM (SELECT day FROM topic_daily GROUP BY day HAVING SUM(posts) = 24)";
    assert_eq!(count(&program, days), 10);
    let page = report(&program);
    has(
        &page,
        "The last column is paler because it is incomplete: the posts are from 21 Sep 2026, 00:00 UTC to 1 Oct 2026, \
            01:00 UTC.",
    );
    has(&page, "Lines leave out the last day, which is incomplete.");
    has(&page, "<td>1 Oct (incomplete)</td>");
    // One column in each of the two drawings.
    assert_eq!(
        page.matches("<rect class=\"mark pale\"").count(),
        2,
        "{page}"
    );
    has(&page, "<title>1 Oct (incomplete): 2 with a label</title>");
    // Sparklines show the ten complete days, the last of them with twelve posts per label.
    assert_eq!(
        page.matches("10 data points, the last with 12 posts")
            .count(),
        2
    );

    // Complete days are not marked, although the last post is a few minutes before midnight.
    let posts = (0..240).map(|n| post(n, "food", ["food", "travel"][n % 2], n * 3_600));
    let (program, _database) = labelled(&lines(posts)).await;
    let page = report(&program);
    assert!(
        !page.contains("incomplete") && !page.contains(" pale\""),
        "{page}"
    );
    assert_eq!(
        page.matches("10 data points, the last with 12 posts")
            .count(),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_matrix_on_a_phone_shows_its_column_names() {
    let (program, _database) = labelled(&mixed()).await;
    let page = report(&program);
    let (_, chart) = page
        .split_once("<section class=\"part\" id=\"topics-against-labels\"")
        .unwrap();
    let (_, narrow) = chart.split_once("<svg class=\"chart narrow\"").unwrap();
    let (narrow, _) = narrow.split_once("</svg>").unwrap();
    let outcomes = program.json(&[
        "sql",
        "SELECT outcome FROM labeled_posts WHERE outcome IS NOT NULL GROUP BY 1",
    ]);
    let outcomes = outcomes.as_array().unwrap();
    assert_eq!(outcomes.len(), 4);
    for outcome in outcomes {
        let name = match outcome["outcome"].as_str().unwrap() {
            "food" => "food and cooking",
            name => name,
        };
        has(narrow, &format!(">{name}</text>"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn measured_quality_has_the_same_wording_everywhere() {
    let (program, database) = labelled(&mixed()).await;
    let never = "never measured; answering 100 posts takes 10 minutes";
    has(&report(&program), never);
    has(&program.ok(&["status"]).stdout, never);
    program.ok(&["export", "never"]);
    has(&program.read("never/README.md"), never);

    // Ben's file is not a random sample; Ada's is. In hers, every fifth answer contradicts the assigned label.
    let answer = |id: usize, label: &str, who: &str| format!("k{id:05},{label},{who}\n");
    let outcomes = program.json(&[
        "sql",
        "SELECT fullname, outcome FROM labeled_posts ORDER BY fullname LIMIT 60",
    ]);
    let answers = outcomes.as_array().unwrap().iter().enumerate();
    let answers = answers.map(|(id, row)| match row["outcome"].as_str().unwrap() {
        _ if id % 5 == 0 => answer(id, "sport", "ada"),
        "other" | "unsure" => answer(id, "none", "ada"),
        label => answer(id, label, "ada"),
    });
    let selected = program.write(
        "ben.csv",
        format!("id,label,annotator\n{}", answer(70, "sport", "ben")),
    );
    program.ok(&["labels", "gold", "import", &selected]);
    has(
        &program
            .ok(&["status"])
            .stdout
            .replace("\n              ", " "),
        "0 % correct (0 to 79), from 1 answer about posts that were not drawn at random (no estimate for all posts)",
    );
    let random = program.write(
        "ada.csv",
        format!("id,label,annotator\n{}", answers.collect::<String>()),
    );
    program.ok(&["labels", "gold", "import", &random, "--random"]);

    // The expected figures, computed from the rows.
    let judged =
        "FROM gold g JOIN labeled_posts p ON p.fullname = g.fullname WHERE g.in_random_sample";
    let right = "COALESCE(g.label, '') = CASE WHEN p.abstained THEN '' ELSE p.outcome END";
    let number = |condition: &str| {
        count(
            &program,
            &format!("SELECT COUNT(*) AS n {judged} AND {condition}"),
        )
    };
    let outcome = Proportion::new(number(right), number("TRUE"));
    let precision = Proportion::new(
        number(&format!("{right} AND NOT p.abstained")),
        number("NOT p.abstained"),
    );
    assert_eq!((outcome.of, outcome.all), (48, 60));
    let percent = |share: f64| format!("{:.0}", share * 100.0);
    let sentence = format!(
        "{} % correct ({} to {}), from 60 random answers; {} % of {} assigned labels are correct",
        percent(outcome.share.unwrap()),
        percent(outcome.low),
        percent(outcome.high),
        percent(precision.share.unwrap()),
        precision.all
    );
    // Wilson, 48 of 60: (0.8 + 1.96²/120 ± 1.96 √(0.8·0.2/60 + 1.96²/14400)) / (1 + 1.96²/60).
    assert!(
        sentence.starts_with("80 % correct (68 to 88), from 60 "),
        "{sentence}"
    );
    has(&report(&program), &sentence);
    let status = program.ok(&["status"]).stdout;
    has(&status.replace("\n              ", " "), &sentence);
    let status = program.json(&["status"]);
    assert_eq!(status["quality"]["sentence"], sentence.as_str());
    assert_eq!(status["quality"]["sample"], "random");
    assert_eq!(status["quality"]["outcome"]["of"], 48);
    assert_eq!(status["quality"]["left_out"], 1, "Ben's answer");
    program.ok(&["export", "known"]);
    let card = program.read("known/README.md");
    has(&card, &sentence);
    assert!(
        !card.contains("never measured") && !card.contains("not checked"),
        "{card}"
    );
    let served = Served::start(&program);
    let page = served.page("/");
    has(&page, &sentence);
    has(&page, "<a href=\"/review\">Review posts</a>");
    // A further answer changes the page, although no run wrote anything.
    database
        .run("DELETE FROM gold WHERE fullname = 't3_k00000'")
        .await;
    has(&served.page("/"), "from 59 random answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn macro_f1_and_label_shares_need_enough_gold_posts() {
    let (program, _database) = labelled(&mixed()).await;
    let gold = |posts: usize| {
        let sql = format!(
            "SELECT fullname AS id, outcome AS label FROM labeled_posts WHERE NOT abstained ORDER BY fullname LIMIT \
                {posts}"
        );
        let rows = program.ok(&["sql", &sql, "--format", "csv"]).stdout;
        let file = program.write("gold.csv", rows);
        program.ok(&["labels", "evaluate", "--gold", &file]).stdout
    };
    let few = gold(8);
    assert!(!few.contains("\n macro-F1 "), "{few}");
    has(
        &few.replace('\n', " "),
        "a bootstrap for macro-F1, which needs 50 gold posts in scope.",
    );
    has(
        &few.replace('\n', " "),
        "The label shares need 30 random gold posts (8 so far).",
    );
    let many = gold(50);
    assert!(!many.contains("The label shares need"), "{many}");
    let line = many.lines().find(|line| line.starts_with(" macro-F1 "));
    let line = line.unwrap_or_else(|| panic!("{many}"));
    assert!(line.trim_end().ends_with(" 50"), "of 50 posts: {line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn facets_count_the_posts_that_their_links_list() {
    let (program, _database) = labelled(&mixed()).await;
    let served = Served::start(&program);
    served.searched(90);
    let facets = |path: &str| -> Vec<(String, String, bool)> {
        let page = served.page(path);
        let (_, facets) = page.split_once("<dl class=\"facets\">").unwrap();
        let (facets, _) = facets.split_once("</dl>").unwrap();
        let links = facets.split("<a href=\"").skip(1).map(|link| {
            let (href, rest) = link.split_once('"').unwrap();
            let (_, count) = rest.split_once("<span>").unwrap();
            let (count, _) = count.split_once("</span>").unwrap();
            let href = href.replace("&amp;", "&").replace("&#38;", "&");
            (href, count.to_owned(), rest.contains("aria-current"))
        });
        links.collect()
    };
    for path in [
        "/posts",
        "/posts?outcome=food",
        "/posts?topic=travel&min_score=0.2&sort=surest",
        "/posts?subreddit=trial&since=2026-09-01&until=2026-09-30",
        "/posts?q=food",
    ] {
        let facets = facets(path);
        assert!(facets.len() >= 4, "{path}: {facets:?}");
        for (href, count, is_chosen) in facets {
            let list = served.json(&href.replacen("/posts", "/api/posts", 1));
            if !is_chosen {
                assert_eq!(list["total"].to_string(), count, "{path}: {href}");
            }
        }
    }
    // The same counts from `sql`.
    let rows = program.json(&[
        "sql",
        "SELECT outcome, COUNT(*) AS posts FROM labeled_posts GROUP BY 1",
    ]);
    for row in rows.as_array().unwrap() {
        let href = format!("/posts?outcome={}", row["outcome"].as_str().unwrap());
        let one = (href, row["posts"].to_string(), false);
        assert!(facets("/posts").contains(&one), "{one:?}");
    }
    // The link of a chosen value removes its filter.
    let food = facets("/posts?outcome=food");
    assert!(
        food.contains(&("/posts".to_owned(), "34".to_owned(), true)),
        "{food:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sql_page_describes_every_view_table_and_column() {
    let (program, _database) = labelled(&mixed()).await;
    let served = Served::start(&program);
    let page = served.page("/sql");
    for relation in relations() {
        has(&page, &format!("<summary><code>{}</code>", relation.name));
        for column in &relation.columns {
            has(&page, &format!("<td><code>{}</code></td>", column.name));
        }
    }
    assert!(!page.contains("docs/") && !page.contains('`'), "{page}");
    let (_, link) = page
        .split_once("<a href=\"/sql?query=SELECT+*+FROM+labeled_posts")
        .unwrap();
    let (query, _) = link.split_once('"').unwrap();
    let rows = served.page(&format!("/sql?query=SELECT+*+FROM+labeled_posts{query}"));
    has(&rows, "<strong>50</strong> rows");
}
