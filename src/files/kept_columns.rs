//! The columns of an input that the output keeps, and their names there.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use topicmill_tables::{Row, json};

/// Put before the name of a column where one of ours has that name.
const RENAMED: &str = "input_";

/// Ids that are remembered to find one that comes twice: 16 MiB of them.
const REMEMBERED_IDS: usize = 1 << 20;

/// The columns of the input as members of a JSON object, with names that none of ours has.
pub(super) struct KeptColumns {
    reserved: HashSet<String>,
    /// By the name in the input the name in the output, as JSON.
    names: HashMap<Arc<str>, String>,
    /// Hashes of the ids so far; `None` once one came twice.
    ids: Option<HashSet<u64>>,
}

impl KeptColumns {
    /// `reserved`: the names that OUTPUT has for what was scored.
    pub(super) fn new(reserved: &[String]) -> Self {
        Self {
            reserved: reserved.iter().cloned().collect(),
            names: HashMap::new(),
            ids: Some(HashSet::new()),
        }
    }

    /// All cells of a row, `number` in front of them if it is its id.
    pub(super) fn members(&mut self, row: &Row, number: Option<u64>) -> String {
        let mut out = number.map_or(String::new(), |number| format!("\"id\":{number}"));
        for (name, cell) in &row.cells {
            if !self.names.contains_key(name) {
                let is_ours =
                    |name: &str| self.reserved.contains(name) || (number.is_some() && name == "id");
                let free = free_name(name, is_ours, |name| row.cell(name).is_some());
                self.names.insert(name.clone(), json::quoted(&free));
            }
            if !out.is_empty() {
                out.push(',');
            }
            out.push_str(&self.names[name]);
            out.push(':');
            cell.write_json(&mut out);
        }
        out
    }

    /// Warns when an id comes for the second time. That is allowed, because each row stays in its place.
    pub(super) fn warn_if_duplicate(&mut self, id: &str, line: u64) {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let Some(ids) = &mut self.ids else { return };
        // Hashes, because a million ids may be long. Two ids with one hash cause a warning that is wrong, and nothing
        // else.
        if ids.len() < REMEMBERED_IDS && !ids.insert(hasher.finish()) {
            tracing::warn!(
                line,
                "the id of a row is not unique: an earlier row has it, too; each is scored and stays in its place"
            );
            // One warning is enough, and the memory is free again.
            self.ids = None;
        }
    }
}

/// The name that a column of the input has in the output: its own where no column of ours has that.
pub(super) fn free_name(
    name: &str,
    is_ours: impl Fn(&str) -> bool,
    is_theirs: impl Fn(&str) -> bool,
) -> String {
    let mut free = name.to_owned();
    while is_ours(&free) || (free != name && is_theirs(&free)) {
        free = format!("{RENAMED}{free}");
    }
    if free != name {
        tracing::info!(
            "the input's column `{name}` is `{free}` in the output, where `{name}` is topicmill's"
        );
    }
    free
}
