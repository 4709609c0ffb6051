//! Texts to token ids, each text once.
//!
//! The reference tokenises every (post, label) pair by itself. The ids of a pair are those of its two texts
//! with special tokens around them, so here each post and each hypothesis is tokenised once and pairs are
//! spliced from the pieces: the same ids, an order of magnitude sooner. Where the special tokens go is read
//! off the tokenizer's own output when the [`Encoder`] is made, and checked against it.

mod bounds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tokenizers::{Encoding, Tokenizer};

use crate::folder::{self, ModelError, ModelFolder, ModelKind};

/// English has four to five characters a token; with eight hardly any text is tokenised twice.
const CHARS_PER_TOKEN: usize = 8;

/// Tokens at the end of a cut text that are not trusted: the cut may have split a word. `WordPiece` reads a
/// word of more than 100 characters as one unknown token, so half of one may leave up to 100 tokens behind.
const MARGIN_TOKENS: usize = 128;

/// No text is read further than this, however few tokens it has (a megabyte of blanks has none).
const MAX_CHARS: usize = 1 << 20;

/// Why a text cannot be turned into tokens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizeError {
    /// The tokenizer's file cannot be used.
    #[error("load the tokenizer `{0}`: {1}; copy or export the file again")]
    Load(PathBuf, #[source] tokenizers::Error),
    /// The tokenizer's file cannot be read.
    #[error(transparent)]
    File(#[from] ModelError),
    /// The tokenizer asks for what no model's does, joins two texts in a way that cannot be taken apart, or is of another
    /// model.
    #[error("use the tokenizer `{0}`: {1}")]
    Refused(PathBuf, String),
    /// The library failed on a text.
    #[error("tokenise a text: {0}; the tokenizer's file does not fit, export the model again")]
    Encode(#[source] tokenizers::Error),
}

/// A text as token ids without special tokens, no longer than the model can take.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncodedText {
    ids: Vec<u32>,
}

impl EncodedText {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// What one row of a batch holds: token ids and, of equal length, their type ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    /// Token ids, special tokens included.
    pub ids: Vec<u32>,
    /// 0 or 1: which of the two texts a token belongs to, for models that ask.
    pub type_ids: Vec<u32>,
}

/// A run of special tokens with their type ids.
type Specials = Vec<(u32, u32)>;

/// The special tokens around one text or two.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    prefix: Specials,
    /// Type id of the first text.
    first: u32,
    /// Between the texts; of a single text empty.
    middle: Specials,
    /// Type id of the second text.
    second: u32,
    suffix: Specials,
}

impl Pattern {
    fn specials(&self) -> usize {
        self.prefix.len() + self.middle.len() + self.suffix.len()
    }

    /// Reads the pattern off an encoding of one text or two, each of at least one token.
    fn from_encoding(encoding: &Encoding) -> Option<Self> {
        let sequences = encoding.get_sequence_ids();
        let at = |n| {
            let start = sequences.iter().position(|s| *s == Some(n))?;
            let end = start
                + sequences[start..]
                    .iter()
                    .take_while(|s| **s == Some(n))
                    .count();
            Some((start, end))
        };
        let (ids, types) = (encoding.get_ids(), encoding.get_type_ids());
        let specials = |from, to| {
            ids[from..to]
                .iter()
                .copied()
                .zip(types[from..to].iter().copied())
                .collect()
        };
        let (start, end) = at(0)?;
        let (middle, second, rest) = match at(1) {
            Some((start, _)) if start < end => return None,
            Some((start, rest)) => (specials(end, start), types[start], rest),
            None => (Specials::new(), 0, end),
        };
        let pattern = Self {
            prefix: specials(0, start),
            first: types[start],
            middle,
            second,
            suffix: specials(rest, ids.len()),
        };
        // Whatever belongs to a text must have been within its one run.
        let texts = sequences.iter().flatten().count();
        (pattern.specials() + texts == ids.len()).then_some(pattern)
    }

    fn splice(&self, first: &[u32], second: &[u32]) -> Sequence {
        let len = self.specials() + first.len() + second.len();
        let mut sequence = Sequence {
            ids: Vec::with_capacity(len),
            type_ids: Vec::with_capacity(len),
        };
        let plain = |ids: &[u32], type_id| {
            ids.iter()
                .map(move |id| (*id, type_id))
                .collect::<Specials>()
        };
        let parts = [
            &self.prefix,
            &plain(first, self.first),
            &self.middle,
            &plain(second, self.second),
            &self.suffix,
        ];
        for (id, type_id) in parts.into_iter().flatten() {
            sequence.ids.push(*id);
            sequence.type_ids.push(*type_id);
        }
        sequence
    }
}

