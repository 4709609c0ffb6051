//! Rows into batches. Pure: lengths go in, groups of rows of similar length come out.
//!
//! A batch is a rectangle: every row is as wide as the longest, and what is added computes nothing of use.
//! Sorted by length, real posts need 1 to 2% of padding; as they come they need three times the work. The
//! size of a batch is bounded by its padded tokens, since those are what time and memory follow.

use std::cmp::Ordering;

use super::folder::Fixed;
use super::text::Sequence;

/// One row to compute: which text against which label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BatchRow {
    /// Index of the text.
    pub text: usize,
    /// Index of the label; 0 for a model that reads texts alone.
    pub label: usize,
    /// Tokens, special ones included.
    pub len: usize,
}

/// How rows may be put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Any row with any other.
    Mixed,
    /// Only rows of one text, so that its scores do not depend on its batch mates.
    ByText,
}

/// Which shapes batches may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shapes {
    /// Any: as many rows as there are, as wide as the longest.
    #[default]
    Any,
    /// Few, because on a GPU a new shape costs: the arena grows for it, and cuDNN builds a plan for it and keeps that.
    /// Rows are filled up to a power of two, widths to one of eight in each doubling.
    Few {
        /// Tokens that the model reads at most: no batch is wider.
        window: usize,
    },
    /// Only rows of one width, which a row's own length decides, so that its score does not depend on its batch mates.
    OneWidth {
        /// As of `Few`.
        window: usize,
        /// How many rows a batch has at least; fewer are filled up.
        least: usize,
    },
}

/// Widths in each doubling, from 64 on: so a width is filled up by an eighth at most. benches/results/shapes.md has what
/// that costs on real lengths, and what other numbers would.
const STEPS: usize = 8;
/// No width is filled up to less than a multiple of this many tokens: the units of a GPU multiply blocks of eight.
const BLOCK: usize = 8;
/// Where rows of one width go together, widths are multiples of so many tokens: enough rows share one, and little is
/// filled up.
const STEP: usize = 4;
/// … and no narrower than this: a product of four rows or fewer has a kernel of its own, which adds up in another order.
const NARROWEST: usize = 16;
/// For the same reason: rows of a batch where the last layers read one token of each row.
pub(crate) const LEAST_ROWS: usize = 8;

impl Shapes {
    /// How wide a batch is whose longest row has so many tokens.
    pub fn width(self, longest: usize) -> usize {
        match self {
            Self::Any => longest,
            Self::Few { window } => {
                let step = (longest.next_power_of_two() / (2 * STEPS)).max(BLOCK);
                longest.next_multiple_of(step).min(window).max(longest)
            }
            Self::OneWidth { window, .. } => {
                let width = longest.max(NARROWEST).next_multiple_of(STEP);
                width.min(window).max(longest)
            }
        }
    }

    /// Whether two rows of so many tokens may share a batch.
    fn may_share(self, one: usize, other: usize) -> bool {
        !matches!(self, Self::OneWidth { .. }) || self.width(one) == self.width(other)
    }

    /// How many rows a batch has that so many rows are put in.
    pub fn rows(self, rows: usize) -> usize {
        match self {
            Self::Any => rows,
            Self::Few { .. } => rows.next_power_of_two(),
            Self::OneWidth { least, .. } => rows.max(least),
        }
    }

    /// How many rows so wide fit in a budget; at least one.
    fn most_rows(self, width: usize, budget: usize) -> usize {
        let most = (budget / width.max(1)).max(1);
        match self {
            Self::Any | Self::OneWidth { .. } => most,
            Self::Few { .. } => 1 << most.ilog2(),
        }
    }

    /// Padded tokens of a batch of so many rows, of which the longest has so many tokens.
    pub fn tokens(self, longest: usize, rows: usize) -> usize {
        self.width(longest) * self.rows(rows)
    }

