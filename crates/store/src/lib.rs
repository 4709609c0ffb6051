//! Stores posts, labels and scores: SQLite for one machine, PostgreSQL for several.
//!
//! [`Store`] is the face that the stages see; both databases answer it with the same statements
//! (`sql/`) in their own dialect (`dialect/`). Every write is one transaction. Whatever is read here was
//! written by topicmill itself, so a value that cannot be decoded is an error that names its table and row.

mod address;
pub mod analysis;
#[expect(missing_docs, reason = "docs/schema.md describes the columns")]
pub mod browsed;
mod bulk;
mod changed;
pub mod checking;
pub mod copying;
mod dialect;
mod error;
pub mod faces;
mod failure;
#[expect(missing_docs, reason = "docs/schema.md describes the columns")]
mod gold;
mod holders;
#[expect(missing_docs, reason = "docs/schema.md describes the columns")]
mod outlook;
mod query;
#[expect(missing_docs, reason = "docs/schema.md describes the columns")]
mod report;
#[expect(missing_docs, reason = "docs/schema.md describes the columns")]
mod rows;
#[expect(missing_docs, reason = "docs/schema.md describes the columns")]
mod slots;
mod sockets;
mod sql;
mod upkeep;
mod versions;
mod waiting;

use sqlx::{Postgres, Sqlite};

pub use topicmill_core::{QuotaReservation, QuotaTerms};

pub use self::address::Address;
pub use self::changed::{Dropped, Hanging, Thinned};
pub use self::dialect::File as Migration;
pub use self::error::StoreError;
pub use self::gold::{
    FilterLabel, FitRow, ForgottenGold, GoldAnswer, ReviewFilter, ReviewPost, SavedGold, StoredGold,
};
pub use self::holders::{died, is_gone, worker_name};
pub use self::outlook::{About, Beside, LabelledBeside, LastRun, MixPart, Newest, StageRuns};
pub use self::query::{
    Answered, Batches, ColumnBatch, ColumnReading, Incoming, Inquiry, Part, Parts, ReadStatement,
    Table, batches, parts, weight,
};
pub use self::report::{Bin, Drawn, Fate, HeatCell, ReportQuestion, Sample, Skipped, Step, Sums};
pub use self::rows::{
    Checked, Claim, Claimant, ClaimedPost, Classified, Due, Gap, ImportState, Info, LabelWrite,
    LabellingState, Lease, Missing, ModelRow, NoLabel, Page, Purged, RunId, RunRow, Running,
    Sought, StoredLabels, StoredText, Suspicion, Target, UnlabelledText, Upserted, Waiting,
    Written,
};
pub use self::slots::{
    DEADLY, NewSlot, Planned, RunningSlot, ScheduleState, SlotCount, SlotEnd, SlotLease, SlotPlan,
    SlotRow, SlotTaker, TakenSlot,
};
use self::sql::SqlStore;
pub use self::upkeep::{OnBytes, Rewritten};
pub use self::versions::{
    ComparedPost, Cost, Failure, LabelSetRow, LabelState, LookedUp, Prediction,
};
pub use self::waiting::{ToldToStop, is_stop};

/// Result of a store operation.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The migrations of PostgreSQL, whose comments say what tables, views and columns mean.
pub fn migrations() -> &'static [Migration] {
    <Postgres as dialect::Dialect>::MIGRATIONS
}

/// Access mode of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Made if it is missing, migrated to the latest schema.
    Create,
    /// As it is: an error if it is missing or not at the latest schema.
    Existing,
    /// Reading only; nothing is changed, a query cannot write.
    ReadOnly,
    /// As it is, of whatever schema: to be copied before it is upgraded.
    AnySchema,
}

/// A database, SQLite or PostgreSQL.
#[derive(Debug, Clone)]
pub enum Store {
    /// A file.
    Sqlite(SqlStore<Sqlite>),
    /// A server.
    Postgres(SqlStore<Postgres>),
}

/// Hears of new posts.
pub enum Watch {
    /// Looks every second whether the file was written to.
    Sqlite(dialect::FileWatch),
    /// Is told by the server.
    Postgres(dialect::Listener),
}

impl Watch {
    /// Waits until posts may have been added or edited since the last call, or since the watch began.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn changed(&mut self) -> Result<()> {
        match self {
            Self::Sqlite(watch) => watch.changed().await,
            Self::Postgres(listener) => listener.changed().await,
        }
    }
}

impl Store {
    /// Watches for new posts from now on.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn watch(&self) -> Result<Watch> {
        match self {
            Self::Sqlite(store) => dialect::FileWatch::new(store).await.map(Watch::Sqlite),
            Self::Postgres(store) => dialect::Listener::new(&store.pool)
                .await
                .map(Watch::Postgres),
        }
    }

    /// Checks that the database exists, responds, and still has the schema of this program.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn usable(&self) -> Result<()> {
        match self {
            Self::Sqlite(store) => {
                store.same_file()?;
                store.usable().await
            }
            Self::Postgres(store) => store.usable().await,
        }
    }

    /// Answers one statement of the user, which can do nothing but read, in parts as its rows come.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn ask(&self, inquiry: Inquiry, into: Parts) -> Result<Answered> {
        match self {
            Self::Sqlite(store) => store.ask(inquiry, into).await,
            Self::Postgres(store) => store.ask(inquiry, into).await,
        }
    }

    /// Answers statements that can do nothing but read, one behind the other and all of one moment, in columns of the
    /// types that they name.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn read(&self, reading: ColumnReading, into: Batches) -> Result<Answered> {
        match self {
            Self::Sqlite(store) => store.read(reading, into).await,
            Self::Postgres(store) => store.read(reading, into).await,
        }
    }

    /// The same, but that claims live and quotas are counted by the times that calls give, and not by the server's
    /// clock: for tests, which have a clock of their own.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn on_given_time(self) -> Self {
        match self {
            Self::Sqlite(store) => Self::Sqlite(store),
            Self::Postgres(mut store) => {
                store.on_given_time = true;
                Self::Postgres(store)
            }
        }
    }

    /// Opens a database.
    ///
    /// # Errors
    /// [`StoreError::Url`], [`StoreError::Open`], [`StoreError::NoSchema`], with [`Access::Create`]
    /// [`StoreError::Occupied`], with [`Access::Existing`] and [`Access::ReadOnly`] [`StoreError::NotMigrated`], and
    /// but for [`Access::AnySchema`] [`StoreError::EarlierBuild`] and [`StoreError::Newer`].
    pub async fn open(url: &str, access: Access) -> Result<Self> {
        Self::open_migrated(url, access, &[]).await
    }

    /// The same with further migrations: for tests, which upgrade a database by a made-up one.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    #[cfg(feature = "test-util")]
    pub async fn open_with(url: &str, access: Access, more: &[Migration]) -> Result<Self> {
        Self::open_migrated(url, access, more).await
    }

    async fn open_migrated(url: &str, access: Access, more: &[Migration]) -> Result<Self> {
        Ok(match dialect::backend(url)? {
            dialect::Backend::Sqlite => {
                let mut store = SqlStore::<Sqlite>::open(url, access, more).await?;
                store.file = store.file_there();
                Self::Sqlite(store)
            }
            dialect::Backend::Postgres => Self::Postgres(SqlStore::open(url, access, more).await?),
        })
    }
}