/// Turns texts into ids and ids into the sequences that a model reads. Shared between threads.
#[derive(Debug)]
pub struct Encoder {
    tokenizer: Tokenizer,
    single: Pattern,
    pair: Pattern,
    max_tokens: usize,
    pad_id: u32,
}

impl Encoder {
    /// The encoder of a model; where the folder has vectors it must give their ids.
    ///
    /// # Errors
    /// [`TokenizeError::Load`] and [`TokenizeError::Refused`].
    pub fn load(model: &ModelFolder) -> Result<Self, TokenizeError> {
        let path = &model.tokenizer;
        let bytes = folder::bounds::read(path)?;
        let encoder = Self::from_bytes(&bytes, path, model.max_tokens, model.pad_id)?;
        drop(bytes);
        for vector in model.spec.iter().flat_map(|spec| &spec.vectors) {
            let premise = encoder.encode_whole(&vector.premise)?;
            let Sequence { ids, type_ids } = if let ModelKind::Nli(_) = model.kind {
                encoder.pair(&premise, &encoder.encode_whole(&vector.hypothesis)?)
            } else {
                encoder.single(&premise)
            };
            // A model that reads no type ids has none in its manifest.
            let same_types = vector.token_type_ids.is_empty() || vector.token_type_ids == type_ids;
            if vector.input_ids != ids || !same_types {
                return Err(refused(
                    path,
                    "it gives other ids than `manifest.toml` records, so it is of another model; make the folder again with tools/model.py",
                ));
            }
        }
        Ok(encoder)
    }

    /// The encoder that the bytes of a `tokenizer.json` describe; `path` is what errors name.
    ///
    /// # Errors
    /// [`TokenizeError::Load`] and [`TokenizeError::Refused`].
    pub fn from_bytes(
        bytes: &[u8],
        path: &Path,
        max_tokens: usize,
        pad_id: Option<u32>,
    ) -> Result<Self, TokenizeError> {
        bounds::check(bytes).map_err(|detail| {
            refused(
                path,
                &format!("{detail}; take the model from somebody you trust"),
            )
        })?;
        let tokenizer = guarded(|| Tokenizer::from_bytes(bytes));
        let tokenizer = tokenizer.map_err(|error| TokenizeError::Load(path.to_owned(), error))?;
        Self::new(tokenizer, path, max_tokens, pad_id)
    }

    fn new(
        mut tokenizer: Tokenizer,
        path: &Path,
        max_tokens: usize,
        pad_id: Option<u32>,
    ) -> Result<Self, TokenizeError> {
        // A tokenizer's file may bring its own idea of both.
        tokenizer.with_padding(None);
        let load = |error| TokenizeError::Load(path.to_owned(), error);
        tokenizer.with_truncation(None).map_err(load)?;
        // Text is data: `[SEP]` or `</s>` in a post must not become the special token of that name.
        tokenizer.set_encode_special_tokens(true);

        let pattern = || {
            let detail =
                "it does not keep the two texts of a pair whole and in order; use another model";
            refused(path, detail)
        };
        let single =
            Pattern::from_encoding(&guarded(|| tokenizer.encode("a", true)).map_err(load)?)
                .ok_or_else(pattern)?;
        let pair =
            Pattern::from_encoding(&guarded(|| tokenizer.encode(("a", "a"), true)).map_err(load)?)
                .ok_or_else(pattern)?;
        let pad_id = pad_id
            .or_else(|| {
                ["<pad>", "[PAD]"]
                    .iter()
                    .find_map(|token| tokenizer.token_to_id(token))
            })
            // Any id will do: what is filled up is masked.
            .unwrap_or(0);
        let encoder = Self {
            tokenizer,
            single,
            pair,
            max_tokens,
            pad_id,
        };
        if guarded(|| encoder.agrees_with_tokenizer()).map_err(load)? {
            Ok(encoder)
        } else {
            Err(pattern())
        }
    }

    /// Whether splicing gives what the tokenizer gives on texts other than those the pattern was read off.
    fn agrees_with_tokenizer(&self) -> Result<bool, tokenizers::Error> {
        // Of several tokens each, with punctuation: a tokenizer that adds something between words shows here.
        let (a, b) = ("Two words, or three.", "another text");
        let ids = |text| {
            self.tokenizer
                .encode_fast(text, false)
                .map(|e| e.get_ids().to_vec())
        };
        let same = |sequence: &Sequence, encoding: &Encoding| {
            sequence.ids == encoding.get_ids() && sequence.type_ids == encoding.get_type_ids()
        };
        let (first, second) = (ids(a)?, ids(b)?);
        Ok(same(
            &self.pair.splice(&first, &second),
            &self.tokenizer.encode((a, b), true)?,
        ) && same(
            &self.single.splice(&first, &[]),
            &self.tokenizer.encode(a, true)?,
        ))
    }

