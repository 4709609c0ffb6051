//! Lists chosen out of columns are whole, in order, and have what their filters let through.

use super::*;

fn post(n: i64, fullname: &str) -> Outlined<'_> {
    let slugs = ["games", "food", "other", "unsure"];
    let slug = usize::try_from(n % 5).unwrap();
    Outlined {
        fullname,
        created: 1_000 + n / 3,
        subreddit: ["Food", "gaming"][usize::try_from(n % 2).unwrap()],
        topic: (n % 3 == 0).then_some("games"),
        reddit_score: (n % 4 != 0).then_some(n - 50),
        text: 7,
        label: slugs.get(slug).map(|outcome| OutlinedLabel {
            outcome,
            score: f64::from(u8::try_from(n % 100).unwrap()) / 100.0,
            margin: f64::from(u8::try_from(n * 7 % 100).unwrap()) / 100.0,
        }),
    }
}

fn columns() -> Columns {
    let mut columns = Columns::default();
    for n in 0..200 {
        columns.add(&post(n, &format!("t3_a{n:03}")));
    }
    columns.sort();
    columns
}

#[test]
fn pages_put_together_are_the_whole_list_in_every_order() {
    let columns = columns();
    for (sort, ..) in Sort::ALL {
        let filter = Filter {
            sort,
            subreddit: Some("food".into()),
            ..Filter::default()
        };
        let all = columns.choose(&filter, None, None, 1_000);
        assert!(!all.more && all.total == all.keys.len() as u64 && all.total > 40);
        assert!(all.keys.is_sorted_by(|a, b| a > b), "{sort:?}");
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page = columns.choose(&filter, None, after, 7);
            assert_eq!(page.total, all.total);
            paged.extend(page.keys.iter().copied());
            after = page.keys.last().copied();
            if !page.more {
                break;
            }
        }
        assert_eq!(paged, all.keys, "{sort:?}");
    }
}

#[test]
fn filters_let_through_what_they_say() {
    let columns = columns();
    let total = |filter: Filter| columns.choose(&filter, None, None, 5).total;
    let outcome = |outcome: &str| Filter {
        outcome: Some(outcome.into()),
        ..Filter::default()
    };
    assert_eq!(total(outcome("games")), 40);
    assert_eq!(total(outcome("labelled")), 80);
    assert_eq!(total(outcome("unlabelled")), 40);
    assert_eq!(total(outcome("unsure")), 40);
    assert_eq!(total(outcome("no such")), 0);
    let topic = Filter {
        topic: Some("games".into()),
        since: Some(1_010),
        until: Some(1_020),
        ..Filter::default()
    };
    assert_eq!(total(topic), 10);
    let least = Filter {
        min_score: Some(0.9),
        ..Filter::default()
    };
    assert_eq!(total(least), 16);
    let among = columns.choose(
        &Filter::default(),
        Some(&[key("t3_a007").unwrap()]),
        None,
        5,
    );
    assert_eq!((among.total, among.keys.len()), (1, 1));
}

#[test]
fn a_search_looks_at_those_that_matched_alone_in_any_order_of_names() {
    let mut columns = Columns::default();
    let mut all = Vec::new();
    for n in 0..200_usize {
        let start = ["z", "1a", "9", "zz1"][n % 4].repeat(1 + n / 100);
        let fullname = format!("t3_{start}{n:03}");
        columns.add(&post(i64::try_from(n).unwrap(), &fullname));
        all.push(key(&fullname).unwrap());
    }
    columns.sort();
    all.sort_unstable();
    assert_eq!(
        columns
            .choose(&Filter::default(), Some(&all), None, 9)
            .total,
        200
    );
    for step in [1, 3, 7, 50, 199] {
        let mut some: Vec<i64> = all.iter().copied().step_by(step).collect();
        let wanted = some.len() as u64;
        // Keys that are not there, among and behind them.
        some.extend([2, i64::MAX]);
        some.sort_unstable();
        let found = columns.choose(&Filter::default(), Some(&some), None, 500);
        assert_eq!(found.total, wanted);
        let chosen = columns.choose(&Filter::default(), None, None, 500);
        let kept = chosen
            .keys
            .into_iter()
            .filter(|(_, key)| some.contains(key));
        assert_eq!(found.keys, kept.collect::<Vec<_>>());
    }
}

#[test]
fn names_of_any_kind_come_back() {
    let mut columns = Columns::default();
    for fullname in [
        "t3_1",
        "t3_z000000",
        "t3_zzzzzzzzzzzz",
        "t3_zzzzzzzzzzzzzzzz",
        "t3_abcdefghijklm",
    ] {
        let key = columns.key_for(fullname);
        assert_eq!(columns.fullname(key), fullname);
        assert_eq!(columns.key(fullname), Some(key));
    }
}
