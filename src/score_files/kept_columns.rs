//! Selects and names the input columns that the output keeps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use topicmill_tables::{Row, json};

/// Prefix for an input column whose name an output column uses.
const RENAMED: &str = "input_";

/// Writes the input columns as members of a JSON object, renamed if they collide with output columns.
pub(super) struct KeptColumns {
    /// Names that no further input column may have in the output: those of the added columns and of earlier input
    /// columns.
    reserved: HashSet<String>,
    /// The JSON name in the output, by input name.
    names: HashMap<Arc<str>, String>,
}

impl KeptColumns {
    /// Starts without columns. `reserved` contains the names of the output columns, which input columns must not have.
    pub(super) fn new(reserved: &[String]) -> Self {
        Self {
            reserved: reserved.iter().cloned().collect(),
            names: HashMap::new(),
        }
    }

    /// Returns a row's cells as JSON members, with the row number first if it is the id.
    pub(super) fn members(&mut self, row: &Row, number: Option<u64>) -> String {
        let mut out = number.map_or(String::new(), |number| format!("\"id\":{number}"));
        for (name, cell) in &row.cells {
            if !self.names.contains_key(name) {
                let is_ours =
                    |name: &str| self.reserved.contains(name) || (number.is_some() && name == "id");
                let free = free_name(name, is_ours, |name| row.cell(name).is_some());
                self.names.insert(name.clone(), json::quoted(&free));
                self.reserved.insert(free);
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
}

/// Returns the output name for an input column, which is unchanged unless it collides.
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
            "the input column `{name}` is renamed to `{free}` because the output has a `{name}` column"
        );
    }
    free
}
