//! Batches cut and filled up to a shape: the one that a graph takes, as some exports do, or one of few for a GPU.
//!
//! In goes a batch of any shape, out come batches of that shape; what is computed for rows that only fill up is left out.

use super::batch::Batch;
use super::contract::Input;
use super::engine::{EngineError, Logits};
use super::folder::Fixed;

impl Fixed {
    /// Whether an input of this shape takes what a batch of the fixed sizes fills it with.
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
            // The library says more of an input that has another number of dimensions.
            _ => shape.iter().all(|size| *size <= 0),
        }
    }

    /// Computes a batch in the fixed shape; a row that is too long is an error.
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
            let mut given = compute(&part(batch, first, real, rows, width, pad_id))?;
            if given.rows != rows {
                return Err(EngineError::Shape(format!(
                    "it gave {} rows for {rows}",
                    given.rows
                )));
            }
            given.data.truncate(real * given.width);
            given.rows = real;
            match &mut all {
                None => all = Some(given),
                Some(all) => {
                    all.rows += given.rows;
                    all.data.extend(given.data);
                }
            }
        }
        all.ok_or_else(|| EngineError::Shape("the batch has no rows".to_owned()))
    }
}

/// `real` rows from `first` on, as wide as the graph wants, and the first of them again until there are enough.
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
    use crate::text::Sequence;

    fn batch(lengths: &[usize]) -> Batch {
        let rows: Vec<Sequence> = lengths
            .iter()
            .map(|len| Sequence {
                ids: (1..).take(*len).collect(),
                type_ids: vec![1; *len],
            })
            .collect();
        Batch::new(&rows, 9)
    }

    #[test]
    fn a_batch_is_cut_and_filled_up_and_what_fills_up_gives_nothing() {
        let fixed = Fixed::of(&[2, 4]);
        let mut seen = Vec::new();
        let given = fixed
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
        assert_eq!((given.rows, given.data), (3, vec![3.0, 2.0, 1.0]));
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].ids, [1, 2, 3, 9, 1, 2, 9, 9]);
        assert_eq!(seen[0].type_ids, [1, 1, 1, 0, 1, 1, 0, 0]);
        assert_eq!(seen[1].ids, [1, 9, 9, 9, 1, 9, 9, 9]);
        assert_eq!((seen[1].lens.as_slice(), seen[1].width), (&[1, 1][..], 4));
    }

    #[test]
    fn what_is_left_open_stays_as_it_is_and_a_row_that_is_too_long_is_an_error() {
        let mut shapes = Vec::new();
        let mut compute = |part: &Batch| {
            shapes.push((part.rows(), part.width));
            Ok(Logits {
                rows: part.rows(),
                width: 1,
                data: vec![0.0; part.rows()],
            })
        };
        for fixed in [Fixed::default(), Fixed::of(&[-1, 6]), Fixed::of(&[1, -1])] {
            fixed.compute(&batch(&[5, 5]), 0, &mut compute).unwrap();
        }
        let error = Fixed::of(&[-1, 4]).compute(&batch(&[5]), 0, &mut compute);
        assert!(error.unwrap_err().to_string().contains("takes 4"));
        assert_eq!(shapes, [(2, 5), (2, 6), (1, 5), (1, 5)]);
    }

    #[test]
    fn inputs_fit_where_their_sizes_are_those_of_the_ids() {
        let fixed = Fixed::of(&[-1, 160]);
        assert!(fixed.fits(Input::Ids, &[-1, 160]));
        assert!(fixed.fits(Input::AttentionMask, &[-1, -1]));
        assert!(!fixed.fits(Input::AttentionMask, &[-1, 128]));
        assert!(!fixed.fits(Input::TypeIds, &[1, 160]));
        assert!(fixed.fits(Input::Mask, &[-1, 1, 160]));
        assert!(fixed.fits(Input::Positions, &[160]));
        assert!(!Fixed::default().fits(Input::Lengths, &[8]));
        assert!(Fixed::default().fits(Input::Ids, &[-1, -1]));
    }
}
