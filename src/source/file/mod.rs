//! Posts from files, for `import`.
//!
//! [`dump`] reads a file block by block; [`lines`] and [`table`] read its [rows](row), [`filter`] says which are wanted,
//! and `sparse` parses what a post is made of.

pub mod dump;
pub mod filter;
pub mod lines;
pub mod row;
mod sparse;
pub mod table;
