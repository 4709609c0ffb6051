//! A folder of Parquet into a folder of Parquet, in shards: what `score` does on many machines that never talk.
//!
//! Inputs and a [`Shard`] go in; its output and a manifest come out, the manifest last. Each machine finds out by itself
//! which rows are its own, see [`Plan`]. What is scored grows in a journal, so that a run that was killed goes on behind
//! its last window; the output is made of the journal and of the inputs, whose other columns are copied, at the end.

mod assemble;
mod manifest;
mod plan;
mod set;

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::path::PathBuf;

use self::manifest::{Manifest, Work, journal_name, output_name};
pub use self::manifest::{Named, RowCounts};
pub use self::plan::Plan;
pub use self::set::{SetReport, check};
use super::inputs::Input;
use super::journal::Journal;
use super::output::Shape;
use super::run::Sink;
use super::shelf::{Hold, Holder, Shelf, Taken};
use super::{FileJob, FileReport, FilesError, Ready, Scoring, scored, write_error};
use crate::tables::Format;
use topicmill_score::LabelSet;

/// Rows of a row group unless told otherwise: as many as other writers put into one, in powers of ten.
pub const ROW_GROUP_ROWS: usize = 100_000;

/// Which part of the work this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1 on.
    pub index: u32,
    /// How many there are.
    pub count: u32,
}

/// What to score into a folder.
pub struct ShardJob {
    /// How inputs are read and the output is written. Its own inputs are the names of `inputs`.
    pub job: FileJob,
    /// The inputs.
    pub inputs: Vec<Input>,
    /// Which part of the work this is.
    pub shard: Shard,
    /// Rows of a row group of the output.
    pub row_group_rows: usize,
}

impl ShardJob {
    /// A job over inputs that were listed, without those that earlier runs wrote to the same folder.
    ///
    /// # Errors
    /// Where inputs lie in the folder that is written to, and are no outputs of an earlier run.
    pub fn new(
        mut job: FileJob,
        listed: Vec<Input>,
        shelf: &dyn Shelf,
        shard: Shard,
        row_group_rows: usize,
    ) -> Result<Self, FilesError> {
        let has_plan = shelf.read(manifest::PLAN)?.is_some();
        let mut inputs: Vec<Input> = Vec::with_capacity(listed.len());
        let mut known = HashSet::new();
        let said = job
            .reading
            .format
            .filter(|format| *format != Format::Parquet);
        for input in listed {
            let (named, _) = Format::of_name(input.shown.as_ref());
            if said.is_some() || named.is_some_and(|format| format != Format::Parquet) {
                return Err(FilesError::NotParquet(input.shown));
            }
            match shelf.inside(&input) {
                Some(name) if has_plan && manifest::is_output_name(&name) => {}
                Some(_) => return Err(FilesError::InOutput(input.shown)),
                // Two names on the command line may mean one file.
                None if !known.insert(input.shown.clone()) => {}
                None => inputs.push(input),
            }
        }
        job.inputs = inputs
            .iter()
            .map(|input| PathBuf::from(&input.shown))
            .collect();
        job.writing.format = Some(Format::Parquet);
        Ok(Self {
            job,
            inputs,
            shard,
            row_group_rows: row_group_rows.max(1),
        })
    }
}

/// What was done of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardReport {
    /// Its output, for people.
    pub output: String,
    /// Its rows.
    pub rows: RowCounts,
    /// Rows that an earlier run had scored.
    pub resumed: u64,
    /// An earlier run had written it.
    pub already: bool,
    /// Stopped before the end: the same command goes on.
    pub stopped: bool,
}

/// A shard that an earlier run wrote, if it did, of the same work with one of these models. No model is loaded for this.
///
/// # Errors
/// Where the folder holds other work, where another process has the shard, or where the output is not what its manifest
/// says.
pub fn written(
    job: &ShardJob,
    plan: &Plan,
    shelf: &dyn Shelf,
    who: &Holder,
    models: &[Named],
    set: &LabelSet,
) -> Result<Option<ShardReport>, FilesError> {
    let Some(there) = Work::in_folder(shelf)? else {
        return Ok(None);
    };
    let ours = Work::of(job, plan, there.model.clone(), set);
    if let Some(how) = ours.difference(&there) {
        // Begun anew, it is no longer in the way.
        return if job.job.overwrite {
            Ok(None)
        } else {
            Err(set::other(shelf, &how))
        };
    }
    if !models.contains(&there.model) {
        return Ok(None);
    }
    if !job.job.overwrite
        && let Some(report) = whole(job, &ours, shelf)?
    {
        return Ok(Some(report));
    }
    let journal = journal_name(job.shard, &ours);
    if !shelf.list(&journal)?.is_empty()
        && let Taken::Theirs(holder) = shelf.hold(&journal, who)?
    {
        return Err(held(job.shard, holder));
    }
    Ok(None)
}

