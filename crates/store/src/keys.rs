//! Keys of rows, one type for each table, so that the key of one table is not taken for that of another.

use std::fmt;

use serde::Serialize;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::{Database, Decode, Encode, Type};

/// Declares types that the statements bind and read as integers.
macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub struct $key(pub i64);

        impl $key {
            /// A key that matches no row.
            pub const NONE: Self = Self(-1);
        }

        impl fmt::Display for $key {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl<DB: Database> Type<DB> for $key
        where
            i64: Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                i64::type_info()
            }

            fn compatible(kind: &DB::TypeInfo) -> bool {
                i64::compatible(kind)
            }
        }

        impl<'q, DB: Database> Encode<'q, DB> for $key
        where
            i64: Encode<'q, DB>,
        {
            fn encode_by_ref(&self, buffer: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
                self.0.encode_by_ref(buffer)
            }
        }

        impl<'r, DB: Database> Decode<'r, DB> for $key
        where
            i64: Decode<'r, DB>,
        {
            fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
                i64::decode(value).map(Self)
            }
        }
    )+};
}

keys! {
    /// Key in `runs`.
    RunId;
    /// Key in `models`.
    ModelId;
    /// Key in `label_sets`.
    LabelSetId;
    /// Key in `hypotheses`.
    HypothesisId;
    /// Key in `leases`, which is the fencing token: ids increase and are never reused.
    Lease;
}

/// The model and the label set of a classification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[expect(missing_docs, reason = "the types say it")]
pub struct Target {
    pub model: ModelId,
    pub label_set: LabelSetId,
}

impl Target {
    /// A target that matches no row.
    pub const NONE: Self = Self {
        model: ModelId::NONE,
        label_set: LabelSetId::NONE,
    };
}
