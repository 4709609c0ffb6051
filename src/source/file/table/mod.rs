//! Posts from tables: CSV with a line of names, and Parquet.

pub mod columns;
pub mod csv;
pub mod parquet;
