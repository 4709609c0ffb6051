//! Labels the backlog, for every command that does so: shows progress, logs the result, and returns the exit code.

use std::sync::atomic::{AtomicBool, Ordering};

use super::output::counted;
use super::{CliError, Exit};
use crate::bottleneck;
use crate::classify::{LabelStep, MakeCurrent, Options};
use crate::engines::EnginePool;
use crate::pipeline::Context;
use crate::telemetry::{Progress, nonzero, tenths};
use topicmill_core::labels::hypothesis;
use topicmill_core::labels::hypothesis::Pass;
use topicmill_core::record::{ClassifyCounts, LabelAgreement, RunSettings};
use topicmill_core::{FitTarget, LabelSet, short_hash};
use topicmill_score::{Device, ModelFolder};
use topicmill_store::{Store, StoreError};

/// Labels the backlog of a store with a progress bar, logs the result, and returns the exit code.
pub async fn label(
    context: &Context,
    engines: EnginePool,
    set: &LabelSet,
    options: &Options,
) -> Result<Exit, CliError> {
    let folder = engines.models[0].large.folder();
    let fit = applicable_fit(&context.store, folder, set, options.make_current).await?;
    let set = fit.as_ref().unwrap_or(set);
    warn_about_identical_labels(folder, set);
    let pass = Pass::of(&folder.kind, set);
    let options = Options {
        settings: RunSettings {
            devices: engines.devices.iter().map(Device::to_string).collect(),
            precision: folder.precision.clone(),
            runtime: engines.runtime,
            threads: engines.threads,
            ..RunSettings::default()
        },
        ..options.clone()
    };
    let bar = Progress::start("classify", "posts", 0);
    let is_outdated = AtomicBool::new(false);
    let on_step = |step: LabelStep| match step {
        LabelStep::Expect(n) => bar.expect(options.limit.map_or(n, |limit| limit.min(n))),
        LabelStep::Done(n) => bar.add(n),
        LabelStep::Counted(_) => {}
        LabelStep::Outdated(reason) => {
            tracing::warn!("{reason}, so this run ends: start it again to label with the new one");
            is_outdated.store(true, Ordering::Relaxed);
            context.stop.cancel();
        }
    };
    let labelled = context
        .classify(engines.models, set, &options, &on_step)
        .await;
    drop(bar);
    let (done, _) = labelled?;
    context.log_summary(|| log_result(&done, pass));
    if is_outdated.into_inner() {
        return Ok(Exit::TryAgain);
    }
    if done.failed > 0 || done.parked > 0 {
        return Ok(Exit::Partial);
    }
    let is_limited = options.limit.is_some_and(|limit| done.posts >= limit);
    if is_limited || done.held_elsewhere == 0 {
        return Ok(Exit::Done);
    }
    // Other workers hold the rest: not a failure, but not finished either.
    if !context.stop.is_cancelled() {
        tracing::info!(
            "another worker holds the remaining {}, so nothing is left to do here",
            counted(done.held_elsewhere, "post")
        );
    }
    Ok(Exit::TryAgain)
}

/// Returns the current label set if `labels fit` made it from `set` with this model, so that new posts get fitted
/// labels.
pub async fn applicable_fit(
    store: &Store,
    folder: &ModelFolder,
    set: &LabelSet,
    make_current: MakeCurrent,
) -> Result<Option<LabelSet>, CliError> {
    let Some(target) = store.labels().current_target().await? else {
        return Ok(None);
    };
    let current = match store.labels().label_set(target.label_set).await {
        // This run makes a different label set current, so the corrupt one does not matter.
        Err(error @ StoreError::Corrupt { .. }) if make_current != MakeCurrent::IfNone => {
            tracing::warn!(
                "this run uses the labels of `{}` without a fit: {error}",
                set.name
            );
            return Ok(None);
        }
        current => current?,
    };
    let (Some(fitted), None) = (&current.fitted, &set.fitted) else {
        return Ok(None);
    };
    if fitted.base != set.hash() {
        if current.name.starts_with(&format!("{}-fit", set.name)) {
            let target = match fitted.provenance.target {
                Some(FitTarget::Precision(share)) => format!(" --target-precision {share}"),
                Some(FitTarget::Recall(share)) => format!(" --target-recall {share}"),
                None => String::new(),
            };
            // The current label set may still be the fit of the former labels, so the command names the new version.
            let version = set.hash();
            tracing::warn!(
                "the labels of `{}` have changed since they were fitted, so this run uses them without the fit; \
                 afterwards, `topicmill labels fit --label-set {}{target} --make-current` fits them again",
                set.name,
                short_hash(&version)
            );
        }
        return Ok(None);
    }
    if fitted.model != folder.manifest_hash {
        tracing::warn!(
            "the current label set `{}` was fitted with a model other than `{}`: this run uses the labels without the \
             fit",
            current.name,
            folder.name
        );
        return Ok(None);
    }
    tracing::info!(
        answers = fitted.provenance.answers,
        "labelling with `{}`, which is fitted to gold labels",
        current.name
    );
    Ok(Some(current))
}

/// Warns about labels that always get the same score from this model, because the model reads the same words for both.
pub fn warn_about_identical_labels(folder: &ModelFolder, set: &LabelSet) {
    for (a, b) in hypothesis::ambiguous_labels(&folder.kind, set) {
        tracing::warn!(
            "`{}` reads the same words for the labels `{a}` and `{b}`, so their scores are always equal: change one, \
             as `topicmill labels validate` advises",
            folder.name
        );
    }
}

fn log_result(done: &ClassifyCounts, pass: Pass) {
    let (posts, abstained) = (done.posts, done.other + done.unsure);
    let computed = pass.count(done.pairs);
    tracing::info!(
        posts,
        labelled = nonzero(abstained).map(|abstained| posts.saturating_sub(abstained)),
        other = nonzero(done.other),
        unsure = nonzero(done.unsure),
        pairs = (pass == Pass::Pair).then_some(computed),
        texts = (pass != Pass::Pair).then_some(computed),
        known = nonzero(pass.count(done.pairs_reused)),
        failed = done.failed,
        refused = nonzero(done.refused),
        held_elsewhere = nonzero(done.held_elsewhere),
        posts_per_sec = tenths(done.posts_per_sec),
        limited_by = bottleneck::of_classify(done).map(|bottleneck| bottleneck.limit.to_string()),
        "classifying done"
    );
    if let Some(LabelAgreement { posts, same }) =
        done.without_shortlist.filter(|alike| alike.posts > 0)
    {
        tracing::info!(
            posts,
            same,
            "checked the shortlist: `posts` posts were also labelled without it, and `same` of them got the same label"
        );
    }
    if done.parked > 0 {
        tracing::warn!(
            posts = done.parked,
            "posts parked after repeated failures: `topicmill status` shows the errors, `classify --select failed` \
             retries them"
        );
    }
}