    /// The sizes that a batch is filled up to; none where it stays as it is.
    pub(crate) fn of(self, batch: &Batch) -> Fixed {
        match self {
            Self::Any => Fixed::default(),
            Self::Few { .. } | Self::OneWidth { .. } => Fixed {
                rows: Some(self.rows(batch.rows())),
                width: Some(self.width(batch.width)),
            },
        }
    }
}

/// Groups rows, longest first, so that a batch stays within `budget` padded tokens. A row longer than the
/// budget is a batch of its own. The order is the same for the same rows in any order.
pub fn plan(
    mut rows: Vec<BatchRow>,
    budget: usize,
    grouping: Grouping,
    shapes: Shapes,
) -> Vec<Vec<BatchRow>> {
    rows.sort_unstable_by(|a, b| {
        let text = if grouping == Grouping::ByText {
            a.text.cmp(&b.text)
        } else {
            Ordering::Equal
        };
        // The longest first: attention grows with the square of the length, so a budget that is too large shows at
        // once. Then by index, because the result must not depend on the order of the rows.
        text.then(b.len.cmp(&a.len))
            .then((a.text, a.label).cmp(&(b.text, b.label)))
    });
    let mut batches: Vec<Vec<BatchRow>> = Vec::new();
    for row in rows {
        match batches.last_mut() {
            // The first row of a batch is its longest.
            Some(batch)
                if batch.len() < shapes.most_rows(shapes.width(batch[0].len), budget)
                    && (grouping == Grouping::Mixed || batch[0].text == row.text)
                    && shapes.may_share(batch[0].len, row.len) =>
            {
                batch.push(row);
            }
            _ => batches.push(vec![row]),
        }
    }
    batches
}

/// What an engine computes at once: `rows` × `width` token ids, filled up at the right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Token ids, row after row.
    pub ids: Vec<i64>,
    /// Type ids, row after row; 0 where filled up.
    pub type_ids: Vec<i64>,
    /// Length of each row before it was filled up.
    pub lens: Vec<usize>,
    /// Tokens of each row as it is laid out: the longest row's, or more.
    pub width: usize,
}

impl Batch {
    /// Lays out sequences side by side.
    pub fn new(sequences: &[Sequence], pad_id: u32) -> Self {
        let width = sequences.iter().map(|s| s.ids.len()).max().unwrap_or(0);
        let size = width * sequences.len();
        let mut batch = Self {
            ids: Vec::with_capacity(size),
            type_ids: Vec::with_capacity(size),
            lens: sequences.iter().map(|s| s.ids.len()).collect(),
            width,
        };
        for (row, sequence) in sequences.iter().enumerate() {
            batch
                .ids
                .extend(sequence.ids.iter().map(|id| i64::from(*id)));
            batch.ids.resize((row + 1) * width, i64::from(pad_id));
            batch
                .type_ids
                .extend(sequence.type_ids.iter().map(|id| i64::from(*id)));
            batch.type_ids.resize((row + 1) * width, 0);
        }
        batch
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.lens.len()
    }

