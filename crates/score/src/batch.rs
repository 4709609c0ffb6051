//! Plans batches: groups rows of similar length. This module does no I/O and runs no model.
//!
//! Every row of a batch is padded to the length of the longest row, and padding is wasted work. Padding adds 1 to 2 %
//! to real posts sorted by length, but triples the work if they are unsorted. A batch's size is limited in padded
//! tokens, because they determine time and memory.

use std::cmp::Ordering;

use super::device::Device;
use super::folder::FixedShape;
use super::text::Sequence;

/// Default batch size on a CPU in padded tokens, per thread. Batches of this size stay in cache and need little
/// padding; smaller ones leave threads underused (benches/results/python.md).
const THREAD_BATCH_TOKENS: usize = 256;
/// Upper limit of this default, for any number of threads; larger batches are slower (benches/results/stages.md).
const CPU_BATCH_TOKENS: usize = 1_024;
/// Default batch size on a GPU in padded tokens, large enough to hide the launch overhead. The labeler halves it while
/// memory runs out.
const CUDA_BATCH_TOKENS: usize = 16_384;

/// Returns the default batch size in padded tokens, for this number of threads.
pub fn batch_tokens_for(device: Device, threads: usize) -> usize {
    match device {
        Device::Cpu | Device::Auto => {
            let of_threads = threads.max(1).saturating_mul(THREAD_BATCH_TOKENS);
            of_threads.min(CPU_BATCH_TOKENS)
        }
        Device::Cuda(_) => CUDA_BATCH_TOKENS,
    }
}

/// One row to compute: a text, or a pair of a text and a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRow<'a> {
    /// Index of the text.
    pub text: usize,
    /// Index of the label; 0 for a model that reads texts alone.
    pub label: usize,
    /// Its tokens.
    pub sequence: Sequence<'a>,
}

impl BatchRow<'_> {
    /// Returns the number of tokens, special tokens included.
    pub fn tokens(&self) -> usize {
        self.sequence.tokens()
    }
}

/// Constraint on the rows that may share a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Any rows.
    Mixed,
    /// Rows of one text only, so that its scores do not depend on other texts.
    ByText,
}

/// Constraint on the shapes of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shapes {
    /// Any shape: as many rows as planned, as wide as the longest row.
    #[default]
    Any,
    /// A small set of shapes, because each new shape is expensive on a GPU: the memory arena grows, and cuDNN builds
    /// and caches a plan. Row counts are padded to a power of two, widths to one of eight steps per doubling.
    Few {
        /// Token limit of the model; no batch is wider.
        window: usize,
    },
    /// One width per batch, determined by the length of each row alone, so that a score does not depend on the other
    /// rows.
    OneWidth {
        /// Token limit of the model; no batch is wider.
        window: usize,
        /// Minimum number of rows; smaller batches are padded.
        min_rows: usize,
    },
}

/// Widths per doubling, from 64 on, so that padding adds at most an eighth. See benches/results/gpu.md for the cost on
/// real lengths and for different values.
const STEPS: usize = 8;
/// Widths are multiples of this: GPU matrix units work on blocks of eight.
const BLOCK: usize = 8;
/// Widths of `OneWidth` are multiples of this: coarse enough that rows share a width, fine enough for little padding.
const STEP: usize = 4;
/// Minimum width of `OneWidth`: matrix products over four tokens or fewer use a kernel with a different order of
/// summation.
const MIN_WIDTH: usize = 16;
/// Minimum number of rows for a model whose last layers read one token per row, for the same reason.
pub(crate) const MIN_ROWS: usize = 8;

impl Shapes {
    /// Returns a batch's width, given the length of its longest row.
    pub fn width(self, longest: usize) -> usize {
        match self {
            Self::Any => longest,
            Self::Few { window } => {
                let step = (longest.next_power_of_two() / (2 * STEPS)).max(BLOCK);
                longest.next_multiple_of(step).min(window).max(longest)
            }
            Self::OneWidth { window, .. } => {
                let width = longest.max(MIN_WIDTH).next_multiple_of(STEP);
                width.min(window).max(longest)
            }
        }
    }

