//! Ctrl-C and SIGTERM: the first one asks every stage to finish what it has in hand, the second one ends
//! the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Exit;

/// What arrived so far.
#[derive(Debug, Clone, Default)]
pub struct Signals(Arc<AtomicU8>);

impl Signals {
    /// The exit code of a run that a signal stopped.
    pub fn exit(&self) -> Option<Exit> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            number => Some(Exit::Signal(number)),
        }
    }
}

/// Cancels `stop` on the first signal.
pub fn watch(stop: &CancellationToken) -> Signals {
    let signals = Signals::default();
    for (kind, number) in [(SignalKind::interrupt(), 2), (SignalKind::terminate(), 15)] {
        let (stop, signals) = (stop.clone(), signals.clone());
        let mut arriving = match signal(kind) {
            Ok(arriving) => arriving,
            // Without a handler, the signal does what it does to any process: it ends it.
            Err(error) => {
                tracing::warn!("signals end this run without draining: {error}");
                continue;
            }
        };
        tokio::spawn(async move {
            while arriving.recv().await.is_some() {
                if stop.is_cancelled() {
                    std::process::exit(i32::from(Exit::Signal(number).code()));
                }
                tracing::warn!(
                    "stopping: what is in hand is finished first; once more ends at once"
                );
                // Before the cancel: whoever wakes from that asks which signal it was.
                signals.0.store(number, Ordering::SeqCst);
                stop.cancel();
            }
        });
    }
    signals
}
