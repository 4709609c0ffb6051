//! Reads `config.json` and `tokenizer_config.json`: the kind of the model, its classes, its head and its token limit.
//!
//! Both files are read as transformers reads them. Only the `zero_shot` block and `task_prompt` are topicmill's own.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::gliclass::{self, GliclassConfig};
use super::learned::is_json_file_name;
use topicmill_core::model_kind::{
    ClassifierHead, EmbeddingHead, LearnedLabels, ModelKind, NliClasses,
};

/// Token limit for a model that declares none.
pub(super) const DEFAULT_MAX_TOKENS: usize = 512;

/// A limit of this size or more means no limit; `tokenizer_config.json` contains 1e30 in that case.
const NO_LIMIT: usize = 1_000_000;
/// The mode in the `zero_shot` block that marks an embedding model.
const EMBEDDING: &str = "embedding";
/// The kind in a manifest, and the mode in the `zero_shot` block, that mark an NLI model.
const NLI: &str = "nli";

/// Model types that number positions from the padding id, so two positions are never used.
const OFFSET_POSITIONS: &str = "camembert data2vec-text ibert lilt longformer luke mpnet roberta roberta-prelayernorm \
                                xlm-roberta xlm-roberta-xl xmod";

/// Suffix of a classifier's architecture.
const CLASSIFIER: &str = "ForSequenceClassification";
/// Suffixes of architectures that do not label whole texts. `Model` has no head.
const OTHER_HEADS: &str = "ForTokenClassification ForQuestionAnswering ForMultipleChoice ForNextSentencePrediction \
                           ForMaskedLM ForCausalLM ForConditionalGeneration ForPreTraining ForImageClassification \
                           ForAudioClassification Model";

/// The keys of `config.json` that are used here.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    model_type: String,
    architectures: Option<Vec<String>>,
    pub problem_type: Option<String>,
    pub num_labels: Option<usize>,
    pub id2label: Option<Map<String, Value>>,
    pub label2id: Option<Map<String, Value>>,
    max_position_embeddings: Option<usize>,
    pub vocab_size: Option<usize>,
    pub pad_token_id: Option<u32>,
    pub zero_shot: Option<ZeroShot>,
    #[serde(flatten)]
    gliclass: GliclassConfig,
}

/// The `zero_shot` block of `config.json`. It is topicmill's own, so invalid values are errors.
#[derive(Debug, Deserialize)]
pub(super) struct ZeroShot {
    mode: String,
    output: Option<String>,
    pub hypothesis_template: Option<String>,
    softmax_scale: Option<f64>,
    sigmoid_scale: Option<f64>,
    sigmoid_bias: Option<f64>,
    max_length: Option<usize>,
    label_vectors: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct TokenizerConfig {
    model_max_length: Option<f64>,
}

impl Config {
    /// Returns the kind of the model, without its [learned label vectors](Self::label_vectors), which are in a separate
    /// file. `declared` is the kind in the manifest.
    ///
    /// A GLiClass model is recognised by its `model_type`. Without a declared kind, a model with an entailment class is
    /// NLI, and any other sequence classifier is a classifier.
    pub fn kind(&self, declared: Option<&str>) -> Result<ModelKind, String> {
        if self.model_type == gliclass::MODEL_TYPE {
            return self.gliclass.head().map(ModelKind::Gliclass);
        }
        if let Some(block) = &self.zero_shot {
            return match block.mode.as_str() {
                EMBEDDING => block.embedding().map(ModelKind::Embedding),
                NLI => self.nli().map(ModelKind::Nli),
                other => Err(format!(
                    "`zero_shot.mode` is `{other}`; topicmill supports `embedding` and `nli`"
                )),
            };
        }
        let is_nli = match declared {
            Some(kind) => kind == NLI,
            None => self.has_entailment() || !self.is_classifier(),
        };
        if is_nli {
            self.nli().map(ModelKind::Nli)
        } else {
            self.classifier().map(ModelKind::Classifier)
        }
    }

    /// Returns the name of the file with learned label vectors; `None` if none is declared. The file is next to
    /// `config.json`.
    pub fn label_vectors(&self) -> Result<Option<&str>, String> {
        let Some(block) = &self.zero_shot else {
            return Ok(None);
        };
        match block.label_vectors.as_deref() {
            Some(_) if block.mode != EMBEDDING => Err(format!(
                "`zero_shot.label_vectors` requires the mode `{EMBEDDING}`, but the mode is `{}`; remove the key",
                block.mode
            )),
            Some(name) if !is_json_file_name(name) => Err(format!(
                "`zero_shot.label_vectors` is {name:?}; give the name of a `.json` file in this folder"
            )),
            name => Ok(name),
        }
    }

    /// Returns a name whose number in `label2id` has a different name in `id2label`. transformers reads the former for
    /// NLI, and the latter for a classifier. A generic name such as `LABEL_0` contradicts nothing.
    pub fn contradiction(&self) -> Option<String> {
        let (numbers, names) = (self.label2id.as_ref()?, self.id2label.as_ref()?);
        numbers.iter().find_map(|(name, number)| {
            let other = names.get(&number.to_string())?.as_str()?;
            let is_generic = |name: &str| name.starts_with("LABEL_");
            let differs =
                !other.eq_ignore_ascii_case(name) && !is_generic(other) && !is_generic(name);
            differs.then(|| {
                format!(
                    "`{name}` is {number} in `label2id`, but {number} is `{other}` in `id2label`"
                )
            })
        })
    }

