//! Splits and pads batches to a fixed shape: an exported graph's, or the one that the planner chose for a batch. In: a
//! batch of any shape. Out: its logits, computed in parts of the fixed shape, without those of padding rows.

use super::batch::Batch;
use super::contract::Input;
use super::engine::{EngineError, Logits};
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

    /// Computes a batch in the fixed shape. A row longer than the fixed width is an error.
    pub(crate) fn compute(
        self,
        batch: &Batch,
        pad_id: u32,
        compute: &mut dyn FnMut(&Batch) -> Result<Logits, EngineError>,
    ) -> Result<Logits, EngineError> {
        if !self.is_fixed() {
            return compute(batch);
        }
        let width = self.width.unwrap_or(batch.width);
        if batch.width > width {
            return Err(EngineError::Shape(format!(
                "a row of {} tokens is too long for a graph that takes {width}",
                batch.width
            )));
        }
        let rows = self.rows.unwrap_or(batch.rows()).max(1);
        let mut all: Option<Logits> = None;
        for first in (0..batch.rows()).step_by(rows) {
            let real = rows.min(batch.rows() - first);
            let mut output = compute(&part(batch, first, real, rows, width, pad_id))?;
            if output.rows != rows {
                return Err(EngineError::Shape(format!(
                    "the graph returned {} rows for {rows}",
                    output.rows
                )));
            }
            output.data.truncate(real * output.width);
            output.rows = real;
            match &mut all {
                None => all = Some(output),
                Some(all) => {
                    all.rows += output.rows;
                    all.data.extend(output.data);
                }
            }
        }
        all.ok_or_else(|| EngineError::Shape("the batch has no rows".to_owned()))
    }
}

/// Returns a batch of `rows` rows, padded to `width`: `real` rows from index `first` on, then copies of the row at
/// `first`.
fn part(batch: &Batch, first: usize, real: usize, rows: usize, width: usize, pad_id: u32) -> Batch {
    let mut part = Batch {
        ids: Vec::with_capacity(rows * width),
        type_ids: Vec::with_capacity(rows * width),
        lens: Vec::with_capacity(rows),
        width,
    };
    for row in 0..rows {
        let row = first + if row < real { row } else { 0 };
        let of = row * batch.width..(row + 1) * batch.width;
        part.ids.extend(&batch.ids[of.clone()]);
        part.type_ids.extend(&batch.type_ids[of]);
        part.ids
            .resize(part.lens.len() * width + width, i64::from(pad_id));
        part.type_ids.resize(part.lens.len() * width + width, 0);
        part.lens.push(batch.lens[row]);
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lengths: &[usize]) -> Batch {
        let rows = lengths.iter().map(|len| (1..).take(*len).map(|id| (id, 1)));
        Batch::new(rows, *lengths.iter().max().unwrap(), 9)
    }

    #[test]
    fn a_batch_is_split_and_padded_and_padding_rows_are_dropped() {
        let fixed = FixedShape::from_dims(&[2, 4]);
        let mut seen = Vec::new();
        let output = fixed
            .compute(&batch(&[3, 2, 1]), 9, &mut |part| {
                seen.push(part.clone());
                let data = part
                    .lens
                    .iter()
                    .map(|len| f32::from(u8::try_from(*len).unwrap()))
                    .collect();
                Ok(Logits {
                    rows: part.rows(),
                    width: 1,
                    data,
                })
            })
            .unwrap();
        assert_eq!((output.rows, output.data), (3, vec![3.0, 2.0, 1.0]));
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].ids, [1, 2, 3, 9, 1, 2, 9, 9]);
        assert_eq!(seen[0].type_ids, [1, 1, 1, 0, 1, 1, 0, 0]);
        assert_eq!(seen[1].ids, [1, 9, 9, 9, 1, 9, 9, 9]);
        assert_eq!((seen[1].lens.as_slice(), seen[1].width), (&[1, 1][..], 4));
    }

    #[test]
    fn dynamic_sizes_are_not_padded_and_a_row_that_is_too_long_is_an_error() {
        let mut shapes = Vec::new();
        let mut compute = |part: &Batch| {
            shapes.push((part.rows(), part.width));
            Ok(Logits {
                rows: part.rows(),
                width: 1,
                data: vec![0.0; part.rows()],
            })
        };
        for fixed in [
            FixedShape::default(),
            FixedShape::from_dims(&[-1, 6]),
            FixedShape::from_dims(&[1, -1]),
        ] {
            fixed.compute(&batch(&[5, 5]), 0, &mut compute).unwrap();
        }
        let error = FixedShape::from_dims(&[-1, 4]).compute(&batch(&[5]), 0, &mut compute);
        assert!(error.unwrap_err().to_string().contains("takes 4"));
        assert_eq!(shapes, [(2, 5), (2, 6), (1, 5), (1, 5)]);
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
