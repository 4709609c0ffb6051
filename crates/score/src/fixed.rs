//! Splits and pads rows to batches of a fixed shape: an exported graph's, or the one that the planner chose. In: rows
//! of tokens. Out: their logits, without those of padding rows.

use std::iter;

use super::batch::Batch;
use super::contract::Input;
use super::engine::{Engine, EngineError, Logits};
use super::folder::FixedShape;

impl FixedShape {
    /// Returns true if an input with these dimensions accepts a batch of the fixed shape.
    pub(crate) fn fits(self, input: Input, shape: &[i64]) -> bool {
        let fits = |size: i64, fixed: Option<usize>| {
            size <= 0 || fixed.is_some_and(|fixed| usize::try_from(size) == Ok(fixed))
        };
        match (input, shape) {
            (Input::Lengths | Input::Last, [rows]) => fits(*rows, self.rows),
            (Input::Positions, [width]) => fits(*width, self.width),
            (Input::Mask, [rows, ..=1, width])
            | (
                Input::Ids | Input::AttentionMask | Input::TypeIds | Input::DecoderIds,
                [rows, width],
            ) => fits(*rows, self.rows) && fits(*width, self.width),
            // The library gives a better error for a wrong number of dimensions.
            _ => shape.iter().all(|size| *size <= 0),
        }
    }
}

/// Computes rows of token ids and type ids, in batches of the given shape, and checks the size of the output. A row
/// that is too long for the shape is an error. `numbers` is the expected size of a row's output, if it is known.
pub(crate) fn infer<R: IntoIterator<Item = (u32, u32)> + Clone>(
    engine: &mut dyn Engine,
    rows: &[R],
    longest: usize,
    shape: FixedShape,
    pad_id: u32,
    numbers: Option<usize>,
) -> Result<Logits, EngineError> {
    let width = shape.width.unwrap_or(longest);
    if longest > width {
        return Err(EngineError::Shape(format!(
            "a row of {longest} tokens is too long for a graph that takes {width}"
        )));
    }
    let size = shape.rows.unwrap_or(rows.len()).max(1);
    let mut all: Option<Logits> = None;
    for part in rows.chunks(size) {
        // The rows of padding are copies of the first row.
        let padded = part.iter().chain(iter::repeat(&part[0])).take(size);
        let mut output = engine.infer(&Batch::new(padded.cloned(), width, pad_id))?;
        if shape.is_fixed() {
            if output.rows != size {
                return Err(EngineError::Shape(format!(
                    "the graph returned {} rows for {size}",
                    output.rows
                )));
            }
            output.data.truncate(part.len() * output.width);
            output.rows = part.len();
        }
        match &mut all {
            None => all = Some(output),
            Some(all) => {
                all.rows += output.rows;
                all.data.extend(output.data);
            }
        }
    }
    let all = all.ok_or_else(|| EngineError::Shape("the batch has no rows".to_owned()))?;
    let expected = numbers.unwrap_or(all.width.max(1));
    if (all.rows, all.width, all.data.len()) == (rows.len(), expected, rows.len() * expected) {
        return Ok(all);
    }
    Err(EngineError::Shape(format!(
        "the graph returned {} × {} numbers for {} rows; {expected} per row were expected",
        all.rows,
        all.width,
        rows.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that returns the length of each row.
    struct Recorder(Vec<Batch>);

    impl Engine for Recorder {
        fn infer(&mut self, batch: &Batch) -> Result<Logits, EngineError> {
            self.0.push(batch.clone());
            let lens = batch.lens.iter();
            Ok(Logits {
                rows: batch.rows(),
                width: 1,
                data: lens
                    .map(|len| f32::from(u8::try_from(*len).unwrap()))
                    .collect(),
            })
        }
    }

    impl Recorder {
        fn compute(&mut self, lengths: &[usize], shape: &[i64]) -> Result<Logits, EngineError> {
            let rows: Vec<_> = lengths
                .iter()
                .map(|len| (1..).take(*len).map(|id| (id, 1)))
                .collect();
            let longest = *lengths.iter().max().unwrap();
            infer(self, &rows, longest, FixedShape::from_dims(shape), 9, None)
        }
    }

    #[test]
    fn rows_are_split_and_padded_and_padding_rows_are_dropped() {
        let mut engine = Recorder(Vec::new());
        let output = engine.compute(&[3, 2, 1], &[2, 4]).unwrap();
        assert_eq!((output.rows, output.data), (3, vec![3.0, 2.0, 1.0]));
        let seen = engine.0;
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].ids, [1, 2, 3, 9, 1, 2, 9, 9]);
        assert_eq!(seen[0].type_ids, [1, 1, 1, 0, 1, 1, 0, 0]);
        assert_eq!(seen[1].ids, [1, 9, 9, 9, 1, 9, 9, 9]);
        assert_eq!((seen[1].lens.as_slice(), seen[1].width), (&[1, 1][..], 4));
    }

    #[test]
    fn dynamic_sizes_are_not_padded_and_a_row_that_is_too_long_is_an_error() {
        let mut engine = Recorder(Vec::new());
        for shape in [[-1, -1], [-1, 6], [1, -1]] {
            engine.compute(&[5, 5], &shape).unwrap();
        }
        let error = engine.compute(&[5], &[-1, 4]).unwrap_err();
        assert!(error.to_string().contains("takes 4"));
        let shapes = engine.0.iter().map(|batch| (batch.rows(), batch.width));
        assert!(shapes.eq([(2, 5), (2, 6), (1, 5), (1, 5)]));
    }

    #[test]
    fn inputs_fit_if_their_sizes_match_the_ids() {
        let fixed = FixedShape::from_dims(&[-1, 160]);
        assert!(fixed.fits(Input::Ids, &[-1, 160]));
        assert!(fixed.fits(Input::AttentionMask, &[-1, -1]));
        assert!(!fixed.fits(Input::AttentionMask, &[-1, 128]));
        assert!(!fixed.fits(Input::TypeIds, &[1, 160]));
        assert!(fixed.fits(Input::Mask, &[-1, 1, 160]));
        assert!(fixed.fits(Input::Positions, &[160]));
        assert!(!FixedShape::default().fits(Input::Lengths, &[8]));
        assert!(FixedShape::default().fits(Input::Ids, &[-1, -1]));
    }
}
