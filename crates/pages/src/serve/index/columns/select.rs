//! Selects a page of posts and counts facet values.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use chrono::{DateTime, Datelike};

use super::super::filter::{FacetCount, Facets, RowFilter, RowPosition, SelectedRows};
use super::super::interner::{NONE, is_among};
use super::{Columns, Row};

impl Columns {
    /// Selects a page of up to `limit` posts that match the filter and follow the position `after`. If `among` is
    /// given, only posts with these keys match.
    pub fn select(
        &self,
        filter: &RowFilter,
        among: Option<&[i64]>,
        after: Option<RowPosition>,
        limit: usize,
    ) -> SelectedRows {
        let (sort, matcher) = (filter.sort, Matcher::new(self, filter));
        // One more than the limit is kept, to detect further pages.
        let mut best: BinaryHeap<Reverse<RowPosition>> = BinaryHeap::with_capacity(limit + 2);
        let mut total = 0;
        let consider = |row: &Row| {
            if !matcher.passes(row) {
                return;
            }
            total += 1;
            let place = (row.rank(sort), row.key);
            // Pages are found by position instead of offset so that new posts do not shift later pages.
            let is_shown = after.is_some_and(|after| place >= after);
            let is_worse = best.len() > limit && best.peek() < Some(&Reverse(place));
            if !is_shown && !is_worse {
                best.push(Reverse(place));
                if best.len() > limit + 1 {
                    best.pop();
                }
            }
        };
        self.for_each(among, consider);
        let best = best.into_sorted_vec().into_iter();
        let mut keys: Vec<RowPosition> = best.map(|place| place.0).collect();
        let more = keys.len() > limit;
        keys.truncate(limit);
        SelectedRows { keys, more, total }
    }

    /// Counts the posts by outcome, topic, subreddit and month. Each count includes only posts that match the other
    /// filters.
    pub fn facets(&self, filter: &RowFilter, among: Option<&[i64]>) -> Facets {
        let matcher = Matcher::new(self, filter);
        let interners = [&self.outcomes, &self.topics, &self.subreddits];
        let mut counts = interners.map(|interner| vec![0_u64; interner.texts().len() + 1]);
        let mut months: BTreeMap<Reverse<(i32, u32)>, u64> = BTreeMap::new();
        self.for_each(among, |row| {
            let conditions = matcher.conditions(row);
            let mut failed = (0..conditions.len()).filter(|at| !conditions[*at]);
            let (true, only, None) = (matcher.is_listed(row), failed.next(), failed.next()) else {
                return;
            };
            let numbers = [row.outcome, row.topic, row.subreddit];
            for (at, (counts, number)) in counts.iter_mut().zip(numbers).enumerate() {
                if only.is_none_or(|only| only == at) {
                    let last = counts.len() - 1;
                    counts[(number as usize).min(last)] += 1;
                }
            }
            if only.is_none_or(|only| only == numbers.len())
                && let Some(time) = DateTime::from_timestamp(row.created, 0)
            {
                *months
                    .entry(Reverse((time.year(), time.month())))
                    .or_default() += 1;
            }
        });
        let of = |at: usize, missing: Option<&str>| {
            let names = interners[at].texts().iter().map(String::as_str).map(Some);
            let all = names.chain([missing]).zip(&counts[at]);
            let all = all.filter(|(_, posts)| **posts > 0);
            let mut all: Vec<FacetCount> = all
                .filter_map(|(value, posts)| {
                    let (value, posts) = (value?.to_owned(), *posts);
                    Some(FacetCount { value, posts })
                })
                .collect();
            all.sort_by(|a, b| b.posts.cmp(&a.posts).then_with(|| a.value.cmp(&b.value)));
            all
        };
        Facets {
            outcomes: of(0, Some("unlabelled")),
            topics: of(1, None),
            subreddits: of(2, None),
            months: months
                .into_iter()
                .map(|(Reverse((year, month)), posts)| FacetCount {
                    value: format!("{year:04}-{month:02}"),
                    posts,
                })
                .collect(),
        }
    }

    /// Calls a function with each post, or with each post whose key is in `among`.
    fn for_each<'r>(&'r self, among: Option<&[i64]>, mut consider: impl FnMut(&'r Row)) {
        match among {
            // Newer posts usually have higher keys, so iterating in reverse needs fewer heap operations.
            None => self.rows.iter().rev().for_each(consider),
            Some(among) => {
                let place = |key| self.rows.binary_search_by_key(key, |row| row.key).ok();
                // A post may have been purged since the search.
                let found = among.iter().filter_map(place);
                found.for_each(|at| consider(&self.rows[at]));
            }
        }
    }
}

/// A filter whose names are resolved to numbers.
struct Matcher<'f> {
    filter: &'f RowFilter,
    outcomes: Option<Vec<bool>>,
    topics: Option<Vec<bool>>,
    subreddits: Option<Vec<bool>>,
}

impl<'f> Matcher<'f> {
    fn new(columns: &Columns, filter: &'f RowFilter) -> Self {
        let outcomes = filter.outcome.as_deref().map(|wanted| {
            columns.outcomes.matching(|outcome| match outcome {
                None => wanted == "unlabelled",
                Some(label) if wanted == "labelled" => label != "other" && label != "unsure",
                outcome => outcome == Some(wanted),
            })
        });
        let topics = filter.topic.as_deref();
        let topics = topics.map(|wanted| columns.topics.matching(|topic| topic == Some(wanted)));
        let subreddits = filter.subreddit.as_deref().map(|wanted| {
            let is_wanted = |name: &str| name.eq_ignore_ascii_case(wanted);
            columns
                .subreddits
                .matching(|name| name.is_some_and(is_wanted))
        });
        Self {
            filter,
            outcomes,
            topics,
            subreddits,
        }
    }

