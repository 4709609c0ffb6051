//! Creates sources from settings.

use super::arctic_shift::{ArcticShift, ArcticShiftSettings};
use super::error::SourceError;
use super::reddit::{Reddit, RedditSettings};
use super::sample::SampleReddit;
use super::source::Source;
use topicmill_core::SourceKind;
use topicmill_core::clock::SharedClock;

/// The settings for all sources, which the caller fills in from the configuration.
#[derive(Debug, Clone)]
pub struct SourceSettings {
    /// Settings for Reddit, and for the sample Reddit's client.
    pub reddit: RedditSettings,
    /// Settings for Arctic Shift.
    pub arctic_shift: ArcticShiftSettings,
}

/// Creates a source of this kind. Sends nothing yet.
///
/// # Errors
/// Returns an error for an invalid setting, and [`SourceError::NotCollectable`] for files.
pub async fn open(
    kind: SourceKind,
    settings: SourceSettings,
    clock: SharedClock,
) -> Result<Box<dyn Source>, SourceError> {
    Ok(match kind {
        SourceKind::Reddit => Box::new(Reddit::new(settings.reddit, kind, clock)?),
        SourceKind::Sample => Box::new(sample(settings.reddit, clock).await?),
        SourceKind::ArcticShift => Box::new(ArcticShift::new(&settings.arctic_shift, clock)?),
        SourceKind::Import => return Err(SourceError::NotCollectable),
    })
}

/// Starts the sample Reddit and returns a client that keeps the server alive. The base URLs and the credentials in the
/// settings are replaced.
///
/// # Errors
/// Returns an error if the loopback interface has no free port, or a setting is invalid.
pub async fn sample(
    mut settings: RedditSettings,
    clock: SharedClock,
) -> Result<Reddit, SourceError> {
    let started = SampleReddit::start(clock.now().into()).await;
    let server = started.map_err(SourceError::Sample)?;
    settings.auth_url = server.api_url();
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
    Ok(Reddit::new(settings, SourceKind::Sample, clock)?.keeping_alive(server))
}