    fn classifier(&self) -> Result<ClassifierHead, String> {
        if let Some(other) = self.other_head() {
            return Err(format!(
                "its architecture is {other}; the architecture of a text classifier ends in {CLASSIFIER}"
            ));
        }
        self.classifier_head()
    }

    fn has_entailment(&self) -> bool {
        let names = self.id2label.iter().flat_map(Map::values);
        let mut names = names.filter_map(Value::as_str);
        let mut keys = self.label2id.iter().flat_map(Map::keys);
        names.any(is_entailment) || keys.any(|name| is_entailment(name))
    }

    /// Returns true if the configuration describes a classifier. A model without label names may have no head at all.
    fn is_classifier(&self) -> bool {
        let mut architectures = self.architectures.iter().flatten();
        self.id2label.is_some()
            || self.label2id.is_some()
            || architectures.any(|name| name.ends_with(CLASSIFIER))
    }

    fn other_head(&self) -> Option<&str> {
        let mut architectures = self.architectures.iter().flatten();
        let other =
            architectures.find(|name| OTHER_HEADS.split(' ').any(|head| name.ends_with(head)));
        other.map(String::as_str)
    }

    fn nli(&self) -> Result<NliClasses, String> {
        let classes = self.classes()?;
        let quoted = |(name, _): &(String, usize)| format!("`{name}`");
        let names = classes.iter().map(quoted).collect::<Vec<_>>().join(", ");
        let count = classes.len();
        let entailment = classes.iter().find(|(name, _)| is_entailment(name));
        match entailment {
            Some((_, entailment)) if (2..=3).contains(&count) && *entailment < count => {
                Ok(NliClasses::with_entailment(count, *entailment))
            }
            Some(_) => Err(format!(
                "it needs 2 or 3 classes, numbered from 0, but has {names}; correct `label2id`"
            )),
            None => Err(format!(
                "none of its classes ({names}) is named `entailment`; use a model trained on NLI, such as \
                 facebook/bart-large-mnli, or correct `label2id`"
            )),
        }
    }

    /// Returns (name, index) of each class, in the order of `label2id`, like the reference.
    fn classes(&self) -> Result<Vec<(String, usize)>, String> {
        let pairs: Option<Vec<_>> = match (&self.label2id, &self.id2label) {
            (Some(map), names) if !map.is_empty() || names.is_none() => map
                .iter()
                .map(|(name, id)| Some((name.clone(), usize::try_from(id.as_u64()?).ok()?)))
                .collect(),
            (_, Some(map)) => map
                .iter()
                .map(|(id, name)| Some((name.as_str()?.to_owned(), id.parse().ok()?)))
                .collect(),
            (_, None) => {
                return Err(
                    "it has neither `label2id` nor `id2label` nor a block `zero_shot`; use a model trained on NLI, \
                     such as facebook/bart-large-mnli, or a classifier".to_owned(),
                );
            }
        };
        pairs.ok_or_else(|| {
            "`label2id` or `id2label` does not map between names and numbers; correct it".to_owned()
        })
    }

    /// Returns the token limit of a sequence, special tokens included.
    pub fn max_tokens(&self, tokenizer: &TokenizerConfig) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and numbers outside the limits are ignored"
        )]
        let of_tokenizer = tokenizer.model_max_length.map(|length| length as usize);
        let mut offsets = OFFSET_POSITIONS.split(' ');
        let unused = if offsets.any(|kind| kind == self.model_type) {
            2
        } else {
            0
        };
        let of_positions = self.max_position_embeddings;
        let of_positions = of_positions.map(|positions| positions.saturating_sub(unused));
        let of_block = self.zero_shot.as_ref().and_then(|block| block.max_length);
        [of_tokenizer, of_positions, of_block]
            .into_iter()
            .flatten()
            .filter(|limit| (1..NO_LIMIT).contains(limit))
            // The smallest limit applies: beyond it, the model has no positions or was not trained.
            .min()
            .unwrap_or(DEFAULT_MAX_TOKENS)
    }
}

/// Returns true for the name of an entailment class. Only the prefix is compared, as in the reference pipeline.
pub(super) fn is_entailment(name: &str) -> bool {
    name.to_lowercase().starts_with("entail")
}

impl ZeroShot {
    fn embedding(&self) -> Result<EmbeddingHead, String> {
        let number = |value: Option<f64>, name: &str| {
            value
                .filter(|x| x.is_finite())
                .ok_or_else(|| format!("`zero_shot.{name}` is missing; add the number"))
        };
        Ok(EmbeddingHead {
            output: self
                .output
                .clone()
                .ok_or("`zero_shot.output` is missing; add the name of the graph's output")?,
            softmax_scale: number(self.softmax_scale, "softmax_scale")?,
            sigmoid_scale: number(self.sigmoid_scale, "sigmoid_scale")?,
            sigmoid_bias: number(self.sigmoid_bias, "sigmoid_bias")?,
            learned: Arc::new(LearnedLabels::default()),
        })
    }
}
