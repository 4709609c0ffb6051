//! A PostgreSQL server as it is seen through a network: a proxy at a real socket that may be away, and that
//! understands enough of the protocol to hold a connection before a statement of its choice.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// Passes on what clients and the server say, until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    away: watch::Sender<bool>,
    /// Every statement passes it.
    pub gate: Arc<Gate>,
    _accepting: JoinSet<()>,
}

/// Where statements, or other steps, are counted, and one of them is held.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    opened: Notify,
}

#[derive(Default)]
struct State {
    /// Statements still to let pass before one is held; nothing is held without.
    let_pass: Option<usize>,
    held: Option<String>,
    /// Part of a statement that the network loses.
    to_lose: Option<String>,
}

impl Proxy {
    /// One before the server of a URL.
    pub async fn before(url: &str) -> Self {
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
                        // Both ends are dropped, and so closed.
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

    /// A URL as clients of the proxy need it.
    pub fn url(&self, url: &str) -> String {
        let (user, place) = url.rsplit_once('@').expect("a URL with a user");
        let (_, database) = place.split_once('/').expect("a URL with a database");
        format!("{user}@{}/{database}", self.address)
    }

    /// Closes every connection, and each new one at once, until it is told otherwise.
    pub fn be_away(&self, away: bool) {
        self.away.send_replace(away);
    }
}

impl Gate {
    /// Lets so many statements pass from now on, and holds the next one.
    pub fn hold_after(&self, statements: usize) {
        let mut state = self.lock();
        state.let_pass = Some(statements);
        state.held = None;
    }

    /// What is held.
    pub fn held(&self) -> Option<String> {
        self.lock().held.clone()
    }

    /// Whether nothing is to be held.
    pub fn is_open(&self) -> bool {
        self.lock().let_pass.is_none()
    }

    /// The next statement with this part never arrives, and its connection stays open and silent for ever.
    pub fn lose(&self, part: &str) {
        self.lock().to_lose = Some(part.to_owned());
    }

    /// Whether it is lost.
    pub fn has_lost(&self) -> bool {
        self.lock().to_lose.is_none()
    }

    /// Lets go, and holds nothing any more.
    pub fn let_go(&self) {
        *self.lock() = State::default();
        self.opened.notify_waiters();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Waits if this is the statement that is to be held.
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
    // Whichever side ends, the other has nobody to talk to.
    tokio::select! {
        _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        _ = statements(from_client, to_server, gate) => {}
    }
}

/// Passes a client's messages on, a statement at a time: whatever ends with a `Query` or a `Sync`. One without
/// an `Execute` does nothing, and is not counted.
/// See <https://www.postgresql.org/docs/current/protocol-message-formats.html>.
async fn statements(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    gate: &Gate,
) -> std::io::Result<()> {
    // Before the startup message, which is the first without a type of its own and has version 3, others may come.
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
    // Statements that were prepared are known by their names.
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
        // Each of these the server answers at once.
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
