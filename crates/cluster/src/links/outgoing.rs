//! The sending end of a link: one task, which keeps a connection to the other node and writes what waits, everything at
//! once.
//!
//! A link that is down or full accepts nothing, so its frames take another way at once. A link that ends forgets what it
//! holds: the bus knows which frames were not confirmed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::QUEUE_BYTES_MAX;
use super::receipts::Receipts;
use super::stream::{Ended, Reader, write, write_unit};
use super::wire::{Unit, VERSION};
use crate::Epoch;
use crate::metrics::{LinkFailure, LinkMetrics};
use crate::random::jittered;

/// From the first packet to the answer to the hello.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const BACK_OFF: Duration = Duration::from_millis(50);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// A connection that lasted as long was a good one: the next attempt follows soon.
const LASTED: Duration = Duration::from_secs(10);
/// How often a link that has nothing to write proves that it works. There is a link between any two nodes, so pings are
/// most of what an idle node of a large cell does. A frame that is not confirmed is noticed much earlier.
const PING: Duration = Duration::from_secs(2);
/// Without a sign of life for as long, the link ends.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Bytes of one write: several TLS records.
const WRITE_BYTES: usize = 256 << 10;

/// A link to the lease `to` of another node.
pub(crate) struct Link {
    own: Epoch,
    to: Epoch,
    /// Guards the queue only.
    queue: Mutex<Queue>,
    wake: Notify,
    closed: CancellationToken,
    /// Something arrived since the last look.
    heard: AtomicBool,
    metrics: LinkMetrics,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// Cancelled when the connection ends. `None`: the link is down.
    connection: Option<CancellationToken>,
}

impl Link {
    pub(super) fn new(own: Epoch, to: Epoch, metrics: LinkMetrics) -> Self {
        let (queue, wake, closed) = (Mutex::default(), Notify::new(), CancellationToken::new());
        Self { own, to, queue, wake, closed, heard: AtomicBool::new(false), metrics }
    }

    /// Queues frames. `None`: the link is down, or has no room for all of them. The token is cancelled when the
    /// connection that carries them ends; cancelling it ends the connection.
    pub(crate) fn push(&self, frames: impl Iterator<Item = Bytes> + Clone) -> Option<CancellationToken> {
        let bytes: usize = frames.clone().map(|frame| frame.len()).sum();
        let mut queue = self.queue.lock();
        let connection = queue.connection.clone().filter(|connection| !connection.is_cancelled())?;
        if queue.bytes + bytes > QUEUE_BYTES_MAX {
            return None;
        }
        queue.frames.extend(frames);
        queue.bytes += bytes;
        drop(queue);
        self.metrics.queued(bytes);
        self.wake.notify_one();
        Some(connection)
    }

    pub(crate) fn is_up(&self) -> bool {
        self.queue.lock().connection.as_ref().is_some_and(|connection| !connection.is_cancelled())
    }

    /// For good.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }

    fn connected(&self) -> CancellationToken {
        let connection = self.closed.child_token();
        self.clear(Some(connection.clone()));
        connection
    }

    fn clear(&self, connection: Option<CancellationToken>) {
        let before = std::mem::replace(&mut *self.queue.lock(), Queue { connection, ..Queue::default() });
        self.metrics.unqueued(before.bytes);
        if let Some(connection) = before.connection {
            connection.cancel();
        }
    }

    /// Moves waiting frames into `out`, up to about [`WRITE_BYTES`].
    fn take(&self, out: &mut BytesMut) {
        let (mut count, mut bytes) = (0, 0);
        let mut queue = self.queue.lock();
        while out.len() < WRITE_BYTES
            && let Some(frame) = queue.frames.pop_front()
        {
            (count, bytes) = (count + 1, bytes + frame.len());
            Unit::Frame(frame).write(out);
        }
        queue.bytes -= bytes;
        drop(queue);
        self.metrics.unqueued(bytes);
        self.metrics.passed("out", count, bytes);
    }
}

/// Opens connections to other nodes.
pub(super) struct Dialer {
    tls: TlsConnector,
    receipts: Arc<Receipts>,
    metrics: LinkMetrics,
}

impl Dialer {
    pub(super) fn new(tls: Arc<rustls::ClientConfig>, receipts: Arc<Receipts>, metrics: LinkMetrics) -> Self {
        Self { tls: tls.into(), receipts, metrics }
    }

