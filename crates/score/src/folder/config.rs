//! What `config.json` and `tokenizer_config.json` say of a model: its kind, its classes, its head and how long a text may be.
//!
//! Both are the hub's, and read as transformers reads them; only the block `zero_shot` is topicmill's own.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::classifier::ClassifierHead;
use super::learned::{LearnedLabels, is_beside};
use super::{EmbeddingHead, ModelKind, NliClasses};

/// Longest sequence of a model that does not say how long it may be.
pub(super) const DEFAULT_MAX_TOKENS: usize = 512;

/// `tokenizer_config.json` writes 1e30 where there is no limit.
const NO_LIMIT: f64 = 1e6;
/// The same for numbers that are whole.
const MOST_TOKENS: usize = 1_000_000;
/// What the block `zero_shot` calls an embedding model.
const EMBEDDING: &str = "embedding";
/// What a manifest calls an NLI model.
const NLI: &str = "nli";

/// Families that count positions from the padding id on, so that two of their positions are never used.
const OFFSET_POSITIONS: &[&str] = &[
    "camembert",
    "data2vec-text",
    "ibert",
    "lilt",
    "longformer",
    "luke",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
];

/// How the architectures of classifiers end.
const CLASSIFIER: &str = "ForSequenceClassification";
/// How those end whose labels are of tokens, answers or next words, and of no text.
const OTHER_HEADS: &[&str] = &[
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForNextSentencePrediction",
    "ForMaskedLM",
    "ForCausalLM",
    "ForConditionalGeneration",
    "ForPreTraining",
    "ForImageClassification",
    "ForAudioClassification",
    // Without a head.
    "Model",
];

/// The part of `config.json` that matters here.
#[derive(Debug, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    model_type: String,
    architectures: Option<Vec<String>>,
    problem_type: Option<String>,
    num_labels: Option<usize>,
    id2label: Option<Map<String, Value>>,
    label2id: Option<Map<String, Value>>,
    max_position_embeddings: Option<usize>,
    pub vocab_size: Option<usize>,
    pub pad_token_id: Option<u32>,
    pub zero_shot: Option<ZeroShot>,
}

