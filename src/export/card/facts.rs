//! Reads the facts for a data card from the database.

use crate::export::{ExportError, Subject};
use topicmill_core::{SourceKind, ThingKind, Timestamp, short_hash};
use topicmill_review::evaluate::Counted;
use topicmill_review::gold::{self, Alpha};
use topicmill_review::quality::{self, MeasuredQuality};
use topicmill_store::{Store, TopicKeywords};

/// Facts from the database for the card.
pub(in crate::export) struct Facts {
    pub subject: Subject,
    /// The model's name, number format and hash.
    pub model: String,
    /// When all posts had last been compared with Reddit.
    pub compared_with_reddit: Option<Timestamp>,
    /// When all posts had last been compared with the archive.
    pub compared_with_archive: Option<Timestamp>,
    pub keywords: Vec<TopicKeywords>,
    /// `None` for comments, of which there are no random samples.
    pub quality: Option<MeasuredQuality>,
    /// The number of labelled posts in the database; 0 without a random sample.
    pub labelled: u64,
    /// The agreement of annotators about things of the data set's kind.
    pub alpha: Option<Alpha>,
}

impl Facts {
    /// Reads the facts about the data set's subject.
    pub async fn read(store: &Store, subject: &Subject) -> Result<Self, ExportError> {
        let (target, set, purging) = (subject.target, &subject.set, store.purging());
        let models = store.labels().models().await?;
        let model = models.iter().find(|(id, _)| *id == target.model);
        let (mut quality, mut labelled) = (None, 0);
        if subject.kind == ThingKind::Post {
            let (measured, sample) =
                quality::measure(store, subject.kind, target, set, Counted::All).await?;
            let size = sample.and_then(|sample| sample.size());
            labelled = size.map_or(0, |size| size.posts + size.not_covered);
            quality = Some(measured);
        }
        let mut answers = store.gold().answers().await?;
        answers.retain(|gold| gold.answer.fullname.kind() == subject.kind);
        Ok(Self {
            subject: subject.clone(),
            model: model.map_or_else(String::new, |(_, model)| {
                let hash = short_hash(&model.manifest_hash);
                format!("{} ({}), hash {hash}", model.name, model.precision)
            }),
            compared_with_reddit: purging.reconciled_at(SourceKind::Reddit).await?,
            compared_with_archive: purging.reconciled_at(SourceKind::ArcticShift).await?,
            keywords: store.posts().keywords().await?,
            quality,
            labelled,
            alpha: gold::alpha(&answers),
        })
    }
}
