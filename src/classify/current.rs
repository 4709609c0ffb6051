//! Decides which label set is current, and warns when a run writes to a different one.
//!
//! The current target, which the views show, changes only on request. A run with a different label set or model stores
//! its labels alongside the current ones, and logs a warning at its start.

use super::StageError;
use topicmill_core::{CALIBRATED, short_hash};
use topicmill_store::{LabelSetRow, Store, StoreError, Target};

/// Decides whether a run makes its model and label set the current ones, which the views show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MakeCurrent {
    /// Only if the database has no current ones; otherwise the run warns.
    #[default]
    IfNone,
    /// At the start of the run, unless labels would be lost.
    Always,
    /// At the start of the run, even if labels are lost.
    EvenIfLabelsAreLost,
}

/// Returns an error if labels would disappear from the views once a target is current: labels of posts whose text
/// retention deleted, which cannot be labelled again.
///
/// # Errors
/// Returns [`StageError::LabelsLost`], or an error of the store.
pub async fn check_no_label_is_lost(store: &Store, target: Target) -> Result<(), StageError> {
    match store.labels().count_lost_labels(target).await? {
        0 => Ok(()),
        posts => Err(StageError::LabelsLost(posts)),
    }
}

/// Makes a target the current one if requested or if there is none; otherwise warns.
pub(super) async fn set_current(
    store: &Store,
    target: Target,
    make_current: MakeCurrent,
) -> Result<(), StageError> {
    match make_current {
        MakeCurrent::Always => {
            check_no_label_is_lost(store, target).await?;
            Ok(store.labels().set_current(target).await?)
        }
        MakeCurrent::EvenIfLabelsAreLost => Ok(store.labels().set_current(target).await?),
        MakeCurrent::IfNone => {
            store.labels().set_first_current(target).await?;
            if let Some(warning) = not_current(store, target).await? {
                tracing::warn!("{warning}");
            }
            Ok(())
        }
    }
}

/// Returns a warning if the current target is not the target of this run.
async fn not_current(store: &Store, target: Target) -> Result<Option<String>, StoreError> {
    let labels = store.labels();
    let current = match labels.current_target().await? {
        Some(current) if current != target => current,
        _ => return Ok(None),
    };
    let (sets, models) = (labels.label_sets().await?, labels.models().await?);
    let set_of = |target: Target| sets.iter().find(|set| set.id == target.label_set);
    let model_of = |target: Target| models.iter().find(|(id, _)| *id == target.model);
    // The rows may have been deleted in the meantime.
    let Some((set, current_set)) = set_of(target).zip(set_of(current)) else {
        return Ok(None);
    };
    let Some(((_, model), (_, current_model))) = model_of(target).zip(model_of(current)) else {
        return Ok(None);
    };
    let [this_run, shown] = if set.id == current_set.id {
        [model, current_model].map(|model| {
            let hash = short_hash(&model.manifest_hash);
            format!("the model {} ({hash}, {})", model.name, model.precision)
        })
    } else {
        [set, current_set].map(|set| format!("`{}` (version {})", set.name, short_hash(&set.hash)))
    };
    let changed = if set.id != current_set.id && set.name == current_set.name {
        format!("; the label set `{}` has changed since then", set.name)
    } else {
        String::new()
    };
    let is_calibrated_copy = current_set.name.ends_with(CALIBRATED) && {
        let copy = labels.label_set(current_set.id).await?;
        copy.is_calibrated_copy_of(&labels.label_set(set.id).await?)
    };
    let advice = if is_calibrated_copy {
        "the current label set is a calibrated copy: to label new posts with it, set `pipeline` in the settings to \
         its file, or name the file with --pipeline"
            .to_owned()
    } else {
        let mut switch = shortest_name(set, &sets);
        let labelled_by = labels.models_with_labels(target.label_set).await?;
        if labelled_by.iter().any(|id| *id != target.model) {
            switch = format!("{switch} --model {}", short_hash(&model.manifest_hash));
        }
        format!(
            "to show these labels, run `topicmill labels use {switch}` afterwards, or add --make-current"
        )
    };
    Ok(Some(format!(
        "these labels are stored in addition to the current ones: this run uses {this_run}, and the views still show \
         the labels of {shown}{changed}; {advice}"
    )))
}

/// Returns the name of a label set for a command line, or its short hash if the name is not unique or needs quotes.
fn shortest_name(set: &LabelSetRow, sets: &[LabelSetRow]) -> String {
    let needs_no_quotes = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name = &set.name;
    let is_plain =
        name.chars().all(needs_no_quotes) && !name.starts_with(['-', '.']) && name != "current";
    let mut others = sets.iter().filter(|other| other.id != set.id);
    let is_unique = !others.any(|other| other.name == *name || other.hash.starts_with(name));
    if is_plain && is_unique && !name.is_empty() {
        name.clone()
    } else {
        short_hash(&set.hash).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::Timestamp;
    use topicmill_store::LabelSetId;

    #[test]
    fn a_label_set_is_named_unambiguously() {
        let names = [
            "mine",
            "twice",
            "twice",
            "two words",
            "current",
            "1123",
            "--force",
        ];
        let row = |(id, name): (i64, &&str)| LabelSetRow {
            id: LabelSetId(id),
            name: (*name).into(),
            hash: format!("{id}123456789abcdef"),
            created_at: Timestamp::from_epoch_secs(0).unwrap(),
        };
        let sets: Vec<LabelSetRow> = (0..).zip(&names).map(row).collect();
        let names = sets.iter().map(|set| shortest_name(set, &sets));
        let expected = (0..).zip(&sets).map(|(id, set)| match id {
            0 => "mine".to_owned(),
            _ => short_hash(&set.hash).to_owned(),
        });
        assert!(names.eq(expected));
    }
}
