//! What goes wrong with objects, by what a person can do about it.

use std::time::Duration;

/// Why an object cannot be read or written. No message holds an address of a request, for one may hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// An address that names nothing.
    #[error("`{address}` is no address: {why}")]
    Address {
        /// As it was given, without user and password.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nothing is there.
    #[error("find `{0}`: there is no such object; check the address")]
    Missing(String),
    /// An address that many objects begin with or match, of which there is none.
    #[error("find `{0}`: no object there is a table; check the address")]
    Nothing(String),
    /// The store does not give it to this user.
    #[error("use `{object}`: {why}")]
    Refused {
        /// The object.
        object: String,
        /// What the store said, and what to do.
        why: String,
    },
    /// The settings of a store.
    #[error("use the store of `{object}`: {why}")]
    Settings {
        /// The object.
        object: String,
        /// What is wrong.
        why: String,
    },
    /// Trouble that lasted.
    #[error(
        "reach `{object}`: {what}, {tries} times in a row; give the same command again to go on"
    )]
    Trouble {
        /// The object.
        object: String,
        /// What the last try met.
        what: String,
        /// How often it was tried.
        tries: u32,
    },
    /// Another file lies there than when the work was planned.
    #[error(
        "read `{0}`: it was changed while it was being read; nothing of the new one was read. Give the same command again; for a folder \
         of shards add `--overwrite`, because its shards must have the same inputs"
    )]
    Changed(String),
    /// Somebody else wrote it meanwhile.
    #[error(
        "write `{0}`: another process wrote it at the same moment; see who uses the same folder, then give the same command \
         again"
    )]
    Exists(String),
    /// A store without conditional writes.
    #[error(
        "lock `{0}`: this store takes no conditional writes (If-None-Match and If-Match), without which two processes \
         could write one shard; use a store that has them, or write to a local folder and copy it"
    )]
    Unconditional(String),
    /// Somebody else has it.
    #[error("{}", held_message(.holder, .silent, .lease))]
    Held {
        /// Who.
        holder: String,
        /// How long nothing was heard of the holder.
        silent: Duration,
        /// After which silence the lock is taken over.
        lease: Duration,
    },
    /// Somebody else has taken it over.
    #[error(
        "write `{0}`: another process has taken over, because the store heard nothing of this one for too long; it goes \
         on, and nothing is lost"
    )]
    Lost(String),
    /// Somebody ended it.
    #[error(
        "stopped while `{0}` was being sent: the whole object is there, or what was there before; see which, then give the \
         same command again"
    )]
    Stopped(String),
    /// What no store can do.
    #[error("write to `{0}`: it can only be read; write to a local file or an object store")]
    ReadOnly(String),
    /// A file of ours.
    #[error("use `{path}`: {source}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The hub.
    #[error(transparent)]
    Hub(#[from] crate::hub::PullError),
}

impl ObjectError {
    /// Whether the same may go right later.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Trouble { .. } | Self::Held { .. } | Self::Lost(_)
        )
    }
}

fn held_message(holder: &str, silent: &Duration, lease: &Duration) -> String {
    format!(
        "{holder} works on it, and was heard of {} s ago; wait for it, or, if it is dead, give the same command again once \
         nothing was heard of it for {} s",
        silent.as_secs(),
        lease.as_secs(),
    )
}

impl From<ObjectError> for std::io::Error {
    fn from(error: ObjectError) -> Self {
        use std::io::ErrorKind;
        let kind = match &error {
            ObjectError::Missing(_) | ObjectError::Nothing(_) => ErrorKind::NotFound,
            ObjectError::Refused { .. } => ErrorKind::PermissionDenied,
            ObjectError::Exists(_) => ErrorKind::AlreadyExists,
            _ => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
