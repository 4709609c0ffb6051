//! The shards of a folder as a whole: whether they belong together, and whether they are all there.

use std::collections::{BTreeMap, BTreeSet};

use super::Shard;
use super::manifest::{
    FOLDER, Manifest, PLAN, RowCounts, Work, is_output_name, manifest_name, output_name, read,
};
use crate::files::FilesError;
use crate::files::shelf::{Holder, Shelf, Taken};
use crate::placing::Standing;

/// What a folder holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetReport {
    /// How many shards there are to be.
    pub shards: u32,
    /// Those that are not whole.
    pub missing: Vec<u32>,
    /// The rows of those that are.
    pub rows: RowCounts,
    /// Rows of the inputs.
    pub all_rows: u64,
}

impl SetReport {
    /// Whether nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty()
    }

    /// The shards that are missing, those behind one another as a range.
    pub fn missing_ranges(&self) -> String {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for shard in &self.missing {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *shard => *last = *shard,
                _ => ranges.push((*shard, *shard)),
            }
        }
        let told = ranges.iter().map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        });
        told.collect::<Vec<_>>().join(", ")
    }
}

/// Looks which shards of a folder are whole.
///
/// # Errors
/// Where it holds none, or files that do not belong together.
pub fn check(shelf: &dyn Shelf) -> Result<SetReport, FilesError> {
    let Some(work) = Work::in_folder(shelf)? else {
        return Err(FilesError::NoShards(shelf.shown("")));
    };
    let outputs: BTreeMap<String, u64> = shelf
        .list("part-")?
        .into_iter()
        .filter(|(name, _)| is_output_name(name))
        .collect();
    let mut report = SetReport {
        shards: work.shards,
        missing: Vec::new(),
        rows: RowCounts::default(),
        all_rows: work.rows,
    };
    let mut known = Vec::new();
    for index in 1..=work.shards {
        let shard = Shard {
            index,
            count: work.shards,
        };
        let Some(manifest) = Manifest::of_shard(shelf, shard)? else {
            report.missing.push(index);
            continue;
        };
        if manifest.plan != work.plan {
            let how = format!("`{}` of another plan", output_name(shard));
            return Err(other(shelf, &how));
        }
        let bytes = outputs.get(&output_name(shard)).copied();
        same_size(shelf, &manifest, bytes)?;
        report.rows.read += manifest.rows.read;
        report.rows.written += manifest.rows.written;
        report.rows.failed += manifest.rows.failed;
        report.rows.left_out += manifest.rows.left_out;
        known.push(output_name(shard));
    }
    // A shard that is being published has an output and no manifest yet.
    let ours = |name: &String| known.contains(name) || name.ends_with(&of_count(work.shards));
    if let Some(stray) = outputs.keys().find(|name| !ours(name)) {
        return Err(other(
            shelf,
            &format!("`{stray}`, which is no shard of {}", work.shards),
        ));
    }
    Ok(report)
}

fn of_count(shards: u32) -> String {
    format!("-of-{shards:05}.parquet")
}

/// The error of a folder that holds something else.
pub(super) fn other(shelf: &dyn Shelf, how: &str) -> FilesError {
    FilesError::OtherWork {
        folder: shelf.shown(""),
        how: how.to_owned(),
    }
}

/// The name of the output that belongs to a manifest, whatever it says itself.
fn output_of(manifest: &Manifest) -> String {
    output_name(Shard {
        index: manifest.shard,
        count: manifest.shards,
    })
}

/// Whether the output of a manifest is what it says.
pub(super) fn check_size(shelf: &dyn Shelf, manifest: &Manifest) -> Result<(), FilesError> {
    let output = output_of(manifest);
    let listed = shelf.list(&output)?;
    let mut found = listed.into_iter().filter(|(name, _)| *name == output);
    same_size(shelf, manifest, found.next().map(|(_, bytes)| bytes))
}

