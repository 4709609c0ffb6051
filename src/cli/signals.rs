//! Handles Ctrl-C and SIGTERM: the first signal lets each stage finish its work in progress, the second one ends the
//! process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Exit;
use topicmill_core::clock::SharedClock;

/// The time from a signal until a blocked command is ended. Such a command may be waiting for input that never arrives.
pub const BLOCKED_TIMEOUT: Duration = Duration::from_secs(10);

/// SIGXFSZ, on Linux and macOS.
const SIGXFSZ: i32 = 25;

/// State of the received signals, shared by the tasks that handle them.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    /// The number of the last signal; 0 if none was received.
    last: Arc<AtomicU8>,
    /// True if the command noticed the signal, that is, does not block its thread.
    is_responsive: Arc<AtomicBool>,
}

impl Signals {
    /// Marks the command as responsive after a signal. Runs on the command's thread, and never returns.
    pub async fn mark_responsive(&self) -> std::convert::Infallible {
        self.is_responsive.store(true, Ordering::SeqCst);
        std::future::pending().await
    }

    /// Returns the exit code if a signal was received.
    pub fn exit(&self) -> Option<Exit> {
        match self.last.load(Ordering::SeqCst) {
            0 => None,
            number => Some(Exit::Signal(number)),
        }
    }
}

/// Makes a write beyond the file size limit (`ulimit -f`) an error instead of the end of the process.
pub fn survive_file_size_limit() {
    // The handler needs a runtime to be set, and remains after it.
    if let Ok(runtime) = Builder::new_current_thread().enable_io().build() {
        let _inside = runtime.enter();
        drop(signal(SignalKind::from_raw(SIGXFSZ)));
    }
}

/// Cancels `stop` on the first signal, and ends the process on the second one.
pub fn watch(stop: &CancellationToken, clock: &SharedClock) -> Signals {
    let signals = Signals::default();
    for (kind, number) in [(SignalKind::interrupt(), 2), (SignalKind::terminate(), 15)] {
        match signal(kind) {
            Ok(stream) => {
                let (stop, clock) = (stop.clone(), Arc::clone(clock));
                tokio::spawn(handle(stream, number, signals.clone(), stop, clock));
            }
            // Without a handler, the signal ends the process, as by default.
            Err(error) => {
                tracing::warn!("cannot handle signals, so a signal ends this run at once: {error}");
            }
        }
    }
    signals
}

/// Handles the signals of one kind.
async fn handle(
    mut stream: Signal,
    number: u8,
    signals: Signals,
    stop: CancellationToken,
    clock: SharedClock,
) {
    let exit = move || std::process::exit(i32::from(Exit::Signal(number).code()));
    while stream.recv().await.is_some() {
        if stop.is_cancelled() {
            exit();
        }
        tracing::warn!("stopping after the work in progress; a second signal stops at once");
        // The number is stored before the cancellation, because tasks that it wakes read the number.
        signals.last.store(number, Ordering::SeqCst);
        stop.cancel();
        let (signals, clock) = (signals.clone(), Arc::clone(&clock));
        tokio::spawn(async move {
            clock.sleep(BLOCKED_TIMEOUT).await;
            if !signals.is_responsive.load(Ordering::SeqCst) {
                exit();
            }
        });
    }
}
