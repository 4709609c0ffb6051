//! Slots: what runs when, once, on however many machines.
//!
//! A `[[schedule]]` of a pipeline file is an [`Entry`]: a cron line in a zone ([`Timetable`]) and the stages that its
//! slots run. The [`Scheduler`] writes slots that fall due into the database, takes them, and runs them. What a stage
//! does is its caller's matter: it is given the words of a command line.
//!
//! - A slot has one row, unique by schedule and due time. Nothing runs twice, whatever clocks say.
//! - Whoever takes it holds a claim that it renews, and writes only under the token of that claim.
//! - A process that dies leaves its claim to expire. The next one goes on behind the last stage that ended.

mod entry;
mod plan;
mod scheduler;
mod slot;
mod timetable;

use std::time::Duration;

use crate::domain::{SlotStatus, Timestamp};

pub use self::entry::{Entry, STAGES, Span, check_name, words};
pub use self::plan::next_due;
pub use self::scheduler::Scheduler;
pub use self::slot::{Order, StageEnd};
pub use self::timetable::{Timetable, TimetableError, zone};

/// What happens to slots, for whoever logs it, counts it or tells somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nobody was there to run slots.
    Missed {
        /// The schedule.
        schedule: &'a str,
        /// How many.
        slots: u64,
        /// When the first of them was due.
        since: Timestamp,
        /// The slot with which this was seen.
        due_at: Timestamp,
    },
    /// A slot does not run, because another one does.
    Skipped {
        /// The schedule.
        schedule: &'a str,
        /// When it was due.
        due_at: Timestamp,
        /// Why.
        why: &'a str,
    },
    /// The stages of a slot begin, or go on.
    Started {
        /// The schedule.
        schedule: &'a str,
        /// When it was due.
        due_at: Timestamp,
        /// How much later than its due time and its jitter it started first.
        late: Duration,
        /// Processes that died with it.
        deaths: u32,
    },
    /// The stages of a slot came to an end; `waiting`: a signal stopped them, and the next scheduler goes on.
    Ended {
        /// Its row of `slots`.
        slot: i64,
        /// The schedule.
        schedule: &'a str,
        /// When it was due.
        due_at: Timestamp,
        /// How.
        status: SlotStatus,
        /// How long it took in this process.
        took: Duration,
        /// What went wrong.
        error: Option<&'a str>,
    },
    /// Another process took the slot over, or its end could not be recorded.
    Lost {
        /// The schedule.
        schedule: &'a str,
        /// When it was due.
        due_at: Timestamp,
    },
}
