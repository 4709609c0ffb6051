//! Tests batches of posts: any size, every type of value, concurrent writers, conflicts and deadlocks.

use super::*;
use crate::support::wait::{sessions, until};

#[tokio::test]
async fn a_post_on_two_pages_of_a_batch_is_recorded_for_both_topics() {
    for database in databases() {
        let store = database.open().await;
        let run = begin(&store).await;
        let from_file = |id: &str, title: &str, score| Post {
            source: SourceKind::Import,
            score,
            ..post(id, title, "")
        };
        let purged = Checked {
            gone: vec![("t3_z".parse().unwrap(), PurgeReason::Requested)],
            ..Checked::default()
        };
        store.purging().purge(run, &purged, at(0)).await.unwrap();
        let food = [
            from_file("b", "B", Some(5)),
            from_file("a", "A", Some(5)),
            from_file("z", "Z", None),
        ];
        let music = [
            from_file("a", "A before", Some(1)),
            from_file("a", "A later", None),
            from_file("z", "Z", None),
        ];
        let pages = [
            of_file(run, "food", &food, 1),
            of_file(run, "music", &music, 1),
        ];
        let stored = store.posts().save_pages(&pages, None).await.unwrap();
        let numbers = (
            stored.new,
            stored.changed,
            stored.unchanged,
            stored.tombstoned,
        );
        assert_eq!(numbers, (2, 1, 0, 2), "each page counts its posts");
        let output = "SELECT fullname, title, reddit_score FROM posts ORDER BY 1";
        let expected = json!([["t3_a", "A later", 5], ["t3_b", "B", 5]]);
        assert_eq!(rows(&store, output).await, expected);
        let seen = "SELECT topic, fullname, reddit_score FROM sightings ORDER BY 1, 2";
        let expected = json!([
            ["food", "t3_a", 5],
            ["food", "t3_b", 5],
            ["music", "t3_a", null]
        ]);
        assert_eq!(rows(&store, seen).await, expected);
    }
}

/// Returns an imported post. Even numbers have some of the optional fields, and odd numbers have the others. Every
/// third post was removed, so it has no text.
fn odd(i: usize) -> Post {
    let some = i.is_multiple_of(2);
    let gone = i.is_multiple_of(3);
    let number = i64::try_from(i).unwrap();
    let title = (!gone).then(|| format!("Title {i} naïve"));
    let body = "body\n".repeat(if gone { 0 } else { i % 5 });
    Post {
        url: some.then(|| format!("https://a.example/{i}")),
        permalink: (!some).then(|| format!("/r/gaming/{i}")),
        author: some.then(|| format!("author {i}")),
        score: (!some).then_some(-number),
        upvote_ratio: some.then_some(0.25),
        num_comments: some.then_some(number),
        flair: (!some).then(|| "it's a \"flair\"".into()),
        over_18: some,
        is_self: !some,
        removal: gone.then_some(PurgeReason::Removed),
        created_at: at(number),
        source: SourceKind::Import,
        ..post(&format!("x{i:05}"), &title.unwrap_or_default(), &body)
    }
}

#[tokio::test]
async fn a_batch_of_any_size_round_trips() {
    let sql = "SELECT p.fullname, title, selftext, url, permalink, author, p.reddit_score, upvote_ratio, num_comments, \
        flair, CAST(over_18 AS INTEGER), CAST(is_self AS INTEGER), source, \
        CASE WHEN p.created_at = collected_at THEN 1 ELSE 0 END, CASE WHEN p.removed_at = updated_at THEN 1 ELSE 0 \
        END, checked_at, s.reddit_score FROM posts p JOIN sightings s ON s.fullname = p.fullname ORDER BY 1";
    // The store splits each of these sizes into statements of different sizes.
    for size in [1, 9, 63, 585, 1_177] {
        for database in databases() {
            let store = database.open().await;
            let run = begin(&store).await;
            let posts: Vec<Post> = (0..size).map(odd).rev().collect();
            let pages = [of_file(run, "gaming", &posts, 60)];
            let stored = store.posts().save_pages(&pages, None).await.unwrap();
            assert_eq!((stored.new, stored.unchanged), (size as u64, 0));
            let again = store.posts().save_pages(&pages, None).await.unwrap();
            assert_eq!(
                (again.new, again.changed, again.unchanged),
                (0, 0, size as u64)
            );
            let expected: Vec<_> = (0..size)
                .map(|i| {
                    let p = odd(i);
                    json!([
                        p.fullname.as_str(),
                        p.title,
                        p.selftext,
                        p.url,
                        p.permalink,
                        p.author,
                        p.score,
                        p.upvote_ratio,
                        p.num_comments,
                        p.flair,
                        i32::from(p.over_18),
                        i32::from(p.is_self),
                        "import",
                        i32::from(i == 60),
                        i32::from(p.removal.is_some()),
                        null,
                        p.score
                    ])
                })
                .collect();
            assert_eq!(rows(&store, sql).await, json!(expected));
        }
    }
}

