//! Finds the posts that an estimate from a random sample speaks of: the sampling frame.
//!
//! A random sample represents the posts that were stored when it was drawn. Posts that were stored later form further
//! *waves*. A wave is covered once it has about as many random answers as its size calls for; the estimate then weights
//! each wave by its number of posts. Otherwise it speaks only of the covered waves. Posts whose text retention had deleted
//! before the draw could not be drawn, so they are never covered.

mod groups;

use std::collections::{BTreeMap, HashMap};

use chrono::TimeDelta;
use serde::Serialize;

pub use self::groups::{GroupDifference, GroupShares, group_differences};
use super::mix::{Mix, mixes};
use super::strata::{Stratum, stratified_share};
use super::{Estimate, EvaluatedPost, SampledPart, accuracy, estimate_shares};
use crate::calibrate::Proportion;
use crate::{as_f64, float};
use topicmill_core::{
    Fullname, GoldSource, LabelSet, SampleReason, TextHash, ThingKind, Timestamp, thousands,
};
use topicmill_store::{FrameCell, FrameQuery, Grouping, Store, StoreError, StoredGold, Target};

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
    /// The posts created from the first time until before the second. Answers about other posts do not count either.
    Created(Timestamp, Timestamp),
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
    /// The time until which the covered posts were stored; `None` if all posts are covered.
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
            .filter(|one| one.in_random_sample && one.is_of_present_text);
        let random: Vec<&StoredGold> = random.collect();
        let is_counted = |one: &&&StoredGold| match counted {
            Counted::IfWaves | Counted::All => true,
            Counted::Created(since, until) => since <= one.created_at && one.created_at < until,
        };
        let stored_at: HashMap<&Fullname, Timestamp> = random
            .iter()
            .filter(is_counted)
            .map(|one| (&one.answer.fullname, one.collected_at))
            .collect();
        let mut frame = Self {
            stored_at: sampled
                .filter_map(|post| Some((post.clone(), *stored_at.get(post)?)))
                .collect(),
            cuts: imports(&random),
            counted,
            ..Self::default()
        };
        let late = late_posts(store, target, &random).await?;
        frame.cuts.extend(late.iter().min());
        frame.cuts.sort_unstable();
        frame.cuts.dedup();
        let drawn_at = |wave: usize| {
            let answers = random
                .iter()
                .filter(|one| frame.wave(one.collected_at) == wave);
            // The draw also passed posts that were answered before it began, so these answers do not show its time.
            let times = answers.map(|one| {
                let is_passed = one.answer.chosen != SampleReason::Random;
                (is_passed, latest_draw(one))
            });
            times.min().map(|(_, time)| time)
        };
        frame.drawn = (0..=frame.cuts.len()).map(drawn_at).collect();
        let some_without_text = match frame.drawn.iter().flatten().min() {
            Some(first) => store.gold().is_text_deleted_before(*first).await?,
            None => false,
        };
        if counted != Counted::IfWaves || !frame.cuts.is_empty() || some_without_text {
            frame.cells = frame
                .count(store, (target, ThingKind::Post), None, None)
                .await?;
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
        let most = (0..waves).max_by_key(|wave| sampled[*wave]).unwrap_or(0);
        let wanted = |wave: usize| {
            let proportional = share(posts[wave], posts[most]) * float(sampled[most]);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most the number of answers times a ratio of posts, and limited"
            )]
            let answers = proportional.min(1e6).ceil() as usize;
            answers.clamp(1, ENOUGH_ANSWERS)
        };
        self.covered = (0..waves)
            .map(|wave| wave == most || posts[wave] == 0 || sampled[wave] >= wanted(wave))
            .chain([false])
            .collect();
        let missing = (0..waves).filter(|wave| !self.covered[*wave]);
        let missing: usize = missing.map(|wave| wanted(wave) - sampled[wave]).sum();
        // Posts that the review page draws in its order are covered once it has caught up.
        self.needed = if late > 0 { missing.min(late) } else { missing };
        let per_answer = |wave: usize| share(posts[wave], 1) / float(sampled[wave]).max(1.0);
        if posts[most] > 0 {
            let relative = |wave: usize| per_answer(wave) / per_answer(most);
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
        self.stored_at
            .get(post)
            .map(|stored_at| self.wave(*stored_at))
    }

    fn posts_in(&self, wave: usize) -> u64 {
        let cells = self.cells.iter().filter(|cell| cell.wave == wave);
        cells.map(|cell| cell.posts).sum()
    }

    /// Returns the covered waves.
    fn waves(&self) -> impl Iterator<Item = usize> {
        (0..self.covered.len()).filter(|wave| self.covered[*wave])
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
        let with_posts = self.waves().filter(|wave| self.posts_in(*wave) > 0);
        let first_missing = self.covered.iter().position(|covered| !covered);
        Some(FrameSize {
            posts,
            waves: with_posts.count(),
            not_covered: all - posts,
            without_text: self.posts_in(self.cuts.len() + 1),
            until: first_missing.and_then(|wave| self.cuts.get(wave.checked_sub(1)?).copied()),
            answers_needed: self.needed,
        })
    }

    /// Describes the frame, with a leading comma; empty if the estimate speaks of all posts.
    pub fn in_words(&self) -> String {
        let Some(size) = self.size().filter(|size| size.not_covered > 0) else {
            return String::new();
        };
        let until = size.until.map_or_else(String::new, |until| {
            format!(
                " stored until {}",
                until.as_datetime().format("%-d %B %Y, %H:%M UTC")
            )
        });
        let answers = match size.answers_needed {
            0 => String::new(),
            1 => "; 1 random answer would cover them".to_owned(),
            n => format!("; {n} random answers would cover them"),
        };
        let later = match size.not_covered - size.without_text {
            0 => None,
            1 => Some(format!("1 later post is not covered{answers}")),
            n => Some(format!(
                "{} later posts are not covered{answers}",
                thousands(n)
            )),
        };
        let without_text = (size.without_text > 0).then(|| {
            let posts = topicmill_core::counted(size.without_text, "post");
            format!("{posts} had no text any more when the sample was drawn")
        });
        let left_out: Vec<String> = without_text.into_iter().chain(later).collect();
        let left_out = left_out.join("; ");
        format!(
            ", of the {} posts{until} ({left_out})",
            thousands(size.posts)
        )
    }

    /// Estimates accuracy, and the precision of the assigned labels, of the sampled posts in the frame: of the sample
    /// as it is or, if there are several waves, weighted by wave.
    pub fn accuracy(
        &self,
        posts: &[&Fullname],
        rows: &[EvaluatedPost],
    ) -> (Proportion, Proportion) {
        let (outcome, precision) = accuracy(rows);
        if self.waves().filter(|wave| self.posts_in(*wave) > 0).count() < 2 {
            return (outcome, precision);
        }
        let with_wave = posts.iter().zip(rows);
        let with_wave = with_wave.filter_map(|(post, row)| Some((self.wave_of(post)?, row)));
        let all: Vec<(usize, &EvaluatedPost)> = with_wave.collect();
        let mut labelled = all.clone();
        labelled.retain(|(_, row)| row.given().is_some());
        (
            self.weighted_by_wave(outcome, &all, |_| true),
            self.weighted_by_wave(precision, &labelled, |cell| cell.label.is_some()),
        )
    }

    /// Weights the share of correct outcomes by wave. `plain` is the share in the sample as it is; `sample` contains each
    /// row with its wave; `is_counted` selects the posts whose number is the weight of a wave.
    fn weighted_by_wave(
        &self,
        plain: Proportion,
        sample: &[(usize, &EvaluatedPost)],
        is_counted: fn(&FrameCell) -> bool,
    ) -> Proportion {
        let bound = |counts_ties: bool| {
            let stratum = |wave: usize| {
                let rows = sample.iter().filter(|(of_row, _)| *of_row == wave);
                let right = rows.clone();
                let right = right.filter(|(_, row)| row.decided(counts_ties).is_right());
                let right = right.count();
                Stratum {
                    weight: self.share_of(wave, is_counted),
                    sampled: rows.count(),
                    least: right,
                    most: right,
                    assumed: plain.share.unwrap_or(0.0),
                }
            };
            let strata: Vec<Stratum> = self.waves().map(stratum).collect();
            let estimate = stratified_share(&strata);
            Proportion {
                share: estimate.value,
                share_if_right: None,
                low: estimate.low,
                high: estimate.high,
                ..plain
            }
        };
        bound(false).between(bound(true))
    }

    /// Returns a wave's share of the covered posts that `is_counted` selects.
    fn share_of(&self, wave: usize, is_counted: impl Fn(&FrameCell) -> bool) -> f64 {
        let count = |of: &dyn Fn(&FrameCell) -> bool| -> u64 {
            let cells = self
                .cells
                .iter()
                .filter(|cell| is_counted(cell) && of(cell));
            cells.map(|cell| cell.posts).sum()
        };
        let covered = count(&|cell| self.covered[cell.wave]);
        share(count(&|cell| cell.wave == wave), covered)
    }

    /// Returns the assigned share, among the covered posts, of each label and of no label, and the estimated share.
    pub fn label_shares(
        &self,
        set: &LabelSet,
        posts: &[&Fullname],
        rows: &[EvaluatedPost],
    ) -> Vec<(f64, Estimate)> {
        let labels = set.labels.len();
        let place = |cell: &FrameCell| {
            let slug = cell.label.as_deref();
            let place = set
                .labels
                .iter()
                .position(|label| Some(label.slug.as_str()) == slug);
            place.unwrap_or(labels)
        };
        let part = |wave: usize| {
            let assigned = (0..=labels).map(|label| {
                let is_label = |cell: &&FrameCell| cell.wave == wave && place(cell) == label;
                let posts = self.cells.iter().filter(is_label).map(|cell| cell.posts);
                share(posts.sum(), self.posts_in(wave))
            });
            let sample = posts.iter().zip(rows);
            let sample = sample.filter(|(post, _)| self.wave_of(post) == Some(wave));
            SampledPart {
                share: self.share_of(wave, |_| true),
                assigned: assigned.collect(),
                rows: sample.map(|(_, row)| row).collect(),
            }
        };
        let parts: Vec<SampledPart<'_>> = self.waves().map(part).collect();
        let assigned = (0..=labels).map(|label| {
            let parts = parts.iter();
            parts.map(|part| part.share * part.assigned[label]).sum()
        });
        assigned.zip(estimate_shares(&parts)).collect()
    }

    /// Tests whether the mix of the sampled posts is likely for a random sample of its waves.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn mixes(
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
        let end = (first.as_datetime() + TimeDelta::seconds(1)).into();
        let mut cuts = earlier.cuts;
        cuts.retain(|cut| *cut < end);
        cuts.push(end);
        let waves = cuts.len();
        let mut frame = Self {
            drawn: vec![Some(first); waves + 1],
            covered: (0..waves + 2).map(|wave| wave < waves).collect(),
            cuts,
            ..Self::default()
        };
        let kind = ThingKind::Post;
        let sample = frame
            .count(store, (target, kind), None, Some(posts))
            .await?;
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
        let period = match self.counted {
            Counted::IfWaves | Counted::All => None,
            Counted::Created(since, until) => Some((since, until)),
        };
        let query = FrameQuery {
            kind,
            target,
            cuts: &self.cuts,
            drawn: &self.drawn,
            by,
            posts,
            period,
        };
        store.gold().frame(&query).await
    }
}

