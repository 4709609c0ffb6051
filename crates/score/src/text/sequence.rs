//! The rows that a model reads: the tokens of one or two texts, spliced into a pattern of special tokens.

use tokenizers::Encoding;

/// The tokens of one row: one or two texts, with special tokens around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sequence<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) first: &'a [u32],
    pub(super) second: &'a [u32],
}

impl<'a> Sequence<'a> {
    /// Returns the number of tokens, special tokens included.
    pub fn tokens(self) -> usize {
        self.pattern.specials() + self.first.len() + self.second.len()
    }

    /// Returns the token ids, each with its type id: 0 for the first text and 1 for the second, for models that read
    /// type ids.
    pub fn ids(self) -> impl Iterator<Item = (u32, u32)> + Clone + 'a {
        let pattern = self.pattern;
        let plain = |ids: &'a [u32], type_id| ids.iter().map(move |id| (*id, type_id));
        let prefix = pattern.prefix.iter().copied();
        prefix
            .chain(plain(self.first, pattern.first))
            .chain(pattern.middle.iter().copied())
            .chain(plain(self.second, pattern.second))
            .chain(pattern.suffix.iter().copied())
    }
}

/// Consecutive special tokens with their type ids.
type Specials = Vec<(u32, u32)>;

/// Special tokens around one text or a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) prefix: Specials,
    /// Type id of the first text.
    first: u32,
    /// Tokens between the texts of a pair; empty for a single text.
    middle: Specials,
    /// Type id of the second text; for a single text, of its second part.
    second: u32,
    pub(super) suffix: Specials,
}

impl Pattern {
    /// Returns the number of special tokens.
    pub(super) fn specials(&self) -> usize {
        self.prefix.len() + self.middle.len() + self.suffix.len()
    }

    /// Derives the pattern from the encoding of one text or a pair, each of at least one token.
    pub(super) fn from_encoding(encoding: &Encoding) -> Option<Self> {
        let sequences = encoding.get_sequence_ids();
        let range_of = |text| {
            let start = sequences.iter().position(|of| *of == Some(text))?;
            let tokens = sequences[start..].iter();
            let count = tokens.take_while(|of| **of == Some(text)).count();
            Some((start, start + count))
        };
        let (ids, types) = (encoding.get_ids(), encoding.get_type_ids());
        let specials = |from, to| -> Specials {
            let (ids, types) = (&ids[from..to], &types[from..to]);
            ids.iter().copied().zip(types.iter().copied()).collect()
        };
        let (start, end) = range_of(0)?;
        let (middle, second, last_end) = match range_of(1) {
            Some((start, _)) if start < end => return None,
            Some((start, last_end)) => (specials(end, start), types[start], last_end),
            None => (Specials::new(), types[start], end),
        };
        let pattern = Self {
            prefix: specials(0, start),
            first: types[start],
            middle,
            second,
            suffix: specials(last_end, ids.len()),
        };
        // The tokens of each text must be contiguous.
        let texts = sequences.iter().flatten().count();
        (pattern.specials() + texts == ids.len()).then_some(pattern)
    }
}

#[cfg(test)]
mod testing {
    use super::*;

    impl<'a> Sequence<'a> {
        pub(crate) fn without_specials(ids: &'a [u32]) -> Self {
            static NONE: Pattern = Pattern {
                prefix: Specials::new(),
                first: 0,
                middle: Specials::new(),
                second: 0,
                suffix: Specials::new(),
            };
            Self {
                pattern: &NONE,
                first: ids,
                second: &[],
            }
        }
    }
}
