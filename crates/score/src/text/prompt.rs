//! The prompt of a GLiClass model: the label token before each label, and the separator token after the last one.
//!
//! The `gliclass` package tokenises one string, which the tokenizer splits at these special tokens. Here, labels and
//! texts are data, so each is tokenised separately, without special tokens, and the ids are joined.
//!
//! A task prompt follows the separator token. If the labels come first, nothing separates the task prompt from the text
//! after it, so these two are tokenised together, as in the package.

use std::borrow::Cow;
use std::iter;
use std::path::Path;

use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;
use tokenizers::{AddedToken, Tokenizer};

use super::{EncodedText, Encoder, Sequence, TokenizeError, catch_panic, rejected};
use topicmill_core::model_kind::GliclassHead;

/// Special tokens of a prompt, its task prompt, and the tokenizer of its labels.
#[derive(Debug)]
pub struct Prompt {
    head: GliclassHead,
    /// The two tokens as text; no label may contain them.
    tokens: [String; 2],
    /// Tokenizer for texts after the start of a row; `None` if the encoder's own is suitable.
    within_row: Option<Tokenizer>,
    /// Token ids of the task prompt alone; empty if there is none.
    task_ids: Vec<u32>,
}

impl Encoder {
    /// Prepares the encoder for the prompts of a GLiClass model.
    ///
    /// # Errors
    /// [`TokenizeError::Rejected`] if the tokenizer lacks one of the prompt's special tokens, and
    /// [`TokenizeError::TaskPrompt`].
    pub(super) fn with_prompt(
        mut self,
        head: &GliclassHead,
        path: &Path,
    ) -> Result<Self, TokenizeError> {
        let added = self.tokenizer.get_added_tokens_decoder();
        let token = |id: u32, name: &str| {
            let is_exact = |token: &&AddedToken| token.special && !token.lstrip && !token.rstrip;
            let token = added.get(&id).filter(is_exact);
            token.map(|token| token.content.clone()).ok_or_else(|| {
                let detail = format!(
                    "{id} (`{name}` of `config.json`) is not the id of one of its special tokens; copy the \
                     checkpoint's own files, and build the folder again with tools/model.py"
                );
                rejected(path, &detail)
            })
        };
        let tokens = [
            token(head.label_id, "class_token_index")?,
            token(head.separator_id, "text_token_index")?,
        ];
        let mut within_row = tokenizer_within_row(&self.tokenizer);
        // If the labels come first, neither they nor the text are at the start of a row.
        if head.prompt_first
            && let Some(tokenizer) = within_row.take()
        {
            self.tokenizer = tokenizer;
        }
        let mut task_ids: Vec<u32> = Vec::new();
        if !head.task_prompt.is_empty() {
            let tokenizer = within_row.as_ref().unwrap_or(&self.tokenizer);
            let encoding = catch_panic(|| tokenizer.encode_fast(head.task_prompt.as_str(), false));
            task_ids.extend(encoding.map_err(TokenizeError::Encode)?.get_ids());
        }
        self.prompt = Some(Prompt {
            head: head.clone(),
            tokens,
            within_row,
            task_ids,
        });
        self.check_task_prompt(&head.task_prompt, path)?;
        Ok(self)
    }

    /// Checks that the task prompt contains no special token of the prompt, and leaves room for labels and a text.
    fn check_task_prompt(&self, task_prompt: &str, path: &Path) -> Result<(), TokenizeError> {
        let unusable =
            |detail| TokenizeError::TaskPrompt(path.with_file_name("config.json"), detail);
        if let Some(token) = self.reserved_token(task_prompt) {
            return Err(unusable(format!(
                "it contains `{token}`, which separates labels and text"
            )));
        }
        let tokens = self.task_tokens();
        if tokens > 0 && !self.has_room(&self.encode_labels(iter::once(""))?) {
            return Err(unusable(format!(
                "it has {tokens} tokens, which leaves no room for labels and a text in the model's window of {}",
                self.max_tokens
            )));
        }
        Ok(())
    }

    /// Returns the special token of the prompt that a label or task prompt contains, if any.
    pub fn reserved_token(&self, words: &str) -> Option<&str> {
        let tokens = self.prompt.iter().flat_map(|prompt| &prompt.tokens);
        let mut tokens = tokens.map(String::as_str);
        tokens.find(|token| words.contains(token))
    }

