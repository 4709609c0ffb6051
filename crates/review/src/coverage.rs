//! Finds two periods in which the same subreddits were read without gaps, so that a change between them is not one of
//! what was collected.
//!
//! A subreddit that an archive read is covered from the time that the watermark names, and any other from its first
//! stored post. It is covered up to the watermark or, without one, its last stored post. Because a quiet subreddit has
//! no post at these times, an end is moved by up to three mean intervals between its posts. Recorded gaps are left out.
//! The same holds for comments. Those that were read post by post are a selection, which is not covered.

use std::collections::{BTreeMap, BTreeSet};

use topicmill_core::{ThingKind, Timestamp, subreddit_of_path};
use topicmill_store::{Gap, Store, StoreError, SubredditSpan, TwoPeriods, Watermark};

/// An end without posts may be due to chance if it is no longer than this number of mean intervals between posts: if
/// posts are independent, a longer one has a probability of e⁻³ = 5 %.
const MARGIN: f64 = 3.0;
/// Maximum number of times, apart from the bounds, at which periods may start, and at which they may end. Of more, a
/// selection is tried, so that the work grows in proportion to the number of subreddits.
const MOST_ENDS: usize = 64;
/// The shortest half of a period, in seconds. Halves of less than a day compare a night with a day.
const SHORTEST_HALF: i64 = 86_400;

/// The bounds of two periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The first period starts at this time at the earliest.
    pub from: Timestamp,
    /// Start of the second period; `None` halves the time.
    pub split: Option<Timestamp>,
    /// The second period ends at this time at the latest.
    pub until: Timestamp,
}

/// Two periods, and the subreddits that were read without gaps in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Covered {
    /// The periods.
    pub periods: TwoPeriods,
    /// Names in lower case.
    pub subreddits: BTreeSet<String>,
    /// Number of all subreddits with posts.
    pub all_subreddits: usize,
}

/// Times in seconds: a start and an end, exclusive.
type Range = (i64, i64);

/// The times in which a subreddit was read.
#[derive(Debug, Clone, Default, PartialEq)]
struct Coverage {
    /// Ranges that do not overlap, ascending.
    ranges: Vec<Range>,
    /// Number of stored posts from these times.
    posts: f64,
    /// Seconds from the first to the last post of each source.
    seconds: f64,
}

/// Finds the two periods, within bounds, in which most posts or comments can be compared; `None` if there are none.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn comparable(
    store: &Store,
    kind: ThingKind,
    bounds: &Bounds,
) -> Result<Option<Covered>, StoreError> {
    let spans = store.status().subreddit_spans(kind).await?;
    let watermarks = store.status().watermarks().await?;
    let gaps = gaps_of(store, kind).await?;
    Ok(choose(&coverage(kind, &spans, &watermarks, &gaps), bounds))
}

/// Returns the gaps of posts or of comments, latest first, with subreddits instead of paths.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn gaps_of(store: &Store, kind: ThingKind) -> Result<Vec<Gap>, StoreError> {
    let of_kind = |gap: Gap| {
        let (name, kind_of_path) = subreddit_of_path(&gap.subreddit);
        let subreddit = name.to_owned();
        (kind_of_path == kind).then_some(Gap { subreddit, ..gap })
    };
    let gaps = store.posts().gaps().await?;
    Ok(gaps.into_iter().filter_map(of_kind).collect())
}

fn seconds(time: Timestamp) -> i64 {
    time.as_datetime().timestamp()
}

/// Returns the coverage of each subreddit, by its name in lower case.
fn coverage(
    kind: ThingKind,
    spans: &[SubredditSpan],
    watermarks: &[Watermark],
    gaps: &[Gap],
) -> BTreeMap<String, Coverage> {
    let mut all: BTreeMap<String, Coverage> = BTreeMap::new();
    for span in spans {
        let coverage = all.entry(span.subreddit.to_lowercase()).or_default();
        if let Some(range) = read_range(kind, span, watermarks) {
            coverage.ranges.push(range);
            coverage.posts += span.posts as f64;
            coverage.seconds += length(span).max(1.0);
        }
    }
    for (subreddit, coverage) in &mut all {
        coverage.ranges = merged(std::mem::take(&mut coverage.ranges));
        let gaps = gaps.iter();
        for gap in gaps.filter(|gap| gap.subreddit.to_lowercase() == *subreddit) {
            coverage.leave_out((seconds(gap.from_at), seconds(gap.until_at)));
        }
    }
    all
}

/// Returns the seconds from the first to the last post.
fn length(span: &SubredditSpan) -> f64 {
    (seconds(span.last) - seconds(span.first)) as f64
}

