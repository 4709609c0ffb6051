//! Computes labels of stored posts from stored logits or vectors, without inference.
//!
//! This makes it cheap to try a different threshold, temperature or label set on posts that a model has already
//! processed.

use std::collections::HashMap;

use topicmill_core::labels::hypothesis;
use topicmill_core::score::Evidence;
use topicmill_core::{
    Fullname, LabelSet, LabelVector, ModelKind, PairLogits, Scores, TextHash, TextVector,
};
use topicmill_store::{HypothesisId, ModelId, Prediction, Store, StoreError, Target};

/// The stored model output for a text under a label set.
#[derive(Debug, Clone)]
pub struct TextEvidence {
    /// The zero-shot logits.
    pub evidence: Evidence,
    /// The text's vector, if the model is an embedding model.
    pub vector: Option<TextVector>,
}

/// A label set and a model whose output is stored.
#[derive(Debug, Clone)]
pub struct Rescorer<'a> {
    kind: &'a ModelKind,
    model: ModelId,
    set: &'a LabelSet,
    vectors: Option<Vec<LabelVector>>,
    /// Keys of the hypotheses; `None` if one of them is not stored.
    hypotheses: Option<Vec<HypothesisId>>,
    /// Stored label sets with the same logits, whose scores serve for texts without other output: retention deletes
    /// vectors but not scores.
    alike: Vec<AlikeSet>,
}

/// A stored label set with the same logits as another.
#[derive(Debug, Clone)]
struct AlikeSet {
    target: Target,
    temperature: f64,
    /// The background's prior in the other label set minus that in this one.
    shift: f64,
}

impl<'a> Rescorer<'a> {
    /// Looks up the hypotheses of the label set. `model` is the model's key in the `models` table; `vectors` are the
    /// label vectors, if the caller has computed them.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn new(
        store: &Store,
        (kind, model): (&'a ModelKind, ModelId),
        set: &'a LabelSet,
        vectors: Option<Vec<LabelVector>>,
    ) -> Result<Self, StoreError> {
        let keys = hypothesis::keys(kind, set);
        let hypotheses = store.labels().find_hypotheses(&keys).await?;
        let mut alike = Vec::new();
        for row in store.labels().label_sets().await? {
            let other = match store.labels().label_set(row.id).await {
                // A damaged label set is reported where it is used.
                Err(StoreError::Corrupt { .. }) => continue,
                other => other?,
            };
            if other.has_same_logits(set) {
                let label_set = row.id;
                let priors = set.prior_for(kind).zip(other.prior_for(kind));
                alike.push(AlikeSet {
                    target: Target { model, label_set },
                    temperature: other.temperature,
                    shift: priors.map_or(0.0, |(prior, other)| prior - other),
                });
            }
        }
        Ok(Self {
            kind,
            model,
            set,
            vectors,
            hypotheses: hypotheses.into_iter().collect(),
            alike,
        })
    }

