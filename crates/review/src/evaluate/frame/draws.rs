//! Finds when random samples were drawn, from the times of their answers.
//!
//! topicmill draws posts in the order of their text hashes. How the posts of an imported file were drawn is unknown, so
//! such a sample counts as drawn when its first answer was given.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use topicmill_core::{GoldSource, SampleReason, TextHash, Timestamp};
use topicmill_store::{Store, StoreError, StoredGold, Target};

/// Returns the latest time at which the sample of these answers can have been drawn; `None` without answers.
pub(super) fn latest_draw<'a>(answers: impl Iterator<Item = &'a StoredGold>) -> Option<Timestamp> {
    // A draw also passes posts that were answered before it began, so their answers do not show its time.
    let times = answers.map(|gold| {
        let is_passed = gold.answer.chosen != SampleReason::Random;
        (is_passed, drawn_before(gold))
    });
    times.min().map(|(_, time)| time)
}

/// Returns the time before which the post of an answer was drawn: when it was answered or, if the answer was imported
/// later, when its text was deleted.
fn drawn_before(gold: &StoredGold) -> Timestamp {
    let answered_at = gold.answer.answered_at;
    gold.text_purged_at
        .map_or(answered_at, |deleted| deleted.min(answered_at))
}

/// Returns the times that separate waves for samples that were imported: just after the first and the last answer of
/// each session. A post that was stored in between was drawn only if a later file of the session contains posts like
/// it. Answers more than a day apart are of different sessions.
pub(super) fn cuts_of_imports(random: &[&StoredGold]) -> Vec<Timestamp> {
    // Answers about posts that a draw of topicmill passed are no import.
    let is_imported = |gold: &&&StoredGold| {
        gold.answer.chosen == SampleReason::Random && gold.answer.source == GoldSource::Import
    };
    let mut times: Vec<(Timestamp, Timestamp)> = random
        .iter()
        .filter(is_imported)
        .map(|gold| (gold.answer.answered_at, drawn_before(gold)))
        .collect();
    times.sort_unstable();
    let sessions = times.chunk_by(|(answered, _), (next_answered, _)| {
        next_answered.as_datetime() - answered.as_datetime() <= TimeDelta::days(1)
    });
    let ends = sessions.flat_map(|session| {
        let first = session.iter().map(|(_, drawn)| *drawn).min();
        [first, session.last().map(|(answered, _)| *answered)]
    });
    ends.flatten().map(a_second_after).collect()
}

/// Returns the time that separates a draw from later posts. A post that was stored in the second of the draw may have
/// been drawn.
pub(super) fn a_second_after(draw: Timestamp) -> Timestamp {
    (draw.as_datetime() + TimeDelta::seconds(1)).into()
}

/// Returns the storage times of posts that were stored after topicmill's draw had passed their hash. Other posts below
/// the last hash are those that annotators skipped.
pub(super) async fn late_posts(
    store: &Store,
    target: Target,
    random: &[&StoredGold],
) -> Result<Vec<Timestamp>, StoreError> {
    // For each hash that topicmill drew, the time of the last answer.
    let mut drawn: BTreeMap<TextHash, Timestamp> = BTreeMap::new();
    for answer in random.iter().map(|gold| &gold.answer) {
        if answer.chosen == SampleReason::Random
            && answer.source != GoldSource::Import
            && let Some(hash) = answer.text_hash
        {
            let last = drawn.entry(hash).or_insert(answer.answered_at);
            *last = (*last).max(answer.answered_at);
        }
    }
    let (Some(highest), Some(first)) = (drawn.keys().next_back(), drawn.values().min()) else {
        return Ok(Vec::new());
    };
    let undrawn = store.gold().undrawn_posts(target, highest, *first).await?;
    let is_late = |(hash, stored_at): &(TextHash, Timestamp)| {
        let last = drawn.range(*hash..).map(|(_, time)| time).max();
        last.is_some_and(|last| stored_at > last)
    };
    let late = undrawn.into_iter().filter(is_late);
    Ok(late.map(|(_, stored_at)| stored_at).collect())
}
