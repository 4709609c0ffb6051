//! Drops the labels of a label set or a model: the common part of `labels drop` and `model drop`.

use std::io::{self, BufRead, IsTerminal};
use std::sync::atomic::Ordering;

use clap::Args;

use super::output::{counted, print_err};
use super::{App, CliError, Exit};
use crate::telemetry::{IS_PROMPTING, Progress, nonzero};
use topicmill_store::{DropTarget, HypothesisId, Store};

/// Flags of `labels drop` and `model drop`.
#[derive(Debug, Clone, Args)]
pub struct DropFlags {
    /// Don't ask for confirmation
    #[arg(long)]
    pub yes: bool,
    /// Also drop the current labels
    ///
    /// The views are then empty until `topicmill labels use` or the next `classify`.
    #[arg(long)]
    pub current: bool,
}

/// Drops a label set or a model with everything that depends on it, and the logits of `hypotheses`.
///
/// Rows are deleted in batches, so a signal can leave the drop unfinished; running the command again continues it.
pub async fn run(
    app: &App,
    store: &Store,
    what: DropTarget,
    name: &str,
    hypotheses: &[HypothesisId],
    flags: &DropFlags,
) -> Result<Exit, CliError> {
    let labels = store.labels();
    let dependents = labels.dependents(what, app.clock.now().into()).await?;
    if dependents.is_current && !flags.current {
        return Err(CliError::Usage(format!(
            "cannot drop {name}: the views show its labels; switch to others with `topicmill labels use`, or add \
             --current"
        )));
    }
    let busy = |why: String| {
        let text = format!("cannot drop {name}: {why}, or wait until it is done");
        Err(CliError::Message(Exit::TryAgain, text))
    };
    if dependents.claimed > 0 {
        let posts = counted(dependents.claimed, "post");
        return busy(format!(
            "a worker is labelling {posts} with it; stop the worker"
        ));
    }
    // A run that is waiting for posts has claimed none, but may later label posts with what is dropped here.
    let running = store.runs().unfinished_runs().await?;
    if let Some(run) = running.iter().find(|run| run.is_alive()) {
        let (id, worker) = (run.id, &run.worker);
        return busy(format!(
            "run {id} of `{worker}` is in progress and may label with it; stop the run"
        ));
    }
    let lost_labels = counted(dependents.labels, "label");
    if !confirm(flags.yes, &format!("drop {name} with {lost_labels}"))? {
        tracing::info!("nothing was dropped");
        return Ok(Exit::Done);
    }
    let bar = Progress::counter("drop", "rows");
    loop {
        if app.stop.is_cancelled() {
            return Ok(warn_partial(name));
        }
        match labels.drop_labels(what).await? {
            0 => break,
            rows => bar.add(rows),
        }
    }
    let model = match what {
        DropTarget::Model(id) => Some(id),
        DropTarget::LabelSet(_) => None,
    };
    if model.is_some() || !hypotheses.is_empty() {
        for first in 0..=u8::MAX {
            if app.stop.is_cancelled() {
                return Ok(warn_partial(name));
            }
            bar.add(labels.drop_logits(model, hypotheses, first).await?);
        }
    }
    labels.drop_rest(what, hypotheses).await?;
    drop(bar);
    tracing::info!(
        labels = dependents.labels,
        vectors = nonzero(dependents.vectors),
        gold_kept = nonzero(dependents.gold),
        "dropped {name}; the database reuses the space, and `topicmill db vacuum` shrinks a file"
    );
    Ok(Exit::Done)
}

fn warn_partial(name: &str) -> Exit {
    tracing::warn!("stopped: {name} is only partly dropped; run the same command again");
    Exit::Partial
}

/// Asks for confirmation on the terminal. Without a terminal, `--yes` is required.
pub fn confirm(yes: bool, what: &str) -> Result<bool, CliError> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(CliError::Usage(format!(
            "{what}: stdin is not a terminal, so the command cannot ask for confirmation; add --yes"
        )));
    }
    print_err(&format!("{what}. Continue? [y/N] "));
    let mut answer = String::new();
    IS_PROMPTING.store(true, Ordering::Relaxed);
    let read = io::stdin().lock().read_line(&mut answer);
    IS_PROMPTING.store(false, Ordering::Relaxed);
    read.map_err(|error| CliError::Usage(format!("{what}: the answer cannot be read: {error}")))?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
