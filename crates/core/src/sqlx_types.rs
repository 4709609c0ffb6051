//! Implements sqlx's traits for times, string enums and fullnames, because only the defining crate can.

use chrono::{DateTime, Utc};
use sqlx_core::database::Database;
use sqlx_core::decode::Decode;
use sqlx_core::encode::{Encode, IsNull};
use sqlx_core::error::BoxDynError;
use sqlx_core::types::Type;

use crate::score::LabelOutcome;
use crate::{Fullname, RunStatus, ScheduledRunStatus, SourceKind, Stage, Timestamp};

impl<DB: Database> Type<DB> for Timestamp
where
    DateTime<Utc>: Type<DB>,
{
    fn type_info() -> DB::TypeInfo {
        DateTime::<Utc>::type_info()
    }

    fn compatible(kind: &DB::TypeInfo) -> bool {
        DateTime::<Utc>::compatible(kind)
    }
}

impl<'q, DB: Database> Encode<'q, DB> for Timestamp
where
    DateTime<Utc>: Encode<'q, DB>,
{
    fn encode_by_ref(&self, buffer: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.as_datetime().encode_by_ref(buffer)
    }
}

impl<'r, DB: Database> Decode<'r, DB> for Timestamp
where
    DateTime<Utc>: Decode<'r, DB>,
{
    fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
        DateTime::<Utc>::decode(value).map(Self::from)
    }
}

/// Reads a type that implements `FromStr` from a text column.
macro_rules! text_column {
    ($($type:ty),+) => {$(
        impl<DB: Database> Type<DB> for $type
        where
            String: Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                String::type_info()
            }

            fn compatible(kind: &DB::TypeInfo) -> bool {
                String::compatible(kind)
            }
        }

        impl<'r, DB: Database> Decode<'r, DB> for $type
        where
            String: Decode<'r, DB>,
        {
            fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
                Ok(String::decode(value)?.parse()?)
            }
        }
    )+};
}

text_column!(
    Fullname,
    LabelOutcome,
    SourceKind,
    Stage,
    RunStatus,
    ScheduledRunStatus
);
