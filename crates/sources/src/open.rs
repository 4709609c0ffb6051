//! Makes a source of what the settings say.

use super::arctic_shift::{ArcticShift, ArcticShiftSettings};
use super::error::SourceError;
use super::page::Source;
use super::reddit::{Reddit, RedditSettings};
use super::sample::SampleReddit;
use topicmill_core::SourceKind;
use topicmill_core::clock::SharedClock;

/// The settings of all sources; plain values, filled from the configuration by the caller.
#[derive(Debug, Clone)]
pub struct SourceSettings {
    /// For Reddit, and for the client that reads the sample Reddit.
    pub reddit: RedditSettings,
    /// For the archive.
    pub arctic_shift: ArcticShiftSettings,
}

/// Makes the source of this kind. Nothing is sent yet.
///
/// # Errors
/// A setting that cannot work, and [`SourceError::Files`] for what has nothing to collect from.
pub async fn open(
    kind: SourceKind,
    settings: SourceSettings,
    clock: SharedClock,
) -> Result<Box<dyn Source>, SourceError> {
    Ok(match kind {
        SourceKind::Reddit => Box::new(Reddit::new(settings.reddit, kind, clock)?),
        SourceKind::Sample => Box::new(sample(settings.reddit, clock).await?),
        SourceKind::ArcticShift => Box::new(ArcticShift::new(&settings.arctic_shift, clock)?),
        SourceKind::Import => return Err(SourceError::Files),
    })
}

/// The client of the sample Reddit, which serves while the client is held: the one of the settings, only the base URLs
/// and the credentials differ.
///
/// # Errors
/// If the loopback interface has no free port, or a setting cannot work.
pub async fn sample(
    mut settings: RedditSettings,
    clock: SharedClock,
) -> Result<Reddit, SourceError> {
    let started = SampleReddit::start(clock.now().into()).await;
    let server = started.map_err(SourceError::Sample)?;
    settings.auth_url = server.auth_url();
    settings.api_url = server.api_url();
    settings.client_id = "sample".into();
    settings.client_secret = "sample".into();
    settings.username.clear();
    settings.client.user_agent = concat!(
        "linux:topicmill:",
        env!("CARGO_PKG_VERSION"),
        " (by /u/sample)"
    )
    .into();
    Ok(Reddit::new(settings, SourceKind::Sample, clock)?.holding(server))
}
