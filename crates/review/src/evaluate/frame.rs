//! Finds the posts that an estimate from a random sample speaks of: the sampling frame.
//!
//! A random sample represents the posts that were stored when it was drawn. Posts that were stored later form further
//! *waves*. A wave is covered once it has about as many random answers as its size calls for; the estimate then weights
//! each wave by its number of posts. Otherwise it speaks only of the covered waves. Posts whose text retention had
//! deleted before the draw could not be drawn, so they are never covered.

mod draws;
mod estimates;
mod groups;

use std::collections::HashMap;

use serde::Serialize;

use self::draws::{a_second_after, cuts_of_imports, late_posts, latest_draw};
pub(crate) use self::estimates::SampledPost;
pub use self::estimates::{LabelShare, NO_LABEL};
pub use self::groups::{GroupDifference, GroupShare, GroupShares, group_differences};
use super::mix::{Mix, mixes};
use crate::{as_f64, float, floor};
use topicmill_core::{Fullname, ThingKind, Timestamp, counted, thousands};
use topicmill_store::{
    FrameCell, FrameQuery, Grouping, Period, Store, StoreError, StoredGold, Target,
};

/// With fewer random answers, intervals are so wide that no share of all posts or of a group is estimated. With as
/// many, a wave is covered even if others have more per post.
pub const ENOUGH_ANSWERS: usize = 30;

/// The labelled posts that are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Counted {
    /// All posts, but only if there are several waves. Otherwise, no shares are known.
    #[default]
    IfWaves,
    /// All posts.
    All,
    /// The posts created in a period. Answers about other posts do not count either.
    Created(Period),
}

impl Counted {
    /// Returns the period in which the posts were created; `None` if it is unlimited.
    fn period(self) -> Option<Period> {
        match self {
            Self::IfWaves | Self::All => None,
            Self::Created(period) => Some(period),
        }
    }
}

/// The posts that an estimate speaks of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Frame {
    /// The posts that were counted.
    counted: Counted,
    /// Times that separate waves, ascending: a post belongs to the first wave whose time is later than its own.
    cuts: Vec<Timestamp>,
    /// The time when each wave was drawn, at the latest; `None` without answers.
    drawn: Vec<Option<Timestamp>>,
    /// Time when each sampled post was first stored.
    stored_at: HashMap<Fullname, Timestamp>,
    /// Counts of all labelled posts; empty if all belong to one wave and were not counted.
    cells: Vec<FrameCell>,
    /// True for each covered wave; false for the posts without text, which come last.
    covered: Vec<bool>,
    /// The number of posts that a sampled post of each wave stands for, relative to one of the wave with most answers.
    weights: Vec<f64>,
    /// Number of answers after which the other waves are covered.
    needed: usize,
}

/// The size of a frame, for output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FrameSize {
    /// Number of labelled posts that the estimate speaks of.
    pub posts: u64,
    /// Number of waves that the estimate is weighted by; 1 if the sample is used as it is.
    pub waves: usize,
    /// Number of labelled posts that the estimate does not speak of, because they were stored later or had no text.
    pub not_covered: u64,
    /// The posts among them whose text retention had deleted before the draw.
    pub without_text: u64,
    /// The time until which the covered posts were stored; `None` if no post was stored later, or if some covered posts
    /// were.
    pub until: Option<Timestamp>,
    /// Number of random answers that would cover the others.
    pub answers_needed: usize,
}

