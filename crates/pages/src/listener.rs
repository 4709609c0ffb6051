//! Connections that are patient, but not for ever: a request must come and be answered in a minute, an answer must be read
//! without such a rest, and only so many connections are open at once, of one address half of them.

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

/// Longer than the longest answer takes, and short enough that clients that send a byte an hour take no place.
const PATIENCE: Duration = Duration::from_mins(1);
/// Connections at once; a browser opens six, and systems let a process have 1,024 files.
const CONNECTIONS: usize = 256;
/// Connections of one address: the others are for other addresses.
const OF_ONE: usize = CONNECTIONS / 2;

/// Open connections of each address.
type Open = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// Takes connections.
pub struct LimitedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    open: Open,
}

impl LimitedListener {
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
        let open = Open::default();
        let listener = Self {
            listener,
            places,
            open,
        };
        Ok((listener, address))
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

impl Listener for LimitedListener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            // Before `accept`: without a place, further connections wait in the system's queue and take no file here.
            let place = Arc::clone(&self.places).acquire_owned().await;
            let (stream, address) = Listener::accept(&mut self.listener).await;
            let Some(of_one) = OfOne::new(&self.open, address.ip()) else {
                continue;
            };
            // An answer is written at once; waiting for more would only delay it.
            drop(stream.set_nodelay(true));
            let connection = Connection {
                stream,
                patience: patience(),
                has_answered: true,
                _of_one: of_one,
                _place: place.expect("nobody closes the semaphore"),
            };
            return (connection, address);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection.
pub struct Connection {
    stream: TcpStream,
    patience: Pin<Box<tokio::time::Sleep>>,
    /// Whether an answer was written since a byte came.
    has_answered: bool,
    _of_one: OfOne,
    _place: OwnedSemaphorePermit,
}

/// A connection of an address, counted until it is closed.
struct OfOne(Open, IpAddr);

impl OfOne {
    /// `None` where the address has too many.
    fn new(open: &Open, address: IpAddr) -> Option<Self> {
        let mut counts = open.lock().expect("no holder of this lock panics");
        let count = counts.entry(address).or_default();
        if *count == OF_ONE {
            return None;
        }
        *count += 1;
        Some(Self(Arc::clone(open), address))
    }
}

impl Drop for OfOne {
    fn drop(&mut self) {
        let mut counts = self.0.lock().expect("no holder of this lock panics");
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
    reason = "a real wait for another program; no clock of a test may skip it"
)]
fn patience() -> Pin<Box<tokio::time::Sleep>> {
    Box::pin(tokio::time::sleep(PATIENCE))
}

impl Connection {
    /// What came of trying to move bytes: an error where an answer took too long. The first byte of a request begins its
    /// time, the others do not lengthen it.
    fn moved<T>(
        &mut self,
        cx: &mut Context<'_>,
        moved: Poll<io::Result<T>>,
        is_answer: bool,
    ) -> Poll<io::Result<T>> {
        if moved.is_ready() && (is_answer || self.has_answered) {
            self.patience = patience();
            self.has_answered = is_answer;
        }
        if moved.is_ready() {
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
        self.moved(cx, moved, false)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let moved = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.moved(cx, moved, true)
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
    async fn one_address_leaves_places_for_others() {
        let any = "127.0.0.1:0".parse().unwrap();
        let (mut patient, address) = LimitedListener::bind(any, "--listen").await.unwrap();
        let (open, places) = (Arc::clone(&patient.open), Arc::clone(&patient.places));
        tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                taken.push(patient.accept().await);
            }
        });
        let mut one = Vec::new();
        for _ in 0..CONNECTIONS {
            one.push(TcpStream::connect(address).await.unwrap());
        }
        let other = tokio::net::TcpSocket::new_v4().unwrap();
        other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let _other = other.connect(address).await.unwrap();
        let counted = |of: [u8; 4]| open.lock().unwrap().get(&IpAddr::from(of)).copied();
        while counted([127, 0, 0, 2]).is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(counted([127, 0, 0, 1]), Some(OF_ONE));
        assert!(places.available_permits() >= OF_ONE - 2);
    }
}
