//! Stored text vectors, and their cosines with label vectors.
//!
//! The input is the vector that an embedding model computes for a text. Only its direction is stored, in two bytes per
//! dimension plus four for a scale. Scores are always computed from the rounded vector, so a fresh vector and a stored
//! one give the same score. See `benches/results/vectors.md` for the rounding error.

use crate::numeric::{log_mean, to_f32};

/// Size of the scale, which comes first, in bytes.
const SCALE: usize = size_of::<f32>();
/// Bytes per dimension.
const NUMBER: usize = size_of::<i16>();
/// Number of partial sums of a dot product; constant, so that the result is the same on every machine.
const LANES: usize = 16;

/// The direction of a text's embedding, as 16-bit integers with a scale that makes its length 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextVector(Vec<u8>);

impl TextVector {
    /// Quantizes a model's output; a zero vector remains zero.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the largest number becomes 32,767, and a scale fits in an f32"
    )]
    pub fn quantize(raw: &[f32]) -> Self {
        let vector = unit(raw.iter().map(|x| f64::from(*x)).collect());
        let greatest = vector.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let scale = (greatest / f64::from(i16::MAX)) as f32;
        let mut bytes = Vec::with_capacity(SCALE + NUMBER * vector.len());
        bytes.extend(scale.to_le_bytes());
        for x in vector {
            let steps = if scale > 0.0 {
                // A float-to-int cast saturates, so a scale that was rounded down cannot yield 32,768.
                (x / f64::from(scale)).round() as i16
            } else {
                0
            };
            bytes.extend(steps.to_le_bytes());
        }
        Self(bytes)
    }

    /// Reads a stored vector; `None` if the bytes are malformed.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let numbers = bytes.len().checked_sub(SCALE)?;
        let vector = Self(bytes);
        (numbers > 0 && numbers.is_multiple_of(NUMBER) && vector.scale().is_finite())
            .then_some(vector)
    }

    /// Returns the bytes to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the number of dimensions.
    pub fn dimensions(&self) -> usize {
        (self.0.len() - SCALE) / NUMBER
    }

    fn scale(&self) -> f32 {
        let (scale, _) = self.0.split_first_chunk().expect("a vector has a scale");
        f32::from_le_bytes(*scale)
    }

    /// Returns the vector as floats, of length 1.
    pub fn numbers(&self) -> Vec<f32> {
        let scale = self.scale();
        let (steps, _) = self.0[SCALE..].as_chunks();
        let number = |steps: &[u8; NUMBER]| scale * f32::from(i16::from_le_bytes(*steps));
        steps.iter().map(number).collect()
    }

    /// Returns the cosine with each label; `None` if a label's numbers are not vectors of as many dimensions, because the
    /// label then belongs to a different model.
    pub fn cosines(&self, labels: &[LabelVector]) -> Option<Vec<f32>> {
        let numbers = self.numbers();
        labels.iter().map(|label| label.cosine(&numbers)).collect()
    }
}

/// A label's vector: the mean of its texts' vectors, scaled to length 1. A background has one vector per topic, and
/// their cosines are [folded](fold_cosines) into one.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelVector {
    /// Factor of the cosine in a softmax.
    scale: f32,
    /// The vectors, concatenated.
    numbers: Vec<f32>,
}

impl LabelVector {
    /// Normalizes sums of vectors, all of the same length; `scale` is the model's softmax scale.
    pub fn from_sums(scale: f64, sums: Vec<Vec<f64>>) -> Self {
        Self {
            scale: to_f32(scale),
            numbers: sums.into_iter().flat_map(unit).map(to_f32).collect(),
        }
    }

    /// Reads a stored vector; `None` if the bytes are malformed.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks();
        let mut numbers = numbers.iter().map(|x| f32::from_le_bytes(*x));
        let scale = numbers.next()?;
        let numbers: Vec<f32> = numbers.collect();
        let finite = scale.is_finite() && numbers.iter().all(|x| x.is_finite());
        (rest.is_empty() && !numbers.is_empty() && finite).then_some(Self { scale, numbers })
    }

    /// Returns the bytes to store: four for the scale, and four per number.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = std::iter::once(&self.scale).chain(&self.numbers);
        numbers.flat_map(|x| x.to_le_bytes()).collect()
    }

    /// Returns the cosine of each of this label's vectors, of which a background has one per topic, and another label's
    /// vector.
    pub fn cosines_with<'a>(&'a self, label: &'a Self) -> impl Iterator<Item = f32> + 'a {
        let vectors = self.numbers.chunks(label.numbers.len().max(1));
        vectors.map(|vector| dot(vector, &label.numbers))
    }

    fn cosine(&self, text: &[f32]) -> Option<f32> {
        if self.numbers.is_empty() || !self.numbers.len().is_multiple_of(text.len()) {
            return None;
        }
        if self.numbers.len() == text.len() {
            return Some(dot(&self.numbers, text));
        }
        let vectors = self.numbers.chunks(text.len());
        let cosines = vectors.map(|vector| f64::from(dot(vector, text)));
        Some(fold_cosines(f64::from(self.scale), cosines))
    }
}

