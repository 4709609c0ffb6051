//! Splits a data set into train, validation and test parts without leaking near-duplicates between them.
//!
//! Takes the text, the outcome and the time of each row, and returns the row's part. Near-duplicate posts form a group
//! that is kept together, so that no model is tested on a text it was trained on. The oldest post in a group decides
//! the group's part, so later posts do not move it. Near-duplicates are found with `MinHash`, which keeps
//! [`BYTES_PER_POST`] bytes per post and no text.

mod sketch;

use std::collections::BTreeMap;
use std::str::FromStr;

use self::sketch::{PERMUTATIONS, Sketch, is_near_duplicate, sketch};
use super::columns::text_hash_index;
use topicmill_core::{ColumnCell, ColumnCells, ColumnKind};
use topicmill_store::ColumnBatch;

/// Number of bands in a sketch; posts that agree in a band are compared. Two posts with similarity s agree in at least
/// one band with probability 1 − (1 − s⁵)²⁵: 99 % at s = 0.7, but 0.8 % at s = 0.2 (Leskovec, Rajaraman, Ullman,
/// "Mining of Massive Datasets", section 3.4).
const BANDS: usize = 25;
/// Number of values in a band.
const ROWS: usize = 5;
/// Maximum number of preceding posts with an equal band that a post is compared with, in addition to the first. This
/// bounds the cost of bands that are equal by chance because of common words.
const MAX_COMPARED: usize = 8;
/// Number of bytes in memory for each post during the split: the sketch, then the hash, the time, the outcome, the
/// gold flag, the group, and an entry for sorting a band.
pub const BYTES_PER_POST: usize = PERMUTATIONS + 8 + 8 + 2 + 1 + 4 + 16;
/// Number of sketches in a block. Growing adds a block instead of copying all sketches.
const BLOCK: usize = 1 << 14;

/// The criterion that assigns a group to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SplitBy {
    /// The text hash decides: a post is in the same part in every later data set.
    Text,
    /// The posting time decides: the oldest posts with each outcome are in the first part.
    Time,
}

/// A requested split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Split {
    /// Parts with given shares.
    Shares {
        /// The shares of the parts in percent, which add up to 100.
        shares: Shares,
        /// The criterion.
        by: SplitBy,
    },
    /// Posts with a gold label, and their near-duplicates, are `test`; all others are `train`.
    Gold,
}

impl Split {
    /// Returns the names of the parts with their requested shares in percent.
    pub fn parts(&self) -> Vec<(&'static str, Option<u32>)> {
        match self {
            Self::Gold => vec![("train", None), ("test", None)],
            Self::Shares { shares, .. } => {
                let parts = shares.parts();
                parts.map(|(name, share)| (name, Some(share))).collect()
            }
        }
    }
}

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "gold" => Ok(Self::Gold),
            shares => Ok(Self::Shares {
                shares: shares.parse()?,
                by: SplitBy::Text,
            }),
        }
    }
}

/// The shares of two or three parts in percent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shares(Vec<u32>);

impl Shares {
    /// Returns the names of the parts with their shares.
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
        Err("use `gold`, or two or three positive integers that add up to 100: 80/20 for train and test, 80/10/10 \
             for train, validation and test"
            .to_owned())
    }
}

/// Collects the rows to split.
pub(super) struct Splitter {
    sketches: Vec<Vec<Sketch>>,
    hashes: Vec<u64>,
    times: Vec<i64>,
    outcomes: Vec<u16>,
    has_gold: Vec<bool>,
    names: BTreeMap<String, u16>,
}

/// The result of a split.
pub(super) struct Assigned {
    /// The part that each row belongs to.
    pub parts: Vec<u8>,
    /// Number of groups with more than one post.
    pub groups: u64,
    /// The start of each row's text hash, to compare the second read with the first.
    pub hashes: Vec<u64>,
}

impl Assigned {
    /// Returns the parts for a batch whose first row has index `begin`; `None` if the rows differ from the first read.
    pub fn batch_parts(&self, begin: usize, batch: &ColumnBatch) -> Option<&[u8]> {
        let rows = begin..begin + batch.rows;
        let hashes = self.hashes.get(rows.clone())?;
        let found = batch.columns[text_hash_index()].cells().map(hash_prefix);
        found.eq(hashes.iter().copied()).then(|| &self.parts[rows])
    }
}