/// Returns the time in which a source read a subreddit; `None` if it read only the comments of some posts.
fn read_range(kind: ThingKind, span: &SubredditSpan, watermarks: &[Watermark]) -> Option<Range> {
    let subreddit = span.subreddit.to_lowercase();
    let of_source = watermarks.iter().filter(|mark| mark.source == span.source);
    let of_subreddit = of_source.clone().filter(|mark| {
        let (name, kind_of_path) = subreddit_of_path(&mark.subreddit);
        kind_of_path == kind && name.to_lowercase() == subreddit
    });
    let read_from = of_subreddit.clone().filter_map(|mark| mark.read_from).min();
    // The watermark of a post's comments has the path of its page.
    let page = format!("{subreddit}/comments/");
    let mut paths = of_source.map(|mark| mark.subreddit.to_lowercase());
    if kind == ThingKind::Comment
        && read_from.is_none()
        && paths.any(|path| path.starts_with(&page))
    {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most three times the length"
    )]
    let margin = (MARGIN * length(span) / (span.posts as f64 - 1.0).max(1.0)).ceil() as i64;
    let newest = of_subreddit.filter_map(|mark| {
        let newest = seconds(mark.newest?);
        let until = (newest + margin).min(seconds(mark.updated_at));
        Some(until.max(newest))
    });
    let first = seconds(span.first);
    let (from, until) = match newest.max() {
        Some(until) => (read_from.map_or(first, seconds), until),
        None => (first - margin, seconds(span.last) + margin),
    };
    Some((from, until + 1))
}

/// Joins overlapping ranges.
fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut joined: Vec<Range> = Vec::new();
    for (from, until) in ranges {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => joined.push((from, until)),
        }
    }
    joined
}

/// Chooses the periods with most information: the largest `ab / (a + b)`, where `a` and `b` are the expected numbers of
/// posts.
fn choose(all: &BTreeMap<String, Coverage>, bounds: &Bounds) -> Option<Covered> {
    let (lowest, highest) = (seconds(bounds.from), seconds(bounds.until));
    let ranges = || all.values().flat_map(|coverage| &coverage.ranges);
    let is_inside = |time: &i64| lowest < *time && *time < highest;
    let starts = times_to_try(lowest, ranges().map(|range| range.0).filter(is_inside));
    let ends = times_to_try(highest, ranges().map(|range| range.1).filter(is_inside));
    let mut best: Option<(f64, [i64; 3])> = None;
    for from in starts {
        for until in &ends {
            let range = (from, *until);
            let Some(split) = split_of(bounds, range) else {
                continue;
            };
            let covered = all.values().filter(|coverage| coverage.contains(range));
            let rates = covered.map(|coverage| coverage.posts / coverage.seconds);
            let rate: f64 = rates.sum();
            let [a, b] = [split - from, until - split].map(|length| rate * length as f64);
            let information = a * b / (a + b);
            if information > best.map_or(0.0, |(most, _)| most) {
                best = Some((information, [from, split, *until]));
            }
        }
    }
    let (_, [from, split, until]) = best?;
    let range = (from, until);
    let covered = all.iter().filter(|(_, one)| one.contains(range));
    Some(Covered {
        periods: TwoPeriods {
            from: Timestamp::from_epoch_secs(from)?,
            split: Timestamp::from_epoch_secs(split)?,
            until: Timestamp::from_epoch_secs(until)?,
        },
        subreddits: covered.map(|(subreddit, _)| subreddit.clone()).collect(),
        all_subreddits: all.len(),
    })
}

/// Returns a bound and the times of ranges inside the bounds, ascending.
fn times_to_try(bound: i64, inside: impl Iterator<Item = i64>) -> Vec<i64> {
    let inside: BTreeSet<i64> = inside.collect();
    let every = inside.len().div_ceil(MOST_ENDS).max(1);
    let mut times: Vec<i64> = inside.into_iter().step_by(every).chain([bound]).collect();
    times.sort_unstable();
    times
}

/// Returns the start of the second period: the given time or, if there is none, the middle. `None` if a period would be
/// empty, or if a half would be too short.
fn split_of(bounds: &Bounds, (from, until): Range) -> Option<i64> {
    match bounds.split.map(seconds) {
        Some(split) => (from < split && split < until).then_some(split),
        None => (until - from >= 2 * SHORTEST_HALF).then_some(from + (until - from) / 2),
    }
}

impl Coverage {
    /// Removes a gap from the ranges.
    fn leave_out(&mut self, (from, until): Range) {
        let ranges = self.ranges.iter();
        let parts =
            ranges.flat_map(|(start, end)| [(*start, from.min(*end)), (until.max(*start), *end)]);
        self.ranges = parts.filter(|(start, end)| start < end).collect();
    }

    /// Returns true if the subreddit was read in a whole range.
    fn contains(&self, (from, until): Range) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(start, end)| *start <= from && until <= *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::SourceKind;

