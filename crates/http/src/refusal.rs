//! Finds the failures that a retry does not change.

use std::error::Error;
use std::{fmt, io};

/// A reason why a server cannot be reached that a retry does not change.
#[derive(Debug)]
pub enum Refusal {
    /// A certificate was rejected, for this reason.
    Certificate(String),
    /// The proxy rejected the login, or requires one.
    ProxyLogin,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(why) => write!(
                f,
                "the TLS certificate was rejected ({why}); if your organisation's proxy signs it, name the file of its \
                 CA certificates in SSL_CERT_FILE"
            ),
            Self::ProxyLogin => f.write_str(
                "the proxy requires a user and a password: write it as `http://user:password@host:port`, and `@` in \
                 the password as `%40`",
            ),
        }
    }
}

impl Refusal {
    /// Returns the refusal among the causes of an error.
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        // An I/O error's source is not the error that it wraps, but the source of that one.
        if let Some(inner) = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            return Self::of(inner);
        }
        match error.downcast_ref::<rustls::Error>() {
            Some(rustls::Error::InvalidCertificate(why)) => {
                Some(Self::Certificate(why.to_string()))
            }
            // The type of this error is private.
            _ if error.to_string() == "tunnel error: proxy authorization required" => {
                Some(Self::ProxyLogin)
            }
            _ => Self::of(error.source()?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_certificate_is_found_in_nested_errors() {
        let rejected = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let nested = io::Error::other(io::Error::other(rejected));
        assert!(matches!(
            Refusal::of(&nested),
            Some(Refusal::Certificate(_))
        ));
        assert!(Refusal::of(&io::Error::other("reset")).is_none());
    }
}
