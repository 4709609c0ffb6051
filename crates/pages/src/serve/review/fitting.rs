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
    /// Number of answers used in the last fit that did not fail.
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

    /// Returns the state, given the number of answers and the number that the current label set was fitted to; `None`
    /// if there is nothing to show.
    pub fn view(&self, answers: usize, learned: usize) -> Option<FitView> {
        self.fitter.as_ref()?;
        let FitState {
            is_running,
            tried,
            outcome,
        } = self.state().clone();
        let since = answers.saturating_sub(learned.max(tried));
        let is_due = since >= ANSWERS_PER_FIT;
        (is_due || is_running || outcome.is_some()).then_some(FitView {
            since,
            is_due,
            is_running,
            outcome,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A fitter that waits for a permit in each fit.
    #[derive(Debug)]
    struct Waiting {
        calls: AtomicUsize,
        permits: Mutex<Receiver<()>>,
        outcome: FitOutcome,
    }

    impl Fitter for Waiting {
        fn fit(&self) -> FitOutcome {
            self.calls.fetch_add(1, Ordering::SeqCst);
            self.permits.lock().unwrap().recv().unwrap();
            self.outcome.clone()
        }
    }

    fn fitting(outcome: FitOutcome) -> (Arc<Waiting>, Sender<()>, Arc<Fitting>) {
        let (permit, permits) = channel();
        let waiting = Arc::new(Waiting {
            calls: AtomicUsize::new(0),
            permits: Mutex::new(permits),
            outcome,
        });
        let fitter: Arc<dyn Fitter> = Arc::clone(&waiting) as _;
        let fitting = Fitting::new(Some(fitter), TaskTracker::new());
        (waiting, permit, Arc::new(fitting))
    }

    async fn ended(fitting: &Fitting) {
        fitting.tasks.close();
        fitting.tasks.wait().await;
        fitting.tasks.reopen();
    }

    #[tokio::test]
    async fn two_presses_run_one_fit() {
        let done = FitOutcome::Fitted("better".into());
        let (waiting, permit, fitting) = fitting(done.clone());
        assert!(fitting.view(24, 0).is_none(), "too few answers");
        assert!(fitting.view(49, 25).is_none(), "too few new answers");
        assert!(fitting.view(50, 25).unwrap().is_due);
        fitting.start(50);
        fitting.start(50);
        assert!(fitting.view(50, 25).unwrap().is_running);
        permit.send(()).unwrap();
        permit.send(()).unwrap();
        ended(&fitting).await;
        assert_eq!(waiting.calls.load(Ordering::SeqCst), 1);
        let view = fitting.view(50, 50).unwrap();
        assert!(!view.is_running && !view.is_due);
        assert_eq!(view.outcome, Some(done));
        // The next fit may start.
        fitting.start(75);
        ended(&fitting).await;
        assert_eq!(waiting.calls.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_failed_fit_can_be_repeated_and_a_useless_one_waits_for_answers() {
        for (outcome, is_due) in [
            (FitOutcome::Failed("no model".into()), true),
            (FitOutcome::Unchanged("no better".into()), false),
        ] {
            let (_, permit, fitting) = fitting(outcome);
            permit.send(()).unwrap();
            fitting.start(30);
            ended(&fitting).await;
            assert_eq!(fitting.view(30, 0).unwrap().is_due, is_due);
            assert!(fitting.view(55, 0).unwrap().is_due);
        }
    }
}
