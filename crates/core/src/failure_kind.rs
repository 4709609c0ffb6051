//! The kinds of errors, which decide how the program exits.

/// The kind of a failure, by which a caller decides what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The command, a file that it names or a setting is wrong.
    Usage,
    /// A site or a rule refuses.
    Policy,
    /// The database cannot be used.
    Database,
    /// The model, its library or its device cannot be used.
    Model,
    /// The command began, and did not do all of it: a disk is full, or a file cannot be written.
    Unfinished,
    /// The same command may succeed later.
    Temporary,
}

impl FailureKind {
    /// The kind of an error of the scoring crate: the caller's mistake, or the model's.
    pub const fn from_model_error(is_usage: bool) -> Self {
        if is_usage { Self::Usage } else { Self::Model }
    }
}
