//! `topicmill serve`: serves web pages to browse the database.

mod fitter;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use self::fitter::ReviewFitter;
use super::labels::login;
use super::metrics::{MetricsFlags, parse_address};
use super::report::database_name;
use super::share::parse_share;
use super::{App, CliError, Exit};
use crate::config::readable_by_others;
use topicmill_pages::serve::{ReviewOptions, ServeOptions, Server};
use topicmill_store::Access;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  topicmill serve
  topicmill serve --listen 0.0.0.0:8765 --token-file token.txt")]
pub struct Serve {
    /// Listen on ADDRESS [default: the setting `serve.listen`, which is 127.0.0.1:8765]
    ///
    /// ADDRESS is an IP address and a port; port 0 picks a free port. An address other than loopback needs a token, and
    /// so does a server behind a proxy.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    listen: Option<SocketAddr>,
    /// Require the token in FILE [default: the setting `serve.token`, if set]
    ///
    /// A token has 16 characters or more.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Let people label posts at /review, and store their gold labels
    #[arg(help_heading = "Review", long)]
    review: bool,
    /// With --review, set the annotator name if the page has none [default: your login name; asked with a token]
    #[arg(help_heading = "Review", long, requires = "review")]
    #[arg(value_name = "NAME")]
    annotator: Option<String>,
    /// With --review, sample SHARE of the posts at random
    ///
    /// Random posts give unbiased estimates; the rest are the closest calls.
    #[arg(help_heading = "Review", long, requires = "review")]
    #[arg(value_name = "SHARE", default_value_t = 0.2, value_parser = parse_share)]
    random_share: f64,
    #[command(flatten)]
    metrics: MetricsFlags,
}

impl Serve {
    pub async fn run(self, app: &App) -> Result<Exit, CliError> {
        let settings = app.settings();
        let listen = match self.listen {
            Some(listen) => listen,
            None => parse_address(&settings.serve.listen).map_err(CliError::Usage)?,
        };
        let token = match (&self.token_file, settings.serve.token.reveal()) {
            (Some(path), _) => Some(read_token(path)?),
            (None, "") => None,
            (None, token) => Some(token.to_owned()),
        };
        let options = ServeOptions {
            review: self.review_options(app, token.is_some()).await?,
            listen,
            token,
            database: database_name(settings.database.url.reveal()),
        };
        let store = tokio::select! {
            store = app.store(Access::ReadOnly) => store?,
            () = app.stop.cancelled() => return Ok(Exit::Done),
        };
        let clock = Arc::clone(&app.clock);
        let server = Server::bind(options, store, clock, app.stop.clone()).await?;
        let serving = async {
            let url = server.url();
            tracing::info!("open {url} in a browser; press Ctrl-C to stop the server");
            server.run().await;
            Ok::<_, CliError>(Exit::Done)
        };
        self.metrics.during(app, serving).await
    }

    /// Returns the options of the review page, with a connection that can write.
    async fn review_options(
        &self,
        app: &App,
        is_shared: bool,
    ) -> Result<Option<ReviewOptions>, CliError> {
        if !self.review {
            return Ok(None);
        }
        let store = app.store(Access::Existing).await?;
        // An answer that cannot be stored is lost work, so this fails at the start.
        store.gold().check_writable().await?;
        // Everybody who has the token can answer, so the page asks for a name.
        let user = || login().unwrap_or_else(|| "someone".to_owned());
        let default = || (!is_shared).then(user);
        Ok(Some(ReviewOptions {
            store,
            annotator: self.annotator.clone().or_else(default),
            random_share: self.random_share,
            fitter: Some(Arc::new(ReviewFitter(app.clone()))),
        }))
    }
}

/// Reads a token file, and warns if other users may read it.
fn read_token(path: &Path) -> Result<String, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let file = path.display();
        CliError::Usage(format!("cannot read the token file `{file}`: {error}"))
    })?;
    if let Some(warning) = readable_by_others(path) {
        tracing::warn!("{warning}");
    }
    Ok(text.trim().to_owned())
}
