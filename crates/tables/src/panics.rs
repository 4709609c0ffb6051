//! Converts panics in libraries to errors.
//!
//! A panic hook runs before the panic is caught, so the default hook would report the panic even if the caller handles
//! it. [`catch`] marks its thread while it runs, and the hook that [`silence_caught`] installs is silent on marked
//! threads.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` and returns the message of a panic as an error.
///
/// # Errors
/// Returns an error if `work` panics.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let outer = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(outer);
    result.map_err(|panic| message(&*panic))
}

/// Wraps the process's panic hook so that it does not report panics that [`catch`] handles.
pub fn silence_caught() {
    let report = take_hook();
    set_hook(Box::new(move |panic| {
        if !CATCHING.get() {
            report(panic);
        }
    }));
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catch_returns_the_message_and_unmarks_the_thread() {
        let inner = catch(|| catch(|| panic!("at {}", 7)));
        assert_eq!(inner, Ok(Err::<(), _>("at 7".to_owned())));
        assert_eq!(catch(|| panic!("once")), Err::<(), _>("once".to_owned()));
        assert!(!CATCHING.get());
    }
}
