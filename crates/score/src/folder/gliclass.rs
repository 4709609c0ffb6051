//! The head of a GLiClass model, which reads a text and all labels in one pass.
//!
//! The input is the `config.json` of a checkpoint from the `gliclass` package. The graph contains the encoder, the
//! pooling and the scorer. The head describes the prompt: the special tokens, whether the labels or the text come
//! first, and the task prompt, which tools/model.py adds to the file.

use serde::Deserialize;
use serde_json::Value;

use topicmill_core::model_kind::GliclassHead;

/// `model_type` in `config.json`.
pub(super) const MODEL_TYPE: &str = "GLiClass";
/// The supported architecture: one encoder for the text and the labels.
const ARCHITECTURE: &str = "uni-encoder";
/// Value of `max_labels_alloc` for any number of labels; the default.
const DYNAMIC: &str = "dynamic";
/// Default for `max_num_classes`, as in the `gliclass` package.
const DEFAULT_MAX_LABELS: usize = 25;

/// The keys in `config.json` that are used here; the defaults are the package's. Only `task_prompt` is topicmill's own.
#[derive(Debug, Deserialize)]
pub(super) struct GliclassConfig {
    architecture_type: Option<String>,
    class_token_index: Option<i64>,
    text_token_index: Option<i64>,
    #[serde(default)]
    prompt_first: bool,
    max_num_classes: Option<usize>,
    /// [`DYNAMIC`], a number of labels, or anything else (null too) for `max_num_classes`.
    #[serde(default = "dynamic")]
    max_labels_alloc: Value,
    task_prompt: Option<Value>,
}

fn dynamic() -> Value {
    DYNAMIC.into()
}

impl GliclassConfig {
    /// Returns the head, or the reason why the model is not supported.
    pub(super) fn head(&self) -> Result<GliclassHead, String> {
        if let Some(other) = self
            .architecture_type
            .as_deref()
            .filter(|a| *a != ARCHITECTURE)
        {
            return Err(format!(
                "it is a GLiClass model of the architecture `{other}`; topicmill supports `{ARCHITECTURE}`"
            ));
        }
        let token_id = |number: Option<i64>, name: &str| {
            let id = number.and_then(|number| u32::try_from(number).ok());
            id.ok_or_else(|| {
                format!("`{name}` is not a token id; copy `config.json` of the checkpoint")
            })
        };
        Ok(GliclassHead {
            label_id: token_id(self.class_token_index, "class_token_index")?,
            separator_id: token_id(self.text_token_index, "text_token_index")?,
            prompt_first: self.prompt_first,
            max_labels: self.max_labels(),
            task_prompt: self.task_prompt()?,
        })
    }

    fn max_labels(&self) -> Option<usize> {
        if self.max_labels_alloc == DYNAMIC {
            return None;
        }
        let allocated = self.max_labels_alloc.as_u64();
        allocated
            .and_then(|labels| usize::try_from(labels).ok())
            .or(self.max_num_classes)
            .or(Some(DEFAULT_MAX_LABELS))
    }

    fn task_prompt(&self) -> Result<String, String> {
        match &self.task_prompt {
            None => Ok(String::new()),
            Some(Value::String(task_prompt)) => Ok(task_prompt.clone()),
            Some(_) => Err(
                "`task_prompt` is not a string; build the folder again with tools/model.py and \
                 `--task-prompt`"
                    .to_owned(),
            ),
        }
    }
}
