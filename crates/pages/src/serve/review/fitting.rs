//! The "fit now" button: learns from the answers, as `labels fit --make-current` does, while annotators continue.
//!
//! A fit labels posts and therefore needs inference engines, so the main program provides the implementation. One fit
//! runs at a time; the page polls its state.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::task::TaskTracker;

/// Number of new answers that are needed before the page offers a fit.
pub const ANSWERS_PER_FIT: usize = 25;

/// Fits the current label set to the answers and labels all posts with it.
pub trait Fitter: Debug + Send + Sync {
    /// Runs a fit with its own database connection and blocks the thread until the fit has ended. Returns an error as
    /// [`FitOutcome::Failed`].
    fn fit(&self) -> FitOutcome;
}

/// A fit's outcome, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FitOutcome {
    /// All posts now have labels from the fitted label set.
    Fitted(String),
    /// The answers do not improve the labels yet, so nothing changed.
    Unchanged(String),
    /// The fit failed.
    Failed(String),
}

/// Runs fits, one at a time.
#[derive(Debug)]
pub struct Fitting {
    fitter: Option<Arc<dyn Fitter>>,
    tasks: TaskTracker,
    state: Mutex<FitState>,
}

/// State of the latest fit since the server started.
#[derive(Debug, Clone, Default)]
struct FitState {
    is_running: bool,
    /// Number of answers at the start of the last fit that did not fail.
    tried: usize,
    outcome: Option<FitOutcome>,
}

/// The fit's state, formatted for display.
pub struct FitView {
    /// Number of answers since the last fit.
    pub since: usize,
    /// True if there are enough new answers for another fit.
    pub is_due: bool,
    /// True while a fit is running.
    pub is_running: bool,
    /// The last fit's outcome.
    pub outcome: Option<FitOutcome>,
}

impl Fitting {
    /// Creates a runner that spawns fits in `tasks`; without `fitter`, it never offers a fit.
    pub fn new(fitter: Option<Arc<dyn Fitter>>, tasks: TaskTracker) -> Self {
        Self {
            fitter,
            tasks,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, FitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a fit to `answers` answers unless one is already running.
    pub fn start(self: &Arc<Self>, answers: usize) {
        let Some(fitter) = self.fitter.clone() else {
            return;
        };
        {
            let mut state = self.state();
            if state.is_running {
                return;
            }
            (state.is_running, state.outcome) = (true, None);
        }
        let this = Arc::clone(self);
        self.tasks.spawn(async move {
            let joined = tokio::task::spawn_blocking(move || fitter.fit()).await;
            let outcome = joined
                .unwrap_or_else(|error| FitOutcome::Failed(format!("the fit crashed: {error}")));
            let mut state = this.state();
            if !matches!(outcome, FitOutcome::Failed(_)) {
                state.tried = answers;
            }
            (state.is_running, state.outcome) = (false, Some(outcome));
        });
    }

    /// Returns the state, given the number of answers and how many of them were given before the current label set was
    /// fitted; `None` if there is nothing to show.
    pub fn view(&self, answers: usize, before_fit: usize) -> Option<FitView> {
        self.fitter.as_ref()?;
        let state = self.state().clone();
        let since = answers.saturating_sub(before_fit.max(state.tried));
        let is_due = since >= ANSWERS_PER_FIT;
        (is_due || state.is_running || state.outcome.is_some()).then_some(FitView {
            since,
            is_due,
            is_running: state.is_running,
            outcome: state.outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Always(FitOutcome);

    impl Fitter for Always {
        fn fit(&self) -> FitOutcome {
            self.0.clone()
        }
    }

    #[tokio::test]
    async fn a_failed_fit_can_be_repeated_and_a_useless_one_waits_for_answers() {
        for (outcome, is_due) in [
            (FitOutcome::Failed("no model".into()), true),
            (FitOutcome::Unchanged("no better".into()), false),
        ] {
            let fitting = Fitting::new(Some(Arc::new(Always(outcome))), TaskTracker::new());
            let fitting = Arc::new(fitting);
            assert!(fitting.view(24, 0).is_none(), "too few answers");
            assert!(fitting.view(49, 25).is_none(), "too few new answers");
            fitting.start(30);
            fitting.tasks.close();
            fitting.tasks.wait().await;
            assert_eq!(fitting.view(30, 0).unwrap().is_due, is_due);
            assert!(fitting.view(55, 0).unwrap().is_due);
        }
    }
}
