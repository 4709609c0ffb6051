//! Converts a run's JSON lines to the output format, or compresses them.
//!
//! JSON lines are written first, because the columns of JSON inputs are known only at the end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};

use super::columnar::{self, Inferred, OutputColumn};
use super::json_lines::{lines_of, members, plain};
use super::output::OutputLayout;
use super::{FileJob, FilesError, write_error};
use topicmill_tables::csv::CsvWriter;
use topicmill_tables::{TableFormat, bytes};

/// Converts a file of lines to the output. If columns are copied, they come from the inputs of the job.
pub(super) fn convert(
    lines: &File,
    to: File,
    layout: &OutputLayout,
    job: &FileJob,
) -> Result<File, FilesError> {
    if layout.is_copied {
        return columnar::write_next_to_copies(lines, to, layout, job);
    }
    let converted = match layout.format {
        TableFormat::Parquet => {
            infer_columns(lines, layout).and_then(|columns| columnar::write(lines, to, &columns))
        }
        _ => bytes::compress(to, layout.compression, |out| write(lines, layout, out)),
    };
    converted.map_err(write_error(&job.output))
}

/// Writes lines as NDJSON, a JSON array, CSV or TSV.
fn write(lines: &File, layout: &OutputLayout, out: &mut dyn Write) -> io::Result<()> {
    if matches!(layout.format, TableFormat::Csv | TableFormat::Tsv) {
        let columns = infer_columns(lines, layout)?;
        return write_table(lines, &columns, CsvWriter::new(out, layout.delimiter));
    }
    let is_array = layout.format == TableFormat::Json;
    let mut before = if is_array { "[\n" } else { "" };
    for line in lines_of(lines)? {
        write!(out, "{before}{}", line?)?;
        before = if is_array { ",\n" } else { "\n" };
    }
    out.write_all(if is_array { b"\n]\n" } else { b"\n" })?;
    out.flush()
}

fn write_table(
    lines: &File,
    columns: &[OutputColumn],
    mut writer: CsvWriter<&mut dyn Write>,
) -> io::Result<()> {
    writer.write_row(columns.iter().map(|column| &column.name))?;
    let names = columns.iter().map(|column| column.name.as_str());
    let places: HashMap<&str, usize> = names.zip(0..).collect();
    let mut values = vec![String::new(); columns.len()];
    for line in lines_of(lines)? {
        values.iter_mut().for_each(String::clear);
        for (name, value) in members(&line?)?.0 {
            values[places[&*name]] = plain(value.get());
        }
        writer.write_row(&values)?;
    }
    writer.finish()?.flush()
}

/// Collects the columns from all lines: input columns in order of first appearance, then the added ones.
fn infer_columns(lines: &File, layout: &OutputLayout) -> io::Result<Vec<OutputColumn>> {
    let added = layout.added();
    let mut columns: Vec<OutputColumn> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for line in lines_of(lines)? {
        for (name, value) in members(&line?)?.0 {
            let inferred = Inferred::from_json(value.get());
            match places.get(&name) {
                Some(place) => columns[*place].merge(inferred),
                // Added columns come last, in a fixed order.
                None if added.contains(&name) => {}
                None => {
                    places.insert(name.clone(), columns.len());
                    columns.push(OutputColumn { name, inferred });
                }
            }
        }
    }
    columns.extend(added.into_iter().map(OutputColumn::added));
    Ok(columns)
}
