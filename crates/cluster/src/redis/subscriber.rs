//! The connection that receives: subscribed to the channel of the epoch that this node holds or is about to acquire. It
//! reconnects and resubscribes (the crate does not resubscribe sharded channels reliably), and reports for every
//! interruption since when messages may be missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{PushInfo, PushKind, Value};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::address::Host;
use super::connections::Connections;
use super::dial::{answered, error_of, send};
use super::outbound::channel;
use super::server::BACK_OFF;
use super::slot::slot;
use crate::metrics::{Kind, Metrics};
use crate::random::jittered;
use crate::{Epoch, Error};

/// Frames queued for the node's task; further ones are dropped, which leaves a gap.
pub(crate) const FRAMES_MAX: usize = 16_384;
const BYTES_MAX: usize = 64 << 20;
const PING_EVERY: Duration = Duration::from_secs(1);
/// Shorter than that of commands: without a subscription messages are lost.
const BACK_OFF_MAX: Duration = Duration::from_millis(500);

pub(crate) enum Event {
    /// `since`: until then an earlier subscription to this epoch was certainly complete.
    Subscribed {
        epoch: Epoch,
        since: Option<Instant>,
    },
    Frame {
        epoch: Epoch,
        frame: Bytes,
        weight: Weight,
    },
}

/// Returns a frame's bytes to the budget when it is dropped.
pub(crate) struct Weight {
    bytes: usize,
    total: Arc<AtomicUsize>,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, SeqCst);
    }
}

pub(crate) struct Subscriber {
    pub(crate) connections: Connections,
    pub(crate) metrics: Metrics,
    pub(crate) prefix: String,
    pub(crate) wanted: watch::Receiver<Option<Epoch>>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) bytes: Arc<AtomicUsize>,
}

/// Why a subscription ended.
enum Ended {
    Failed(Error),
    /// Another epoch is wanted, or the slot moved.
    Changed,
}

impl Subscriber {
    pub(crate) async fn run(mut self) {
        let mut back_off = BACK_OFF;
        // The epoch of the last subscription, and until when that was complete.
        let mut whole: Option<(Epoch, Instant)> = None;
        loop {
            let Some(epoch) = *self.wanted.borrow_and_update() else {
                if self.wanted.changed().await.is_err() {
                    return;
                }
                continue;
            };
            match self.subscribed(epoch, &mut whole).await {
                Ended::Changed => back_off = BACK_OFF,
                Ended::Failed(error) => {
                    tracing::debug!(%error, "not subscribed at redis");
                    if whole.is_some_and(|(_, at)| at.elapsed() < PING_EVERY * 2) {
                        back_off = BACK_OFF;
                    }
                    tokio::time::sleep(jittered(back_off)).await;
                    back_off = (back_off * 2).min(BACK_OFF_MAX);
                }
            }
        }
    }

    async fn subscribed(&mut self, epoch: Epoch, whole: &mut Option<(Epoch, Instant)>) -> Ended {
        let channel = channel(&self.prefix, epoch);
        let host = match self.connections.host(slot(&channel)) {
            Ok(host) => host,
            Err(error) => return Ended::Failed(error),
        };
        let (broken, mut is_broken) = watch::channel(false);
        let receive = self.receive(epoch, broken);
        let started = Instant::now();
        let mut connection = match self.subscribe(&host, &channel, receive).await {
            Ok(connection) => connection,
            Err(error) => return Ended::Failed(error),
        };
        let since = whole.filter(|(of, _)| *of == epoch).map(|(_, at)| at);
        *whole = Some((epoch, started));
        if self.events.send(Event::Subscribed { epoch, since }).await.is_err() {
            return Ended::Changed;
        }
        loop {
            tokio::select! {
                _ = is_broken.changed() => {
                    return Ended::Failed(Error::Unavailable("the subscription ended".into()));
                }
                _ = self.wanted.changed() => return Ended::Changed,
                () = tokio::time::sleep(PING_EVERY) => {}
            }
            if self.connections.host(slot(&channel)).is_ok_and(|now| now != host) {
                return Ended::Changed;
            }
            // Answered after everything that was published before it.
            let asked = Instant::now();
            self.metrics.commands(Kind::Upkeep).inc();
            match send(&mut connection, &::redis::cmd("PING")).await {
                Ok(_) => *whole = Some((epoch, asked)),
                Err(error) => return Ended::Failed(error),
            }
        }
    }

    async fn subscribe(
        &self,
        host: &Host,
        channel: &[u8],
        receive: impl ::redis::aio::AsyncPushSender,
    ) -> Result<MultiplexedConnection, Error> {
        let mut connection = self.connections.dialer().subscriber(host, receive).await?;
        self.metrics.connected("subscriber");
        self.metrics.commands(Kind::Upkeep).inc();
        let name = if self.connections.is_cluster() { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        let mut cmd = ::redis::cmd(name);
        match connection.send_packed_command(cmd.arg(channel)).await {
            Ok(Value::ServerError(error)) => {
                self.connections.rediscover();
                Err(answered(&error))
            }
            Ok(_) => Ok(connection),
            Err(error) => Err(error_of(&error)),
        }
    }

    /// Runs in the connection's own task and must not wait.
    fn receive(
        &self,
        epoch: Epoch,
        broken: watch::Sender<bool>,
    ) -> impl Fn(PushInfo) -> Result<(), ::redis::aio::SendError> + std::marker::Send + Sync + 'static {
        let (events, total, metrics) = (self.events.clone(), self.bytes.clone(), self.metrics.clone());
        move |push| {
            match push.kind {
                PushKind::Message | PushKind::SMessage => {
                    let Some(Value::BulkString(frame)) = push.data.into_iter().nth(1) else { return Ok(()) };
                    let bytes = frame.len();
                    let before = total.fetch_add(bytes, SeqCst);
                    let weight = Weight { bytes, total: total.clone() };
                    let event = Event::Frame { epoch, frame: frame.into(), weight };
                    if before + bytes > BYTES_MAX || events.try_send(event).is_err() {
                        metrics.overflows.inc();
                    }
                }
                // Redis Cluster unsubscribes when the slot moves away.
                PushKind::Disconnection | PushKind::SUnsubscribe => {
                    broken.send_replace(true);
                }
                _ => {}
            }
            Ok(())
        }
    }
}