    /// Returns, for each facet (outcome, topic, subreddit, time), true if a post matches its filter.
    fn conditions(&self, row: &Row) -> [bool; 4] {
        let since = self.filter.since.unwrap_or(i64::MIN);
        let until = self.filter.until.unwrap_or(i64::MAX);
        [
            is_among(row.outcome, self.outcomes.as_deref()),
            is_among(row.topic, self.topics.as_deref()),
            is_among(row.subreddit, self.subreddits.as_deref()),
            (since..until).contains(&row.created),
        ]
    }

    /// Returns true if a post has the minimum score and a rank in the order.
    fn is_listed(&self, row: &Row) -> bool {
        let is_high = |least| row.outcome != NONE && row.score >= least;
        self.filter.min_score.is_none_or(is_high) && row.is_ranked(self.filter.sort)
    }

    fn passes(&self, row: &Row) -> bool {
        self.conditions(row) == [true; 4] && self.is_listed(row)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::filter::Sort;
    use super::*;

    fn columns() -> Columns {
        let mut columns = Columns::default();
        for n in 0..200_i32 {
            let of = |names: &[&str]| names[usize::try_from(n).unwrap() % names.len()].to_owned();
            let fullname = format!("t3_{}{n:03}", of(&["z", "1a", "9", "zz1"]));
            let label = of(&["games", "food", "other", "unsure", ""]);
            let label = Some(label).filter(|label| !label.is_empty());
            let score = |n: i32| label.as_ref().map(|_| f64::from(n % 100) / 100.0);
            let row = json!([
                fullname,
                format!("1970-01-01T00:{:02}:{:02}+00:00", n / 180, n / 3 % 60),
                of(&["Food", "gaming"]),
                (n % 3 == 0).then_some("games"),
                (n % 4 != 0).then_some(n - 50),
                "00000000000000070000000000000000",
                label,
                score(n),
                score(n * 7),
            ]);
            columns.add(row.as_array().unwrap()).unwrap();
        }
        columns.rows.sort_unstable_by_key(|row| row.key);
        columns
    }

    #[test]
    fn pages_cover_the_whole_list_in_every_order() {
        let columns = columns();
        for (sort, ..) in Sort::ALL {
            let filter = RowFilter {
                sort,
                subreddit: Some("food".into()),
                ..RowFilter::default()
            };
            let all = columns.select(&filter, None, None, 1_000);
            assert!(!all.more && all.total == all.keys.len() as u64 && all.total > 40);
            assert!(all.keys.is_sorted_by(|a, b| a > b), "{sort:?}");
            let (mut paged, mut after) = (Vec::new(), None);
            loop {
                let page = columns.select(&filter, None, after, 7);
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
    fn filters_select_matching_posts() {
        let columns = columns();
        let total = |filter: RowFilter| columns.select(&filter, None, None, 5).total;
        for (outcome, posts) in [
            ("games", 40),
            ("labelled", 80),
            ("unlabelled", 40),
            ("unsure", 40),
            ("no such", 0),
        ] {
            let filter = RowFilter {
                outcome: Some(outcome.into()),
                ..RowFilter::default()
            };
            assert_eq!(total(filter), posts, "{outcome}");
        }
        let topic = RowFilter {
            topic: Some("games".into()),
            since: Some(10),
            until: Some(20),
            ..RowFilter::default()
        };
        assert_eq!(total(topic), 10);
        let least = RowFilter {
            min_score: Some(0.9),
            ..RowFilter::default()
        };
        assert_eq!(total(least), 16);
    }

    #[test]
    fn facet_counts_equal_the_totals_of_filtered_lists() {
        let columns = columns();
        let filter = RowFilter {
            outcome: Some("games".into()),
            subreddit: Some("food".into()),
            min_score: Some(0.1),
            ..RowFilter::default()
        };
        let facets = columns.facets(&filter, None);
        assert_eq!(facets.outcomes.len(), 4, "all with a score");
        let total = |filter: RowFilter| columns.select(&filter, None, None, 1).total;
        let values = facets.outcomes.iter().map(|one| (0, one));
        let values = values.chain(facets.topics.iter().map(|one| (1, one)));
        let values = values.chain(facets.subreddits.iter().map(|one| (2, one)));
        for (facet, FacetCount { value, posts }) in values {
            let mut filter = filter.clone();
            let one = [
                &mut filter.outcome,
                &mut filter.topic,
                &mut filter.subreddit,
            ];
            *one.into_iter().nth(facet).unwrap() = Some(value.clone());
            assert_eq!(total(filter), *posts, "{value}");
        }
        let month = FacetCount {
            value: "1970-01".into(),
            posts: total(filter.clone()),
        };
        assert_eq!(facets.months, [month]);
        assert_eq!(columns.facets(&filter, Some(&[])), Facets::default());
        let all = columns.facets(&RowFilter::default(), None).outcomes;
        assert_eq!(all.iter().map(|one| one.posts).sum::<u64>(), 200);
        assert!(
            all.iter()
                .any(|one| one.value == "unlabelled" && one.posts == 40)
        );
    }

    #[test]
    fn a_search_selects_only_matching_posts() {
        let columns = columns();
        let all = columns.select(&RowFilter::default(), None, None, 500);
        let mut some: Vec<i64> = all.keys.iter().step_by(7).map(|(_, key)| *key).collect();
        let wanted = some.len() as u64;
        // These keys are unknown.
        some.extend([2, i64::MAX]);
        let found = columns.select(&RowFilter::default(), Some(&some), None, 500);
        assert_eq!(found.total, wanted);
        let kept = all.keys.into_iter().filter(|(_, key)| some.contains(key));
        assert_eq!(found.keys, kept.collect::<Vec<_>>());
    }
}