/// Strings that could end a row or a value, and the extreme values of columns.
#[tokio::test]
async fn values_of_every_type_round_trip_in_a_large_batch() {
    let long = "é".repeat(2_000_000);
    let texts = [
        "",
        "\\N",
        "\\.",
        "a\tb\nc\r\nd\\e\u{1}\u{7f}",
        "\u{fffd}\u{feff}\u{10ffff}",
        long.as_str(),
    ];
    let sql = "SELECT selftext, flair, reddit_score, upvote_ratio, created_at FROM posts \
                WHERE fullname < 't3_x00012' ORDER BY fullname";
    for database in databases() {
        let store = database.open().await;
        let run = begin(&store).await;
        let posts: Vec<Post> = (0..400)
            .map(|i| Post {
                selftext: texts[if i < 12 { i % 6 } else { i % 5 }].into(),
                flair: Some(texts[i % 5].into()),
                score: Some([i64::MIN, i64::MAX][i % 2]),
                upvote_ratio: Some([f64::MIN_POSITIVE, -0.1][i % 2]),
                created_at: Timestamp::from_epoch_secs([1, 253_402_300_799][i % 2]).unwrap(),
                removal: None,
                ..odd(i)
            })
            .collect();
        // The posts are saved in one batch. Saving some of them again, one by one, changes nothing.
        let stored = store
            .posts()
            .save_pages(&[of_file(run, "gaming", &posts, 60)], None)
            .await
            .unwrap();
        assert_eq!(stored.new, 400);
        let kept = rows(&store, sql).await;
        assert!(kept[5][0] == json!(long) && kept[3][0] == json!(texts[3]));
        for post in &posts[..12] {
            let page = of_file(run, "gaming", std::slice::from_ref(post), 60);
            let again = store.posts().save_pages(&[page], None).await.unwrap();
            assert_eq!((again.unchanged, again.edited), (1, 0), "{}", post.fullname);
        }
        assert!(rows(&store, sql).await == kept);
    }
}

/// Two imports of the same file: each post is new for one of them, and seen by both.
#[tokio::test(flavor = "multi_thread")]
async fn a_post_inserted_by_two_writers_counts_as_new_once() {
    for database in databases() {
        let store = database.open().await;
        let writers = [0, 1].map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let run = begin(&store).await;
                let mut stored = Upserted::default();
                for block in 0..6 {
                    let posts: Vec<Post> = (block * 300..(block + 1) * 300).map(odd).collect();
                    let page = of_file(run, "gaming", &posts, 60);
                    let one = store.posts().save_pages(&[page], None).await.unwrap();
                    stored.new += one.new;
                    stored.unchanged += one.unchanged;
                }
                stored
            })
        });
        let (mut new, mut unchanged) = (0, 0);
        for writer in writers {
            let stored = writer.await.unwrap();
            new += stored.new;
            unchanged += stored.unchanged;
        }
        assert_eq!((new, unchanged), (1_800, 1_800));
        let count = rows(&store, "SELECT COUNT(*) FROM sightings").await;
        assert_eq!(count, json!([[1_800]]));
    }
}

