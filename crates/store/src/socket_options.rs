//! Socket options for connections to PostgreSQL that sqlx 0.9.0 does not set.
//!
//! **No delay.** TCP holds back a small message until the previous one is acknowledged (Nagle's algorithm), and the
//! peer delays that by up to 40 ms. This happened at the end of each COPY and took a quarter of an import's time. The
//! next version of sqlx sets this option (<https://github.com/transact-rs/sqlx/pull/4336>).
//!
//! **Keepalive.** If the server loses power, or a network drops a connection's state, the connection is not closed, and
//! a client would wait forever. Keepalive probes detect that. The peer's operating system responds to them even during
//! a long statement, so only dead connections are closed.

#[cfg(unix)]
use std::{fs, net::SocketAddr, os::fd::BorrowedFd, time::Duration};

#[cfg(unix)]
use rustix::{io, net::getpeername, net::sockopt};

/// Idle time before the first probe, interval between probes, and number of probes. They add up to ten minutes, because
/// a network may be down for a while.
#[cfg(unix)]
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_mins(1), Duration::from_mins(1), 9);

/// Sets the options on all sockets of this process that are connected to `port`, because sqlx does not expose its own
/// sockets. The options are harmless for other sockets. Does nothing if the system does not list open files.
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
            reason = "sqlx does not expose its socket, so it is found by its number"
        )]
        // SAFETY: `number` is not -1. Another thread may close it and reuse the number at any time. The calls below
        // then fail, or set options on a different socket with this port. They access no memory and none of its owner's
        // data.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let peer = getpeername(file).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer.is_some_and(|peer| peer.port() == port) {
            // Without an option, the connection is slower or detects failures later, but still works.
            let _ = sockopt::set_tcp_nodelay(file, true);
            let _ = set_keepalive(file);
        }
    }
}

#[cfg(unix)]
fn set_keepalive(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (silence, pause, times) = KEEPALIVE;
    sockopt::set_tcp_keepidle(socket, silence)?;
    sockopt::set_tcp_keepintvl(socket, pause)?;
    sockopt::set_tcp_keepcnt(socket, times)?;
    sockopt::set_socket_keepalive(socket, true)
}

/// Does nothing: the system does not list open files.
#[cfg(not(unix))]
pub(super) fn set_options(_port: u16) {}
