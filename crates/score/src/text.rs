//! Tokenises texts, each once.
//!
//! The reference tokenises every (post, label) pair. A pair consists of the ids of its two texts with special tokens
//! around them, so here each post and each hypothesis is tokenised once, and pairs are spliced from the parts. The ids
//! are the same but are computed ten times faster. [`Encoder`] derives the positions of special tokens from the
//! tokenizer's output and verifies them.

mod bounds;
mod prompt;
mod sequence;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use tokenizers::{Encoding, Tokenizer};

use self::prompt::Prompt;
use self::sequence::Pattern;
pub use self::sequence::Sequence;
use crate::folder::manifest::Vector;
use crate::folder::{self, ModelError, ModelFolder};
use topicmill_core::ModelKind;

/// Number of characters to read per token. English has four to five; with eight, hardly any text is tokenised twice.
const CHARS_PER_TOKEN: usize = 8;

/// Number of extra tokens to compute and discard if only the first characters of a text are read, because the last word
/// may be cut off. `WordPiece` maps a word of more than 100 characters to one unknown token, but a part of such a word
/// to up to 100 tokens.
const MARGIN_TOKENS: usize = 128;

/// Approximate limit on the characters to read from a text with very few tokens, such as a megabyte of spaces.
const MAX_CHARS: usize = 1 << 20;

/// Reasons why texts cannot be tokenised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizeError {
    /// The tokenizer file is invalid.
    #[error("cannot load the tokenizer `{0}`: {1}; copy or export the file again")]
    Load(PathBuf, #[source] tokenizers::Error),
    /// The tokenizer file cannot be read.
    #[error(transparent)]
    File(#[from] ModelError),
    /// The tokenizer exceeds the limits, does not join pairs in a way that can be spliced, or belongs to a different
    /// model.
    #[error("cannot use the tokenizer `{0}`: {1}")]
    Rejected(PathBuf, String),
    /// The task prompt of a GLiClass model cannot be used.
    #[error(
        "cannot use `task_prompt` in `{0}`: {1}; build the folder again with tools/model.py and a different \
         `--task-prompt`"
    )]
    TaskPrompt(PathBuf, String),
    /// The tokenizer library failed on a text.
    #[error(
        "cannot tokenise a text: {0}; the tokenizer file does not match the model, export the model again"
    )]
    Encode(#[source] tokenizers::Error),
}

/// Token ids of a text without special tokens, truncated to the model's limit; a task prompt before the text is
/// included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EncodedText {
    ids: Vec<u32>,
}

impl EncodedText {
    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Tokenises texts and builds the sequences that a model reads. Shared between threads.
#[derive(Debug)]
pub struct Encoder {
    tokenizer: Tokenizer,
    single: Pattern,
    pair: Pattern,
    max_tokens: usize,
    pad_id: u32,
    prompt: Option<Prompt>,
}

impl Encoder {
    /// Loads a model's encoder and checks it against the ids in the manifest's reference vectors.
    ///
    /// # Errors
    /// See [`TokenizeError`].
    pub fn load(model: &ModelFolder) -> Result<Self, TokenizeError> {
        let path = &model.tokenizer;
        let bytes = folder::bounds::read(path)?;
        let mut encoder = Self::from_bytes(&bytes, path, model.max_tokens, model.pad_id)?;
        drop(bytes);
        if let ModelKind::Gliclass(head) = &model.kind {
            encoder = encoder.with_prompt(head, path)?;
        }
        for vector in model.spec.iter().flat_map(|spec| &spec.vectors) {
            if !encoder.agrees_with_vector(&model.kind, vector)? {
                return Err(rejected(
                    path,
                    "its ids differ from those in `manifest.toml`, so it belongs to another model; build the folder \
                     again with tools/model.py",
                ));
            }
        }
        Ok(encoder)
    }

    /// Returns true if the ids of a reference vector's texts are those in the manifest.
    fn agrees_with_vector(&self, kind: &ModelKind, vector: &Vector) -> Result<bool, TokenizeError> {
        let text = self.encode_whole(&self.with_task_prompt(&vector.premise))?;
        let labels = match kind {
            ModelKind::Gliclass(_) => self.encode_labels(vector.labels.iter().map(String::as_str)),
            _ => self.encode_whole(&vector.hypothesis),
        }?;
        let (ids, type_ids): (Vec<u32>, Vec<u32>) = self.row(kind, &text, &labels).ids().unzip();
        // Models without type ids have none in the manifest.
        let same_types = vector.token_type_ids.is_empty() || vector.token_type_ids == type_ids;
        Ok(vector.input_ids == ids && same_types)
    }

