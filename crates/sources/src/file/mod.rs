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