    /// Longest sequence, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Id that fills a row up to the width of its batch.
    pub fn pad_id(&self) -> u32 {
        self.pad_id
    }

    /// How many tokens a premise may have beside a hypothesis of `hypothesis` tokens; 0 where the hypothesis
    /// alone fills the window.
    pub fn premise_room(&self, hypothesis: usize) -> usize {
        self.max_tokens
            .saturating_sub(self.pair.specials() + hypothesis)
    }

    /// How many tokens a single text may have.
    pub fn room(&self) -> usize {
        self.max_tokens.saturating_sub(self.single.specials())
    }

    /// Encodes texts in parallel, cut to what the model can take.
    ///
    /// # Errors
    /// [`TokenizeError::Encode`], where the tokenizer itself is broken.
    pub fn encode<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<EncodedText>, TokenizeError> {
        let chars = (self.room() + MARGIN_TOKENS) * CHARS_PER_TOKEN;
        // A post may have 40,000 characters, and a model reads some 2,000 of them: the rest is not worth tokenising.
        let heads = texts
            .iter()
            .map(|text| head(text.as_ref(), chars))
            .collect::<Vec<_>>();
        // `fast` leaves out the places of tokens in the text, which nobody needs here.
        let encodings = guarded(|| self.tokenizer.encode_batch_fast(heads, false))
            .map_err(TokenizeError::Encode)?;
        texts
            .iter()
            .zip(encodings)
            .map(|(text, encoding)| self.finish(text.as_ref(), encoding, chars))
            .collect()
    }

    /// Every token of a text, cut nowhere: hypotheses are short, and one that is not is an error to report.
    ///
    /// # Errors
    /// [`TokenizeError::Encode`], where the tokenizer itself is broken.
    pub fn encode_whole(&self, text: &str) -> Result<EncodedText, TokenizeError> {
        let encoding =
            guarded(|| self.tokenizer.encode_fast(text, false)).map_err(TokenizeError::Encode)?;
        Ok(EncodedText {
            ids: encoding.get_ids().to_vec(),
        })
    }

    /// Reads on where the first `chars` characters of a text did not give tokens enough.
    fn finish(
        &self,
        text: &str,
        mut encoding: Encoding,
        mut chars: usize,
    ) -> Result<EncodedText, TokenizeError> {
        while encoding.len() < self.room() + MARGIN_TOKENS
            && chars < MAX_CHARS
            && head(text, chars).len() < text.len()
        {
            // In large steps: a megabyte of blanks takes a few rounds.
            chars *= 4;
            encoding = guarded(|| self.tokenizer.encode_fast(head(text, chars), false))
                .map_err(TokenizeError::Encode)?;
        }
        let keep = encoding.len().min(self.room());
        Ok(EncodedText {
            ids: encoding.get_ids()[..keep].to_vec(),
        })
    }

    /// Length of [`Encoder::pair`] of the two.
    pub fn pair_len(&self, premise: &EncodedText, hypothesis: &EncodedText) -> usize {
        self.pair.specials()
            + premise.len().min(self.premise_room(hypothesis.len()))
            + hypothesis.len()
    }

    /// Premise and hypothesis as one sequence; where they are too long together the premise is cut.
    pub fn pair(&self, premise: &EncodedText, hypothesis: &EncodedText) -> Sequence {
        let keep = premise.len().min(self.premise_room(hypothesis.len()));
        self.pair.splice(&premise.ids[..keep], &hypothesis.ids)
    }

    /// Length of [`Encoder::single`].
    pub fn single_len(&self, text: &EncodedText) -> usize {
        self.single.specials() + text.len().min(self.room())
    }

    /// One text as a sequence, cut to the window.
    pub fn single(&self, text: &EncodedText) -> Sequence {
        self.single
            .splice(&text.ids[..text.len().min(self.room())], &[])
    }
}

fn refused(path: &Path, detail: &str) -> TokenizeError {
    TokenizeError::Refused(path.to_owned(), detail.to_owned())
}

/// What the library gives; where it panics, as over a damaged table, an error.
fn guarded<T>(read: impl FnOnce() -> Result<T, tokenizers::Error>) -> Result<T, tokenizers::Error> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err("its tables do not fit together".into()))
}

/// The first `chars` characters of a text.
fn head(text: &str, chars: usize) -> &str {
    // A character takes at least a byte, so this needs no counting.
    if text.len() <= chars {
        return text;
    }
    text.char_indices()
        .nth(chars)
        .map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests;
