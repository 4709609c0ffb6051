//! Decides which label set is current, and warns when a run writes another one.
//!
//! In go the target of a run and whether it may become the current one. The current one never changes by the way: a
//! run under another label set or model labels beside it, and says so when it begins and when it ends.

use topicmill_store::{LabelSetRow, ModelRow, Store, StoreError, Target};

/// Letters of a hash that people are shown.
const SHORT: usize = 12;

/// Decides whether a run makes its model and label set the current ones, which the views show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MakeCurrent {
    /// Only in a database that has none; else it says which ones are.
    #[default]
    IfNone,
    /// It does, when it begins.
    Always,
}

/// Makes a target the current one as far as that was asked for.
pub(super) async fn settle(
    store: &Store,
    target: Target,
    asked: MakeCurrent,
) -> Result<(), StoreError> {
    match asked {
        MakeCurrent::Always => store.labels().set_current(target).await,
        MakeCurrent::IfNone => {
            store.labels().set_first_current(target).await?;
            if let Some(beside) = Beside::find(store, target).await? {
                tracing::warn!("{}", beside.at_the_start());
            }
            Ok(())
        }
    }
}

/// Says once more, when a run ends, that its labels are not the ones that the views show, and how they become so.
pub(super) async fn remind(store: &Store, target: Target, asked: MakeCurrent) {
    if asked != MakeCurrent::IfNone {
        return;
    }
    match Beside::find(store, target).await {
        Ok(None) => {}
        Ok(Some(beside)) => tracing::warn!("{}", beside.at_the_end()),
        // Every label is stored; this is only told beside them.
        Err(error) => tracing::warn!("which labels the views show is not known: {error}"),
    }
}

/// A label set and a model, for people.
#[derive(Debug, Clone)]
struct NamedTarget {
    set: LabelSetRow,
    model: ModelRow,
}

/// A run's labels and the current ones, which are others.
#[derive(Debug)]
struct Beside {
    ours: NamedTarget,
    current: NamedTarget,
    /// The argument of `labels use` that selects ours.
    switch: String,
}

impl Beside {
    async fn find(store: &Store, target: Target) -> Result<Option<Self>, StoreError> {
        let Some(current) = store
            .labels()
            .current_target()
            .await?
            .filter(|one| *one != target)
        else {
            return Ok(None);
        };
        let (sets, models) = (
            store.labels().label_sets().await?,
            store.labels().models().await?,
        );
        let named = |of: Target| {
            let set = sets.iter().find(|set| set.id == of.label_set)?;
            let (_, model) = models.iter().find(|(id, _)| *id == of.model)?;
            Some(NamedTarget {
                set: set.clone(),
                model: model.clone(),
            })
        };
        // Whoever deletes rows by hand may have deleted these just now.
        let Some((ours, current)) = named(target).zip(named(current)) else {
            return Ok(None);
        };
        let mut switch = word(&ours.set, &sets);
        let models = store.labels().models_with_labels(target.label_set).await?;
        if models.iter().any(|model| *model != target.model) {
            switch = format!("{switch} --model {}", short(&ours.model.manifest_hash));
        }
        Ok(Some(Self {
            ours,
            current,
            switch,
        }))
    }

    /// Returns the label set or model of our labels and of the current ones, as far as they differ.
    fn by(&self) -> [String; 2] {
        let both = [&self.ours, &self.current];
        if self.ours.set.id == self.current.set.id {
            both.map(|named| format!("the model {}", named.model()))
        } else {
            both.map(NamedTarget::set)
        }
    }

    fn at_the_start(&self) -> String {
        let [ours, current] = self.by();
        let (set, of_current) = (&self.ours.set, &self.current.set);
        let changed = if set.id != of_current.id && set.name == of_current.name {
            format!("; `{}` has changed since", set.name)
        } else {
            String::new()
        };
        format!(
            "these labels are stored beside the current ones: they are by {ours}, and the views show those by \
             {current}{changed}"
        )
    }

    fn at_the_end(&self) -> String {
        let [_, current] = self.by();
        format!(
            "the views still show the labels by {current}; to show these labels, run `topicmill labels use {}`, or give \
             --make-current next time",
            self.switch
        )
    }
}

impl NamedTarget {
    fn set(&self) -> String {
        format!("`{}` (version {})", self.set.name, short(&self.set.hash))
    }

    fn model(&self) -> String {
        let ModelRow {
            name,
            precision,
            manifest_hash,
            ..
        } = &self.model;
        format!("{name} ({}, {precision})", short(manifest_hash))
    }
}

/// The shortest word that means this label set and no other, for a command line.
fn word(set: &LabelSetRow, sets: &[LabelSetRow]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let name = &set.name;
    let is_plain = name.chars().all(plain) && !name.starts_with(['-', '.']) && name != "current";
    let mut others = sets.iter().filter(|other| other.id != set.id);
    let is_only = !others.any(|other| other.name == *name || other.hash.starts_with(name));
    if is_plain && is_only && !name.is_empty() {
        name.clone()
    } else {
        short(&set.hash).to_owned()
    }
}

fn short(hash: &str) -> &str {
    hash.get(..SHORT).unwrap_or(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use topicmill_core::Timestamp;

    #[test]
    fn a_label_set_is_named_by_what_means_no_other() {
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
            id,
            name: (*name).into(),
            hash: format!("{id}123456789abcdef"),
            created_at: Timestamp::from_epoch_secs(0).unwrap(),
        };
        let sets: Vec<LabelSetRow> = (0..).zip(&names).map(row).collect();
        let words = sets.iter().map(|set| word(set, &sets));
        let expected = (0..).zip(&sets).map(|(id, set)| match id {
            0 => "mine".to_owned(),
            _ => set.hash[..SHORT].to_owned(),
        });
        assert!(words.eq(expected));
    }
}
