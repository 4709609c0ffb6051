//! The data table that accompanies a chart.

/// Maximum number of rows in a table.
pub const MOST_ROWS: usize = 400;

/// A chart's data as a table of strings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChartTable {
    /// Column names.
    pub head: Vec<String>,
    /// Rows, each with one cell per column.
    pub rows: Vec<Vec<String>>,
    /// Number of leading text columns; the rest are numeric.
    pub names: usize,
    /// Number of rows left out.
    pub left_out: usize,
}

impl ChartTable {
    /// Creates a table with at most [`MOST_ROWS`] rows.
    pub fn new(names: usize, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        let mut rows: Vec<_> = rows.into_iter().collect();
        let left_out = rows.len().saturating_sub(MOST_ROWS);
        rows.truncate(MOST_ROWS);
        Self {
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            rows,
            names,
            left_out,
        }
    }
}
