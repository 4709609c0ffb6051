//! A proxy in front of PostgreSQL on a real socket. It can cut connections, and understands enough of the protocol
//! to pause a connection before a chosen statement.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use topicmill_core::clock::SystemClock;

/// Forwards traffic between clients and the server until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    away: watch::Sender<bool>,
    /// Every statement passes through this gate.
    pub gate: Arc<Gate>,
    _accepting: JoinSet<()>,
}

/// Counts statements or other steps, and pauses one of them.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    opened: Notify,
}

#[derive(Default)]
struct State {
    /// Statements still to pass before one is paused; `None` pauses nothing.
    let_pass: Option<usize>,
    held: Option<String>,
    /// Part of the statement to drop.
    to_lose: Option<String>,
}

impl Proxy {
    /// Starts a proxy in front of a URL's server.
    pub async fn in_front_of(url: &str) -> Self {
        let (_, place) = url.rsplit_once('@').expect("a URL with a user");
        let (server, _) = place.split_once('/').expect("a URL with a database");
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (away, is_away) = watch::channel(false);
        let gate = Arc::<Gate>::default();
        let mut accepting = JoinSet::new();
        let of_task = Arc::clone(&gate);
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let (server, gate) = (server.clone(), Arc::clone(&of_task));
                let mut is_away = is_away.clone();
                connections.spawn(async move {
                    tokio::select! {
                        () = pass_on(client, &server, &gate) => {}
                        // Dropping both ends closes them.
                        _ = is_away.wait_for(|away| *away) => {}
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self {
            address,
            away,
            gate,
            _accepting: accepting,
        }
    }

    /// Returns the URL for clients of the proxy.
    pub fn url(&self, url: &str) -> String {
        let (user, place) = url.rsplit_once('@').expect("a URL with a user");
        let (_, database) = place.split_once('/').expect("a URL with a database");
        format!("{user}@{}/{database}", self.address)
    }

    /// Closes every connection, and each new one immediately.
    pub fn cut(&self) {
        self.away.send_replace(true);
    }

    /// Accepts connections again.
    pub fn restore(&self) {
        self.away.send_replace(false);
    }
}

impl Gate {
    /// Lets this many statements pass from now on, and pauses the next one.
    pub fn pause_after(&self, statements: usize) {
        let mut state = self.lock();
        state.let_pass = Some(statements);
        state.held = None;
    }

    /// Returns the paused statement, if any.
    pub fn paused_statement(&self) -> Option<String> {
        self.lock().held.clone()
    }

    /// Waits for the pause; returns the paused statement, or `None` if the pause was cleared before a statement reached it.
    pub async fn wait_for_pause(&self) -> Option<String> {
        let clock = SystemClock::shared();
        loop {
            let (held, is_cleared) = {
                let state = self.lock();
                (state.held.clone(), state.let_pass.is_none())
            };
            if held.is_some() || is_cleared {
                return held;
            }
            clock.sleep(Duration::from_millis(1)).await;
        }
    }

    /// Drops the next statement that contains this part; its connection remains open and silent.
    pub fn lose(&self, part: &str) {
        self.lock().to_lose = Some(part.to_owned());
    }

    /// Returns true if the statement was dropped.
    pub fn has_lost(&self) -> bool {
        self.lock().to_lose.is_none()
    }

    /// Resumes the paused statement and clears the pause.
    pub fn resume(&self) {
        *self.lock() = State::default();
        self.opened.notify_waiters();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Returns immediately, unless this is the statement to pause or to drop; a dropped one waits forever.
    pub async fn pass(&self, statement: &str) {
        let opened = self.opened.notified();
        let is_lost = |part: &mut String| statement.contains(&**part);
        if self.lock().to_lose.take_if(is_lost).is_some() {
            return std::future::pending().await;
        }
        {
            let mut state = self.lock();
            match &mut state.let_pass {
                None => return,
                Some(0) => state.held = Some(statement.to_owned()),
                Some(left) => {
                    *left -= 1;
                    return;
                }
            }
        }
        opened.await;
    }
}

async fn pass_on(client: TcpStream, server: &str, gate: &Gate) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, mut to_client) = client.into_split();
    let (mut from_server, to_server) = server.into_split();
    // When either side ends, both are closed.
    tokio::select! {
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        _ = statements(from_client, to_server, gate) => {}
    }
}

/// Forwards a client's messages in groups that end with a `Query`, a `Sync`, or another message that the server handles
/// immediately. Only a group that executes a statement passes through the gate and is counted.
/// See <https://www.postgresql.org/docs/current/protocol-message-formats.html>.
async fn statements(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    gate: &Gate,
) -> std::io::Result<()> {
    // The first messages have no type byte. Others may precede the startup message, whose code is protocol version 3.
    loop {
        let length = client.read_u32().await?;
        let code = client.read_u32().await?;
        let mut rest = vec![0; length as usize - 8];
        client.read_exact(&mut rest).await?;
        server.write_u32(length).await?;
        server.write_u32(code).await?;
        server.write_all(&rest).await?;
        if code >> 16 == 3 {
            break;
        }
    }
    let mut group = Vec::new();
    let mut text = String::new();
    let mut executes = false;
    // Prepared statements are identified by name.
    let mut prepared = std::collections::HashMap::new();
    loop {
        let kind = client.read_u8().await?;
        let length = client.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        client.read_exact(&mut body).await?;
        group.push(kind);
        group.extend(length.to_be_bytes());
        group.extend(&body);
        let strings: Vec<String> = body
            .splitn(3, |byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .collect();
        match kind {
            b'P' => drop(prepared.insert(strings[0].clone(), strings[1].clone())),
            b'B' => text = prepared.get(&strings[1]).cloned().unwrap_or_default(),
            b'Q' => text.clone_from(&strings[0]),
            _ => {}
        }
        executes |= matches!(kind, b'E' | b'Q');
        // These messages end a group.
        if matches!(kind, b'Q' | b'S' | b'H' | b'p' | b'X' | b'd' | b'c' | b'f') {
            if executes {
                gate.pass(&text).await;
            }
            server.write_all(&group).await?;
            group.clear();
            executes = false;
        }
    }
}
