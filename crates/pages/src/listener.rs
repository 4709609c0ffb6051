//! Serves HTTP/1.1 with limits that keep slow clients from blocking others.
//!
//! A connection serves one request and ends within a fixed time, and the number of open connections is limited. Excess
//! connections wait in the kernel's queue.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Time limit for receiving the head of a request: hyper's default. A head has a few hundred bytes, so that only a client
/// that stalls takes longer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for a connection. The slowest response, the first overview of a million posts, takes 10 s
/// (`benches/results/serve.md`); the rest is for larger databases and slow networks.
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum number of open connections. A browser opens six, and the usual limit on open files is 1,024.
const MAX_CONNECTIONS: usize = 256;

/// Binds to an address and returns the listener with its actual address. `flag` is the command-line flag that set the
/// address, for error messages.
///
/// # Errors
/// Returns [`BindError`] if the operating system rejects the address.
pub async fn bind(
    address: SocketAddr,
    flag: &'static str,
) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |source: io::Error| BindError {
        address,
        hint: hint(source.kind(), flag),
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Serves requests until `stop` completes, and then until the pending responses have been sent.
pub async fn serve(mut listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let open = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        let accept = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, Listener::accept(&mut listener).await)
        };
        let (permit, (stream, _)) = tokio::select! {
            accepted = accept => accepted,
            () = &mut stop => break,
        };
        // Responses are written in one piece, so Nagle's algorithm would only delay them.
        drop(stream.set_nodelay(true));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .keep_alive(false)
            .serve_connection(
                TokioIo::new(stream),
                TowerToHyperService::new(router.clone()),
            );
        let connection = open.watch(connection);
        tokio::spawn(async move {
            // An error means that the client is slow or gone.
            drop(tokio::time::timeout(CONNECTION_TIMEOUT, connection).await);
            drop(permit);
        });
    }
    open.shutdown().await;
}

/// An error that occurs when binding to an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {hint}")]
pub struct BindError {
    address: SocketAddr,
    hint: String,
    source: io::Error,
}

/// Returns what to do about an address that the operating system rejects.
fn hint(kind: io::ErrorKind, flag: &str) -> String {
    match kind {
        io::ErrorKind::AddrInUse => format!(
            "the port is in use, perhaps by another topicmill process; stop it, or choose a different port with {flag}"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine does not have this address; choose one that it has with {flag}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("permission denied; choose a port of 1024 or more with {flag}")
        }
        _ => "the operating system rejected the address".to_owned(),
    }
}
