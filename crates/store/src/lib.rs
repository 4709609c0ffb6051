//! Stores posts, labels and scores, in SQLite for one machine or PostgreSQL for several.
//!
//! [`Store`] is the interface of this crate; its methods are grouped by concern in [`api`]. Both databases run the same
//! statements (`sql/`); the differences are in `dialect/`. Every write is one transaction. Only topicmill writes these
//! tables, so a value that cannot be decoded is an error that names the table and the row.

mod address;
pub mod analysis;
pub mod api;
#[expect(missing_docs, reason = "`sql --schema` describes the columns")]
pub mod browse;
mod bulk;
pub mod checking;
pub mod copying;
mod deletion;
mod dialect;
mod driver_error;
mod error;
#[expect(missing_docs, reason = "`sql --schema` describes the columns")]
mod gold;
mod keys;
mod lock_wait;
mod maintenance;
mod query;
#[expect(missing_docs, reason = "`sql --schema` describes the columns")]
mod report;
#[expect(missing_docs, reason = "`sql --schema` describes the columns")]
mod rows;
#[expect(missing_docs, reason = "`sql --schema` describes the columns")]
mod schedules;
mod sql;
#[expect(missing_docs, reason = "`sql --schema` describes the columns")]
mod status;
mod versions;
mod workers;

use sqlx::{Postgres, Sqlite};
use tokio_util::sync::CancellationToken;

pub use topicmill_core::record::Upserted;
pub use topicmill_core::{QuotaReservation, QuotaTerms};

pub use self::address::Address;
pub use self::deletion::{Dependents, DropTarget};
pub use self::dialect::Migration;
pub use self::error::StoreError;
pub use self::gold::{
    FilterLabel, FitRow, ForgottenGold, FrameCell, FrameQuery, GoldAnswer, Grouping, Period,
    ReviewFilter, ReviewOrder, ReviewPost, SavedGold, StoredGold,
};
pub use self::keys::{HypothesisId, LabelSetId, Lease, ModelId, RunId, Target};
pub use self::lock_wait::{Cancelled, is_cancelled};
pub use self::maintenance::Rewritten;
pub use self::query::{
    BatchReceiver, BatchSender, ColumnBatch, ColumnQuery, ColumnStatement, Part, PartSender,
    QueryEnd, QueryRequest, Table, batch_channel, part_channel,
};
pub use self::report::{
    PeriodCell, PostOutcome, ReportCell, ReportQuery, ReportSums, SamplePost, ScoreBin,
    SkippedSubreddits, SubredditSpan, TimeStep, TwoPeriods, Watermark,
};
pub use self::rows::{
    ArchiveState, BacklogCounts, Checked, Claim, Claimant, ClaimedPost, Classified, CrashFilter,
    Due, ExistingTarget, Gap, ImportState, Info, LabelWrite, LabellingState, ModelRow, NewLogits,
    OldTexts, Page, Purged, PurgedTexts, RunRow, StoredLabels, StoredText, TopicKeywords,
    UnfinishedRun, UnlabelledText, UnreadThread, WorkEstimate, Written,
};
pub use self::schedules::{
    ClaimedScheduledRun, RunningScheduledRun, ScheduleState, ScheduledRunClaimant, ScheduledRunEnd,
    ScheduledRunLease, ScheduledRunRow,
};
pub use self::status::{LabellingEstimate, LastRun, NewestPost, StageRuns};
pub use self::versions::{
    ComparedPost, Cost, CrossFitted, Failure, LabelSetRow, LabelState, PostLabel, Prediction,
};
pub use self::workers::{has_process_exited, has_worker_exited, host_name, host_of, worker_name};

use self::sql::SqlStore;

/// Result of a store operation.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Access mode of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads and writes; creates the database if it is missing, and migrates it to the latest schema.
    Create,
    /// Reads and writes; an error if the database is missing, or not at the latest schema.
    Existing,
    /// Reads only; no query can write.
    ReadOnly,
    /// Reads and writes any schema version, to copy the database before an upgrade.
    AnySchema,
}

/// A database, SQLite or PostgreSQL.
#[derive(Debug, Clone)]
pub enum Store {
    /// A SQLite file.
    Sqlite(SqlStore<Sqlite>),
    /// A PostgreSQL server.
    Postgres(SqlStore<Postgres>),
}

