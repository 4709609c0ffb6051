//! What a model says of posts that it has not labelled here yet: in go posts and a cascade, out come their labels. Nothing
//! is stored, so a model can be looked at before it labels anything.

use std::collections::HashMap;

use crate::domain::post_text;
use crate::store::{Prediction, ReviewPost};
use topicmill_score::cascade::Verdict;
use topicmill_score::labeler::{LabelerError, Pairs, Prepared};
use topicmill_score::score::Scores;
use topicmill_score::{Cascade, LabelSet};

/// The labels of posts, by fullname; none of a post whose text cannot be scored. `None` where `stop` said so on the way.
///
/// # Errors
/// See [`LabelerError`].
pub fn labels(
    cascade: &mut Cascade,
    set: &LabelSet,
    posts: &[ReviewPost],
    stop: &dyn Fn() -> bool,
) -> Result<Option<HashMap<String, Prediction>>, LabelerError> {
    let small = cascade.small.as_mut();
    let ready = Ready {
        small: small.map(|small| small.prepare(set)).transpose()?,
        large: cascade.large.prepare(set)?,
        labels: set.labels.len(),
    };
    let texts: Vec<String> = posts
        .iter()
        .map(|post| post_text(&post.title, &post.selftext))
        .collect();
    let Some(scores) = scores(cascade, &ready, &texts, stop)? else {
        return Ok(None);
    };
    let labelled = posts.iter().zip(scores).filter_map(|(post, scores)| {
        let prediction = prediction(set, &scores?);
        Some((post.fullname.to_string(), prediction))
    });
    Ok(Some(labelled.collect()))
}

/// A label set made ready for each of the models.
struct Ready {
    large: Prepared,
    small: Option<Prepared>,
    labels: usize,
}

/// The scores of each text, as `classify` makes them: the small model, where there is one, looks first.
fn scores(
    cascade: &mut Cascade,
    ready: &Ready,
    texts: &[String],
    stop: &dyn Fn() -> bool,
) -> Result<Option<Vec<Option<Scores>>>, LabelerError> {
    let mut scores: Vec<Option<Scores>> = vec![None; texts.len()];
    // Which texts are the large model's, and which of their pairs.
    let mut sent: Vec<(usize, Pairs)> = Vec::new();
    if let Some((small, prepared)) = cascade.small.as_mut().zip(ready.small.as_ref()) {
        let Some(verdicts) = small.look(prepared, texts, &[], stop)? else {
            return Ok(None);
        };
        for (text, verdict) in verdicts.into_iter().enumerate() {
            match verdict {
                Ok(Verdict::Kept(kept)) => scores[text] = Some(kept),
                Ok(Verdict::Sent(order)) => {
                    sent.push((text, small.pairs(&order, ready.labels, &ready.large)));
                }
                Err(_) => {}
            }
        }
    } else {
        sent = (0..texts.len()).map(|text| (text, Pairs::new())).collect();
    }
    let read: Vec<String> = sent.iter().map(|(text, _)| texts[*text].clone()).collect();
    let (places, pairs): (Vec<usize>, Vec<Pairs>) = sent.into_iter().unzip();
    let results = cascade
        .large
        .score_knowing(&ready.large, &read, &pairs, stop)?;
    let Some(results) = results else {
        return Ok(None);
    };
    for (place, result) in places.into_iter().zip(results) {
        scores[place] = result.ok().map(|result| result.scores);
    }
    Ok(Some(scores))
}

fn prediction(set: &LabelSet, scores: &Scores) -> Prediction {
    Prediction {
        label: set.labels[scores.best].slug.clone(),
        score: scores.scores[scores.best],
        abstained: scores.abstained,
    }
}