/// Returns the first 64 bits of a text hash.
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
            has_gold: Vec::new(),
            names: BTreeMap::new(),
        }
    }

    /// Adds rows with the columns [`super::columns::SPLIT_COLUMNS`].
    pub fn add(&mut self, batch: &ColumnBatch) {
        // The columns arrive in the order in which the fixed columns are defined.
        let [titles, texts, times, outcomes, gold, hashes] =
            [0, 1, 2, 3, 4, 5].map(|column| batch.columns[column].cells());
        let gold = gold.map(|gold| matches!(gold, ColumnCell::Text(_)));
        self.has_gold.extend(gold);
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

    /// Assigns all rows to parts.
    pub fn assign(mut self, split: &Split) -> Assigned {
        let mut groups = self.groups();
        // This frees most of the memory: only the groups are needed from here on.
        drop(std::mem::take(&mut self.sketches));
        let rows = groups.len();
        // Each parent is replaced with the root of the group, which is its oldest post.
        for row in 0..rows {
            let (root, row) = (find(&mut groups, row), row);
            debug_assert!(
                self.age(root) <= self.age(row),
                "the oldest post is the root"
            );
            groups[row] = u32::try_from(root).expect("rows are counted in 32 bits");
        }
        let mut sizes = vec![0_u32; rows];
        for root in &groups {
            sizes[*root as usize] += 1;
        }
        let roots = match split {
            Split::Gold => self.by_gold(&groups),
            Split::Shares {
                shares,
                by: SplitBy::Text,
            } => self.by_text(&groups, shares),
            Split::Shares {
                shares,
                by: SplitBy::Time,
            } => self.by_time(&groups, &sizes, shares),
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

    /// Groups near-duplicates with union-find. Returns the parent of each row.
    fn groups(&self) -> Vec<u32> {
        let rows = u32::try_from(self.hashes.len()).expect("fewer than four billion posts");
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
            // Sorting brings equal bands together without a hash map of all of them.
            sorted.sort_unstable();
            for same in sorted.chunk_by(|a, b| a.0 == b.0) {
                for (i, (_, row)) in same.iter().enumerate().skip(1) {
                    // The nearest are compared first because copies tend to be stored one after another.
                    let others = same[i.saturating_sub(MAX_COMPARED)..i].iter().rev();
                    for (_, other) in others.chain([&same[0]]) {
                        // Comparing sketches is expensive, and unnecessary within one group.
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

    /// Assigns groups by the position of their oldest post's hash in the range of hashes. This does not depend on
    /// labels, so each label is split in about the same shares.
    fn by_text(&self, groups: &[u32], shares: &Shares) -> Vec<u8> {
        let mut ends = Vec::new();
        let mut sum = 0;
        for (_, share) in shares.parts() {
            sum += u128::from(share);
            // This needs 128 bits: the end of the last part is 2⁶⁴.
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

    /// Assigns groups that contain a post with a gold label to the second part.
    fn by_gold(&self, groups: &[u32]) -> Vec<u8> {
        let mut parts = vec![0; groups.len()];
        for (root, has_gold) in groups.iter().zip(&self.has_gold) {
            parts[*root as usize] |= u8::from(*has_gold);
        }
        parts
    }

    /// Assigns the oldest groups for each outcome first. A part is full when it has its share of the posts with that
    /// outcome.
    fn by_time(&self, groups: &[u32], sizes: &[u32], shares: &Shares) -> Vec<u8> {
        let mut roots: Vec<usize> = (0..groups.len()).filter(|row| sizes[*row] > 0).collect();
        roots.sort_unstable_by_key(|root| (self.outcomes[*root], self.age(*root)));
        let mut parts = vec![0; groups.len()];
        for same in roots.chunk_by(|a, b| self.outcomes[*a] == self.outcomes[*b]) {
            let all: u64 = same.iter().map(|root| u64::from(sizes[*root])).sum();
            let mut before = 0;
            for root in same {
                // The middle of a group decides, so that a large group at a boundary goes where most of it belongs.
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

/// Returns the root of a row's group and halves the path to it.
fn find(groups: &mut [u32], mut row: usize) -> usize {
    while groups[row] as usize != row {
        // Path halving.
        groups[row] = groups[groups[row] as usize];
        row = groups[row] as usize;
    }
    row
}

/// Builds the split column for a file.
pub(super) fn column(parts: &[u8], split: &Split) -> ColumnCells {
    let names = split.parts();
    let mut column = ColumnCells::new(ColumnKind::Text);
    for part in parts {
        column.push(ColumnCell::Text(names[usize::from(*part)].0));
    }
    column
}

#[cfg(test)]
mod tests;
