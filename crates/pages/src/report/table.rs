//! The table behind a chart.

/// Rows of a table behind a chart, at most.
pub const MOST_ROWS: usize = 400;

/// Numbers and names as a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChartTable {
    /// Names of the columns.
    pub head: Vec<String>,
    /// Cells, as many as the head has.
    pub rows: Vec<Vec<String>>,
    /// Columns with names; those behind them hold numbers.
    pub names: usize,
    /// Rows that were left out.
    pub left_out: usize,
}

impl ChartTable {
    /// A table of the rows that fit.
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