/// A shard of this work that is whole.
fn whole(
    job: &ShardJob,
    work: &Work,
    shelf: &dyn Shelf,
) -> Result<Option<ShardReport>, FilesError> {
    let Some(manifest) = Manifest::of_shard(shelf, job.shard)? else {
        return Ok(None);
    };
    let output = shelf.shown(&output_name(job.shard));
    if manifest.plan != work.plan {
        let how = format!("`{}` of another plan", output_name(job.shard));
        return Err(set::other(shelf, &how));
    }
    set::check_size(shelf, &manifest)?;
    Ok(Some(ShardReport {
        output,
        rows: manifest.rows,
        resumed: 0,
        already: true,
        stopped: false,
    }))
}

/// Scores a shard.
///
/// # Errors
/// See [`FilesError`]. What was scored until then stays in the folder, for the same command to go on with.
pub fn score_shard(
    job: &ShardJob,
    plan: &Plan,
    shelf: &dyn Shelf,
    who: &Holder,
    scoring: Scoring<'_>,
) -> Result<ShardReport, FilesError> {
    let (name, hash) = scoring.cascade.identity();
    let set = scoring.set;
    let work = Work::of(job, plan, Named { name, hash }, set);
    let ready = Ready::of(scoring.cascade, set)?;
    set::begin(shelf, &work, job.job.overwrite)?;
    let journal = journal_name(job.shard, &work);
    let mut hold = match shelf.hold(&journal, who)? {
        Taken::Ours(hold) => hold,
        Taken::Theirs(holder) => return Err(held(job.shard, holder)),
    };
    // Another process may have finished it since it was looked for.
    if !job.job.overwrite
        && let Some(report) = whole(job, &work, shelf)?
    {
        hold.finish()?;
        return Ok(report);
    }
    let range = plan.range(job.shard.index, job.shard.count);
    let segments = plan.segments(&range);
    let shape =
        Shape::of(&job.job, set, super::deciders(scoring.cascade), None, true).beside_copies();
    let report = {
        let path = hold.journal().to_owned();
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(write_error(&path))?;
        let mut journal = Journal::open(&path, file, false, true)?;
        let mut sink = Sink::Shard {
            journal: &mut journal,
            hold: &mut *hold,
        };
        let report = scored(&job.job, Some(&segments), scoring, ready, &shape, &mut sink)?;
        drop(sink);
        let bytes = journal.flush()?;
        hold.keep(bytes, true)?;
        report
    };
    if report.stopped {
        return Ok(stopped(job, shelf, report));
    }
    if report.lines != range.end - range.start {
        return Err(FilesError::Changed {
            shown: shelf.shown(&journal),
            how: format!(
                "it has {} rows of {}",
                report.lines,
                range.end - range.start
            ),
        });
    }
    let written = assemble::assemble(job, plan, &work, &segments, &shape, &report, &mut *hold)?;
    // Whoever began anew in this folder since has another plan there.
    set::still(shelf, &work)?;
    let rows = written.rows;
    publish(job, shelf, &work, &segments, written, who, &mut *hold)?;
    hold.finish()?;
    Ok(ShardReport {
        output: shelf.shown(&output_name(job.shard)),
        rows,
        resumed: report.resumed,
        already: false,
        stopped: false,
    })
}

fn publish(
    job: &ShardJob,
    shelf: &dyn Shelf,
    work: &Work,
    segments: &[super::inputs::Segment],
    written: manifest::Written,
    who: &Holder,
    hold: &mut dyn Hold,
) -> Result<(), FilesError> {
    let draft = written.draft.clone();
    hold.place(&draft, &output_name(job.shard))?;
    // It takes a while to upload an output. The manifest of somebody who began anew meanwhile must stay.
    set::still(shelf, work)?;
    let manifest = Manifest::of(work, job.shard, segments, written, who);
    let content = serde_json::to_vec_pretty(&manifest).expect("a struct of strings is JSON");
    hold.seal(&manifest::manifest_name(job.shard), &content)
}

fn stopped(job: &ShardJob, shelf: &dyn Shelf, report: FileReport) -> ShardReport {
    ShardReport {
        output: shelf.shown(&output_name(job.shard)),
        rows: RowCounts {
            read: report.lines,
            written: 0,
            failed: report.failed,
            left_out: report.left_out,
        },
        resumed: report.resumed,
        already: false,
        stopped: true,
    }
}

fn held(shard: Shard, holder: Option<Holder>) -> FilesError {
    FilesError::Held {
        shard: format!("shard {} of {}", shard.index, shard.count),
        holder: match holder {
            Some(who) => format!(
                "process {} on {}, since {},",
                who.process, who.host, who.since
            ),
            None => "another process".to_owned(),
        },
    }
}