/// Returns the times that separate waves for samples that were imported: the first and the last answer of each session.
/// A post that was stored after the first one was drawn only if a later file of the session contains posts like it.
/// Answers more than a day apart are of different sessions.
fn imports(drawn: &[&StoredGold]) -> Vec<Timestamp> {
    let imported = drawn.iter().filter(|one| !is_of_page(one));
    let mut times: Vec<(Timestamp, Timestamp)> = imported
        .map(|one| (one.answer.answered_at, latest_draw(one)))
        .collect();
    times.sort_unstable();
    let sessions = times.chunk_by(|(time, _), (next, _)| {
        next.as_datetime() - time.as_datetime() <= TimeDelta::days(1)
    });
    // A post that was stored in the second of an answer may have been drawn.
    let after = |time: Timestamp| (time.as_datetime() + TimeDelta::seconds(1)).into();
    let ends = sessions.flat_map(|session| {
        let first = session.iter().map(|(_, drawn)| *drawn).min();
        [first, session.last().map(|(last, _)| *last)]
    });
    ends.flatten().map(after).collect()
}

/// Returns the time before which the post of an answer was drawn: when it was answered or, if the answer was imported
/// later, when its text was deleted.
fn latest_draw(one: &StoredGold) -> Timestamp {
    let answered_at = one.answer.answered_at;
    one.text_purged_at
        .map_or(answered_at, |deleted| deleted.min(answered_at))
}

