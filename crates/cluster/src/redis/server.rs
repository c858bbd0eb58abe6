//! One Redis server and this node's shared connection for commands to it. A task keeps the connection up. While it is
//! down, callers fail at once instead of waiting for a timeout each.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::address::Host;
use super::dial::{Dialer, identify, send};
use crate::Error;
use crate::metrics::{Kind, Metrics};
use crate::random::jittered;

/// The first pause after a failure; it doubles up to [`BACK_OFF_MAX`].
pub(crate) const BACK_OFF: Duration = Duration::from_millis(50);
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// How often a connection is checked with PING.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// What the tasks of all servers share.
pub(crate) struct Context {
    pub(crate) dialer: Dialer,
    pub(crate) metrics: Metrics,
    /// Rejects replicas. Off with Redis Cluster, which reports the masters.
    pub(crate) needs_master: bool,
    /// Triggers discovery.
    pub(crate) refresh: Notify,
}

pub(crate) struct Server {
    pub(crate) host: Host,
    /// The lock guards the state only; never held across an `.await`.
    link: RwLock<Link>,
    /// Notified when the current connection fails. Connections are numbered, so that a late failure of an old one does
    /// not end the new one.
    failed: Notify,
    /// Cancelled when the topology no longer contains the server.
    pub(crate) stop: CancellationToken,
}

enum Link {
    Up { connection: MultiplexedConnection, number: u64, run_id: Arc<str> },
    Down { why: Error },
}

impl Server {
    pub(crate) fn new(host: Host, stop: CancellationToken) -> Self {
        let why = Error::Unavailable("not connected yet".into());
        Self { host, link: RwLock::new(Link::Down { why }), failed: Notify::new(), stop }
    }

    /// The connection and its number, for [`Server::fail`].
    pub(crate) fn connection(&self) -> Result<(MultiplexedConnection, u64), Error> {
        match &*self.link.read() {
            Link::Up { connection, number, .. } => Ok((connection.clone(), *number)),
            Link::Down { why } => Err(why.clone()),
        }
    }

    /// Identifies the start of the server process that is connected.
    pub(crate) fn run_id(&self) -> Option<Arc<str>> {
        match &*self.link.read() {
            Link::Up { run_id, .. } => Some(run_id.clone()),
            Link::Down { .. } => None,
        }
    }

    /// Reports that the connection with this number failed: it is no longer used, and another one is opened.
    pub(crate) fn fail(&self, failed: u64, why: &Error) {
        let mut link = self.link.write();
        if matches!(&*link, Link::Up { number, .. } if *number == failed) {
            *link = Link::Down { why: why.clone() };
            drop(link);
            tracing::warn!(server = %self.host, %why, "redis does not answer");
            self.failed.notify_one();
        }
    }

    fn set(&self, link: Link) {
        *self.link.write() = link;
    }

    /// Keeps the connection up until the server is stopped. Calls `changed` whenever the connection opens or closes.
    pub(crate) async fn run(self: Arc<Self>, context: Arc<Context>, changed: impl Fn()) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.keep_up(&context, &changed) => {}
        }
        self.set(Link::Down { why: Error::Unavailable("no longer a server of this cluster".into()) });
        changed();
    }

    async fn keep_up(&self, context: &Context, changed: &impl Fn()) {
        let mut back_off = BACK_OFF;
        let mut number = 0;
        let mut reported = None;
        loop {
            number += 1;
            match self.connect(context, changed, number).await {
                Ok(()) => {
                    (back_off, reported) = (BACK_OFF, None);
                    self.watch(context, number).await;
                }
                Err(why) => {
                    // Logs each reason once.
                    if reported.as_ref() != Some(&why) {
                        tracing::warn!(server = %self.host, %why, "cannot connect to redis");
                        reported = Some(why.clone());
                    }
                    self.set(Link::Down { why });
                }
            }
            changed();
            context.refresh.notify_one();
            tokio::time::sleep(jittered(back_off)).await;
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
    }

    async fn connect(&self, context: &Context, changed: &impl Fn(), number: u64) -> Result<(), Error> {
        let mut connection = context.dialer.server(&self.host).await?;
        let identity = identify(&mut connection).await?;
        if !identity.is_master && context.needs_master {
            return Err(Error::Unavailable("the server is a replica".into()));
        }
        context.metrics.connected("commands");
        tracing::info!(server = %self.host, "connected to redis");
        self.set(Link::Up { connection, number, run_id: identity.run_id.into() });
        changed();
        Ok(())
    }

    /// Returns when the connection has failed.
    async fn watch(&self, context: &Context, number: u64) {
        let ping = ::redis::cmd("PING");
        loop {
            tokio::select! {
                () = self.failed.notified() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
            let Ok((mut connection, now)) = self.connection() else { return };
            if now != number {
                return;
            }
            context.metrics.commands(Kind::Upkeep).inc();
            if let Err(error) = send(&mut connection, &ping).await {
                self.fail(number, &error);
            }
        }
    }
}