    /// Returns true if the labels precede the text.
    fn is_prompt_first(&self) -> bool {
        let prompt = self.prompt.as_ref();
        prompt.is_some_and(|prompt| prompt.head.prompt_first)
    }

    /// Returns the number of tokens in the task prompt alone; 0 if there is none.
    pub(crate) fn task_tokens(&self) -> usize {
        let prompt = self.prompt.as_ref();
        prompt.map_or(0, |prompt| prompt.task_ids.len())
    }

    /// Returns a text with the task prompt before it, if the model reads it there.
    pub(super) fn with_task_prompt<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let head = self.prompt.as_ref().map(|prompt| &prompt.head);
        match head.filter(|head| head.prompt_first && !head.task_prompt.is_empty()) {
            Some(head) => Cow::Owned(format!("{}{text}", head.task_prompt)),
            None => Cow::Borrowed(text),
        }
    }

    /// Tokenises labels without truncation and adds the prompt's tokens, and the task prompt unless it precedes a text.
    ///
    /// # Errors
    /// [`TokenizeError::Encode`] if the tokenizer is broken.
    ///
    /// # Panics
    /// If the model is not a GLiClass model.
    pub fn encode_labels<'l>(
        &self,
        labels: impl Iterator<Item = &'l str>,
    ) -> Result<EncodedText, TokenizeError> {
        let prompt = self.prompt.as_ref().expect("the model has a prompt");
        let tokenizer = prompt.within_row.as_ref().unwrap_or(&self.tokenizer);
        let mut ids = Vec::new();
        for label in labels {
            let encoding = catch_panic(|| tokenizer.encode_fast(label, false));
            ids.push(prompt.head.label_id);
            ids.extend(encoding.map_err(TokenizeError::Encode)?.get_ids());
        }
        ids.push(prompt.head.separator_id);
        if !prompt.head.prompt_first {
            ids.extend(&prompt.task_ids);
        }
        Ok(EncodedText { ids })
    }

    /// Returns the prompt of one label without words, and without the task prompt.
    pub(crate) fn empty_prompt(&self) -> EncodedText {
        let head = self.prompt.as_ref().map(|prompt| &prompt.head);
        let ids = head.map(|head| vec![head.label_id, head.separator_id]);
        EncodedText {
            ids: ids.unwrap_or_default(),
        }
    }

    /// Returns the maximum number of tokens in a text, and a task prompt before it, alongside a prompt of this length.
    fn prompt_room(&self, prompt: usize) -> usize {
        self.room().saturating_sub(prompt)
    }

    /// Returns true if the window has room for a prompt, the task prompt and at least one token of a text.
    pub(crate) fn has_room(&self, prompt: &EncodedText) -> bool {
        let before_text = self.is_prompt_first().then(|| self.task_tokens());
        self.prompt_room(prompt.len()) > before_text.unwrap_or(0)
    }

    /// Joins a text and a prompt into a sequence; if it is too long, the text is truncated.
    pub fn prompted<'a>(&'a self, text: &'a EncodedText, prompt: &'a EncodedText) -> Sequence<'a> {
        let text = &text.ids[..text.len().min(self.prompt_room(prompt.len()))];
        let (first, second) = if self.is_prompt_first() {
            (&*prompt.ids, text)
        } else {
            (text, &*prompt.ids)
        };
        Sequence {
            pattern: &self.single,
            first,
            second,
        }
    }
}

/// Returns the tokenizer for texts after the start of a row, if it differs: some tokenizers add a space at the start.
fn tokenizer_within_row(tokenizer: &Tokenizer) -> Option<Tokenizer> {
    let mut steps = tokenizer.get_pre_tokenizer()?.clone();
    if !forget_start(&mut steps) {
        return None;
    }
    let mut within_row = tokenizer.clone();
    within_row.with_pre_tokenizer(Some(steps));
    Some(within_row)
}

/// Stops a pre-tokenizer from treating any text as the start of a row; returns true if that changes the pre-tokenizer.
fn forget_start(step: &mut PreTokenizerWrapper) -> bool {
    match step {
        PreTokenizerWrapper::Metaspace(space) if space.prepend_scheme == PrependScheme::First => {
            space.prepend_scheme = PrependScheme::Never;
            true
        }
        PreTokenizerWrapper::Sequence(steps) => {
            let changed: Vec<bool> = steps.as_mut().iter_mut().map(forget_start).collect();
            changed.contains(&true)
        }
        _ => false,
    }
}
