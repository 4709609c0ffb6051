//! Socket options for connections to PostgreSQL that sqlx 0.9.0 does not set.
//!
//! **They send at once.** TCP holds a small message back until the other side has acknowledged the one before (Nagle's
//! algorithm), and that side waits up to 40 ms with it: the end of each COPY waited that long, a quarter of an import.
//! The next version of sqlx switches it off (<https://github.com/transact-rs/sqlx/pull/4336>).
//!
//! **They notice that the server is gone.** A server that loses its power, or a network that drops what it knows of a
//! connection, says nothing, and whoever waits for an answer would wait for ever. The system asks now and then whether
//! the other side is there. It answers while a long statement runs, too, so nothing that works is cut off.

#[cfg(unix)]
use std::{fs, net::SocketAddr, os::fd::BorrowedFd, time::Duration};

#[cfg(unix)]
use rustix::{io, net::getpeername, net::sockopt};

/// After how much silence the system asks whether the other side is there, how long it waits for each answer, and how
/// many times it asks before it gives up: ten minutes in all, so that a network may be away for a while.
#[cfg(unix)]
const ASKS: (Duration, Duration, u32) = (Duration::from_mins(1), Duration::from_mins(1), 9);

/// Sets the options of the sockets of this process that are connected to `port` of any host: sqlx does not say which
/// one is its own, and they do no other one harm. Does nothing where the system does not list them.
#[cfg(unix)]
pub(super) fn set_options(port: u16) {
    let Ok(open) = fs::read_dir("/dev/fd") else {
        return;
    };
    let open: Vec<i32> = open
        .filter_map(|file| file.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in open {
        #[expect(
            unsafe_code,
            reason = "sqlx lends its socket to nobody, and a number is the only other name that a socket has"
        )]
        // SAFETY: `number` is not -1. Another thread may close it meanwhile, and open something else under it: then the
        // calls below fail, or set options of another socket to this port. None reads or writes memory or data of its
        // owner.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let peer = getpeername(file).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer.is_some_and(|peer| peer.port() == port) {
            // What fails is slower, or waits for longer, and no less right.
            let _ = sockopt::set_tcp_nodelay(file, true);
            let _ = keep_asking(file);
        }
    }
}

#[cfg(unix)]
fn keep_asking(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (silence, pause, times) = ASKS;
    sockopt::set_tcp_keepidle(socket, silence)?;
    sockopt::set_tcp_keepintvl(socket, pause)?;
    sockopt::set_tcp_keepcnt(socket, times)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// Does nothing: the system does not list them.
#[cfg(not(unix))]
pub(super) fn set_options(_port: u16) {}