#[tokio::test]
async fn a_run_counts_once_in_a_posts_sighting_of_a_day() {
    const SEEN: &str =
        "SELECT day, times_seen, run_id, best_rank, reddit_score FROM sightings ORDER BY day";
    for database in databases() {
        let store = database.open().await;
        let runs = store.runs();
        let first = runs.begin_run(Stage::Collect, "w", at(0)).await.unwrap();
        let second = runs.begin_run(Stage::Collect, "w", at(0)).await.unwrap();
        let seen = async |run, rank, score, now| {
            let post = Post {
                score,
                ..post("a", "A", "")
            };
            let mut page = of_file(run, "food", &[post], now);
            page.posts[0].rank = rank;
            store.posts().save_pages(&[page], None).await.unwrap();
            rows(&store, SEEN).await
        };
        let once = json!([["2025-06-15", 1, 1, 5, 7]]);
        for _ in 0..2 {
            assert_eq!(seen(first, Some(5), Some(7), 60).await, once);
        }
        let best_and_last = json!([["2025-06-15", 2, 2, 3, 9]]);
        assert_eq!(seen(second, Some(3), Some(8), 120).await[0][1], 2);
        // A page of an earlier run that is stored again is not counted.
        assert_eq!(seen(first, Some(5), Some(9), 180).await, best_and_last);
        // A file without ranks and scores erases none.
        assert_eq!(seen(second, None, None, 31_999).await, best_and_last);
        assert_eq!(
            seen(second, Some(6), Some(1), 32_000).await,
            json!([["2025-06-15", 2, 2, 3, 9], ["2025-06-16", 1, 2, 6, 1]])
        );
    }
}

/// Makes the first `times` batches fail at their end with an error of this class.
async fn conflicts(url: &str, class: &str, times: u32) -> sqlx::PgConnection {
    use sqlx::Connection;
    let sql = format!(
        "CREATE SEQUENCE tries; \
         CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'met' USING ERRCODE = '{class}'; END IF; \
           RETURN NEW; END $$; \
         CREATE TRIGGER meet BEFORE INSERT ON imports FOR EACH ROW EXECUTE FUNCTION meet()"
    );
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    let sql = sqlx::AssertSqlSafe(sql);
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    connection
}

#[tokio::test]
async fn a_batch_is_retried_after_a_conflict_a_limited_number_of_times() {
    let Some(database) = crate::support::postgres::postgres() else {
        return;
    };
    let store = database.open().await;
    let run = begin(&store).await;
    let posts = [post("a", "A", ""), post("b", "B", "")];
    let pages = [of_file(run, "food", &posts, 1)];
    let state = place(run, 1_000, 1);
    for (class, times, tried) in [
        ("40P01", 4, 5),
        ("40001", 2, 3),
        ("40P01", 9, 5),
        ("P0001", 9, 1),
    ] {
        let mut connection = conflicts(&database.url, class, times).await;
        let stored = store.posts().save_pages(&pages, Some(&state)).await;
        assert_eq!(
            stored.is_ok(),
            tried == times + 1,
            "{class} {times}: {stored:?}"
        );
        let tries: i64 = sqlx::query_scalar("SELECT last_value FROM tries")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(tries, i64::from(tried), "{class}");
        let count = rows(&store, "SELECT COUNT(*) FROM sightings").await;
        assert_eq!(count, json!([[if stored.is_ok() { 2 } else { 0 }]]));
        let undo = "DROP TRIGGER meet ON imports; DROP FUNCTION meet; DROP SEQUENCE tries; \
                    DELETE FROM things; DELETE FROM imports";
        sqlx::raw_sql(undo).execute(&mut connection).await.unwrap();
    }
}

/// Returns the number of deadlocks. PostgreSQL counts a connection's deadlocks once the connection is closed.
async fn deadlocks(url: &str) -> i64 {
    use sqlx::Connection;
    let closed = async || sessions(url, "application_name = 'topicmill'").await == 0;
    until("the connections are closed", closed).await;
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

/// Each batch begins with the last topic of the other batch.
#[tokio::test(flavor = "multi_thread")]
async fn batches_of_several_topics_never_deadlock() {
    let Some(database) = crate::support::postgres::postgres() else {
        return;
    };
    let store = database.open().await;
    let ids = |of: char| -> Vec<Post> {
        (0..400)
            .map(|i| post(&format!("{of}{i:04}"), "A title", ""))
            .collect()
    };
    let (food, music) = (ids('a'), ids('b'));
    let writers = [false, true].map(|turned| {
        let (store, food, music) = (store.clone(), food.clone(), music.clone());
        tokio::spawn(async move {
            let run = begin(&store).await;
            for n in 0..12 {
                let mut pages = [
                    of_file(run, "food", &food, n),
                    of_file(run, "music", &music, n),
                ];
                if turned {
                    pages.reverse();
                }
                store.posts().save_pages(&pages, None).await.unwrap();
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    store.close().await.unwrap();
    assert_eq!(deadlocks(&database.url).await, 0);
}