/// Block `zero_shot` of `config.json`: topicmill's own, so unlike the rest it is read strictly where it counts.
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
    /// What kind of model it is, but for [learned label vectors](Self::label_vectors), which lie in a file of their own.
    /// `said`: the kind that a manifest names.
    ///
    /// Without one, a model with an entailment among its classes is NLI, and any other sequence classifier is one.
    pub fn kind(&self, said: Option<&str>) -> Result<ModelKind, String> {
        match (&self.zero_shot, said) {
            (Some(block), _) if block.mode == EMBEDDING => {
                block.embedding().map(ModelKind::Embedding)
            }
            (Some(block), _) if block.mode != "nli" => Err(format!(
                "`zero_shot.mode` is `{}`; topicmill knows `embedding` and `nli`",
                block.mode
            )),
            (Some(_), _) | (None, Some(NLI)) => self.nli().map(ModelKind::Nli),
            (None, None) if self.has_entailment() || !self.is_classifier() => {
                self.nli().map(ModelKind::Nli)
            }
            (None, _) => self.classifier(),
        }
    }

    /// The name of the file with learned label vectors, which lies beside the configuration, where it names one.
    pub fn label_vectors(&self) -> Result<Option<&str>, String> {
        let Some(block) = &self.zero_shot else {
            return Ok(None);
        };
        match block.label_vectors.as_deref() {
            Some(_) if block.mode != EMBEDDING => Err(format!(
                "`zero_shot.label_vectors` is for the mode `{EMBEDDING}`, and its mode is `{}`; take it out",
                block.mode
            )),
            Some(name) if !is_beside(name) => Err(format!(
                "`zero_shot.label_vectors` is {name:?}; write the name of a file in this folder that ends in `.json`"
            )),
            name => Ok(name),
        }
    }

    fn classifier(&self) -> Result<ModelKind, String> {
        if let Some(other) = self.other_head() {
            return Err(format!(
                "its architecture is {other}; a classifier of texts is one that ends in {CLASSIFIER}"
            ));
        }
        let (names, numbers) = (self.id2label.as_ref(), self.label2id.as_ref());
        let problem_type = self.problem_type.as_deref();
        let head = ClassifierHead::read(names, numbers, self.num_labels, problem_type);
        head.map(ModelKind::Classifier)
    }

    fn has_entailment(&self) -> bool {
        let is_one = |name: &str| name.to_lowercase().starts_with("entail");
        let names = self.id2label.iter().flat_map(Map::values);
        let mut names = names.filter_map(Value::as_str);
        let mut keys = self.label2id.iter().flat_map(Map::keys);
        names.any(is_one) || keys.any(|name| is_one(name))
    }

    /// A model without any name of a label may be one that has no head at all.
    fn is_classifier(&self) -> bool {
        let mut architectures = self.architectures.iter().flatten();
        self.id2label.is_some()
            || self.label2id.is_some()
            || architectures.any(|name| name.ends_with(CLASSIFIER))
    }

    fn other_head(&self) -> Option<&str> {
        let mut architectures = self.architectures.iter().flatten();
        let other = architectures.find(|name| OTHER_HEADS.iter().any(|head| name.ends_with(head)));
        other.map(String::as_str)
    }

    fn nli(&self) -> Result<NliClasses, String> {
        let classes = self.classes()?;
        let names = || {
            classes
                .iter()
                .map(|(name, _)| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (_, entailment) =
            // As the pipeline finds it, whatever else the class is called.
            classes.iter().find(|(name, _)| name.to_lowercase().starts_with("entail")).ok_or_else(|| {
                format!(
                    "none of its classes ({}) is called `entailment`; take a model trained on NLI, such as facebook/bart-large-mnli, or correct `label2id`",
                    names()
                )
            })?;
        let count = classes.len();
        if !(2..=3).contains(&count) || *entailment >= count {
            return Err(format!(
                "its classes ({}) are not 2 or 3 numbered from 0; correct `label2id`",
                names()
            ));
        }
        Ok(NliClasses::of(count, *entailment))
    }

    /// (name, index) of each class, in the order of `label2id`, which is where the reference looks.
    fn classes(&self) -> Result<Vec<(String, usize)>, String> {
        let pairs: Option<Vec<_>> = match (&self.label2id, &self.id2label) {
            (Some(map), _) => map
                .iter()
                .map(|(name, id)| Some((name.clone(), usize::try_from(id.as_u64()?).ok()?)))
                .collect(),
            (None, Some(map)) => map
                .iter()
                .map(|(id, name)| Some((name.as_str()?.to_owned(), id.parse().ok()?)))
                .collect(),
            (None, None) => {
                return Err(
                    "it has neither `label2id` nor `id2label` nor a block `zero_shot`; take a model trained on NLI, such as facebook/bart-large-mnli, or a classifier".to_owned(),
                );
            }
        };
        pairs.ok_or_else(|| {
            "`label2id` or `id2label` does not map names and numbers; correct it".to_owned()
        })
    }

    pub fn max_tokens(&self, tokenizer: &TokenizerConfig) -> usize {
        let unused = if OFFSET_POSITIONS.contains(&self.model_type.as_str()) {
            2
        } else {
            0
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and a million"
        )]
        let tokenizer = tokenizer
            .model_max_length
            .filter(|n| (1.0..NO_LIMIT).contains(n))
            .map(|n| n as usize);
        let positions = self
            .max_position_embeddings
            .map(|n| n.saturating_sub(unused));
        let own = self.zero_shot.as_ref().and_then(|z| z.max_length);
        [tokenizer, positions, own]
            .into_iter()
            .flatten()
            .filter(|n| (1..MOST_TOKENS).contains(n))
            // The shortest of the three: beyond it, either positions or the training end.
            .min()
            .unwrap_or(DEFAULT_MAX_TOKENS)
    }
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