    /// Returns true if rows of these two lengths may share a batch.
    fn may_share(self, one: usize, other: usize) -> bool {
        !matches!(self, Self::OneWidth { .. }) || self.width(one) == self.width(other)
    }

    /// Returns the number of rows in a batch after padding.
    pub fn rows(self, rows: usize) -> usize {
        match self {
            Self::Any => rows,
            Self::Few { .. } => rows.next_power_of_two(),
            Self::OneWidth { min_rows, .. } => rows.max(min_rows),
        }
    }

    /// Returns the number of rows of this width that fit in the budget, at least one.
    fn max_rows(self, width: usize, budget: usize) -> usize {
        let most = (budget / width.max(1)).max(1);
        match self {
            Self::Any | Self::OneWidth { .. } => most,
            Self::Few { .. } => 1 << most.ilog2(),
        }
    }

    /// Returns the number of padded tokens in a batch, given the length of its longest row and its number of rows.
    pub fn tokens(self, longest: usize, rows: usize) -> usize {
        self.width(longest) * self.rows(rows)
    }

    /// Returns the shape to pad a batch to, given the length of its longest row, its number of rows, and the sizes that
    /// the graph fixes. [`Shapes::Any`] fixes no others.
    pub(crate) fn padded_shape(self, longest: usize, rows: usize, fixed: FixedShape) -> FixedShape {
        match self {
            Self::Any => fixed,
            Self::Few { .. } | Self::OneWidth { .. } => FixedShape {
                rows: fixed.rows.or(Some(self.rows(rows))),
                width: fixed.width.or(Some(self.width(longest))),
            },
        }
    }
}

/// Groups rows, longest first, into batches of at most `budget` padded tokens. A row longer than the budget gets its
/// own batch. The result does not depend on the order of the input.
pub fn plan<'a>(
    mut rows: Vec<BatchRow<'a>>,
    budget: usize,
    grouping: Grouping,
    shapes: Shapes,
) -> Vec<Vec<BatchRow<'a>>> {
    rows.sort_unstable_by(|a, b| {
        let text = if grouping == Grouping::ByText {
            a.text.cmp(&b.text)
        } else {
            Ordering::Equal
        };
        // Longest first: the memory of attention grows with the square of the length, so a budget that is too large
        // fails at once. Ties are sorted by index, to make the result independent of the input order.
        text.then(b.tokens().cmp(&a.tokens()))
            .then((a.text, a.label).cmp(&(b.text, b.label)))
    });
    let mut batches: Vec<Vec<BatchRow<'a>>> = Vec::new();
    for row in rows {
        match batches.last_mut() {
            // The first row of a batch is its longest.
            Some(batch)
                if batch.len() < shapes.max_rows(shapes.width(batch[0].tokens()), budget)
                    && (grouping == Grouping::Mixed || batch[0].text == row.text)
                    && shapes.may_share(batch[0].tokens(), row.tokens()) =>
            {
                batch.push(row);
            }
            _ => batches.push(vec![row]),
        }
    }
    batches
}

/// Input of one inference call: `rows` × `width` token ids, padded on the right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Token ids, row by row.
    pub ids: Vec<i64>,
    /// Type ids, row by row; 0 in the padding.
    pub type_ids: Vec<i64>,
    /// Length of each row without padding.
    pub lens: Vec<usize>,
    /// Padded width: the length of the longest row, or more.
    pub width: usize,
}

impl Batch {
    /// Lays out rows of token ids and type ids, padded to `width`, which is at least the length of the longest row.
    pub fn new<R: IntoIterator<Item = (u32, u32)>>(
        rows: impl IntoIterator<Item = R>,
        width: usize,
        pad_id: u32,
    ) -> Self {
        let (mut ids, mut type_ids, mut lens) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let start = ids.len();
            for (id, type_id) in row {
                ids.push(i64::from(id));
                type_ids.push(i64::from(type_id));
            }
            lens.push(ids.len() - start);
            ids.resize(start + width, pad_id.into());
            type_ids.resize(start + width, 0);
        }
        Self {
            ids,
            type_ids,
            lens,
            width,
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.lens.len()
    }

    /// Returns 1 for each token and 0 for padding, row by row.
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