    /// Builds an encoder from the bytes of a `tokenizer.json`; `path` is for error messages.
    ///
    /// # Errors
    /// [`TokenizeError::Load`] and [`TokenizeError::Rejected`].
    pub fn from_bytes(
        bytes: &[u8],
        path: &Path,
        max_tokens: usize,
        pad_id: Option<u32>,
    ) -> Result<Self, TokenizeError> {
        bounds::check(bytes).map_err(|detail| {
            rejected(
                path,
                &format!("{detail}; download the model again from a source that you trust"),
            )
        })?;
        let tokenizer = catch_panic(|| Tokenizer::from_bytes(bytes));
        let tokenizer = tokenizer.map_err(|error| TokenizeError::Load(path.to_owned(), error))?;
        Self::new(tokenizer, path, max_tokens, pad_id)
    }

    fn new(
        mut tokenizer: Tokenizer,
        path: &Path,
        max_tokens: usize,
        pad_id: Option<u32>,
    ) -> Result<Self, TokenizeError> {
        // A tokenizer file may configure padding and truncation, which this crate does itself.
        tokenizer.with_padding(None);
        let load = |error| TokenizeError::Load(path.to_owned(), error);
        tokenizer.with_truncation(None).map_err(load)?;
        // Posts are data: `[SEP]` or `</s>` in a post must not become a special token.
        tokenizer.set_encode_special_tokens(true);

        let not_contiguous = || {
            let detail = "it does not keep the two texts of a pair contiguous and in order; use another model";
            rejected(path, detail)
        };
        let single = catch_panic(|| tokenizer.encode("a", true)).map_err(load)?;
        let single = Pattern::from_encoding(&single).ok_or_else(not_contiguous)?;
        let pair = catch_panic(|| tokenizer.encode(("a", "a"), true)).map_err(load)?;
        let pair = Pattern::from_encoding(&pair).ok_or_else(not_contiguous)?;
        let mut names = ["<pad>", "[PAD]"].iter();
        let by_name = || names.find_map(|token| tokenizer.token_to_id(token));
        // Any id works, because padding is masked.
        let pad_id = pad_id.or_else(by_name).unwrap_or(0);
        let encoder = Self {
            tokenizer,
            single,
            pair,
            max_tokens,
            pad_id,
            prompt: None,
        };
        if catch_panic(|| encoder.agrees_with_tokenizer()).map_err(load)? {
            Ok(encoder)
        } else {
            Err(not_contiguous())
        }
    }

    /// Returns true if joining parts gives the tokenizer's own result on other texts.
    fn agrees_with_tokenizer(&self) -> Result<bool, tokenizers::Error> {
        // Several tokens with punctuation, to detect tokens that are added between words.
        let (a, b) = ("Two words, or three.", "another text");
        let ids = |text| {
            let encoding = self.tokenizer.encode_fast(text, false);
            encoding.map(|encoding| encoding.get_ids().to_vec())
        };
        let (first, second) = (&*ids(a)?, &*ids(b)?);
        let same = |pattern, second, encoding: &Encoding| {
            let (ids, type_ids) = (encoding.get_ids(), encoding.get_type_ids());
            let expected = ids.iter().copied().zip(type_ids.iter().copied());
            let sequence = Sequence {
                pattern,
                first,
                second,
            };
            sequence.ids().eq(expected)
        };
        let pair = self.tokenizer.encode((a, b), true)?;
        let single = self.tokenizer.encode(a, true)?;
        Ok(same(&self.pair, second, &pair) && same(&self.single, &[], &single))
    }

    /// Returns the token limit of a sequence, special tokens included.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Returns the padding id.
    pub fn pad_id(&self) -> u32 {
        self.pad_id
    }

    /// Returns the maximum number of premise tokens in a pair with a hypothesis of this length; 0 if the hypothesis
    /// fills the window.
    pub fn premise_room(&self, hypothesis: usize) -> usize {
        self.max_tokens
            .saturating_sub(self.pair.specials() + hypothesis)
    }

