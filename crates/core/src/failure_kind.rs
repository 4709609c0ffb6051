//! Defines the kinds of failures, which determine the exit code.

/// The kind of a failure. It determines the exit code and whether a caller retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The command, an input file or a setting is wrong.
    Usage,
    /// A site or a policy refuses the operation.
    Policy,
    /// The database cannot be used.
    Database,
    /// The model, its library or its device cannot be used.
    Model,
    /// The command did only part of its work, for example because the disk is full or a file cannot be written.
    Unfinished,
    /// The same command may succeed later.
    Temporary,
}
