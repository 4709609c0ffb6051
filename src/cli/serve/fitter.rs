//! Fits the current label set for the review page, and describes the outcome in sentences.

use tokio::runtime::Handle;

use crate::cli::labels::{FitLabels, FitVerdict};
use crate::cli::{App, CliError, Exit};
use topicmill_pages::serve::{FitOutcome, Fitter};
use topicmill_review::evaluate::Proportion;
use topicmill_review::fit::FittedSet;
use topicmill_store::Access;

/// Said of a gain that may be due to chance.
const CHANCE: &str = " This may be chance: give more answers, and fit again.";

/// Runs `labels fit --make-current` for the review page, on a separate database connection.
#[derive(Debug)]
pub(super) struct ReviewFitter(pub App);

impl Fitter for ReviewFitter {
    fn fit(&self) -> FitOutcome {
        // The work stays on this thread, because it uses engines, which cannot move between threads.
        let fitted = Handle::current().block_on(self.run());
        fitted.unwrap_or_else(|error| {
            tracing::warn!("the fit on the review page failed: {error}");
            FitOutcome::Failed(format!("The fit failed: {error}."))
        })
    }
}

impl ReviewFitter {
    async fn run(&self) -> Result<FitOutcome, CliError> {
        let app = &self.0;
        let context = app.context(app.store(Access::Existing).await?);
        let command = FitLabels::on_review_page();
        let fit = command.fit(app, &context.store).await?;
        let verdict = command.apply(app, &context, &fit).await;
        context.store.close().await?;
        let answers = answers(&fit.fitted, fit.left_out);
        Ok(match verdict? {
            FitVerdict::Current(exit) => FitOutcome::Fitted(format!(
                "Learned from {answers}. {}{} {}{}",
                accuracy(&fit.fitted, fit.is_representative),
                fit.fitted.threshold_in_words(),
                labelled(&fit.fitted.set.name, exit),
                if fit.fitted.is_better() { "" } else { CHANCE }
            )),
            FitVerdict::MissesTarget => FitOutcome::Unchanged(format!(
                "With {answers}, no threshold reaches the target of the last fit, so nothing changed. Give more \
                 answers, or choose a different target with `topicmill labels fit`."
            )),
            FitVerdict::Stopped => FitOutcome::Unchanged("The server was stopped.".to_owned()),
            FitVerdict::NoGain | FitVerdict::Stored => FitOutcome::Unchanged(format!(
                "{answers} do not improve the labels yet, so nothing changed. Give more answers."
            )),
        })
    }
}

/// Returns the number of answers in a fit, and why others are left out: `25 answers (3 more are left out: …)`.
fn answers(fitted: &FittedSet, left_out: usize) -> String {
    let answers = fitted.answers;
    match left_out {
        0 => format!("{answers} answers"),
        more => format!(
            "{answers} answers ({more} more are left out: retention deleted what a fit reads, or the model has not \
             scored the posts)"
        ),
    }
}

/// Returns sentences about the accuracy before and after a fit, and the answers that it is measured on.
fn accuracy(fitted: &FittedSet, is_representative: bool) -> String {
    let judged = fitted.judged;
    let sample = match (is_representative, judged < fitted.answers) {
        (true, true) => format!("{judged} random answers"),
        (true, false) => format!("{judged} answers"),
        (false, _) => "these answers (not a random sample)".to_owned(),
    };
    let [before, after] =
        [&fitted.before, &fitted.held_out].map(|quality| percent(&quality.accuracy));
    format!(
        "Accuracy on {sample}: {after}; before, it was {before}. Each answer is evaluated by a fit that did not learn \
         from it."
    )
}

/// Returns a sentence about the posts that have labels of the current label set, given the exit code of labelling them.
fn labelled(name: &str, exit: Exit) -> String {
    match exit {
        Exit::Done => format!("All posts now have the labels of {name}."),
        _ => format!(
            "The labels of {name} are current, but some posts do not have them yet: `topicmill status` shows why."
        ),
    }
}

/// Formats a share as a percentage with its confidence interval.
fn percent(share: &Proportion) -> String {
    let [low, high] = [share.low, share.high].map(|bound| 100.0 * bound);
    share.share.map_or("–".to_owned(), |value| {
        format!("{:.0} % ({low:.0} to {high:.0})", 100.0 * value)
    })
}