impl Frame {
    /// Finds the frame of the random sample among `answers`. `sampled` contains the sampled posts that an evaluation
    /// uses.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn find(
        store: &Store,
        target: Target,
        answers: &[StoredGold],
        sampled: impl Iterator<Item = &Fullname>,
        counted: Counted,
    ) -> Result<Self, StoreError> {
        let random = answers
            .iter()
            .filter(|gold| gold.in_random_sample && gold.is_of_present_text);
        let random: Vec<&StoredGold> = random.collect();
        let period = counted.period();
        let is_counted =
            |gold: &&&StoredGold| period.is_none_or(|period| period.contains(gold.created_at));
        let stored_at: HashMap<&Fullname, Timestamp> = random
            .iter()
            .filter(is_counted)
            .map(|gold| (&gold.answer.fullname, gold.collected_at))
            .collect();
        let late = late_posts(store, target, &random).await?;
        let mut frame = Self {
            counted,
            stored_at: sampled
                .filter_map(|post| Some((post.clone(), *stored_at.get(post)?)))
                .collect(),
            cuts: cuts_of_imports(&random),
            ..Self::default()
        };
        frame.cuts.extend(late.iter().min());
        frame.cuts.sort_unstable();
        frame.cuts.dedup();
        let draw_of = |wave: usize| {
            let answers = random.iter().copied();
            latest_draw(answers.filter(|gold| frame.wave(gold.collected_at) == wave))
        };
        frame.drawn = (0..=frame.cuts.len()).map(draw_of).collect();
        let some_without_text = match frame.drawn.iter().flatten().min() {
            Some(first) => store.gold().is_text_deleted_before(*first).await?,
            None => false,
        };
        if counted != Counted::IfWaves || !frame.cuts.is_empty() || some_without_text {
            let things = (target, ThingKind::Post);
            frame.cells = frame.count(store, things, None, None).await?;
        }
        frame.cover(late.len());
        Ok(frame)
    }

    /// Returns the times that separate waves, ascending: a post belongs to the first wave that ends after it was
    /// stored.
    pub fn ends(&self) -> &[Timestamp] {
        &self.cuts
    }

    /// Decides which waves are covered. `late` is the number of posts that the review page would draw next.
    fn cover(&mut self, late: usize) {
        let waves = self.cuts.len() + 1;
        let sampled = self.sampled();
        let posts: Vec<u64> = (0..waves).map(|wave| self.posts_in(wave)).collect();
        let largest = (0..waves).max_by_key(|wave| sampled[*wave]).unwrap_or(0);
        let wanted = |wave: usize| {
            let proportional = share(posts[wave], posts[largest]) * float(sampled[largest]);
            floor(proportional.ceil()).clamp(1, ENOUGH_ANSWERS)
        };
        let is_covered =
            |wave: usize| wave == largest || posts[wave] == 0 || sampled[wave] >= wanted(wave);
        let uncovered = (0..waves).filter(|wave| !is_covered(*wave));
        let missing: usize = uncovered.map(|wave| wanted(wave) - sampled[wave]).sum();
        // Posts that the review page draws in its order are covered once it has caught up.
        self.needed = if late > 0 { missing.min(late) } else { missing };
        // Posts without text are never covered.
        self.covered = (0..waves).map(is_covered).chain([false]).collect();
        let per_answer = |wave: usize| as_f64(posts[wave]) / float(sampled[wave]).max(1.0);
        if posts[largest] > 0 {
            let relative = |wave: usize| per_answer(wave) / per_answer(largest);
            self.weights = (0..waves).map(relative).collect();
        }
    }

    /// Returns the number of sampled posts in each wave.
    fn sampled(&self) -> Vec<usize> {
        let mut sampled = vec![0; self.cuts.len() + 1];
        for stored_at in self.stored_at.values() {
            sampled[self.wave(*stored_at)] += 1;
        }
        sampled
    }

    fn wave(&self, stored_at: Timestamp) -> usize {
        self.cuts.partition_point(|cut| *cut <= stored_at)
    }

    /// Returns the wave of a sampled post.
    fn wave_of(&self, post: &Fullname) -> Option<usize> {
        Some(self.wave(*self.stored_at.get(post)?))
    }

    fn posts_in(&self, wave: usize) -> u64 {
        let cells = self.cells.iter().filter(|cell| cell.wave == wave);
        cells.map(|cell| cell.posts).sum()
    }

    /// Returns the covered waves.
    fn waves(&self) -> impl Iterator<Item = usize> {
        (0..self.covered.len()).filter(|wave| self.covered[*wave])
    }

    /// Returns the covered waves that have posts.
    fn waves_with_posts(&self) -> impl Iterator<Item = usize> {
        self.waves().filter(move |wave| self.posts_in(*wave) > 0)
    }

    /// Returns true if the estimate speaks of a sampled post's wave.
    pub fn contains(&self, post: &Fullname) -> bool {
        self.wave_of(post).is_some_and(|wave| self.covered[wave])
    }

    /// Returns the number of posts that a sampled post stands for, relative to the others.
    pub fn weight(&self, post: &Fullname) -> f64 {
        let weight = self.wave_of(post).and_then(|wave| self.weights.get(wave));
        weight.copied().unwrap_or(1.0)
    }

    /// Returns the size of the frame; `None` if all posts are one wave, which was not counted.
    pub fn size(&self) -> Option<FrameSize> {
        if self.cells.is_empty() {
            return None;
        }
        let all: u64 = self.cells.iter().map(|cell| cell.posts).sum();
        let posts = self.waves().map(|wave| self.posts_in(wave)).sum();
        let first_missing = self.covered.iter().position(|covered| !covered);
        let last_covered = self.waves_with_posts().max().unwrap_or(0);
        let cut = first_missing.filter(|missing| last_covered < *missing);
        Some(FrameSize {
            posts,
            waves: self.waves_with_posts().count(),
            not_covered: all - posts,
            without_text: self.posts_in(self.cuts.len() + 1),
            until: cut.and_then(|missing| self.cuts.get(missing - 1).copied()),
            answers_needed: self.needed,
        })
    }

    /// Names the posts that the estimate speaks of, and the others; `None` if it speaks of all posts.
    pub fn in_words(&self) -> Option<String> {
        let size = self.size().filter(|size| size.not_covered > 0)?;
        let until = size.until.map_or_else(String::new, |until| {
            let until = until.as_datetime().format("%-d %B %Y, %H:%M UTC");
            format!(" stored until {until}")
        });
        let mut left_out = Vec::new();
        if size.without_text > 0 {
            let posts = counted(size.without_text, "post");
            left_out.push(format!(
                "{posts} had no text any more when the sample was drawn"
            ));
        }
        let with_text = size.not_covered - size.without_text;
        if with_text > 0 {
            let thing = size.until.map_or("other post", |_| "later post");
            let are = if with_text == 1 { "is" } else { "are" };
            left_out.push(format!("{} {are} not covered", counted(with_text, thing)));
            if size.answers_needed > 0 {
                let answers = counted(size.answers_needed as u64, "random answer");
                left_out.push(format!("{answers} would cover them"));
            }
        }
        let (posts, left_out) = (thousands(size.posts), left_out.join("; "));
        Some(format!("the {posts} posts{until} ({left_out})"))
    }

    /// Tests whether the mix of the sampled posts is likely for a random sample of its waves.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub(crate) async fn mixes(
        &self,
        store: &Store,
        target: Target,
        sampled: &[Fullname],
    ) -> Result<Vec<Mix>, StoreError> {
        let (posts, by_day) = ((target, ThingKind::Post), Some(Grouping::COLLECTED));
        let mut all = self.count(store, posts, by_day, None).await?;
        let mut sample = self.count(store, posts, by_day, Some(sampled)).await?;
        all.retain(|cell| self.covered[cell.wave]);
        sample.retain(|cell| self.covered[cell.wave]);
        Ok(mixes(&all, &sample))
    }

    /// Tests whether the mix of posts is likely for a random sample of the labelled posts that were stored, with their
    /// text, before the `first` answer about them: of all, or of those that were stored since earlier samples.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn mixes_of_file(
        store: &Store,
        target: Target,
        posts: &[Fullname],
        first: Timestamp,
    ) -> Result<Vec<Mix>, StoreError> {
        let (answers, none) = (store.gold().answers().await?, std::iter::empty());
        let earlier = Self::find(store, target, &answers, none, Counted::IfWaves).await?;
        let end = a_second_after(first);
        let mut cuts = earlier.cuts;
        cuts.retain(|cut| *cut < end);
        cuts.push(end);
        // The posts that were stored after the draw are the last wave, which is not covered; nor are those without
        // text.
        let waves = cuts.len();
        let mut frame = Self {
            drawn: vec![Some(first); waves + 1],
            covered: (0..waves + 2).map(|wave| wave < waves).collect(),
            cuts,
            ..Self::default()
        };
        let things = (target, ThingKind::Post);
        let sample = frame.count(store, things, None, Some(posts)).await?;
        if sample.iter().any(|cell| cell.wave > waves) {
            // The sample was drawn before some of its texts were deleted.
            frame.drawn.fill(None);
        }
        frame.mixes(store, target, posts).await
    }

    /// Counts labelled posts, or comments, by wave: all, or the sampled ones among `posts`.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub(super) async fn count(
        &self,
        store: &Store,
        (target, kind): (Target, ThingKind),
        by: Option<Grouping>,
        posts: Option<&[Fullname]>,
    ) -> Result<Vec<FrameCell>, StoreError> {
        let query = FrameQuery {
            kind,
            target,
            cuts: &self.cuts,
            drawn: &self.drawn,
            by,
            posts,
            period: self.counted.period(),
        };
        store.gold().frame(&query).await
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        as_f64(part) / as_f64(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{Accuracies, EvaluatedPost};

    fn at(day: i64) -> Timestamp {
        Timestamp::from_epoch_secs(day * 86_400).unwrap()
    }

    fn cell(wave: usize, label: Option<&str>, posts: u64) -> FrameCell {
        FrameCell {
            wave,
            subreddit: "trial".into(),
            topic: None,
            group: None,
            label: label.map(str::to_owned),
            posts,
        }
    }

    fn post(id: usize) -> Fullname {
        format!("t3_k{id:04}").parse().unwrap()
    }

    /// Returns a frame of 6,704 posts and 1,314 later ones, with these numbers of sampled posts.
    fn frame(early: usize, late: usize) -> Frame {
        let days = std::iter::repeat_n(1, early).chain(std::iter::repeat_n(9, late));
        let mut frame = Frame {
            cuts: vec![at(5)],
            drawn: vec![None; 2],
            cells: vec![
                cell(0, Some("a"), 6_000),
                cell(0, None, 704),
                cell(1, Some("a"), 1_314),
            ],
            stored_at: days
                .enumerate()
                .map(|(id, day)| (post(id), at(day)))
                .collect(),
            ..Frame::default()
        };
        frame.cover(0);
        frame
    }

    #[test]
    fn later_posts_are_named_until_enough_answers_cover_them() {
        let size = |frame: &Frame| frame.size().unwrap();
        let uncovered = frame(122, 3);
        // 122 · 1,314 / 6,704 = 23.9.
        let expected = FrameSize {
            posts: 6_704,
            waves: 1,
            not_covered: 1_314,
            without_text: 0,
            until: Some(at(5)),
            answers_needed: 21,
        };
        assert_eq!(size(&uncovered), expected);
        assert!(uncovered.contains(&post(0)) && !uncovered.contains(&post(122)));
        let words = uncovered.in_words().unwrap();
        assert!(words.contains("6,704") && words.contains("21"), "{words}");
        let covered = frame(122, 24);
        assert_eq!((size(&covered).posts, size(&covered).waves), (8_018, 2));
        assert!(covered.contains(&post(122)) && covered.in_words().is_none());
        // Many early answers do not ask for as many later ones.
        assert_eq!(size(&frame(1_000, 30)).not_covered, 0);
    }

    #[test]
    fn waves_are_weighted_by_their_posts() {
        // All early posts are right and all later ones wrong. The later ones have twice as many answers per post.
        let frame = frame(100, 40);
        let posts: Vec<Fullname> = (0..140).map(post).collect();
        let row = |id: usize| EvaluatedPost {
            right: vec![usize::from(id >= 100)],
            ties: Vec::new(),
            best: 0,
            score: 0.5,
            abstained: false,
            weight: frame.weight(&posts[id]),
        };
        let rows: Vec<EvaluatedPost> = (0..140).map(row).collect();
        let pairs = posts.iter().zip(&rows);
        let sample: Vec<_> = pairs
            .map(|(fullname, row)| SampledPost { fullname, row })
            .collect();
        let Accuracies { outcome, precision } = frame.accuracies(&sample);
        let close = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-12;
        assert!(close(outcome.share, 6_704.0 / 8_018.0), "{outcome:?}");
        assert!(outcome.low < 6_704.0 / 8_018.0 && 6_704.0 / 8_018.0 < outcome.high);
        assert!(outcome.high - outcome.low < 0.06, "{outcome:?}");
        // Of the posts with a label, fewer are early.
        assert!(close(precision.share, 6_000.0 / 7_314.0), "{precision:?}");
        assert_eq!((outcome.of, outcome.all), (100, 140));
    }
}