    const HOUR: i64 = 3_600;
    const DAY: i64 = 24 * HOUR;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_epoch_secs(1_790_000_000 + seconds).unwrap()
    }

    fn span(
        subreddit: &str,
        source: SourceKind,
        (from, until): Range,
        posts: i64,
    ) -> SubredditSpan {
        SubredditSpan {
            subreddit: subreddit.to_owned(),
            source,
            first: at(from),
            last: at(until),
            posts,
        }
    }

    fn watermark(subreddit: &str, read_from: i64, newest: i64, updated_at: i64) -> Watermark {
        Watermark {
            source: SourceKind::ArcticShift,
            subreddit: subreddit.to_owned(),
            newest: Some(at(newest)),
            read_from: Some(at(read_from)),
            updated_at: at(updated_at),
        }
    }

    /// Returns the periods in seconds, and the subreddits.
    fn found(
        spans: &[SubredditSpan],
        watermarks: &[Watermark],
        gaps: &[Gap],
        (from, split, until): (i64, Option<i64>, i64),
    ) -> Option<([i64; 3], String)> {
        let bounds = Bounds {
            from: at(from),
            split: split.map(at),
            until: at(until),
        };
        let found = choose(&coverage(ThingKind::Post, spans, watermarks, gaps), &bounds)?;
        let TwoPeriods { from, split, until } = found.periods;
        let times = [from, split, until].map(|time| seconds(time) - 1_790_000_000);
        let names: Vec<String> = found.subreddits.into_iter().collect();
        Some((times, names.join(" ")))
    }

    /// The newest 100 posts of two subreddits: of `fast`, they span 17 hours, of `slow`, eight days.
    fn fast_and_slow() -> ([SubredditSpan; 2], [Watermark; 2]) {
        let fast_from = 8 * DAY - 17 * HOUR;
        let spans = [
            span("Fast", SourceKind::ArcticShift, (fast_from, 8 * DAY), 100),
            span("slow", SourceKind::ArcticShift, (0, 8 * DAY - HOUR), 100),
        ];
        let marks = [
            watermark("fast", fast_from, 8 * DAY, 8 * DAY + 60),
            watermark("slow", 0, 8 * DAY - HOUR, 8 * DAY + 60),
        ];
        (spans, marks)
    }

    /// All eight days, which the program splits.
    const ALL: (i64, Option<i64>, i64) = (0, None, 8 * DAY + 1);

    #[test]
    fn only_subreddits_read_for_the_whole_period_are_compared() {
        let (spans, marks) = fast_and_slow();
        let (times, names) = found(&spans, &marks, &[], ALL).unwrap();
        // The quiet hour before the end is no gap.
        assert_eq!((times[0], times[2]), (0, 8 * DAY + 1));
        assert_eq!(names, "slow");
        // The fast subreddit alone has no two whole days.
        assert_eq!(found(&spans[..1], &marks, &[], ALL), None);
        assert_eq!(found(&[], &[], &[], ALL), None);
        // Both were read in the last 16 hours.
        let chosen = (8 * DAY - 16 * HOUR, Some(8 * DAY - 8 * HOUR), 8 * DAY + 1);
        assert_eq!(found(&spans, &marks, &[], chosen).unwrap().1, "fast slow");
    }

    #[test]
    fn a_gap_leaves_its_longer_side() {
        let (spans, marks) = fast_and_slow();
        let gaps = [Gap {
            source: SourceKind::ArcticShift,
            topic: "any".into(),
            subreddit: "Slow".into(),
            from_at: at(2 * DAY),
            until_at: at(3 * DAY),
        }];
        let (times, _) = found(&spans, &marks, &gaps, ALL).unwrap();
        assert_eq!((times[0], times[2]), (3 * DAY, 8 * DAY + 1));
        let across = (0, Some(3 * DAY - HOUR), 8 * DAY);
        assert_eq!(found(&spans, &marks, &gaps, across), None);
    }

    #[test]
    fn posts_from_before_the_archive_was_read_without_gaps_do_not_count() {
        let (_, marks) = fast_and_slow();
        let from = -90 * DAY;
        let early = [span(
            "slow",
            SourceKind::ArcticShift,
            (from, 8 * DAY - HOUR),
            300,
        )];
        let (times, _) = found(&early, &marks, &[], (from, None, 8 * DAY + 1)).unwrap();
        assert_eq!(times[0], 0);
    }

    #[test]
    fn posts_of_files_cover_their_subreddit_and_a_rare_one_does_not_shorten_the_others() {
        let files = [
            span("a", SourceKind::Import, (0, 30 * DAY), 900),
            span("b", SourceKind::Import, (HOUR, 30 * DAY - 5 * HOUR), 300),
            span("c", SourceKind::Import, (3 * DAY, 3 * DAY), 1),
        ];
        let (times, names) = found(&files, &[], &[], (0, None, 30 * DAY + 1)).unwrap();
        assert_eq!(times, [0, 15 * DAY, 30 * DAY + 1]);
        assert_eq!(names, "a b");
    }

    #[test]
    fn comments_read_post_by_post_cover_no_range() {
        let (spans, marks) = fast_and_slow();
        let ranges = |marks: &[Watermark]| {
            let covered = coverage(ThingKind::Comment, &spans[1..], marks, &[]);
            covered["slow"].ranges.len()
        };
        let of_post = watermark("Slow/comments/abc", 0, DAY, DAY);
        let of_all = watermark("Slow/comments", 0, DAY, DAY);
        assert_eq!(ranges(&marks), 1);
        assert_eq!(ranges(std::slice::from_ref(&of_post)), 0);
        assert_eq!(ranges(&[of_post, of_all]), 1);
    }
}
