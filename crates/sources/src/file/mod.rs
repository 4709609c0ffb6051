//! Posts from files, for `import`.
//!
//! [`dump`] reads a file block by block; [`json`] and [`table`] read its [rows](row), and [`filter`] says which are
//! wanted.

pub mod dump;
pub mod filter;
pub mod json;
pub mod row;
pub mod table;
