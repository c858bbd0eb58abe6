//! The receiving end of a link: reads frames for the node's task, and writes receipts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::receipts::Receipts;
use super::stall::Stall;
use super::stream::{Ended, Reader, write};
use super::wire::Unit;
use crate::clock::Moment;
use crate::metrics::LinkMetrics;
use crate::{Epoch, Error, Members};

/// The other node pings every two seconds.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// Bytes of frames that wait for the node's task, of all links. While there is no room, links are not read.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Frames that wait for the node's task.
const WAITING_MAX: usize = 1_024;

/// A frame for this node.
pub(crate) struct Arrival {
    /// The lease that it was sent to.
    pub(crate) to: Epoch,
    pub(crate) frame: Bytes,
    source: Source,
    read_at: Moment,
    _room: OwnedSemaphorePermit,
}

enum Source {
    Link(Arc<Incoming>),
    /// This node itself.
    Own(Arc<Receipts>),
}

impl Arrival {
    /// Whether it may be handed over: it has not waited for so long that its sender took another way. If not, its link
    /// ends.
    pub(crate) fn is_fresh(&self) -> bool {
        match &self.source {
            Source::Own(_) => true,
            Source::Link(link) => {
                let fresh = link.stall.is_fresh(link.stalls, self.read_at) && !link.end.is_cancelled();
                if !fresh {
                    link.end.cancel();
                }
                fresh
            }
        }
    }

    /// Whether `from` is the sender that the link belongs to. If not, the link ends.
    pub(crate) fn is_from(&self, from: Epoch) -> bool {
        match &self.source {
            Source::Own(_) => from == self.to,
            Source::Link(link) => {
                if from != link.from {
                    link.end.cancel();
                }
                from == link.from
            }
        }
    }

    /// Tells the sender that this node has everything up to `number`.
    pub(crate) fn confirm(&self, number: u64) {
        match &self.source {
            Source::Own(receipts) => receipts.note(self.to, self.to, number),
            Source::Link(link) => link.confirm(number),
        }
    }
}

/// The queue to the node's task, with its bound in bytes.
#[derive(Clone)]
pub(crate) struct Arrivals {
    queue: mpsc::Sender<Arrival>,
    room: Arc<Semaphore>,
}

impl Arrivals {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Arrival>) {
        let (queue, arriving) = mpsc::channel(WAITING_MAX);
        (Self { queue, room: Arc::new(Semaphore::new(WAITING_BYTES_MAX)) }, arriving)
    }

    /// From this node to itself. Waits for room.
    pub(crate) async fn own(&self, to: Epoch, frame: Bytes, receipts: Arc<Receipts>) -> Result<(), Error> {
        self.add(to, frame, Source::Own(receipts)).await
    }

    async fn add(&self, to: Epoch, frame: Bytes, source: Source) -> Result<(), Error> {
        let read_at = Moment::now();
        let bytes = u32::try_from(frame.len()).map_err(|_| Error::Overloaded)?;
        let room = self.room.clone().acquire_many_owned(bytes).await.map_err(|_| Error::Lost)?;
        let arrival = Arrival { to, frame, source, read_at, _room: room };
        self.queue.send(arrival).await.map_err(|_| Error::Lost)
    }
}

/// A link from the lease `from` of another node to the lease `to` of this one.
pub(crate) struct Incoming {
    pub(super) from: Epoch,
    to: Epoch,
    /// The number of the last frame that the node's task has.
    received: AtomicU64,
    pinged: AtomicBool,
    wake: Notify,
    end: CancellationToken,
    stall: Arc<Stall>,
    /// Stalls of this process before the link began.
    stalls: u64,
}

impl Incoming {
    pub(super) fn new(from: Epoch, to: Epoch, stall: Arc<Stall>) -> Self {
        let (received, pinged, wake) = (AtomicU64::new(0), AtomicBool::new(false), Notify::new());
        let stalls = stall.count();
        Self { from, to, received, pinged, wake, end: CancellationToken::new(), stall, stalls }
    }

    fn confirm(&self, number: u64) {
        self.received.fetch_max(number, SeqCst);
        self.wake.notify_one();
    }

    pub(super) fn close(&self) {
        self.end.cancel();
    }

    /// Until the link ends.
    pub(super) async fn run(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite,
        members: &dyn Members,
        arrivals: &Arrivals,
        metrics: &LinkMetrics,
    ) -> Ended {
        let (read, write) = tokio::io::split(stream);
        let ended = tokio::select! {
            () = self.end.cancelled() => Ended::Closed,
            ended = self.read(read, members, arrivals, metrics) => ended,
            ended = self.write(write) => ended,
        };
        // Frames of it that still wait are not handed over: their sender sends them again.
        self.end.cancel();
        ended
    }

    async fn read(
        self: &Arc<Self>,
        half: impl AsyncRead + Unpin,
        members: &dyn Members,
        arrivals: &Arrivals,
        metrics: &LinkMetrics,
    ) -> Ended {
        let mut reader = Reader::new(half);
        loop {
            let unit = match tokio::time::timeout(IDLE_MAX, reader.next()).await {
                Ok(Ok(unit)) => unit,
                Ok(Err(ended)) => return ended,
                Err(_) => return Ended::Silent,
            };
            match unit {
                Unit::Frame(frame) => {
                    if !self.stall.is_fresh(self.stalls, Moment::now()) {
                        metrics.stalls.inc();
                        return Ended::Closed;
                    }
                    if members.epoch() != Some(self.to) {
                        return Ended::Closed;
                    }
                    metrics.passed("in", 1, frame.len());
                    if arrivals.add(self.to, frame, Source::Link(self.clone())).await.is_err() {
                        return Ended::Closed;
                    }
                }
                Unit::Ping => {
                    self.pinged.store(true, SeqCst);
                    self.wake.notify_one();
                }
                Unit::Unknown => {}
                _ => return Ended::Malformed,
            }
        }
    }

    async fn write(&self, mut half: impl AsyncWrite + Unpin) -> Ended {
        let mut written = 0;
        let mut bytes = BytesMut::new();
        loop {
            self.wake.notified().await;
            bytes.clear();
            let received = self.received.load(SeqCst);
            if received > written {
                Unit::Receipt(received).write(&mut bytes);
                written = received;
            }
            if self.pinged.swap(false, SeqCst) {
                Unit::Pong.write(&mut bytes);
            }
            if !bytes.is_empty()
                && let Err(ended) = write(&mut half, &bytes).await
            {
                return ended;
            }
        }
    }
}