fn same_size(shelf: &dyn Shelf, manifest: &Manifest, found: Option<u64>) -> Result<(), FilesError> {
    let how = match found {
        Some(bytes) if bytes == manifest.bytes => return Ok(()),
        Some(bytes) => format!(
            "has {bytes} bytes, and its manifest says {}",
            manifest.bytes
        ),
        None => "is gone, and its manifest is there".to_owned(),
    };
    Err(FilesError::Damaged {
        shown: shelf.shown(&output_of(manifest)),
        how,
        shard: format!("{}/{}", manifest.shard, manifest.shards),
    })
}

/// Makes a folder ready for this work: writes the plan where there is none, and compares it where there is one.
pub(super) fn begin(shelf: &dyn Shelf, work: &Work, overwrite: bool) -> Result<(), FilesError> {
    let content = serde_json::to_vec(work).expect("a struct of strings is JSON");
    loop {
        if let Some(there) = Work::in_folder(shelf)? {
            let Some(how) = work.difference(&there) else {
                return Ok(());
            };
            if !overwrite {
                return Err(other(shelf, &how));
            }
            clear(shelf, work.plan.as_str())?;
            shelf.put(PLAN, &content, Standing::Replaced)?;
            return Ok(());
        }
        let outputs = shelf.list("part-")?;
        let stranger = outputs.iter().find(|(name, _)| is_output_name(name));
        if let Some((name, _)) = stranger.filter(|_| !overwrite) {
            return Err(FilesError::Exists(shelf.shown(name).into()));
        }
        // Another shard may begin at the same moment: then its plan is there, and is compared.
        if shelf.put(PLAN, &content, Standing::Kept)? {
            return Ok(());
        }
    }
}

/// Whether the folder still holds this work.
pub(super) fn still(shelf: &dyn Shelf, work: &Work) -> Result<(), FilesError> {
    match Work::in_folder(shelf)? {
        Some(there) => match work.difference(&there) {
            None => Ok(()),
            Some(how) => Err(other(shelf, &how)),
        },
        None => Err(other(shelf, "nothing any more: somebody emptied it")),
    }
}

/// The journals that these files belong to; in an object store a journal lies in pieces, beside its lock.
fn journals(files: &[(String, u64)]) -> BTreeSet<&str> {
    const ENDING: &str = ".ndjson";
    let journal = |name: &'_ str| name.find(ENDING).map(|at| at + ENDING.len());
    files
        .iter()
        .filter_map(|(name, _)| journal(name).map(|end| &name[..end]))
        .collect()
}

/// Whether a name that this program made ends like this.
fn has_ending(name: &str, ending: &str) -> bool {
    name.ends_with(ending)
}

/// Removes the shards of all plans but one.
fn clear(shelf: &dyn Shelf, but: &str) -> Result<(), FilesError> {
    let files = shelf.list(&format!("{FOLDER}/"))?;
    let kept: String = but.chars().take(12).collect();
    let nobody = Holder {
        host: "this machine".to_owned(),
        process: std::process::id(),
        since: "a moment ago".to_owned(),
    };
    // Nothing is removed while anybody is at work.
    let mut holds = Vec::new();
    for name in journals(&files) {
        if name.contains(&kept) {
            continue;
        }
        match shelf.hold(name, &nobody)? {
            Taken::Ours(hold) => holds.push(hold),
            Taken::Theirs(holder) => {
                return Err(FilesError::Held {
                    shard: format!("`{}`", shelf.shown(name)),
                    holder: holder.map_or("another process".to_owned(), |who| {
                        format!("process {} on {}", who.process, who.host)
                    }),
                });
            }
        }
    }
    for hold in holds {
        hold.finish()?;
    }
    for (name, _) in &files {
        if has_ending(name, ".draft") && !name.contains(&kept) {
            shelf.remove(name)?;
        }
        if !has_ending(name, ".json") || name == PLAN {
            continue;
        }
        let Some(manifest) = read::<Manifest>(shelf, name)? else {
            continue;
        };
        if manifest.plan != but {
            // What is written in a file names no other file to remove.
            let shard = Shard {
                index: manifest.shard,
                count: manifest.shards,
            };
            shelf.remove(&manifest_name(shard))?;
            shelf.remove(&output_name(shard))?;
        }
    }
    Ok(())
}
