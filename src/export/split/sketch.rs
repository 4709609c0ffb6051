//! `MinHash` sketches of texts, for estimating the share of common shingles.

use minhash_rs::prelude::MinHash;

/// Number of words in a shingle; similarity is the share of common shingles.
const SHINGLE: usize = 3;
/// Number of values in a sketch. The standard error of the similarity is at most 1/√128, or 9 %.
pub const PERMUTATIONS: usize = 128;
/// Minimum similarity of near-duplicates, as used to deduplicate `StarCoder`'s data (Li et al. 2023, section 3.4).
const MIN_SIMILARITY: f64 = 0.7;
/// The lowest byte of each `MinHash` value. Different values have the same lowest byte with a probability of 1/256.
pub type Sketch = [u8; PERMUTATIONS];

/// Returns true if the share of equal values reaches [`MIN_SIMILARITY`].
pub fn is_near_duplicate(a: &Sketch, b: &Sketch) -> bool {
    let same = a.iter().zip(b).filter(|(a, b)| a == b).count();
    #[expect(clippy::cast_precision_loss, reason = "at most 128")]
    let same = same as f64 / PERMUTATIONS as f64;
    same >= MIN_SIMILARITY
}

/// Computes the sketch of a text's shingles. Words are runs of letters and digits, case-insensitive. A text shorter
/// than a shingle is one shingle; a text without words is only similar to texts with the same hash.
pub fn sketch(title: &str, body: &str, hash: u64) -> Sketch {
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

/// Hashes a lower-case word with FNV-1a (RFC 9923). The hash must be the same in all versions of this program.
pub fn word_hash(word: &str) -> u64 {
    let letters = word.chars().flat_map(char::to_lowercase);
    letters.fold(FNV_OFFSET, |hash, letter| {
        (hash ^ u64::from(letter)).wrapping_mul(FNV_PRIME)
    })
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn joined(words: &[u64]) -> u64 {
    words.iter().fold(FNV_OFFSET, |hash, word| {
        // The hash is rotated so that word order counts.
        (hash.rotate_left(5) ^ word).wrapping_mul(FNV_PRIME)
    })
}
