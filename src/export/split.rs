//! Parts of a data set to train and to judge by, so that no part knows a text of another.
//!
//! What enters are the texts, outcomes and times of all rows; what leaves is the part of each row. Posts whose texts are
//! almost the same go together, as a group: a model that was trained on one of them would be judged by what it has seen.
//! A group goes where its oldest post goes, so that later posts do not move it. Near-duplicates are found by `MinHash`,
//! which needs no text again: of each post stay [`BYTES_PER_POST`] bytes.

use std::collections::BTreeMap;
use std::str::FromStr;

use minhash_rs::prelude::MinHash;

use super::columns::text_hash_index;
use topicmill_core::{ColumnCell, ColumnCells, ColumnKind};
use topicmill_store::ColumnBatch;

/// Words of a shingle: texts are alike as far as they share these.
const SHINGLE: usize = 3;
/// Values of a sketch. The error of the likeness is 1/√128 at most, 9 %.
const PERMUTATIONS: usize = 128;
/// Bands of a sketch: posts that agree in one are compared. Of two posts that are alike to 70 %, by 1 − (1 − 0.7⁵)²⁵, 99 of
/// 100 agree in one; to 80 %, all but 5 of 100,000; to 20 %, 8 of 1,000 (Leskovec, Rajaraman, Ullman, "Mining of Massive
/// Datasets", section 3.4).
const BANDS: usize = 25;
/// Values of a band.
const ROWS: usize = 5;
/// With so many posts that agree in a band before it a post is compared, and with the first. Agreeing by chance, in words that
/// everybody uses, must not cost the square of the posts.
const MAX_COMPARED: usize = 8;
/// As alike two texts of a group are at least: what the data of `StarCoder` was cleaned of near-duplicates with (Li et al. 2023,
/// section 3.4).
const MIN_SIMILARITY: f64 = 0.7;
/// What is in memory of a post while parts are decided: its sketch of one byte a value, then hash, time, outcome and group,
/// and its place when a band is sorted.
pub const BYTES_PER_POST: usize = PERMUTATIONS + 8 + 8 + 2 + 4 + 16;
/// Sketches of a block, so that no list of all of them is ever copied to grow.
const BLOCK: usize = 1 << 14;

/// The last byte of each value: where the values differ, 255 of 256 of these do.
type Sketch = [u8; PERMUTATIONS];

/// What decides where a group of posts goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitBy {
    /// The hash of its text: it is in the same part in the next data set, too.
    Text,
    /// The time: of each outcome the oldest posts are in the first part.
    Time,
}

/// How a data set is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The shares of the parts in percent; together 100.
    pub shares: Shares,
    /// What decides.
    pub by: SplitBy,
}

/// Shares in percent, of two parts or three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares(Vec<u32>);

impl Shares {
    /// The parts with their shares.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let names: &[&str] = match self.0.len() {
            2 => &["train", "test"],
            _ => &["train", "validation", "test"],
        };
        names.iter().copied().zip(self.0.iter().copied())
    }
}

impl FromStr for Shares {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shares: Result<Vec<u32>, _> =
            text.split('/').map(|share| share.trim().parse()).collect();
        let shares = shares.unwrap_or_default();
        let sum: u64 = shares.iter().map(|share| u64::from(*share)).sum();
        if matches!(shares.len(), 2 | 3) && sum == 100 && shares.iter().all(|share| *share > 0) {
            return Ok(Self(shares));
        }
        Err("give two or three whole numbers above 0 that are 100 together: 80/20 for train and test, 80/10/10 for train, \
             validation and test"
            .to_owned())
    }
}

/// Gathers what decides.
pub(super) struct Splitter {
    sketches: Vec<Vec<Sketch>>,
    hashes: Vec<u64>,
    times: Vec<i64>,
    outcomes: Vec<u16>,
    names: BTreeMap<String, u16>,
}

