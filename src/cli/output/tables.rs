//! Formats human-readable tables: columns that fit the terminal, right-aligned numbers.
//!
//! The input is the values of a query. The output contains no control characters. On a terminal, each row is one line;
//! in a pipe or a file, text is not truncated.

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Row, TableComponent, presets,
};
use serde_json::Value;

use crate::cli::terminal;
use crate::telemetry::sanitize;
use topicmill_store::Table;
use topicmill_tables::csv::value_text;

/// The minimum width of truncated text, so that it can still be recognised.
const READABLE: usize = 12;

/// A delimiter of width 0 after the hyphens of a slug or path, so that it is wrapped there.
const BREAK: char = '\u{200b}';

/// The maximum number of decimals.
const MOST_DECIMALS: usize = 3;

/// Treatment of text that is longer than its column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overflow {
    /// It is truncated, so that each row is one line.
    Cut,
    Wrap,
}

/// Formats a table that fits the terminal: each row is one line, and long text ends with an ellipsis. In a pipe or a
/// file, text is not truncated. Numbers are right-aligned, with as many decimals as their column needs, at most three.
/// If there are too many columns, each row becomes a list.
pub fn aligned_table(table: &Table) -> String {
    layout(table, terminal::width(), Overflow::Cut)
}

/// Formats a table with long text wrapped instead of truncated.
pub fn wrapped_table(table: &Table) -> String {
    layout(table, terminal::width(), Overflow::Wrap)
}

/// Formats a table that fits `width` columns; without a width, no text is truncated or wrapped.
fn layout(table: &Table, width: Option<usize>, overflow: Overflow) -> String {
    let columns = 0..table.columns.len();
    let cells = |column: usize| table.rows.iter().filter_map(move |row| row.get(column));
    let decimals: Vec<usize> = columns.map(|column| decimals(cells(column))).collect();
    let mut out = comfy_table::Table::new();
    out.load_preset(presets::NOTHING)
        .set_style(TableComponent::HeaderLines, '─')
        .set_style(TableComponent::MiddleHeaderIntersections, '─')
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_truncation_indicator("…")
        .set_header(table.columns.iter().map(|name| sanitize::line(name)));
    let cut_width = width.filter(|_| overflow == Overflow::Cut);
    for values in &table.rows {
        let cells = values.iter().zip(&decimals);
        let cells = cells.map(|(value, decimals)| cell(value, *decimals, cut_width));
        let mut row = Row::from(cells);
        if cut_width.is_some() {
            row.max_height(1);
        }
        out.add_row(row);
    }
    let Some(width) = width else {
        return lines(&out);
    };
    out.set_width(u16::try_from(width).unwrap_or(u16::MAX));
    if fix_columns(&mut out, table, width) {
        lines(&out)
    } else {
        as_lists(table, &decimals, width)
    }
}

/// Formats a value: truncated to `cut_width` if there is one, else with places where it may be wrapped.
fn cell(value: &Value, decimals: usize, cut_width: Option<usize>) -> Cell {
    let text = cell_text(value, decimals);
    match cut_width {
        Some(width) => aligned(value, &terminal::cut(&text, width)),
        None if text.contains(' ') => aligned(value, &text),
        None => {
            let text = text.replace('-', &format!("-{BREAK}"));
            aligned(value, &text).set_delimiter(BREAK)
        }
    }
}

