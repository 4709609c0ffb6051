//! Returns what a user can do about an error of a driver.

use super::{ErrorClass, class_of, is_transient};

/// Running the command again is safe: each transaction is atomic, and each stage continues from what is stored.
const CONNECTION_LOST: &str = "; the connection to the server was lost: check that the server is running, then run the \
                               command again";

const NO_CONNECTION: &str = "; connecting timed out: check that the server is running, and that its connection \
                             limit is not reached (`max_connections`, `CONNECTION LIMIT` of the user or the database)";

/// Returns advice for a missing privilege.
pub(crate) fn privilege_advice(message: &str) -> &'static str {
    if message.contains("for schema ") {
        "have the owner of the database run `topicmill db create`, and then packaging/postgresql/roles.sql; or use a \
         database of your own"
    } else if message.contains("owner of ") {
        "run the command as that user, or as a member of that role"
    } else {
        "have its owner grant your user the privilege: packaging/postgresql/roles.sql has roles for collecting, \
         labelling, reviewing and reading"
    }
}

/// Returns advice if the server cancelled a valid query, or the connection was lost.
pub(crate) fn interruption_advice(error: &sqlx::Error) -> Option<&'static str> {
    match class_of(error) {
        ErrorClass::Ended => Some(
            "; the server cancelled it: raise `statement_timeout` of the user or the database, or query less",
        ),
        ErrorClass::Conflict => None,
        _ if matches!(error, sqlx::Error::PoolTimedOut) => Some(NO_CONNECTION),
        _ => is_transient(error).then_some(CONNECTION_LOST),
    }
}

/// Returns advice for a failed statement; empty if there is none.
pub(crate) fn advice(error: &sqlx::Error) -> &'static str {
    match error {
        sqlx::Error::Io(_) => CONNECTION_LOST,
        sqlx::Error::PoolTimedOut => NO_CONNECTION,
        error if class_of(error) == ErrorClass::Unavailable => CONNECTION_LOST,
        _ => "",
    }
}

/// Returns advice for a failed connection.
pub(crate) fn connect_advice(error: &sqlx::Error) -> &'static str {
    match class_of(error) {
        ErrorClass::NoDatabase => "it does not exist; `topicmill db create` creates it",
        ErrorClass::Login => "the server rejected the user or the password",
        ErrorClass::TooManyConnections => {
            "the server's connection limit is reached; try again later"
        }
        _ if error.as_database_error().is_some() => "the server rejected the connection",
        _ if matches!(error, sqlx::Error::Tls(_)) => {
            "the server offers no TLS, or its certificate is not trusted; `sslmode` and `sslrootcert` in the URL say \
             what is required"
        }
        _ => "is the server running, and are the host and the port right?",
    }
}

#[cfg(test)]
mod tests {
    use crate::StoreError;

    #[test]
    fn a_lost_connection_is_reported_with_advice() {
        let what = "store posts";
        let message = |source| StoreError::Statement { what, source }.to_string();
        let lost = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        assert!(message(lost).ends_with("then run the command again"));
        assert!(message(sqlx::Error::RowNotFound).ends_with(&sqlx::Error::RowNotFound.to_string()));
    }

    #[test]
    fn a_user_who_may_not_create_tables_is_referred_to_the_owner() {
        let denied = StoreError::Denied("permission denied for schema public".to_owned());
        let message = denied.to_string();
        for advice in ["`topicmill db create`", "roles.sql"] {
            assert!(message.contains(advice), "{message}");
        }
    }
}
