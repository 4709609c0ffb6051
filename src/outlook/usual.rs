//! The command that labels what waits: the flags without which `classify` would label with another label set or model.
//!
//! What enters are the names that the database has of the current ones, and those that the settings have. What leaves is
//! a command line.

use topicmill_score::{LabelSet, Mode};

use super::Outlook;

/// With what `classify` labels where no flag says more; none of what is not known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usual {
    /// The label set.
    pub label_set: Option<LabelSet>,
    /// The name of the model.
    pub model: Option<String>,
    /// The name of the model that `--cascade` and `--shortlist` put before it.
    pub small_model: String,
}

impl Outlook {
    /// The command that labels what waits under the current model and label set. `FILE` and `DIR` stand for what the
    /// database does not know: the pipeline file, and the folder of a model.
    pub fn classify(&self) -> String {
        format!(
            "topicmill classify{}{}",
            self.set_flags(),
            self.model_flags()
        )
    }

    /// Flags for the label set that the views show; none where `classify` takes it anyway.
    pub(super) fn set_flags(&self) -> String {
        let current = self.backlog.label_set_hash.as_ref();
        let Some((current, usual)) = current.zip(self.usual.label_set.as_ref()) else {
            return String::new();
        };
        if usual.hash() == *current {
            return String::new();
        }
        let in_mode = |mode: Mode| LabelSet {
            mode,
            ..usual.clone()
        };
        let mode = Mode::ALL
            .iter()
            .find(|mode| in_mode(**mode).hash() == *current);
        match mode {
            Some(mode) => format!(" --mode {mode}"),
            None => " --pipeline FILE".to_owned(),
        }
    }

    /// Flags for the model that the views show.
    pub(super) fn model_flags(&self) -> String {
        let current = self.backlog.model.as_ref();
        let Some((current, usual)) = current.zip(self.usual.model.as_ref()) else {
            return String::new();
        };
        if current == usual {
            return String::new();
        }
        let (large, small) = parts(current);
        let mut flags = String::new();
        if large != usual {
            flags.push_str(" --model DIR");
        }
        if let Some((task, name)) = small {
            flags.push_str(&task);
            if name != self.usual.small_model {
                flags.push_str(" --small-model DIR");
            }
        }
        flags
    }
}

/// The large model of a name that the database has, and where it has a small one before it, the flags of that one's task
/// and its name. [`Cascade::identity`](topicmill_score::Cascade::identity) makes such names.
fn parts(name: &str) -> (&str, Option<(String, &str)>) {
    let marks = ["+cascade-", "+shortlist-"];
    let Some(mark) = marks.iter().filter_map(|mark| name.rfind(mark)).max() else {
        return (name, None);
    };
    let (large, mut rest) = (&name[..mark], &name[mark + 1..]);
    let mut flags = String::new();
    let cascade = rest.strip_prefix("cascade-");
    if let Some((least, after)) = cascade.and_then(|rest| rest.split_once('-')) {
        let divided = after
            .strip_prefix('t')
            .and_then(|rest| rest.split_once('-'));
        let divided = divided.filter(|(number, _)| number.parse::<f64>().is_ok());
        // A temperature of 1 is in no name, and need not be that of the pipeline, which stands where none is given.
        let (temperature, after) = divided.unwrap_or(("1", after));
        flags.extend([format!(
            " --cascade {least} --small-temperature {temperature}"
        )]);
        rest = after;
    }
    let shortlist = rest.strip_prefix("shortlist-");
    let shortlist = shortlist.and_then(|rest| rest.split_once('-'));
    if let Some((labels, after)) = shortlist.filter(|(labels, _)| labels.parse::<u32>().is_ok()) {
        flags.extend([format!(" --shortlist {labels}")]);
        rest = after;
    }
    (large, Some((flags, rest)))
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn the_name_of_two_models_says_with_which_flags_they_work_together() {
        assert_eq!(parts("a+b-c"), ("a+b-c", None));
        for (task, flags) in [
            ("shortlist-4", " --shortlist 4"),
            ("cascade-0.97", " --cascade 0.97 --small-temperature 1"),
            (
                "cascade-0.9-t0.5-shortlist-4",
                " --cascade 0.9 --small-temperature 0.5 --shortlist 4",
            ),
        ] {
            let name = format!("large-v2+{task}-tiny-model");
            let expected = ("large-v2", Some((flags.to_owned(), "tiny-model")));
            assert_eq!(parts(&name), expected);
        }
    }
}