    /// Pseudo-random numbers with a fixed seed.
    fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
        let mut random = fastrand::Rng::with_seed(seed);
        move |below| random.usize(..below)
    }

    fn sequence(len: usize) -> Sequence<'static> {
        static IDS: [u32; 512] = [0; 512];
        Sequence::without_specials(&IDS[..len])
    }

    /// Row lengths distributed as on Reddit: a third are short titles, the rest bodies with a long tail, cut at 512.
    fn rows(texts: usize, labels: usize, seed: u64) -> Vec<BatchRow<'static>> {
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
                    sequence: sequence((premise + 8 + label % 5).min(512)),
                })
            })
            .collect()
    }

    #[test]
    fn every_row_is_in_one_batch_and_every_batch_is_within_budget() {
        for seed in 0..40 {
            let mut next = numbers(seed + 1000);
            let rows = rows(1 + next(60), 1 + next(17), seed);
            for grouping in [Grouping::Mixed, Grouping::ByText] {
                let budget = 1 + next(5000);
                let batches = plan(rows.clone(), budget, grouping, Shapes::Any);
                let mut seen: Vec<BatchRow<'_>> = batches.iter().flatten().copied().collect();
                seen.sort_by_key(|row| (row.text, row.label));
                assert_eq!(seen, rows);
                for batch in &batches {
                    let width = batch.iter().map(BatchRow::tokens).max().unwrap();
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
    fn one_width_batches_only_rows_of_equal_width() {
        let window = 510;
        let shapes = Shapes::OneWidth {
            window,
            min_rows: 1,
        };
        for seed in 0..20 {
            let mut rows = rows(40, 3, seed);
            for row in &mut rows {
                row.sequence = sequence(row.tokens().min(window));
            }
            let batches = plan(rows.clone(), 900, Grouping::Mixed, shapes);
            assert_eq!(batches.iter().flatten().count(), rows.len());
            for batch in &batches {
                let width = shapes.width(batch[0].tokens());
                assert!(width == window || width.is_multiple_of(STEP), "{width}");
                assert!(batch.iter().all(|row| shapes.width(row.tokens()) == width));
                assert!(batch.len() == 1 || width * batch.len() <= 900);
            }
        }
    }

    #[test]
    fn few_shapes_limits_shapes_and_padding() {
        const FEW: Shapes = Shapes::Few { window: 512 };
        let (budget, mut seen, mut real, mut padded) = (16_384, HashSet::new(), 0, 0);
        // Windows of posts as `classify` reads them; later windows add hardly any new shapes.
        for seed in 0..6 {
            let rows = rows(1000, 16, seed);
            let batches = plan(rows.clone(), budget, Grouping::Mixed, FEW);
            assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), rows.len());
            for batch in &batches {
                let (width, rows) = (FEW.width(batch[0].tokens()), FEW.rows(batch.len()));
                assert!(width >= batch[0].tokens() && rows >= batch.len());
                assert!(width * rows <= budget, "{rows} × {width}");
                seen.insert((rows, width));
                padded += width * rows;
            }
            real += rows.iter().map(BatchRow::tokens).sum::<usize>();
        }
        assert!(seen.len() <= 40, "{} shapes", seen.len());
        let ratio = padded as f64 / real as f64;
        assert!(ratio < 1.06, "{ratio}");
    }

    #[test]
    fn a_batch_grows_with_the_threads_that_compute_it() {
        let tokens = [0, 1, 2, 4, 64].map(|threads| batch_tokens_for(Device::Cpu, threads));
        assert_eq!(tokens, [256, 256, 512, 1_024, 1_024]);
    }

    #[test]
    fn width_padding_is_at_most_an_eighth_and_within_the_window() {
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
        // A row longer than the model's window is not truncated here.
        assert_eq!(few(100).width(120), 120);
        assert_eq!(
            (few(9).rows(3), few(9).rows(4), Shapes::Any.rows(3)),
            (4, 4, 3)
        );
        assert_eq!(few(512).max_rows(100, 16_384), 128);
        assert_eq!((few(512).max_rows(100, 7), few(512).max_rows(0, 7)), (1, 4));
    }
}
