//! `--require-better`: the gate before a model or a label set that has not labelled here yet.
//!
//! In go the engines and the label set of a run; out comes whether the run may label. The current labels of the gold posts
//! are held against those that the new engines give the same posts, by the rule of `labels evaluate --require-better`.

use std::collections::HashMap;

use clap::Args;

use super::against::{self, Compared, compared};
use super::key_of;
use crate::classify::BacklogError;
use crate::cli::CliError;
use crate::cli::setup::Setup;
use crate::domain::Fullname;
use crate::engines::EnginePool;
use crate::review::held::{Labelling, Labels};
use crate::review::{gold, trial};
use crate::store::{Prediction, Store, Target};
use crate::telemetry::Progress;
use topicmill_score::{Cascade, LabelSet};

/// Gold posts that are read and scored at a time.
const WINDOW: usize = 1_000;

/// Flags of commands that may refuse to label.
#[derive(Debug, Clone, Args)]
pub struct BetterFlags {
    /// Label only if this model with these labels is better than the current labels on posts with gold labels, by more than
    /// chance makes likely (p < 0.05); else label nothing, and exit with 1
    #[arg(long)]
    require_better: bool,
    /// With --require-better: compare with these gold labels: `db`, what people answered here; a CSV, TSV, NDJSON, JSON or
    /// Parquet file with `id` and `label`; or `topic`, the topic that each post was collected for
    #[arg(
        long,
        value_name = "FILE|db|topic",
        requires = "require_better",
        default_value = "db"
    )]
    gold: String,
    /// With --require-better: count gold labels that are not in the label set as out of scope
    #[arg(long, requires = "require_better")]
    others_out_of_scope: bool,
}

impl BetterFlags {
    /// Whether the file of gold labels can be read, where one is named: said before there is anything to compare.
    pub fn check(&self) -> Result<(), CliError> {
        if self.require_better
            && let Some(path) = against::file(&self.gold)
        {
            gold::rows(path)?;
        }
        Ok(())
    }

    /// Whether a run may label; says why not, and what was compared. Nothing is written.
    pub async fn pass(
        &self,
        setup: &Setup,
        store: &Store,
        engines: &mut EnginePool,
        set: &LabelSet,
    ) -> Result<bool, CliError> {
        if !self.require_better {
            return Ok(true);
        }
        let Some(current) = store.current_target().await? else {
            tracing::info!(
                "--require-better: nothing is labelled here yet, so there is nothing to be better than"
            );
            return Ok(true);
        };
        if is_current(store, current, &engines.cascades[0], set).await? {
            tracing::info!(
                "--require-better: the current labels are of this model and this label set, so there is nothing to compare"
            );
            return Ok(true);
        }
        let asked = against::rows(store, &self.gold).await?;
        let sample = asked.sample(1).cloned();
        let before = store.label_set(current.label_set).await?;
        let gold =
            against::understood(store, asked, &[&before, set], self.others_out_of_scope).await?;
        let names: Vec<Fullname> = gold.posts.iter().map(|post| post.id.clone()).collect();
        let Some(made) = tried(setup, engines, set, (store, current), &names).await? else {
            return Ok(false);
        };
        let labellings = [
            Labelling {
                set: &before,
                labels: Labels::Stored(current),
            },
            Labelling {
                set,
                labels: Labels::Made(made),
            },
        ];
        let whole = against::hold(store, &labellings, &gold).await?;
        let drawn = sample.map(|sample| whole.only(&sample));
        let held = drawn.filter(|drawn| !drawn.posts.is_empty());
        let held = held.as_ref().unwrap_or(&whole);
        Ok(told(&compared(held, [&before, set]), held.posts.len()))
    }
}

/// Whether the second of two labellings of gold posts is better; says so with the counts.
fn told(found: &Compared, posts: usize) -> bool {
    let difference = &found.difference;
    let counts = format!(
        "of {posts} gold posts, {} are right with these labels and {} with the current ones; {} only with these, {} only \
         with the current ones; p = {}",
        found.second.outcome.of,
        found.first.outcome.of,
        difference.only_second,
        difference.only_first,
        against::p(difference.p)
    );
    if difference.is_better() {
        tracing::info!("--require-better: {counts}");
    } else {
        tracing::warn!(
            "nothing is labelled: {counts}. These labels are not better, or chance alone makes such a difference: keep the \
             current ones, or collect more gold"
        );
    }
    difference.is_better()
}

/// Whether the current labels are those that these models give with this label set.
async fn is_current(
    store: &Store,
    current: Target,
    cascade: &Cascade,
    set: &LabelSet,
) -> Result<bool, CliError> {
    if key_of(&store.label_sets().await?, set) != Some(current.label_set) {
        return Ok(false);
    }
    let (_, hash) = cascade.identity();
    let folder = cascade.large.folder();
    let tokens = i64::try_from(folder.max_tokens).unwrap_or(i64::MAX);
    let models = store.models().await?;
    Ok(models.iter().any(|(id, row)| {
        *id == current.model
            && (&row.manifest_hash, &row.precision, row.max_tokens)
                == (&hash, &folder.precision, tokens)
    }))
}

/// What the first of the engines says of those of these posts that have a current label; `None` where a signal came first.
async fn tried(
    setup: &Setup,
    engines: &mut EnginePool,
    set: &LabelSet,
    (store, current): (&Store, Target),
    names: &[Fullname],
) -> Result<Option<HashMap<String, Prediction>>, CliError> {
    let bar = Progress::start("gold", "posts", names.len() as u64);
    let mut made = HashMap::with_capacity(names.len());
    for names in names.chunks(WINDOW) {
        let posts = store.review_posts(current, names).await?;
        let mut cascade = engines.cascades.remove(0);
        let (set, stop) = (set.clone(), setup.stop.clone());
        // Computing blocks its thread; the signal handler must not be on it.
        let tried = tokio::task::spawn_blocking(move || {
            let tried = trial::labels(&mut cascade, &set, &posts, &|| stop.is_cancelled());
            (cascade, tried)
        });
        let (cascade, tried) = tried
            .await
            .map_err(|error| BacklogError::Thread(error.to_string()))?;
        // Back in its place: the engines keep the order of their devices.
        engines.cascades.insert(0, cascade);
        let Some(tried) = tried? else {
            return Ok(None);
        };
        made.extend(tried);
        bar.add(names.len() as u64);
    }
    Ok(Some(made))
}
