//! Connections that are patient, but not for ever: one on which nothing moves for a while is closed, and only so many are
//! open at once.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Longer than the longest answer takes, and short enough that clients that send a byte an hour take no place.
const PATIENCE: Duration = Duration::from_mins(1);
/// Connections at once; a browser opens six, and systems let a process have 1,024 files.
const CONNECTIONS: usize = 256;

/// Takes connections.
pub struct Patient {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Patient {
    /// Listens on an address, which `flag` gave; with the address that it got.
    ///
    /// # Errors
    /// Those of the system, with what to do.
    pub async fn bind(
        address: SocketAddr,
        flag: &'static str,
    ) -> Result<(Self, SocketAddr), BindError> {
        let failed = |source: io::Error| BindError {
            address,
            hint: hint(source.kind(), flag),
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        Ok((Self { listener, places }, address))
    }
}

/// An address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address}: {hint}")]
pub struct BindError {
    address: SocketAddr,
    hint: String,
    source: io::Error,
}

fn hint(kind: io::ErrorKind, flag: &str) -> String {
    match kind {
        io::ErrorKind::AddrInUse => format!(
            "another program listens there, perhaps another topicmill; end it, or give another port with {flag}"
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address; give one of its own with {flag}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("you may not; give a port of 1024 or more with {flag}")
        }
        _ => "the system refuses".to_owned(),
    }
}

impl Listener for Patient {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Before `accept`: without a place, further connections wait in the system's queue and take no file here.
        let place = Arc::clone(&self.places).acquire_owned().await;
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // An answer is written at once; waiting for more would only delay it.
        drop(stream.set_nodelay(true));
        let connection = Connection {
            stream,
            patience: patience(),
            _place: place.expect("nobody closes the semaphore"),
        };
        (connection, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection.
pub struct Connection {
    stream: TcpStream,
    patience: Pin<Box<tokio::time::Sleep>>,
    _place: OwnedSemaphorePermit,
}

#[expect(
    clippy::disallowed_methods,
    reason = "a real wait for another program; no clock of a test may skip it"
)]
fn patience() -> Pin<Box<tokio::time::Sleep>> {
    Box::pin(tokio::time::sleep(PATIENCE))
}

impl Connection {
    /// What came of trying to move bytes: an error where nothing moved for too long.
    fn moved<T>(
        &mut self,
        cx: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            self.patience = patience();
            return moved;
        }
        // Polled only where no byte moves, so that the timer wakes the task then.
        ready!(self.patience.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let moved = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.moved(cx, moved)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.moved(cx, moved)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
