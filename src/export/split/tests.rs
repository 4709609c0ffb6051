//! Tests the shares, the groups of near-duplicates, and the stability of parts.

use super::sketch::word_hash;
use super::*;

#[test]
fn two_or_three_shares_must_add_up_to_100() {
    let parts = |text: &str| {
        text.parse::<Shares>()
            .map(|shares| shares.parts().collect::<Vec<_>>())
    };
    assert_eq!(parts("80/20").unwrap(), [("train", 80), ("test", 20)]);
    assert_eq!(
        parts("80/10/10").unwrap(),
        [("train", 80), ("validation", 10), ("test", 10)]
    );
    for text in [
        "",
        "100",
        "80/10",
        "80/10/20",
        "70/10/10/10",
        "80/20/0",
        "-80/180",
        "a/b",
        "80,20",
        "4294967295/1",
    ] {
        assert!(parts(text).unwrap_err().contains("80/10/10"), "{text}");
    }
}

fn splitter(posts: &[(String, i64, &str)]) -> Splitter {
    let mut splitter = Splitter::new();
    for (i, (text, time, outcome)) in posts.iter().enumerate() {
        // Multiplication distributes the hashes evenly.
        let hash = word_hash(text).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if i.is_multiple_of(BLOCK) {
            splitter.sketches.push(Vec::new());
        }
        splitter
            .sketches
            .last_mut()
            .unwrap()
            .push(sketch(text, "", hash));
        splitter.hashes.push(hash);
        splitter.times.push(*time);
        let next = u16::try_from(splitter.names.len()).unwrap();
        let outcome = *splitter.names.entry((*outcome).to_owned()).or_insert(next);
        splitter.outcomes.push(outcome);
    }
    splitter
}

fn split(shares: &str, by: SplitBy) -> Split {
    Split::Shares {
        shares: shares.parse().unwrap(),
        by,
    }
}

#[test]
fn near_duplicates_stay_together_and_other_texts_do_not() {
    let story = "we walked along the river until the bridge was in sight and then the rain began to fall on all of \
                 us";
    let posts: Vec<(String, i64, &str)> = vec![
        (story.to_owned(), 5, "a"),
        (story.replace("rain", "snow"), 3, "a"),
        (story.to_uppercase(), 4, "b"),
        (
            "something else about a boat that nobody would sell".to_owned(),
            1,
            "a",
        ),
        ("hello".to_owned(), 1, "a"),
        ("hello!".to_owned(), 2, "a"),
        ("🎲".to_owned(), 1, "a"),
        ("🎯".to_owned(), 1, "a"),
    ];
    let mut groups = splitter(&posts).groups();
    let mut root = |row| find(&mut groups, row);
    assert_eq!(
        [root(0), root(1), root(2)],
        [1, 1, 1],
        "the oldest post is the root"
    );
    assert_eq!(
        [root(3), root(4), root(5), root(6), root(7)],
        [3, 4, 4, 6, 7]
    );
}

#[test]
fn shares_hold_for_each_label_and_later_posts_move_no_others() {
    let posts: Vec<(String, i64, &str)> = (0..20_000)
        .map(|i: i64| {
            let text = format!("post {i} about {} and {}", i * 7_919, i * 104_729);
            (text, i, if i % 4 == 0 { "rare" } else { "frequent" })
        })
        .collect();
    let eighty = split("80/10/10", SplitBy::Text);
    let all = splitter(&posts).assign(&eighty).parts;
    let fewer = splitter(&posts[..15_000]).assign(&eighty).parts;
    assert_eq!(fewer, all[..15_000]);
    for by in [SplitBy::Text, SplitBy::Time] {
        let parts = splitter(&posts).assign(&split("80/10/10", by)).parts;
        for label in ["rare", "frequent"] {
            let of_part = |part: u8| {
                let rows = parts.iter().zip(&posts);
                rows.filter(|(p, post)| **p == part && post.2 == label)
                    .count()
            };
            let sizes = [0, 1, 2].map(of_part);
            let all: usize = sizes.iter().sum();
            for (size, wanted) in sizes.iter().zip([80, 10, 10]) {
                let off = (size * 100).abs_diff(wanted * all);
                // The tolerance is five standard deviations.
                assert!(off < all * 3, "{by:?} {label} {sizes:?}");
            }
        }
    }
    let by_time = splitter(&posts)
        .assign(&split("80/20", SplitBy::Time))
        .parts;
    assert!(
        by_time.is_sorted_by_key(|part| *part),
        "no post in the second part is older than one in the first"
    );
}