    /// Returns each text's logits if all of them are stored or can be computed from its stored vector. If the label set
    /// is fitted, the fit is applied.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn evidence(
        &self,
        store: &Store,
        mut texts: Vec<TextHash>,
    ) -> Result<HashMap<TextHash, Evidence>, StoreError> {
        let known = self.zero_shot(store, texts.clone()).await?.into_iter();
        let Some(fitted) = &self.set.fitted else {
            return Ok(known.map(|(text, known)| (text, known.evidence)).collect());
        };
        let all: Vec<usize> = (0..self.set.labels.len()).collect();
        let corrected = |(text, known): (TextHash, TextEvidence)| {
            let vector = known.vector.as_ref();
            Some((text, known.evidence.fitted(fitted, &all, vector)?))
        };
        let mut evidence: HashMap<TextHash, Evidence> = known.filter_map(corrected).collect();
        texts.retain(|text| !evidence.contains_key(text));
        evidence.extend(self.evidence_of_scores(store, texts).await?);
        Ok(evidence)
    }

    /// Returns the evidence that the stored scores of texts contain, with the fit applied if there is one.
    async fn evidence_of_scores(
        &self,
        store: &Store,
        mut texts: Vec<TextHash>,
    ) -> Result<HashMap<TextHash, Evidence>, StoreError> {
        let mut evidence = HashMap::new();
        let (mode, has_background) = (self.set.mode, self.set.prior_for(self.kind).is_some());
        for alike in &self.alike {
            let scores = store.computed().text_scores(alike.target, &texts).await?;
            let of_scores = |scores: Vec<f64>| {
                // `db check` reports a row with a score too many or too few.
                if scores.len() != self.set.labels.len() {
                    return None;
                }
                let temperature = alike.temperature;
                Evidence::of_scores(self.kind, mode, &scores, has_background, temperature)
            };
            for (text, scores) in texts.iter().zip(scores) {
                let stored = scores.and_then(of_scores);
                evidence.extend(stored.map(|stored| (*text, stored.shifted(alike.shift))));
            }
            texts.retain(|text| !evidence.contains_key(text));
        }
        Ok(evidence)
    }

    /// Returns each text's zero-shot logits and vector if all logits are stored or can be computed. No fit is applied.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn zero_shot(
        &self,
        store: &Store,
        mut texts: Vec<TextHash>,
    ) -> Result<HashMap<TextHash, TextEvidence>, StoreError> {
        // Crossposts have the same text.
        texts.sort_unstable();
        texts.dedup();
        let mut logits: HashMap<TextHash, Vec<PairLogits>> = HashMap::with_capacity(texts.len());
        if let Some(vectors) = &self.vectors {
            let of_vectors = vector_logits(store, self.model, vectors, &texts).await?;
            let complete = texts.iter().zip(of_vectors);
            logits.extend(complete.filter_map(|(text, logits)| Some((*text, logits?))));
            texts.retain(|text| !logits.contains_key(text));
        }
        // A text without a stored vector may still have stored logits of pairs.
        if let Some(hypotheses) = &self.hypotheses
            && !texts.is_empty()
        {
            let stored = stored_logits(store, self.model, hypotheses, &texts).await?;
            let complete = texts.iter().zip(stored);
            logits.extend(complete.filter_map(|(text, of_pairs)| {
                let of_pairs: Option<Vec<PairLogits>> = of_pairs.into_iter().collect();
                Some((*text, of_pairs?))
            }));
            texts.retain(|text| !logits.contains_key(text));
        }
        let of_scores = match &self.set.fitted {
            None => self.evidence_of_scores(store, texts).await?,
            // These scores include the fit.
            Some(_) => HashMap::new(),
        };
        let (texts, logits): (Vec<TextHash>, Vec<_>) = logits.into_iter().unzip();
        let vectors = match self.kind {
            ModelKind::Embedding(_) => store.computed().text_vectors(self.model, &texts).await?,
            _ => vec![None; texts.len()],
        };
        let prior = self.set.prior_for(self.kind);
        let known = |(logits, vector): (Vec<PairLogits>, Option<TextVector>)| TextEvidence {
            evidence: Evidence::new(self.kind, self.set.mode, &logits, prior),
            vector,
        };
        let known = logits.into_iter().zip(vectors).map(known);
        let of_scores = of_scores.into_iter().map(|(text, evidence)| {
            let vector = None;
            (text, TextEvidence { evidence, vector })
        });
        Ok(texts.into_iter().zip(known).chain(of_scores).collect())
    }

    /// Returns the predictions of texts whose model output is stored, by text hash.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn labels(
        &self,
        store: &Store,
        texts: Vec<TextHash>,
    ) -> Result<HashMap<TextHash, Prediction>, StoreError> {
        let evidence = self.evidence(store, texts).await?.into_iter();
        let labelled = evidence.map(|(text, evidence)| {
            let scores = evidence.scores(self.set.temperature, self.set.threshold);
            (text, prediction(self.set, &scores))
        });
        Ok(labelled.collect())
    }

    /// Returns the predictions of posts whose model output is stored, by fullname.
    ///
    /// # Errors
    /// Returns [`StoreError`] if the database cannot be read.
    pub async fn labels_of_posts(
        &self,
        store: &Store,
        posts: &[Fullname],
    ) -> Result<HashMap<Fullname, Prediction>, StoreError> {
        let posts = store.posts().text_hashes(posts).await?;
        let texts = posts.iter().map(|(_, text)| *text).collect();
        let labels = self.labels(store, texts).await?;
        let posts = posts.into_iter();
        Ok(posts
            .filter_map(|(post, text)| Some((post, labels.get(&text)?.clone())))
            .collect())
    }
}

/// Returns the prediction for a text: its best label, or an abstention.
pub fn prediction(set: &LabelSet, scores: &Scores) -> Prediction {
    Prediction {
        label: set.labels[scores.best].slug.clone(),
        score: scores.scores[scores.best],
        abstained: scores.is_abstention(),
    }
}

/// Returns the logits of texts (texts × labels), computed from stored text vectors; `None` for a text without a vector,
/// or with a vector of a different length.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn vector_logits(
    store: &Store,
    model: ModelId,
    labels: &[LabelVector],
    texts: &[TextHash],
) -> Result<Vec<Option<Vec<PairLogits>>>, StoreError> {
    let vectors = store.computed().text_vectors(model, texts).await?;
    let logits = |vector: TextVector| {
        let cosines = vector.cosines(labels)?;
        Some(cosines.into_iter().map(PairLogits::single).collect())
    };
    let vectors = vectors.into_iter();
    Ok(vectors.map(|vector| vector.and_then(logits)).collect())
}

/// Returns the logits of texts and hypotheses (texts × hypotheses) that are stored or can be computed from stored
/// vectors. `hypotheses` contains keys of the `hypotheses` table.
///
/// # Errors
/// Returns [`StoreError`] if the database cannot be read.
pub async fn stored_logits(
    store: &Store,
    model: ModelId,
    hypotheses: &[HypothesisId],
    texts: &[TextHash],
) -> Result<Vec<Vec<Option<PairLogits>>>, StoreError> {
    let computed = store.computed();
    let labels = computed.label_vectors(model, hypotheses).await?;
    let known = |(place, label): (usize, Option<LabelVector>)| Some((place, label?));
    let (places, labels): (Vec<_>, Vec<_>) = (0..).zip(labels).filter_map(known).unzip();
    if labels.is_empty() {
        return computed.pair_logits(model, hypotheses, texts).await;
    }
    let of_vectors = vector_logits(store, model, &labels, texts).await?;
    let pairs = texts.iter().zip(&of_vectors);
    let without = pairs.filter(|(_, logits)| logits.is_none());
    let without: Vec<TextHash> = without.map(|(text, _)| *text).collect();
    // A text without a stored vector may still have stored logits of pairs.
    let of_pairs = computed.pair_logits(model, hypotheses, &without).await?;
    let mut of_pairs = of_pairs.into_iter();
    let logits = |of_vector: Option<Vec<PairLogits>>| match of_vector {
        Some(of_vector) => {
            let mut logits = vec![None; hypotheses.len()];
            for (place, one) in places.iter().zip(of_vector) {
                logits[*place] = Some(one);
            }
            logits
        }
        None => of_pairs.next().expect("one for each text without a vector"),
    };
    Ok(of_vectors.into_iter().map(logits).collect())
}
