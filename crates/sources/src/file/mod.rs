//! Reads posts from files, for `import`.
//!
//! [`dump`] reads a file block by block. [`json`] and [`table`] read its [rows](row), and [`filter`] selects the rows
//! to keep.

pub mod dump;
pub mod filter;
pub mod json;
pub mod names;
pub mod row;
pub mod table;

use std::path::Path;

use topicmill_tables::TableFormat;

use self::filter::Filter;
use self::names::Column;
use self::table::DefaultValue;

/// Options for reading files.
#[derive(Debug, Clone, Default)]
pub struct FileOptions {
    /// The format of the files; `None` to detect it by content and extension.
    pub format: Option<TableFormat>,
    /// True for a dump of all of Reddit: it is imported only once, and the import resumes after a crash.
    pub is_dump: bool,
    /// Filter for the posts.
    pub filter: Filter,
    /// Columns to read as fields.
    pub columns: Vec<Column>,
    /// Default values for fields that a post lacks.
    pub defaults: Vec<DefaultValue>,
}

impl FileOptions {
    /// Returns true if an import of this file resumes where an earlier one stopped. A pipe cannot be recognised, so its
    /// import is never resumed.
    pub fn is_resumed(&self, path: &Path) -> bool {
        self.is_dump && path.is_file()
    }
}