    /// Keeps a connection for the link until it is closed.
    pub(super) async fn keep(self: Arc<Self>, link: Arc<Link>, address: String) {
        let mut back_off = BACK_OFF;
        let mut reported = false;
        loop {
            let began = Instant::now();
            let was_up = AtomicBool::new(false);
            let ended = tokio::select! {
                () = link.closed.cancelled() => Ended::Closed,
                ended = self.connection(&link, &address, &was_up) => ended,
            };
            link.clear(None);
            self.receipts.wake();
            let was_up = was_up.into_inner();
            if was_up {
                self.metrics.down("out");
            }
            if link.closed.is_cancelled() {
                return;
            }
            self.metrics.failed(failure(&ended));
            if was_up && began.elapsed() > LASTED {
                (back_off, reported) = (BACK_OFF, false);
            }
            // Once for each outage.
            match std::mem::replace(&mut reported, true) {
                false => tracing::warn!(
                    to = %link.to, address, reason = %ended,
                    "no direct connection to a node; redis carries its messages until there is one"
                ),
                true => {
                    tracing::debug!(to = %link.to, address, reason = %ended, "no direct connection to a node")
                }
            }
            tokio::select! {
                () = link.closed.cancelled() => return,
                () = tokio::time::sleep(jittered(back_off)) => {}
            }
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }

    async fn connection(&self, link: &Link, address: &str, was_up: &AtomicBool) -> Ended {
        let stream = match tokio::time::timeout(CONNECT_TIMEOUT, self.open(link, address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(ended)) => return ended,
            Err(_) => return Ended::Connect("no answer in time".to_owned()),
        };
        let connection = link.connected();
        was_up.store(true, SeqCst);
        self.metrics.up("out");
        tracing::debug!(to = %link.to, address, "direct connection to a node");
        // A sender that just failed may use the link now.
        self.receipts.wake();
        let (read, write) = tokio::io::split(stream);
        let ended = tokio::select! {
            () = connection.cancelled() => Ended::Silent,
            ended = self.read(link, read) => ended,
            ended = write_all(link, write) => ended,
        };
        connection.cancel();
        ended
    }

    async fn open(&self, link: &Link, address: &str) -> Result<TlsStream<TcpStream>, Ended> {
        let stream = TcpStream::connect(address).await.map_err(|error| Ended::Connect(error.to_string()))?;
        stream.set_nodelay(true)?;
        // No name is sent, and the key is checked instead.
        let name = ServerName::try_from("noroshi").map_err(|error| Ended::Handshake(error.to_string()))?;
        let mut stream =
            self.tls.connect(name, stream).await.map_err(|error| Ended::Handshake(error.to_string()))?;
        write_unit(&mut stream, &Unit::Hello { version: VERSION, from: link.own, to: link.to }).await?;
        // The server may reject the client's key only now. It sends nothing after its answer until it gets a frame.
        let mut reader = Reader::new(&mut stream);
        match reader.next().await {
            Ok(Unit::Welcome { .. }) => Ok(stream),
            Ok(Unit::Refused) => Err(Ended::Refused),
            Ok(_) => Err(Ended::Malformed),
            Err(Ended::Broken(reason)) => Err(Ended::Handshake(reason)),
            Err(ended) => Err(ended),
        }
    }

    async fn read(&self, link: &Link, half: impl AsyncRead + Unpin) -> Ended {
        let mut reader = Reader::new(half);
        loop {
            match reader.next().await {
                Ok(Unit::Receipt(number)) => self.receipts.note(link.own, link.to, number),
                Ok(Unit::Pong | Unit::Unknown) => {}
                Ok(_) => return Ended::Malformed,
                Err(ended) => return ended,
            }
            link.heard.store(true, SeqCst);
        }
    }
}

async fn write_all(link: &Link, mut half: impl AsyncWrite + Unpin) -> Ended {
    let mut look = tokio::time::interval(PING);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard_at = Instant::now();
    let mut bytes = BytesMut::new();
    loop {
        bytes.clear();
        link.take(&mut bytes);
        if bytes.is_empty() {
            tokio::select! {
                () = link.wake.notified() => continue,
                _ = look.tick() => {}
            }
            if link.heard.swap(false, SeqCst) {
                heard_at = Instant::now();
            }
            if heard_at.elapsed() > SILENCE_MAX {
                return Ended::Silent;
            }
            Unit::Ping.write(&mut bytes);
        }
        if let Err(ended) = write(&mut half, &bytes).await {
            return ended;
        }
    }
}

fn failure(ended: &Ended) -> LinkFailure {
    match ended {
        Ended::Connect(_) => LinkFailure::Connect,
        Ended::Handshake(_) => LinkFailure::Handshake,
        Ended::Refused => LinkFailure::Refused,
        Ended::Broken(_) | Ended::Closed => LinkFailure::Broken,
        Ended::Silent => LinkFailure::Silent,
        Ended::Malformed => LinkFailure::Malformed,
    }
}
