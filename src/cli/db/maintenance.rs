//! `topicmill db backup`, `db check` and `db copy`.

use std::path::Path;

use serde_json::json;

use crate::atomic_file::IfExists;
use crate::backup;
use crate::cli::{App, CliError, Exit, OutputFormat, output, terminal};
use crate::telemetry::Progress;
use topicmill_core::redact_url;
use topicmill_store::checking::Finding;
use topicmill_store::{Access, Address, Store, StoreError};

pub async fn backup(app: &App, file: &Path, if_exists: IfExists) -> Result<Exit, CliError> {
    let store = tokio::select! {
        store = app.store(Access::AnySchema) => store?,
        () = app.stop.cancelled() => return Ok(Exit::Done),
    };
    let address = Address::parse(app.settings().database.url.reveal())?;
    let copied = backup::backup(&store, &address, file, if_exists, &app.stop).await;
    let closed = store.close().await;
    if copied? {
        closed?;
        tracing::info!(file = %file.display(), "wrote a copy of the database");
    } else {
        tracing::warn!(file = %file.display(), "the backup was stopped; no file was written");
    }
    Ok(Exit::Done)
}

pub async fn check(app: &App, format: OutputFormat) -> Result<Exit, CliError> {
    let store = app.store(Access::ReadOnly).await?;
    let bar = Progress::counter("check", "");
    let found = store.check(&|what| bar.note(what)).await?;
    drop(bar);
    store.close().await?;
    print_findings(&found, format)?;
    Ok(Exit::done_if(found.is_empty()))
}

fn print_findings(found: &[Finding], format: OutputFormat) -> Result<(), CliError> {
    if format == OutputFormat::Table {
        let paragraph = |finding: &Finding| {
            let (check, count) = (finding.check, output::thousands(finding.count));
            let problem = format!("problem: {check} ({count}): {}.", finding.meaning);
            let fix = format!("Fix: {}.", finding.remedy);
            format!("{}{}\n", terminal::wrap(&problem), terminal::wrap(&fix))
        };
        let mut text: String = found.iter().map(paragraph).collect();
        text += match found {
            [] => "ok: the database has no problems\n",
            _ => "the database has problems\n",
        };
        return output::print(&text);
    }
    let row = |found: &Finding| json!([found.check, found.count, found.meaning, found.remedy]);
    let columns = ["check", "count", "meaning", "remedy"];
    output::print_table(&output::table(columns, found.iter().map(row)), format)
}

pub async fn copy(from: &str, to: &str, format: OutputFormat) -> Result<Exit, CliError> {
    // Invalid URLs are rejected before anything is created.
    if !matches!(
        (Address::parse(from)?, Address::parse(to)?),
        (Address::File(_), Address::Server)
    ) {
        return Err(StoreError::NotSqliteToPostgres.into());
    }
    let source = Store::open(from, Access::ReadOnly).await?;
    let running = source.runs().unfinished_runs().await?;
    let alive = running.iter().filter(|run| run.is_alive()).count();
    if alive > 0 {
        tracing::warn!(
            runs = alive,
            "runs are in progress: the copy is a snapshot and does not contain what they write from now on"
        );
    }
    let target = Store::open(to, Access::Create).await?;
    let bar = Progress::counter("copy", "");
    let copied = source
        .copy_to(&target, &|table, rows| {
            bar.note(&format!("{table}: {}", output::thousands(rows)));
        })
        .await;
    drop(bar);
    let closed = [source.close().await, target.close().await];
    let rows = copied?.into_iter();
    let rows = rows.map(|copy| json!([copy.table, copy.rows]));
    output::print_table(&output::table(["table", "rows"], rows), format)?;
    closed.into_iter().collect::<Result<(), _>>()?;
    tracing::info!(to = %redact_url(to), "copied all tables");
    Ok(Exit::Done)
}