/// Fixes the columns that are never wrapped or truncated at the width of their content: those with figures and, if there
/// is room, the first one, which names the row. Returns false if there are too many columns for this width.
fn fix_columns(out: &mut comfy_table::Table, table: &Table, width: usize) -> bool {
    let content_widths = out.column_max_content_widths();
    // A space on each side of a cell, and one between cells, except after the last one.
    let room = (width + 1).saturating_sub(3 * content_widths.len());
    let columns = 0..content_widths.len();
    let figures: Vec<bool> = columns.map(|column| has_figures(table, column)).collect();
    let first_and_figures = figures.iter().enumerate();
    let first_and_figures = first_and_figures.map(|(column, is_figure)| column == 0 || *is_figure);
    let mut choices = [first_and_figures.collect(), figures].into_iter();
    let Some(is_fixed) = choices.find(|is_fixed| least_width(&content_widths, is_fixed) <= room)
    else {
        return false;
    };
    for (column, is_fixed) in out.column_iter_mut().zip(is_fixed) {
        if is_fixed {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    true
}

/// Returns the least width of columns: that of their content if they are fixed, else what their text needs to be
/// recognised.
fn least_width(content_widths: &[u16], is_fixed: &[bool]) -> usize {
    let columns = content_widths.iter().zip(is_fixed);
    let widths = columns.map(|(width, is_fixed)| match usize::from(*width) {
        width if *is_fixed => width,
        width => width.min(READABLE),
    });
    widths.sum()
}

/// Returns true if a column contains figures, as defined by [`is_figure`], and nothing else.
fn has_figures(table: &Table, column: usize) -> bool {
    let cells = table.rows.iter().filter_map(|row| row.get(column));
    let mut filled = cells
        .filter(|cell| !cell.is_null() && *cell != "")
        .peekable();
    filled.peek().is_some() && filled.all(is_figure)
}

/// Returns true if a table has numbers with confidence intervals. In such a table, names are wrapped to make room.
pub fn has_intervals(table: &Table) -> bool {
    let mut cells = table.rows.iter().flatten();
    cells.any(|value| value.as_str().is_some_and(|text| text.contains('–')) && is_figure(value))
}

/// Renders a table without the padding at the end of lines and the delimiters in names.
fn lines(table: &comfy_table::Table) -> String {
    let line = |line: String| format!("{}\n", line.replace(BREAK, "").trim_end());
    table.lines().map(line).collect()
}

/// Formats each row as a list of names and values, with blank lines between rows.
fn as_lists(table: &Table, decimals: &[usize], width: usize) -> String {
    let columns = table.columns.iter();
    let names: Vec<_> = columns.map(|name| sanitize::line(name)).collect();
    let widest = names.iter().map(|name| terminal::columns(name)).max();
    let names_room = widest.unwrap_or(0).min(width / 2);
    // A space on each side of a cell, except after the last one.
    let room = width.saturating_sub(names_room + 3).max(1);
    let lists = table.rows.iter().map(|row| {
        let mut list = comfy_table::Table::new();
        list.load_preset(presets::NOTHING);
        for ((name, value), decimals) in names.iter().zip(row).zip(decimals) {
            let text = cell_text(value, *decimals);
            list.add_row([terminal::cut(name, names_room), terminal::cut(&text, room)]);
        }
        lines(&list)
    });
    lists.collect::<Vec<_>>().join("\n")
}

/// Returns the number of decimals that the fractions among some values need, at most `MOST_DECIMALS`.
fn decimals<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
    let needed = |float: f64| {
        let text = format!("{float:.MOST_DECIMALS$}");
        let (_, decimals) = text.split_once('.').unwrap_or_default();
        match decimals.trim_end_matches('0').len() {
            // A fraction that rounds to a whole number still gets decimals.
            0 if float.fract() != 0.0 => MOST_DECIMALS,
            needed => needed,
        }
    };
    let fractions = values.filter(|value| value.is_f64());
    let needed = fractions.filter_map(|value| value.as_f64().map(needed));
    needed.max().unwrap_or(0)
}

/// Returns true for a number, a time, and a number with an interval, such as `0.84 (0.77–0.90)`.
fn is_figure(value: &Value) -> bool {
    let is_in_figures = |c: char| c.is_ascii_digit() || ".,()–−+ %-:TZ".contains(c);
    match value {
        Value::String(text) => !text.is_empty() && text.chars().all(is_in_figures),
        value => value.is_number(),
    }
}

/// Right-aligns numbers.
fn aligned(value: &Value, text: &str) -> Cell {
    let cell = Cell::new(text);
    if value.is_number() {
        cell.set_alignment(CellAlignment::Right)
    } else {
        cell
    }
}

fn cell_text(value: &Value, decimals: usize) -> String {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => format!("{float:.decimals$}"),
            _ => number.to_string(),
        },
        // Line breaks and tabs would break the table.
        other => {
            let text = value_text(other, false);
            let words: Vec<&str> = text.split_whitespace().collect();
            sanitize::line(&words.join(" ")).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn table_of(columns: &[&str], rows: Vec<Vec<Value>>) -> Table {
        Table {
            columns: columns.iter().copied().map(String::from).collect(),
            rows,
        }
    }

    fn sample() -> Table {
        table_of(
            &["topic", "n", "score"],
            vec![
                vec![json!("a \"b\",\nc"), json!(3), json!(0.5)],
                vec![json!(null), json!(40), json!(null)],
            ],
        )
    }

    #[test]
    fn a_column_has_as_many_decimals_as_it_needs() {
        let table = table_of(
            &["n", "mib", "posts/s", "score"],
            vec![
                vec![json!(1), json!(324.0), json!(71.9), json!(0.5)],
                vec![json!(20), json!(90.0), json!(106.25), json!(0.123_456)],
                vec![json!(3), json!(null), json!(7.0), json!(1.0)],
            ],
        );
        let lines = aligned_table(&table);
        let cells = |line: usize| -> Vec<&str> {
            lines
                .lines()
                .nth(line)
                .unwrap()
                .split_whitespace()
                .collect()
        };
        assert_eq!(cells(2), ["1", "324", "71.90", "0.500"]);
        assert_eq!(cells(3), ["20", "90", "106.25", "0.123"]);
        assert_eq!(cells(4), ["3", "7.00", "1.000"]);
        let nearly = decimals([json!(0.9997), json!(3)].iter());
        assert_eq!((nearly, decimals([json!(2.0)].iter())), (3, 0));
    }

    #[test]
    fn rows_with_too_many_columns_become_lists() {
        let text = as_lists(&sample(), &[0, 0, 1], 11);
        assert!(text.starts_with(" topic  a…\n n      3\n"), "{text}");
    }

    /// Returns a table with titles that are longer than a line.
    fn long_titles() -> Table {
        let row = |n: u64, title: &str| vec![json!(format!("t3_{n}")), json!(title), json!(n)];
        let marks = "\u{336}".repeat(4_000);
        table_of(
            &["fullname", "title", "n"],
            vec![
                row(1, &"words of a long title ".repeat(3_000)),
                row(2, &"日本語の長い題名".repeat(40)),
                row(3, &format!("Z{marks}algo \u{1b}[31m red")),
                row(1_234_567, "short"),
            ],
        )
    }

    #[test]
    fn each_row_fits_one_terminal_line() {
        let table = long_titles();
        for width in [40, 60, 80, 200] {
            let text = layout(&table, Some(width), Overflow::Cut);
            assert_eq!(text.lines().count(), table.rows.len() + 2, "{text}");
            for line in text.lines() {
                assert!(terminal::columns(line) <= width, "{width}: {line}");
            }
            assert!(text.contains("1234567"), "a number was truncated: {text}");
            assert!(text.contains("…\n") || text.contains("… "), "{text}");
            assert!(!text.contains('\u{1b}'), "{text}");
        }
        let list = layout(&table, Some(25), Overflow::Cut);
        assert!(list.contains(" n         1234567\n"), "{list}");
        let mut lines = list.lines();
        assert!(lines.all(|line| terminal::columns(line) <= 25), "{list}");
    }

    #[test]
    fn a_table_that_fits_is_unchanged() {
        assert_eq!(
            layout(&sample(), Some(200), Overflow::Cut).replace('─', ""),
            layout(&sample(), None, Overflow::Wrap).replace('─', "")
        );
    }

    #[test]
    fn names_are_wrapped_to_keep_intervals_whole() {
        let interval = "0.842 (0.77–0.90)";
        let difference = "−0.060 (−0.11–0.02)";
        let name = "accuracy (including none of these)";
        let estimates = table_of(
            &["figure", "first", "second", "difference"],
            vec![
                [name, interval, interval, difference]
                    .map(Value::from)
                    .to_vec(),
            ],
        );
        assert!(has_intervals(&estimates) && !has_intervals(&sample()));
        let wrapped = layout(&estimates, Some(80), Overflow::Wrap);
        for text in [&layout(&estimates, Some(80), Overflow::Cut), &wrapped] {
            assert_eq!(text.matches(interval).count(), 2, "{text}");
            assert!(text.contains(difference), "{text}");
        }
        for word in ["accuracy", "(including", "none", "these)"] {
            assert!(wrapped.contains(word), "{wrapped}");
        }
        let slug = "personal-finance-and-investing";
        let labels = table_of(
            &["label", "precision", "recall", "F1", "gold", "assigned"],
            vec![
                [slug, interval, interval, "0.84", "12", "14"]
                    .map(Value::from)
                    .to_vec(),
            ],
        );
        let text = layout(&labels, Some(80), Overflow::Wrap);
        for part in [" personal-   ", "\n investing\n"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn names_in_the_first_column_are_not_broken() {
        let path = "/home/me/a/rather/long/folder/of/models/minilm-reddit-topics";
        let row = |key: &str, value: &str| vec![json!(key), json!(value), json!(path)];
        let table = table_of(
            &["setting", "value", "origin"],
            vec![
                row("classify.lease_secs", "0.99"),
                row("reddit.requests_per_minute", path),
            ],
        );
        for width in [60, 80] {
            let text = layout(&table, Some(width), Overflow::Wrap);
            for name in ["classify.lease_secs", "reddit.requests_per_minute"] {
                assert!(text.contains(name), "{text}");
            }
            for line in text.lines() {
                assert!(terminal::columns(line) <= width, "{line}");
            }
        }
    }
}
