//! What `labels drop` and `model drop` have in common.

use clap::Args;

use super::output::thousands;
use super::{CliError, Exit, Setup, confirm};
use crate::store::{Dropped, Store};
use crate::telemetry::Progress;

/// Flags of both.
#[derive(Debug, Clone, Args)]
pub struct DropFlags {
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Also drop what the views show; they are then empty until `topicmill labels use` or the next `classify`
    #[arg(long)]
    pub current: bool,
}

/// Drops a label set or a model with all that belongs to it. `hypotheses` go as well, with their logits.
pub async fn run(
    setup: &Setup,
    store: &Store,
    what: Dropped,
    name: &str,
    hypotheses: &[i64],
    flags: &DropFlags,
) -> Result<Exit, CliError> {
    let hanging = store.hanging(what, setup.clock.now().into()).await?;
    if hanging.is_current && !flags.current {
        return Err(CliError::Usage(format!(
            "drop {name}: the views show it; show others with `topicmill labels use`, or add --current"
        )));
    }
    if hanging.held > 0 {
        return Err(CliError::Told(
            Exit::TryAgain,
            format!(
                "drop {name}: a worker labels {} posts under it now; stop it, or wait until it is done",
                thousands(hanging.held)
            ),
        ));
    }
    // One that waits for posts holds none, and would label again what goes.
    let running = store.running().await?;
    if let Some(run) = running.iter().find(|run| run.is_alive()) {
        return Err(CliError::Told(
            Exit::TryAgain,
            format!(
                "drop {name}: the run {} of `{}` is under way and may label under it; stop it, or wait until it is done",
                run.id.0, run.worker
            ),
        ));
    }
    let labels = thousands(hanging.labels);
    if !confirm::ask(flags.yes, &format!("drop {name} with {labels} labels"))? {
        tracing::info!("nothing was dropped");
        return Ok(Exit::Done);
    }
    let bar = Progress::counter("drop", "rows");
    loop {
        if setup.stop.is_cancelled() {
            return Ok(stopped(name));
        }
        match store.drop_labels(what).await? {
            0 => break,
            rows => bar.add(rows),
        }
    }
    let model = match what {
        Dropped::Model(id) => Some(id),
        Dropped::LabelSet(_) => None,
    };
    if model.is_some() || !hypotheses.is_empty() {
        for first in 0..=u8::MAX {
            if setup.stop.is_cancelled() {
                return Ok(stopped(name));
            }
            bar.add(store.drop_logits(model, hypotheses, first).await?);
        }
    }
    store.drop_rest(what, hypotheses).await?;
    drop(bar);
    let some = |n: u64| Some(n).filter(|n| *n > 0);
    tracing::info!(
        labels = hanging.labels,
        vectors = some(hanging.vectors),
        gold_kept = some(hanging.gold),
        "dropped {name}; the space is used again, and a file gets smaller with `topicmill db vacuum`"
    );
    Ok(Exit::Done)
}

fn stopped(name: &str) -> Exit {
    tracing::warn!("{name} is dropped in part: run the same command again");
    Exit::Partial
}
