//! A TCP listener that limits connections and their idle time.
//!
//! It limits the number of open connections, in total and per address, and closes a connection if a request or a
//! response makes no progress within a timeout. This protects the server from slow or excessive clients.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time limit for receiving and answering a request, and between writes to a response. It is longer than the slowest
/// response takes, but short enough to keep slow clients from exhausting the connections.
const IO_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum number of open connections. A browser opens six, and the usual limit on open files is 1,024.
const MAX_CONNECTIONS: usize = 256;
/// Maximum number of open connections per address.
const MAX_PER_ADDRESS: usize = MAX_CONNECTIONS / 2;

/// Number of open connections by address.
type Open = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// A TCP listener with limits on connections.
pub struct LimitedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    open: Open,
}

impl LimitedListener {
    /// Binds to an address and returns the listener with its actual address. `flag` is the command-line flag that set
    /// the address, for error messages.
    ///
    /// # Errors
    /// Returns [`BindError`] if the operating system rejects the address.
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
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let open = Open::default();
        let listener = Self {
            listener,
            permits,
            open,
        };
        Ok((listener, address))
    }
}

/// An error that occurs when binding to an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {hint}")]
pub struct BindError {
    address: SocketAddr,
    hint: String,
    source: io::Error,
}

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

impl Listener for LimitedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            // The permit is acquired before `accept` so that excess connections wait in the kernel's queue and use
            // no file descriptor here.
            let permit = Arc::clone(&self.permits).acquire_owned().await;
            let (stream, address) = Listener::accept(&mut self.listener).await;
            let Some(address_permit) = AddressPermit::new(&self.open, address.ip()) else {
                continue;
            };
            // Responses are written in one piece, so Nagle's algorithm would only delay them.
            drop(stream.set_nodelay(true));
            let connection = Connection {
                stream,
                timeout: new_timeout(),
                has_responded: true,
                _address_permit: address_permit,
                _permit: permit.expect("the semaphore is never closed"),
            };
            return (connection, address);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// An accepted connection.
pub struct Connection {
    stream: TcpStream,
    timeout: Pin<Box<tokio::time::Sleep>>,
    /// True if a response was written after the last received byte.
    has_responded: bool,
    _address_permit: AddressPermit,
    _permit: OwnedSemaphorePermit,
}

/// Counts a connection from an address until dropped.
struct AddressPermit(Open, IpAddr);

impl AddressPermit {
    /// Returns `None` if the address has too many connections.
    fn new(open: &Open, address: IpAddr) -> Option<Self> {
        let mut counts = open.lock().expect("no code panics while holding this lock");
        let count = counts.entry(address).or_default();
        if *count == MAX_PER_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Self(Arc::clone(open), address))
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        let mut counts = self
            .0
            .lock()
            .expect("no code panics while holding this lock");
        let left = counts.get(&self.1).map_or(0, |count| count - 1);
        if left == 0 {
            counts.remove(&self.1);
        } else {
            counts.insert(self.1, left);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a network timeout in real time, which a test clock must not skip"
)]
fn new_timeout() -> Pin<Box<tokio::time::Sleep>> {
    Box::pin(tokio::time::sleep(IO_TIMEOUT))
}

impl Connection {
    /// Returns the result of a read or write, or an error after the timeout. The first byte of a request starts the
    /// timer, and later bytes do not extend it; every write restarts it.
    fn with_timeout<T>(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<T>>,
        is_write: bool,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() && (is_write || self.has_responded) {
            self.timeout = new_timeout();
            self.has_responded = is_write;
        }
        if result.is_ready() {
            return result;
        }
        // I/O is pending, so the timer is polled; this lets it wake the task.
        ready!(self.timeout.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.with_timeout(cx, result, false)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.with_timeout(cx, result, true)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_address_cannot_use_all_connections() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (mut listener, address) = LimitedListener::bind(any, "--listen").await.unwrap();
        let (open, permits) = (Arc::clone(&listener.open), Arc::clone(&listener.permits));
        tokio::spawn(async move {
            let mut accepted = Vec::new();
            loop {
                accepted.push(listener.accept().await);
            }
        });
        let mut one = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            one.push(TcpStream::connect(address).await.unwrap());
        }
        let other = tokio::net::TcpSocket::new_v4().unwrap();
        other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let _other = other.connect(address).await.unwrap();
        let counted = |of: [u8; 4]| open.lock().unwrap().get(&IpAddr::from(of)).copied();
        while counted([127, 0, 0, 2]).is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(counted([127, 0, 0, 1]), Some(MAX_PER_ADDRESS));
        assert!(permits.available_permits() >= MAX_PER_ADDRESS - 2);
    }
}
