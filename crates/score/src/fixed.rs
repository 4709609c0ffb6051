//! Splits and pads rows to batches of a fixed shape: an exported graph's, or the one that the planner chose. In: rows
//! of tokens. Out: their logits, without those of padding rows.

use std::iter;

use super::batch::Batch;
use super::engine::{Engine, EngineError, Logits};
use super::folder::FixedShape;

/// Computes rows of token ids and type ids, in batches of the given shape, and checks the size of the output. A row
/// that is too long for the shape is an error. `output_width` is the expected size of a row's output, if it is known.
pub(crate) fn infer<R: IntoIterator<Item = (u32, u32)> + Clone>(
    engine: &mut dyn Engine,
    rows: &[R],
    longest: usize,
    shape: FixedShape,
    pad_id: u32,
    output_width: Option<usize>,
) -> Result<Logits, EngineError> {
    let width = shape.width.unwrap_or(longest);
    if longest > width {
        return Err(EngineError::Shape(format!(
            "a row of {longest} tokens is too long for a graph that takes {width}"
        )));
    }
    let size = shape.rows.unwrap_or(rows.len()).max(1);
    let mut logits: Option<Logits> = None;
    for chunk in rows.chunks(size) {
        // The rows of padding are copies of the first row.
        let padded = chunk.iter().chain(iter::repeat(&chunk[0])).take(size);
        let mut output = engine.infer(&Batch::new(padded.cloned(), width, pad_id))?;
        if shape.is_fixed() {
            drop_padding(&mut output, chunk.len(), size)?;
        }
        match &mut logits {
            None => logits = Some(output),
            Some(logits) => {
                logits.rows += output.rows;
                logits.data.extend(output.data);
            }
        }
    }
    let logits = logits.ok_or_else(|| EngineError::Shape("the batch has no rows".to_owned()))?;
    check_size(&logits, rows.len(), output_width)?;
    Ok(logits)
}

/// Removes the rows of padding from the output of a batch of `size` rows, of which the first `rows` are wanted.
fn drop_padding(output: &mut Logits, rows: usize, size: usize) -> Result<(), EngineError> {
    if output.rows != size {
        return Err(EngineError::Shape(format!(
            "the graph returned {} rows for {size}",
            output.rows
        )));
    }
    output.data.truncate(rows * output.width);
    output.rows = rows;
    Ok(())
}

/// Returns an error unless there are logits for each row, of the width that is expected, if it is known.
fn check_size(logits: &Logits, rows: usize, known: Option<usize>) -> Result<(), EngineError> {
    let (count, width) = (logits.rows, logits.width);
    let expected = known.unwrap_or(width.max(1));
    if (count, width, logits.data.len()) == (rows, expected, rows * expected) {
        return Ok(());
    }
    Err(EngineError::Shape(format!(
        "the graph returned {count} × {width} numbers for {rows} rows; {expected} per row were expected"
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
}