/// Returns the dot product, accumulated in [`LANES`] partial sums for SIMD.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a, rest_a) = a.as_chunks::<LANES>();
    let (b, rest_b) = b.as_chunks::<LANES>();
    let mut sums = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Scales a vector to length 1; a zero vector remains zero.
pub fn unit(mut vector: Vec<f64>) -> Vec<f64> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    if length > 0.0 {
        for x in &mut vector {
            *x /= length;
        }
    }
    vector
}

/// Folds cosines into one, for a model with this softmax scale; see [`fold`](crate::score::fold).
pub(crate) fn fold_cosines(scale: f64, cosines: impl Iterator<Item = f64> + Clone) -> f32 {
    to_f32(log_mean(cosines.map(|cosine| scale * cosine)) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ModelKind;
    use crate::PairLogits;
    use crate::score::fold;
    use crate::test_examples::embedding;

    /// Pseudo-random numbers in the range of a model's output.
    fn raw(seed: u64, dimensions: usize) -> Vec<f32> {
        let mut random = fastrand::Rng::with_seed(seed);
        let number = |_| (random.f32() - 0.5) * 3.0;
        (0..dimensions).map(number).collect()
    }

    #[test]
    fn a_stored_vector_reads_back_unchanged() {
        for dimensions in [1, 3, 384, 400] {
            let vector = TextVector::quantize(&raw(7, dimensions));
            assert_eq!(vector.as_bytes().len(), 4 + 2 * dimensions);
            assert_eq!(vector.dimensions(), dimensions);
            let again = TextVector::from_bytes(vector.as_bytes().to_vec()).unwrap();
            assert_eq!(again, vector);
            let length: f32 = vector.numbers().iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-4, "{length}");
        }
    }

    #[test]
    fn rounding_changes_a_cosine_by_less_than_1e_5() {
        for seed in 0..200 {
            let (text, label) = (raw(seed, 384), raw(seed + 1_000, 384));
            let wide = |raw: &[f32]| unit(raw.iter().map(|x| f64::from(*x)).collect());
            let (exact, of_label) = (wide(&text), wide(&label));
            let cosine: f64 = exact.iter().zip(&of_label).map(|(a, b)| a * b).sum();
            let stored = TextVector::quantize(&text)
                .cosines(&[LabelVector::from_sums(20.0, vec![of_label])]);
            let error = (f64::from(stored.unwrap()[0]) - cosine).abs();
            assert!(error < 1e-5, "{error}");
        }
    }

    #[test]
    fn the_cosine_of_several_vectors_is_the_fold_of_their_cosines() {
        let kind = ModelKind::Embedding(embedding(21.0, 23.5, 0.281));
        let text = TextVector::quantize(&raw(1, 384));
        let wide = |seed| -> Vec<f64> { raw(seed, 384).into_iter().map(f64::from).collect() };
        let sums = [2, 3, 4].map(wide);
        let alone = sums
            .clone()
            .map(|sum| LabelVector::from_sums(21.0, vec![sum]));
        let cosines = text.cosines(&alone).unwrap();
        let pairs: Vec<_> = cosines.into_iter().map(PairLogits::single).collect();
        let together = LabelVector::from_sums(21.0, sums.to_vec());
        assert_eq!(
            LabelVector::from_bytes(&together.to_bytes()),
            Some(together.clone())
        );
        let folded = text.cosines(&[together]).unwrap()[0];
        assert_eq!(folded.to_bits(), fold(&kind, &pairs).entailment.to_bits());
    }

    #[test]
    fn zero_vectors_and_single_dimensions_can_be_stored() {
        let nothing = TextVector::quantize(&[0.0; 8]);
        assert_eq!(nothing.numbers(), [0.0; 8]);
        let label = LabelVector::from_sums(20.0, vec![vec![1.0; 8]]);
        assert_eq!(
            nothing.cosines(std::slice::from_ref(&label)),
            Some(vec![0.0])
        );
        let tiny = TextVector::quantize(&[f32::MIN_POSITIVE, 0.0]);
        assert!((tiny.numbers()[0] - 1.0).abs() < 1e-6);
        let back = TextVector::quantize(&[-2.0, 0.0]);
        assert!((back.numbers()[0] + 1.0).abs() < 1e-6);
        let kept = LabelVector::from_bytes(&label.to_bytes());
        assert_eq!(kept, Some(label));
    }

    #[test]
    fn invalid_bytes_are_not_a_vector() {
        let mut endless = f32::INFINITY.to_le_bytes().to_vec();
        endless.extend([1, 0]);
        for bytes in [
            vec![],
            vec![0; 3],
            vec![0; 4],
            vec![0; 5],
            vec![0; 7],
            endless,
        ] {
            assert_eq!(TextVector::from_bytes(bytes), None);
        }
        let no_number = [f32::NAN.to_le_bytes(); 2].concat();
        // The third has a scale and no numbers.
        for bytes in [&[][..], &[0; 6], &[0; 4], &no_number] {
            assert_eq!(LabelVector::from_bytes(bytes), None);
        }
        let other = LabelVector::from_sums(20.0, vec![vec![1.0; 9]]);
        assert_eq!(TextVector::quantize(&[1.0; 8]).cosines(&[other]), None);
    }
}