/// A watch for new posts.
pub enum Watch {
    /// Polls the file every second for writes.
    Sqlite(dialect::FileWatch),
    /// Waits for notifications from the server.
    Postgres(dialect::Listener),
}

impl Watch {
    /// Waits until posts may have been added or edited since the last call, or since the watch was created.
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
    /// Creates a watch for new posts.
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

    /// Prepares for a request of a long-lived reader, whose connections may be out of date.
    ///
    /// # Errors
    /// [`StoreError::Replaced`]: the connections would read a file that was moved, deleted or replaced.
    pub fn refresh(&self) -> Result<()> {
        if let Self::Sqlite(store) = self {
            store.check_same_file()?;
            store.refresh();
        }
        Ok(())
    }

    /// Checks that the database exists, responds, and still has the schema that this program expects.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn check_usable(&self) -> Result<()> {
        match self {
            Self::Sqlite(store) => {
                store.check_same_file()?;
                store.check_usable().await
            }
            Self::Postgres(store) => store.check_usable().await,
        }
    }

    /// Runs one read-only statement from the user and sends its rows in parts.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn run_query(&self, request: QueryRequest, into: PartSender) -> Result<QueryEnd> {
        match self {
            Self::Sqlite(store) => store.run_query(request, into).await,
            Self::Postgres(store) => store.run_query(request, into).await,
        }
    }

    /// Runs read-only statements in order, in one transaction that sees one snapshot, and sends their rows as columns
    /// of the declared types.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub async fn read_columns(&self, reading: ColumnQuery, into: BatchSender) -> Result<QueryEnd> {
        match self {
            Self::Sqlite(store) => store.read_columns(reading, into).await,
            Self::Postgres(store) => store.read_columns(reading, into).await,
        }
    }

    /// Stores comments with the title of their post, if it is stored, so that models read both.
    #[must_use]
    pub fn reading_titles(mut self, reads_titles: bool) -> Self {
        match &mut self {
            Self::Sqlite(store) => store.reads_titles = reads_titles,
            Self::Postgres(store) => store.reads_titles = reads_titles,
        }
        self
    }

    /// Uses the times that callers pass instead of the server's clock, for leases and quotas. Only for tests, which
    /// have their own clock.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn with_caller_time(mut self) -> Self {
        if let Self::Postgres(store) = &mut self {
            store.uses_caller_time = true;
        }
        self
    }

    /// Opens a database.
    ///
    /// # Errors
    /// - Every mode: [`StoreError::Url`] and [`StoreError::Open`].
    /// - Every mode except [`Access::AnySchema`]: [`StoreError::NoSchema`], [`StoreError::EarlierBuild`] and
    ///   [`StoreError::Newer`].
    /// - [`Access::Create`]: [`StoreError::NameTaken`] and [`StoreError::Encoding`].
    /// - [`Access::Existing`] and [`Access::ReadOnly`]: [`StoreError::NoTables`] and [`StoreError::NotMigrated`].
    pub async fn open(url: &str, access: Access) -> Result<Self> {
        Self::open_migrated(url, access, &[]).await
    }

    /// Opens a database. Cancelling `stop` cancels the opening, and every later wait for a lock.
    ///
    /// # Errors
    /// As for [`Store::open`], and [`StoreError::OpenCancelled`].
    pub async fn open_cancellable(
        url: &str,
        access: Access,
        stop: &CancellationToken,
    ) -> Result<Self> {
        let store = tokio::select! {
            store = Self::open(url, access) => store?,
            // Dropping the connections rolls back what was begun.
            () = lock_wait::stop_grace_over(stop) => return Err(StoreError::OpenCancelled(Cancelled)),
        };
        let stops = match &store {
            Self::Sqlite(store) => &store.waits.stop,
            Self::Postgres(store) => &store.waits.stop,
        };
        stops.set(stop.clone()).expect("the store was just opened");
        Ok(store)
    }

    /// Opens a database with additional migrations. Only for tests of upgrades.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    #[cfg(feature = "test-util")]
    pub async fn open_with(url: &str, access: Access, more: &[Migration]) -> Result<Self> {
        Self::open_migrated(url, access, more).await
    }

    async fn open_migrated(url: &str, access: Access, more: &[Migration]) -> Result<Self> {
        Ok(match dialect::backend(url)? {
            dialect::Backend::Sqlite => Self::Sqlite(SqlStore::open(url, access, more).await?),
            dialect::Backend::Postgres => Self::Postgres(SqlStore::open(url, access, more).await?),
        })
    }
}