/// The part of each row.
pub(super) struct Assigned {
    /// By row.
    pub parts: Vec<u8>,
    /// Groups of more than one post.
    pub groups: u64,
    /// By row the beginning of the hash of its text, by which a second reading is held against the first.
    pub hashes: Vec<u64>,
}

impl Assigned {
    /// The parts of a batch of all columns whose first row is row `begin`; `None` if these are not the rows that were
    /// sorted.
    pub fn of(&self, begin: usize, batch: &ColumnBatch) -> Option<&[u8]> {
        let rows = begin..begin + batch.rows;
        let hashes = self.hashes.get(rows.clone())?;
        let found = batch.columns[text_hash_index()].cells().map(hash_prefix);
        found.eq(hashes.iter().copied()).then(|| &self.parts[rows])
    }
}

/// The beginning of a text's hash.
pub(super) fn hash_prefix(hash: ColumnCell<'_>) -> u64 {
    match hash {
        ColumnCell::Text(hash) => {
            u64::from_str_radix(hash.get(..16).unwrap_or("0"), 16).unwrap_or(0)
        }
        _ => 0,
    }
}

impl Splitter {
    pub fn new() -> Self {
        Self {
            sketches: Vec::new(),
            hashes: Vec::new(),
            times: Vec::new(),
            outcomes: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    /// Adds rows of [`super::columns::SPLIT_COLUMNS`].
    pub fn add(&mut self, batch: &ColumnBatch) {
        // In the order of the fixed columns.
        let [titles, texts, times, outcomes, hashes] =
            [0, 1, 2, 3, 4].map(|column| batch.columns[column].cells());
        let text = |cell| match cell {
            ColumnCell::Text(text) => text,
            _ => "",
        };
        let rows = titles.zip(texts).zip(times.zip(outcomes)).zip(hashes);
        for (((title, body), (time, outcome)), hash) in rows {
            let hash = hash_prefix(hash);
            let sketch = sketch(text(title), text(body), hash);
            if self.hashes.len().is_multiple_of(BLOCK) {
                self.sketches.push(Vec::with_capacity(BLOCK));
            }
            let block = self.sketches.last_mut().expect("pushed above");
            block.push(sketch);
            self.hashes.push(hash);
            self.times.push(match time {
                ColumnCell::Time(time) => time,
                _ => 0,
            });
            let outcome = text(outcome);
            let next = u16::try_from(self.names.len()).unwrap_or(u16::MAX);
            let outcome = match self.names.get(outcome) {
                Some(outcome) => *outcome,
                None => *self.names.entry(outcome.to_owned()).or_insert(next),
            };
            self.outcomes.push(outcome);
        }
    }

    fn sketch(&self, row: u32) -> &Sketch {
        let row = row as usize;
        &self.sketches[row / BLOCK][row % BLOCK]
    }

    /// Decides.
    pub fn assign(mut self, split: &Split) -> Assigned {
        let mut groups = self.groups();
        // Most of the memory: from here on only the groups count.
        drop(std::mem::take(&mut self.sketches));
        let rows = groups.len();
        // A group is named by its oldest post.
        for row in 0..rows {
            let (root, row) = (find(&mut groups, row), row);
            debug_assert!(
                self.age(root) <= self.age(row),
                "the older one becomes the root"
            );
            groups[row] = u32::try_from(root).expect("rows are counted in 32 bits");
        }
        let mut sizes = vec![0_u32; rows];
        for root in &groups {
            sizes[*root as usize] += 1;
        }
        let roots = match split.by {
            SplitBy::Text => self.by_text(&groups, &split.shares),
            SplitBy::Time => self.by_time(&groups, &sizes, &split.shares),
        };
        Assigned {
            parts: groups.iter().map(|root| roots[*root as usize]).collect(),
            groups: sizes.iter().filter(|size| **size > 1).count() as u64,
            hashes: self.hashes,
        }
    }

    fn age(&self, row: usize) -> (i64, u64, usize) {
        (self.times[row], self.hashes[row], row)
    }

    /// For each row another one of its group, or itself.
    fn groups(&self) -> Vec<u32> {
        let rows = u32::try_from(self.hashes.len()).expect("nobody stores four billion posts");
        let mut groups: Vec<u32> = (0..rows).collect();
        let mut sorted: Vec<(u64, u32)> = Vec::with_capacity(groups.len());
        for band in 0..BANDS {
            sorted.clear();
            sorted.extend((0..rows).map(|row| {
                let band = &self.sketch(row)[band * ROWS..][..ROWS];
                let key = band
                    .iter()
                    .fold(0, |key, value| key << 8 | u64::from(*value));
                (key, row)
            }));
            // Sorting brings equal bands side by side, without a map of all of them in memory.
            sorted.sort_unstable();
            for same in sorted.chunk_by(|a, b| a.0 == b.0) {
                for (i, (_, row)) in same.iter().enumerate().skip(1) {
                    // The nearest first: copies tend to be stored one after the other.
                    let others = same[i.saturating_sub(MAX_COMPARED)..i].iter().rev();
                    for (_, other) in others.chain([&same[0]]) {
                        // Comparing sketches is dear, and two posts of one group need no proof.
                        let known =
                            find(&mut groups, *row as usize) == find(&mut groups, *other as usize);
                        if !known && is_near_duplicate(self.sketch(*other), self.sketch(*row)) {
                            self.unite(&mut groups, *other, *row);
                        }
                    }
                }
            }
        }
        groups
    }

    fn unite(&self, groups: &mut [u32], one: u32, other: u32) {
        let (one, other) = (find(groups, one as usize), find(groups, other as usize));
        let (older, younger) = if self.age(one) <= self.age(other) {
            (one, other)
        } else {
            (other, one)
        };
        groups[younger] = u32::try_from(older).expect("rows are counted in 32 bits");
    }

    /// By where the hash lies between 0 and its largest value. It does not depend on the label, so that of each label
    /// about the same share goes to a part.
    fn by_text(&self, groups: &[u32], shares: &Shares) -> Vec<u8> {
        let mut ends = Vec::new();
        let mut sum = 0;
        for (_, share) in shares.parts() {
            sum += u128::from(share);
            // In 128 bits: the border of the last part is 2⁶⁴, one more than a hash can be.
            ends.push((sum << 64) / 100);
        }
        let part = |hash: u64| {
            ends.iter()
                .take_while(|end| u128::from(hash) >= **end)
                .count()
        };
        let parts = (0..groups.len()).map(|row| u8::try_from(part(self.hashes[row])));
        parts
            .map(|part| part.expect("three parts at most"))
            .collect()
    }

    /// Of each outcome the oldest groups come first; a part is full when it has its share of their posts.
    fn by_time(&self, groups: &[u32], sizes: &[u32], shares: &Shares) -> Vec<u8> {
        let mut roots: Vec<usize> = (0..groups.len()).filter(|row| sizes[*row] > 0).collect();
        roots.sort_unstable_by_key(|root| (self.outcomes[*root], self.age(*root)));
        let mut parts = vec![0; groups.len()];
        for same in roots.chunk_by(|a, b| self.outcomes[*a] == self.outcomes[*b]) {
            let all: u64 = same.iter().map(|root| u64::from(sizes[*root])).sum();
            let mut before = 0;
            for root in same {
                // The middle of a group decides, so that a large one at a border goes where most of it lies.
                let middle = 2 * before + u64::from(sizes[*root]);
                let mut sum = 0;
                let full = shares.parts().take_while(|(_, share)| {
                    sum += u64::from(*share);
                    middle * 50 >= sum * all
                });
                parts[*root] = u8::try_from(full.count()).expect("three parts at most");
                before += u64::from(sizes[*root]);
            }
        }
        parts
    }
}

/// The root of a row's group; shortens the way to it.
fn find(groups: &mut [u32], mut row: usize) -> usize {
    while groups[row] as usize != row {
        // Each step leaves the way half as long for the next call.
        groups[row] = groups[groups[row] as usize];
        row = groups[row] as usize;
    }
    row
}

fn is_near_duplicate(a: &Sketch, b: &Sketch) -> bool {
    let same = a.iter().zip(b).filter(|(a, b)| a == b).count();
    #[expect(clippy::cast_precision_loss, reason = "at most 128")]
    let same = same as f64 / PERMUTATIONS as f64;
    same >= MIN_SIMILARITY
}

/// The sketch of a text's shingles. Words are runs of letters and digits, whatever their case. A text of fewer words than a
/// shingle has is one shingle; a text without any is like those with its hash alone.
fn sketch(title: &str, body: &str, hash: u64) -> Sketch {
    let words = [title, body].into_iter().flat_map(|text| {
        text.split(|letter: char| !letter.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(word_hash)
    });
    let words: Vec<u64> = words.collect();
    let sketch: MinHash<u64, PERMUTATIONS> = match words.len() {
        0 => std::iter::once(hash).collect(),
        1..SHINGLE => std::iter::once(joined(&words)).collect(),
        _ => words.windows(SHINGLE).map(joined).collect(),
    };
    sketch.into_words().map(|value| value.to_le_bytes()[0])
}

/// FNV-1a (RFC 9923) of a word in small letters: it must be the same in each version of this program.
fn word_hash(word: &str) -> u64 {
    let letters = word.chars().flat_map(char::to_lowercase);
    letters.fold(FNV_OFFSET, |hash, letter| {
        (hash ^ u64::from(letter)).wrapping_mul(FNV_PRIME)
    })
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn joined(words: &[u64]) -> u64 {
    words.iter().fold(FNV_OFFSET, |hash, word| {
        // Rotated, so that the order of the words counts.
        (hash.rotate_left(5) ^ word).wrapping_mul(FNV_PRIME)
    })
}

/// The name of each row's part, for a column of a file.
pub(super) fn column(parts: &[u8], shares: &Shares) -> ColumnCells {
    let names: Vec<&str> = shares.parts().map(|(name, _)| name).collect();
    let mut column = ColumnCells::new(ColumnKind::Text);
    for part in parts {
        column.push(ColumnCell::Text(names[usize::from(*part)]));
    }
    column
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_two_or_three_and_a_hundred() {
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
            // Hashes that are spread evenly.
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
        Split {
            shares: shares.parse().unwrap(),
            by,
        }
    }

    #[test]
    fn almost_the_same_texts_go_together_and_others_do_not() {
        let story = "we walked along the river until the bridge was in sight and then the rain began to fall on all of us";
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
            "named by the oldest"
        );
        assert_eq!(
            [root(3), root(4), root(5), root(6), root(7)],
            [3, 4, 4, 6, 7]
        );
    }

    #[test]
    fn shares_are_kept_in_each_label_and_a_later_post_moves_nobody() {
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
                let of = |part: u8| {
                    let rows = parts.iter().zip(&posts);
                    rows.filter(|(p, post)| **p == part && post.2 == label)
                        .count()
                };
                let sizes = [of(0), of(1), of(2)];
                let all: usize = sizes.iter().sum();
                for (size, wanted) in sizes.iter().zip([80, 10, 10]) {
                    let off = (size * 100).abs_diff(wanted * all);
                    // Five standard deviations of the hash's chance.
                    assert!(off < all * 3, "{by:?} {label} {sizes:?}");
                }
            }
        }
        let by_time = splitter(&posts)
            .assign(&split("80/20", SplitBy::Time))
            .parts;
        assert!(
            by_time.is_sorted_by_key(|part| *part),
            "times rise, and so do parts"
        );
    }
}