/// Returns true for an answer about a post that topicmill drew, in the order of text hashes, or that this draw passed.
fn is_of_page(one: &StoredGold) -> bool {
    one.answer.chosen != SampleReason::Random || one.answer.source != GoldSource::Import
}

/// Returns the storage times of posts that were stored after topicmill's draw had passed their hash. Other posts below
/// the last hash are those that annotators skipped.
async fn late_posts(
    store: &Store,
    target: Target,
    drawn: &[&StoredGold],
) -> Result<Vec<Timestamp>, StoreError> {
    let by_page = drawn.iter().filter(|one| {
        one.answer.chosen == SampleReason::Random && one.answer.source != GoldSource::Import
    });
    let mut passed: BTreeMap<TextHash, Timestamp> = BTreeMap::new();
    for answer in by_page.map(|one| &one.answer) {
        let Some(hash) = answer.text_hash else {
            continue;
        };
        let last = passed.entry(hash).or_insert(answer.answered_at);
        *last = (*last).max(answer.answered_at);
    }
    let Some((highest, _)) = passed.last_key_value() else {
        return Ok(Vec::new());
    };
    let first = passed.values().min().copied().unwrap_or(Timestamp::EPOCH);
    let undrawn = store.gold().undrawn_posts(target, highest, first).await?;
    let is_late = |(hash, stored_at): &(TextHash, Timestamp)| {
        let last = passed.range(*hash..).map(|(_, time)| time).max();
        last.is_some_and(|last| stored_at > last)
    };
    let late = undrawn.into_iter().filter(is_late);
    Ok(late.map(|(_, stored_at)| stored_at).collect())
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
        assert!(uncovered.in_words().contains("6,704") && uncovered.in_words().contains("21"));
        let covered = frame(122, 24);
        assert_eq!((size(&covered).posts, size(&covered).waves), (8_018, 2));
        assert!(covered.contains(&post(122)) && covered.in_words().is_empty());
        // Many early answers do not ask for as many later ones.
        assert_eq!(size(&frame(1_000, 30)).not_covered, 0);
    }

    #[test]
    fn waves_are_weighted_by_their_posts() {
        // All early posts are right and all later ones wrong. The later ones have twice as many answers per post.
        let frame = frame(100, 40);
        let posts: Vec<Fullname> = (0..140).map(post).collect();
        let posts: Vec<&Fullname> = posts.iter().collect();
        let row = |id: usize| EvaluatedPost {
            right: vec![usize::from(id >= 100)],
            ties: Vec::new(),
            best: 0,
            score: 0.5,
            abstained: false,
            weight: frame.weight(posts[id]),
        };
        let rows: Vec<EvaluatedPost> = (0..140).map(row).collect();
        let (outcome, precision) = frame.accuracy(&posts, &rows);
        let close = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-12;
        assert!(close(outcome.share, 6_704.0 / 8_018.0), "{outcome:?}");
        assert!(outcome.low < 6_704.0 / 8_018.0 && 6_704.0 / 8_018.0 < outcome.high);
        assert!(outcome.high - outcome.low < 0.06, "{outcome:?}");
        // Of the posts with a label, fewer are early.
        assert!(close(precision.share, 6_000.0 / 7_314.0), "{precision:?}");
        assert_eq!((outcome.of, outcome.all), (100, 140));
    }
}
