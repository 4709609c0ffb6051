//! Defines the values that all other crates share: posts, topics, labels, scores, hashes, times and run records.
//!
//! The crate uses no database, network or files, so that the rules for these values can be tested in isolation; it only
//! implements sqlx's traits for them. Most types are re-exported here; the public modules have the functions on them.
//! [`clock`] is the only module in the program that reads the time.

#[macro_use]
mod string_enum;
mod cells;
#[cfg(feature = "clock")]
pub mod clock;
mod duration;
mod failure_kind;
mod fullname;
mod gold;
mod keywords;
pub mod labels;
pub mod model_kind;
mod numeric;
mod post;
mod purge_reason;
mod quota;
pub mod record;
mod redact;
pub mod reddit;
mod rejection;
mod schedules;
pub mod score;
mod sources;
mod spreadsheet;
#[cfg(feature = "columns")]
mod sqlx_types;
mod stage;
#[cfg(any(test, feature = "test-util"))]
pub mod test_examples;
mod text;
mod text_hash;
mod timestamp;
mod topic;
mod vectors;

pub use self::cells::{
    ColumnCell, ColumnCells, ColumnKind, ColumnTexts, ColumnValues, ColumnVectors,
};
pub use self::duration::{format_duration, format_setting, parse_duration};
pub use self::failure_kind::FailureKind;
pub use self::fullname::{Fullname, FullnameError, ThingKind};
pub use self::gold::{GoldSource, SampleReason};
pub use self::keywords::Keywords;
pub use self::labels::{
    Background, BackgroundError, BackgroundTopic, CALIBRATED, FitTarget, Fitted, FittedClass,
    FittedError, Label, LabelSet, LabelSetError, Mode, Provenance, SHORT_HASH, short_hash, slug,
};
pub use self::model_kind::ModelKind;
pub use self::post::{AuthorPolicy, Post, ReadyPost, Reply, author_name};
pub use self::purge_reason::PurgeReason;
pub use self::quota::{QuotaReservation, QuotaTerms};
pub use self::redact::redact_url;
pub use self::rejection::{RejectReason, Rejections};
pub use self::schedules::ScheduledRunStatus;
pub use self::score::{PairLogits, Scores};
pub use self::sources::{Listing, SourceKind, SourceTraits};
pub use self::spreadsheet::spreadsheet_safe;
pub use self::stage::{RunStatus, Stage};
pub use self::string_enum::UnknownVariant;
pub use self::text::{counted, first_few, hex, is_direction_override, thousands, to_json};
pub use self::text_hash::{InvalidTextHash, TextHash};
pub use self::timestamp::{
    MAX_CLOCK_SETBACK, MAX_CLOCK_SKEW, ParsedTime, SECOND_READING, Timestamp, parse_time,
};
pub use self::topic::{Outcome, Topic, TopicReport, subreddit_of_path};
pub use self::vectors::{LabelVector, TextVector, unit};
