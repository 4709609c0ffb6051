//! The page with a SQL box and a description of the views and tables.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::{PageError, html};
use crate::display;
use crate::serve::listing::{Parameters, address};
use crate::serve::{Shared, query};
use topicmill_store::analysis;
use topicmill_store::analysis::schema::{self, Column};

/// Maximum number of rows on the page.
const ROWS: u64 = 200;
/// Maximum number of characters in a cell.
const CELL: usize = 300;

#[derive(Template)]
#[template(path = "serve/sql.html")]
struct SqlPage {
    query: String,
    named: Vec<NamedQuery>,
    views: Vec<Described>,
    tables: Vec<Described>,
    error: Option<String>,
    answer: Option<Shown>,
    secs: u64,
    rows: String,
}

struct NamedQuery {
    name: String,
    answers: String,
    href: String,
}

/// A view or a table, and its columns.
struct Described {
    name: String,
    meaning: Vec<Word>,
    /// URL for a query that shows some rows.
    href: String,
    columns: Vec<DescribedColumn>,
}

struct DescribedColumn {
    name: String,
    kind: String,
    meaning: Vec<Word>,
}

/// A part of a sentence.
struct Word {
    text: String,
    is_code: bool,
}

struct Shown {
    columns: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    count: String,
    is_cut: bool,
}

struct Cell {
    text: String,
    is_number: bool,
    href: Option<String>,
}

/// Renders the SQL box and the query's result.
pub async fn page(State(serving): State<Shared>, parameters: Parameters) -> Response {
    let mut status = StatusCode::OK;
    let mut error = None;
    let mut sql = parameters.get("query").unwrap_or_default().to_owned();
    if let (true, Some(name)) = (sql.is_empty(), parameters.get("named")) {
        match analysis::named(name) {
            Ok(named) => sql = named,
            Err(unknown) => (status, error) = (StatusCode::BAD_REQUEST, Some(unknown.to_string())),
        }
    }
    let mut answer = None;
    if !sql.is_empty() {
        match query::run_query(&serving, &sql, ROWS).await {
            Ok(result) => answer = Some(shown(&result)),
            Err(PageError(code, message)) => (status, error) = (code, Some(message)),
        }
    }
    let page = SqlPage {
        query: sql,
        named: named(),
        views: described("view"),
        tables: described("table"),
        error,
        answer,
        secs: query::TIMEOUT.as_secs(),
        rows: display::thousands(query::MAX_ROWS),
    };
    html(status, &page)
}

/// Describes the tables or the views, using the comments from the schema.
fn described(kind: &str) -> Vec<Described> {
    let column = |column: Column| DescribedColumn {
        name: column.name,
        kind: if column.may_be_null {
            format!("{} or NULL", column.kind)
        } else {
            column.kind
        },
        meaning: words(&column.meaning),
    };
    let relations = schema::relations().into_iter();
    let relations = relations.filter(|relation| relation.kind == kind);
    relations
        .map(|relation| {
            let query = format!("SELECT * FROM {} LIMIT 50", relation.name);
            Described {
                href: address("/sql", [("query", query.as_str())].into_iter()),
                meaning: words(&relation.meaning),
                columns: relation.columns.into_iter().map(column).collect(),
                name: relation.name,
            }
        })
        .collect()
}

/// Splits a comment into text and code. Code is between backticks. Leaves out references to pages in docs/.
fn words(comment: &str) -> Vec<Word> {
    let mut text = String::new();
    let mut rest = comment;
    while let Some((before, after)) = rest.split_once(" (docs/") {
        text += before;
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text += rest;
    let words = text.split('`').enumerate();
    let words = words.map(|(at, text)| Word {
        text: text.to_owned(),
        is_code: at % 2 == 1,
    });
    words.collect()
}

fn named() -> Vec<NamedQuery> {
    let text = |row: &[Value], i: usize| row[i].as_str().unwrap_or_default().to_owned();
    let list = analysis::list();
    let named = list.rows.iter().map(|row| NamedQuery {
        href: address("/sql", [("named", text(row, 0).as_str())].into_iter()),
        name: text(row, 0),
        answers: text(row, 1),
    });
    named.collect()
}

fn shown(result: &query::QueryResult) -> Shown {
    let table = &result.table;
    let is_name: Vec<bool> = table
        .columns
        .iter()
        .map(|name| name == "fullname")
        .collect();
    let cell = |value: &Value, is_name: bool| {
        let text = match value {
            Value::Null => String::new(),
            Value::String(text) => display::single_line(text, CELL),
            Value::Number(number) if number.is_f64() => {
                let float = number.as_f64().unwrap_or_default();
                format!("{float:.4}")
                    .trim_end_matches('0')
                    .trim_end_matches('.')
                    .to_owned()
            }
            other => other.to_string(),
        };
        let href = (is_name && text.starts_with("t3_")).then(|| format!("/posts/{text}"));
        Cell {
            href,
            is_number: value.is_number(),
            text,
        }
    };
    let rows: Vec<Vec<Cell>> = table
        .rows
        .iter()
        .map(|row| {
            let cells = row.iter().zip(&is_name);
            cells
                .map(|(value, is_name)| cell(value, *is_name))
                .collect()
        })
        .collect();
    let names = table.columns.iter().enumerate();
    let columns = names.map(|(at, name)| Cell {
        text: display::single_line(name, 80),
        // Column names are aligned like their values.
        is_number: table.rows.iter().any(|row| row[at].is_number()),
        href: None,
    });
    Shown {
        columns: columns.collect(),
        rows,
        count: display::thousands(table.rows.len() as u64),
        is_cut: result.is_cut,
    }
}
