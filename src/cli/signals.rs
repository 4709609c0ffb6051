//! Ctrl-C and SIGTERM: the first one asks every stage to finish what it has in hand, the second one ends
//! the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Exit;
use topicmill_core::clock::SharedClock;

/// After a signal, how long a command may block: longer, and it waits for input that may never come.
pub const BLOCKED_TIMEOUT: Duration = Duration::from_secs(10);

/// The signals so far, and a flag that the command has noticed one.
#[derive(Debug, Clone, Default)]
pub struct Signals(Arc<AtomicU8>, Arc<AtomicBool>);

impl Signals {
    /// Notes, alongside the command and on its thread, that it does not block; never returns.
    pub async fn mark_responsive(&self, stop: &CancellationToken) -> std::convert::Infallible {
        stop.cancelled().await;
        self.1.store(true, Ordering::SeqCst);
        std::future::pending().await
    }

    /// The exit code of a run that a signal stopped.
    pub fn exit(&self) -> Option<Exit> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            number => Some(Exit::Signal(number)),
        }
    }
}

/// Cancels `stop` on the first signal.
pub fn watch(stop: &CancellationToken, clock: &SharedClock) -> Signals {
    let signals = Signals::default();
    for (kind, number) in [(SignalKind::interrupt(), 2), (SignalKind::terminate(), 15)] {
        let (stop, signals, clock) = (stop.clone(), signals.clone(), Arc::clone(clock));
        let mut arriving = match signal(kind) {
            Ok(arriving) => arriving,
            // Without a handler, the signal does what it does to any process: it ends it.
            Err(error) => {
                tracing::warn!("signals end this run without draining: {error}");
                continue;
            }
        };
        tokio::spawn(async move {
            let exit = move || std::process::exit(i32::from(Exit::Signal(number).code()));
            while arriving.recv().await.is_some() {
                if stop.is_cancelled() {
                    exit();
                }
                tracing::warn!(
                    "stopping: what is in hand is finished first; once more ends at once"
                );
                // Before the cancel: whoever wakes from that asks which signal it was.
                signals.0.store(number, Ordering::SeqCst);
                stop.cancel();
                let (noticed, clock) = (Arc::clone(&signals.1), Arc::clone(&clock));
                tokio::spawn(async move {
                    clock.sleep(BLOCKED_TIMEOUT).await;
                    if !noticed.load(Ordering::SeqCst) {
                        exit();
                    }
                });
            }
        });
    }
    signals
}
