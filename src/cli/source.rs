//! Chooses the source that a command reads: the flag's, else the setting's, else Reddit if its credentials are set.

use clap::Args;

use super::{App, CliError};
use topicmill_core::SourceKind;
use topicmill_sources::Source;

/// The flag that chooses a source.
#[derive(Debug, Clone, Default, Args)]
pub struct SourceFlag {
    /// Read from SOURCE: reddit, arctic-shift or sample [default: collect.source]
    ///
    /// reddit needs a key; arctic-shift is an archive and needs none; sample contains sample posts. By default, Reddit
    /// is read if its credentials are set, and Arctic Shift otherwise.
    #[arg(long, value_name = "SOURCE", value_parser = parse)]
    pub source: Option<SourceKind>,
}

impl SourceFlag {
    /// Returns the source, and the reason for choosing it, which follows "reading from …,".
    pub fn choose(&self, app: &App) -> (SourceKind, String) {
        if let Some(kind) = self.source {
            return (kind, "as requested".to_owned());
        }
        if let Some(kind) = app.settings().collect.source {
            let origin = app.loaded.origin("collect.source");
            return (kind, format!("as `collect.source` says in {origin}"));
        }
        let reddit = &app.settings().reddit;
        // The user agent is no credential, because the archive receives it too. One of these is enough: if another is
        // missing, reading a different source without notice would be worse than the error.
        let credentials = [
            reddit.client_id.as_str(),
            reddit.client_secret.reveal(),
            reddit.username.as_str(),
            reddit.password.reveal(),
        ];
        if credentials.iter().any(|text| !text.is_empty()) {
            let why = "because Reddit credentials are set";
            (SourceKind::Reddit, why.to_owned())
        } else {
            let why = "because no Reddit credentials are set";
            (SourceKind::ArcticShift, why.to_owned())
        }
    }

    /// Chooses the source and logs the choice.
    pub fn choose_and_log(&self, app: &App) -> SourceKind {
        let (source, why) = self.choose(app);
        tracing::info!("reading from {source}, {why}");
        source
    }
}

/// Opens a source. No request is sent yet.
pub async fn open(app: &App, source: SourceKind) -> Result<Box<dyn Source>, CliError> {
    Ok(topicmill_sources::open(source, app.source_settings(), app.clock.clone()).await?)
}

fn parse(word: &str) -> Result<SourceKind, String> {
    SourceKind::parse_collectable(word).map_err(|error| error.to_string())
}