    /// 1 where there is a token and 0 where filled up, row after row.
    pub fn attention_mask(&self) -> Vec<i64> {
        self.lens
            .iter()
            .flat_map(|len| (0..self.width).map(move |i| i64::from(i < *len)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Numbers that look random, the same on every run.
    fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
        let mut random = fastrand::Rng::with_seed(seed);
        move |below| random.usize(..below)
    }

    /// Lengths as on Reddit: a third short titles, the rest bodies with a long tail, cut at 512.
    fn rows(texts: usize, labels: usize, seed: u64) -> Vec<BatchRow> {
        let mut next = numbers(seed);
        (0..texts)
            .flat_map(|text| {
                let premise = if next(3) == 0 {
                    5 + next(20)
                } else {
                    20 + next(200) * (1 + next(4))
                };
                (0..labels).map(move |label| BatchRow {
                    text,
                    label,
                    len: (premise + 8 + label % 5).min(512),
                })
            })
            .collect()
    }

    #[test]
    fn every_row_is_in_one_batch_and_every_batch_within_its_budget() {
        for seed in 0..40 {
            let mut next = numbers(seed + 1000);
            let rows = rows(1 + next(60), 1 + next(17), seed);
            for grouping in [Grouping::Mixed, Grouping::ByText] {
                let budget = 1 + next(5000);
                let batches = plan(rows.clone(), budget, grouping, Shapes::Any);
                let mut seen: Vec<BatchRow> = batches.iter().flatten().copied().collect();
                seen.sort_by_key(|row| (row.text, row.label));
                assert_eq!(seen, rows);
                for batch in &batches {
                    let width = batch.iter().map(|row| row.len).max().unwrap();
                    assert!(batch.len() == 1 || width * batch.len() <= budget);
                    assert!(
                        grouping == Grouping::Mixed
                            || batch.iter().all(|row| row.text == batch[0].text)
                    );
                }
            }
        }
    }

    #[test]
    fn rows_of_one_width_go_together_and_no_others() {
        let window = 510;
        let shapes = Shapes::OneWidth { window, least: 1 };
        for seed in 0..20 {
            let mut rows = rows(40, 3, seed);
            for row in &mut rows {
                row.len = row.len.min(window);
            }
            let batches = plan(rows.clone(), 900, Grouping::Mixed, shapes);
            assert_eq!(batches.iter().flatten().count(), rows.len());
            for batch in &batches {
                let width = shapes.width(batch[0].len);
                assert!(width == window || width.is_multiple_of(STEP), "{width}");
                assert!(batch.iter().all(|row| shapes.width(row.len) == width));
                assert!(batch.len() == 1 || width * batch.len() <= 900);
            }
        }
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    fn few_shapes_stay_few_and_cost_little_padding() {
        const FEW: Shapes = Shapes::Few { window: 512 };
        let (budget, mut seen, mut real, mut padded) = (16_384, HashSet::new(), 0, 0);
        // Windows as `classify` reads them, one after another: what comes later brings hardly a new shape.
        for seed in 0..6 {
            let rows = rows(1000, 16, seed);
            let batches = plan(rows.clone(), budget, Grouping::Mixed, FEW);
            assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), rows.len());
            for batch in &batches {
                let (width, rows) = (FEW.width(batch[0].len), FEW.rows(batch.len()));
                assert!(width >= batch[0].len && rows >= batch.len());
                assert!(width * rows <= budget, "{rows} × {width}");
                seen.insert((rows, width));
                padded += width * rows;
            }
            real += rows.iter().map(|row| row.len).sum::<usize>();
        }
        assert!(seen.len() <= 40, "{} shapes", seen.len());
        let ratio = padded as f64 / real as f64;
        assert!(ratio < 1.06, "{ratio}");
    }

    #[test]
    fn a_width_is_filled_up_by_an_eighth_at_most_and_never_past_the_window() {
        let few = |window| Shapes::Few { window };
        for (longest, width) in [
            (1, 8),
            (8, 8),
            (9, 16),
            (64, 64),
            (65, 72),
            (129, 144),
            (500, 512),
        ] {
            assert_eq!(few(512).width(longest), width, "{longest}");
        }
        for longest in 64..512 {
            let width = few(512).width(longest);
            assert!(width >= longest && width * 8 <= longest * 9, "{longest}");
        }
        assert_eq!(few(500).width(499), 500);
        // A row may be longer than the window only where the caller says so, and is never cut.
        assert_eq!(few(100).width(120), 120);
        assert_eq!(
            (few(9).rows(3), few(9).rows(4), Shapes::Any.rows(3)),
            (4, 4, 3)
        );
        assert_eq!(few(512).most_rows(100, 16_384), 128);
        assert_eq!(
            (few(512).most_rows(100, 7), few(512).most_rows(0, 7)),
            (1, 4)
        );
    }
}