    /// Returns the maximum number of tokens in a single text.
    pub fn room(&self) -> usize {
        self.max_tokens.saturating_sub(self.single.specials())
    }

    /// Tokenises texts in parallel, truncated to the model's limit.
    ///
    /// # Errors
    /// [`TokenizeError::Encode`] if the tokenizer is broken.
    pub fn encode<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<EncodedText>, TokenizeError> {
        let tokens = self.room() + MARGIN_TOKENS;
        let chars = tokens * CHARS_PER_TOKEN;
        // A post may contain 40,000 characters, but a model reads about 2,000, so the rest is not tokenised.
        let heads = texts.iter().map(|text| head(text.as_ref(), chars));
        let heads: Vec<_> = heads.map(|head| self.with_task_prompt(head)).collect();
        // The `fast` variant omits token offsets, which are not used.
        let encodings = catch_panic(|| self.tokenizer.encode_batch_fast(heads, false))
            .map_err(TokenizeError::Encode)?;
        let mut encoded = Vec::with_capacity(texts.len());
        for (text, mut encoding) in texts.iter().zip(encodings) {
            let (text, mut chars) = (text.as_ref(), chars);
            // Reads more of a text whose first characters gave too few tokens.
            while encoding.len() < tokens
                && chars < MAX_CHARS
                && head(text, chars).len() < text.len()
            {
                // In large steps, so that a megabyte of spaces takes few rounds.
                chars *= 4;
                let head = self.with_task_prompt(head(text, chars));
                encoding = catch_panic(|| self.tokenizer.encode_fast(head, false))
                    .map_err(TokenizeError::Encode)?;
            }
            let keep = encoding.len().min(self.room());
            let ids = encoding.get_ids()[..keep].to_vec();
            encoded.push(EncodedText { ids });
        }
        Ok(encoded)
    }

    /// Tokenises a text without truncation. Used for label texts, because a label text that is too long must be an
    /// error.
    ///
    /// # Errors
    /// [`TokenizeError::Encode`] if the tokenizer is broken.
    pub fn encode_whole(&self, text: &str) -> Result<EncodedText, TokenizeError> {
        let encoding = catch_panic(|| self.tokenizer.encode_fast(text, false))
            .map_err(TokenizeError::Encode)?;
        Ok(EncodedText {
            ids: encoding.get_ids().to_vec(),
        })
    }

    /// Joins a premise and a hypothesis into a sequence; if it is too long, the premise is truncated.
    pub fn pair<'a>(
        &'a self,
        premise: &'a EncodedText,
        hypothesis: &'a EncodedText,
    ) -> Sequence<'a> {
        let keep = premise.len().min(self.premise_room(hypothesis.len()));
        Sequence {
            pattern: &self.pair,
            first: &premise.ids[..keep],
            second: &hypothesis.ids,
        }
    }

    /// Returns the row that a model of this kind reads for a text. `other` is the hypothesis or the prompt, if the
    /// model reads one.
    pub(crate) fn row<'a>(
        &'a self,
        kind: &ModelKind,
        text: &'a EncodedText,
        other: &'a EncodedText,
    ) -> Sequence<'a> {
        match kind {
            ModelKind::Nli(_) => self.pair(text, other),
            ModelKind::Gliclass(_) => self.prompted(text, other),
            ModelKind::Embedding(_) | ModelKind::Classifier(_) => self.single(text),
        }
    }

    /// Returns a single text as a sequence, truncated to the window.
    pub fn single<'a>(&'a self, text: &'a EncodedText) -> Sequence<'a> {
        Sequence {
            pattern: &self.single,
            first: &text.ids[..text.len().min(self.room())],
            second: &[],
        }
    }
}

fn rejected(path: &Path, detail: &str) -> TokenizeError {
    TokenizeError::Rejected(path.to_owned(), detail.to_owned())
}

/// Calls the library and turns a panic, which a damaged table can cause, into an error.
fn catch_panic<T>(
    read: impl FnOnce() -> Result<T, tokenizers::Error>,
) -> Result<T, tokenizers::Error> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err("its tables are inconsistent".into()))
}

/// Returns the first `chars` characters of a text.
fn head(text: &str, chars: usize) -> &str {
    // A character has at least one byte, so this avoids counting.
    if text.len() <= chars {
        return text;
    }
    text.char_indices()
        .nth(chars)
        .map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests;
