//! The box for SQL.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Value;

use super::{Failed, html};
use crate::display;
use crate::serve::listing::{Parameters, address};
use crate::serve::{Shared, ask};
use topicmill_store::analysis;

/// Rows of a page.
const ROWS: u64 = 200;
/// Characters of a cell.
const CELL: usize = 300;

#[derive(Template)]
#[template(path = "serve/sql.html")]
struct SqlPage {
    query: String,
    named: Vec<NamedQuery>,
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

/// Shows the box, and the answer to what was typed into it.
pub async fn page(State(serving): State<Shared>, asked: Parameters) -> Response {
    let mut status = StatusCode::OK;
    let mut error = None;
    let mut query = asked.get("query").unwrap_or_default().to_owned();
    if let (true, Some(name)) = (query.is_empty(), asked.get("named")) {
        match analysis::named(name) {
            Ok(sql) => query = sql,
            Err(unknown) => (status, error) = (StatusCode::BAD_REQUEST, Some(unknown.to_string())),
        }
    }
    let mut answer = None;
    if !query.is_empty() {
        match ask::answer(&serving, &query, ROWS).await {
            Ok(answered) => answer = Some(shown(&answered)),
            Err(Failed(code, said)) => (status, error) = (code, Some(said)),
        }
    }
    let page = SqlPage {
        query,
        named: named(),
        error,
        answer,
        secs: ask::LIMIT.as_secs(),
        rows: display::thousands(ask::ROWS),
    };
    html(status, &page)
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

fn shown(answered: &ask::QueryAnswer) -> Shown {
    let table = &answered.table;
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
        // The name of a column stands where its values stand.
        is_number: table.rows.iter().any(|row| row[at].is_number()),
        href: None,
    });
    Shown {
        columns: columns.collect(),
        rows,
        count: display::thousands(table.rows.len() as u64),
        is_cut: answered.is_cut,
    }
}
