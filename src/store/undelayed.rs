//! Connections to PostgreSQL that send at once.
//!
//! TCP holds a small message back until the other side has acknowledged the one before (Nagle's algorithm), and that side
//! waits up to 40 ms with it. sqlx 0.9.0 leaves this on, so the end of each COPY waited that long: a quarter of an import. The
//! next version of sqlx switches it off (<https://github.com/transact-rs/sqlx/pull/4336>), and then this file can go.

#[cfg(unix)]
use std::{fs, net::SocketAddr, os::fd::BorrowedFd};

#[cfg(unix)]
use rustix::net::{getpeername, sockopt::set_tcp_nodelay};

/// Switches the delay off for the sockets of this process that are connected to `port` of any host: sqlx does not say which
/// one is its own, and none of them gains from the delay. Does nothing where the system does not list them.
#[cfg(unix)]
pub(super) fn send_at_once(port: u16) {
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
        // SAFETY: `number` is not -1. Another thread may close it meanwhile, and open something else under it: then the two calls
        // below fail, or set the option of another socket to this port. Neither reads or writes memory or data of its owner.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let peer = getpeername(file).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer.is_some_and(|peer| peer.port() == port) {
            // What fails is slower, and no less right.
            let _ = set_tcp_nodelay(file, true);
        }
    }
}

/// Does nothing: the system does not list them.
#[cfg(not(unix))]
pub(super) fn send_at_once(_port: u16) {}

#[cfg(all(test, unix))]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn sockets_to_the_port_send_at_once_and_others_stay_as_they_are() {
        let servers = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = servers.each_ref().map(|it| it.local_addr().unwrap());
        let [ours, other] = addresses.map(|address| TcpStream::connect(address).unwrap());
        send_at_once(addresses[0].port());
        assert!(ours.nodelay().unwrap());
        assert!(!other.nodelay().unwrap());
    }
}
