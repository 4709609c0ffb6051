//! The `--metrics-listen` flag, which serves metrics while a command runs.

use std::net::SocketAddr;

use clap::Args;

use super::{App, CliError};
use crate::metrics;
use topicmill_store::Access;

/// Flags of long-running commands.
#[derive(Debug, Clone, Args)]
pub struct MetricsFlags {
    /// Also serve Prometheus metrics at /metrics on ADDRESS
    ///
    /// ADDRESS is, for example, 127.0.0.1:9187; port 0 picks a free port.
    #[arg(hide_short_help = true, long, value_name = "ADDRESS", value_parser = parse_address)]
    metrics_listen: Option<SocketAddr>,
}

impl MetricsFlags {
    /// Serves metrics while `work` runs. The database must exist.
    pub async fn during<T>(
        &self,
        app: &App,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let Some(address) = self.metrics_listen else {
            return work.await;
        };
        // The store is a separate one, so that a scrape never blocks the work.
        let store = app.store(Access::ReadOnly).await?;
        let (metrics, clock) = (app.metrics.clone(), app.clock.clone());
        let max_attempts = app.settings().classify.max_attempts;
        let listening = metrics::serve(address, metrics, store, clock, max_attempts).await?;
        tracing::info!("serving metrics at http://{}/metrics", listening.address);
        let ended = work.await;
        listening.close().await;
        ended
    }
}

/// Parses an address to listen on; `localhost` is 127.0.0.1.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    address.parse().map_err(|_| {
        format!(
            "`{text}` is not an address to listen on: use an IP address and a port, such as 127.0.0.1:8765 or \
             [::1]:8765"
        )
    })
}
