//! `topicmill sql --schema`: describes tables, views and columns, without opening a database.

use serde_json::json;

use crate::cli::{CliError, OutputFormat, output, terminal};
use topicmill_store::Table;
use topicmill_store::analysis::schema::{Column, Relation, relation_named, relations};

/// Prints the columns of one table or view, or lists all tables and views if `name` is empty.
pub fn show(name: &str, format: OutputFormat) -> Result<(), CliError> {
    if !name.is_empty() {
        let relation = relation_named(name).map_err(|error| CliError::Usage(error.to_string()))?;
        return match format {
            OutputFormat::Json | OutputFormat::Ndjson => {
                output::print_json(&json!(relation), format)
            }
            OutputFormat::Csv => output::print_table(&columns(&[relation]), format),
            OutputFormat::Table => print_relation(&relation),
        };
    }
    let all = relations();
    match format {
        OutputFormat::Json => output::print_json(&json!(all), format),
        OutputFormat::Ndjson => all
            .iter()
            .try_for_each(|relation| output::print_json(&json!(relation), format)),
        OutputFormat::Csv => output::print_table(&columns(&all), format),
        OutputFormat::Table => {
            output::print(&output::wrapped_table(&list(&all)))?;
            let more = "`topicmill sql --schema NAME` shows the columns of one of them.";
            output::print(&format!("\n{}", terminal::wrap(more)))
        }
    }
}

/// Prints a table or view with its columns as human-readable text.
fn print_relation(relation: &Relation) -> Result<(), CliError> {
    let row = |column: &Column| json!([column.name, kind_of(column), column.meaning]);
    let columns = relation.columns.iter().map(row);
    let table = output::table(["column", "type", "meaning"], columns);
    let (name, kind, meaning) = (&relation.name, relation.kind, &relation.meaning);
    let heading = terminal::wrap(&format!("{kind} {name}: {meaning}"));
    output::print(&format!("{heading}\n"))?;
    output::print(&output::wrapped_table(&table))
}

fn kind_of(column: &Column) -> String {
    let null = if column.may_be_null { " or NULL" } else { "" };
    format!("{}{null}", column.kind)
}

fn list(all: &[Relation]) -> Table {
    let row = |relation: &Relation| json!([relation.name, relation.kind, relation.meaning]);
    output::table(["name", "kind", "meaning"], all.iter().map(row))
}

fn columns(all: &[Relation]) -> Table {
    let rows = all.iter().flat_map(|table| {
        table.columns.iter().map(move |column| {
            let (name, kind, meaning) = (&column.name, &column.kind, &column.meaning);
            let nullable = column.may_be_null;
            json!([table.name, table.kind, name, kind, nullable, meaning])
        })
    });
    let columns = ["table", "kind", "column", "type", "may_be_null", "meaning"];
    output::table(columns, rows)
}
