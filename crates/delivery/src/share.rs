//! Shared subscriptions (MQTT 5 §4.8.2): each message of a group's topics goes to one of the group's members.
//!
//! ```text
//!   a topic's message ──► topic log ──► the leader reads on from the group's place, and assigns
//!                                         │
//!                                         ▼
//!                         a copy, sent to one member: inbox, acknowledgement, trace as of any message to a device
//! ```
//!
//! One node leads, for all groups of all apps (the task `shares`). It takes connected members in turn and skips those
//! that have too many unacknowledged copies. If none is left it waits: the log keeps unassigned messages. What a
//! disconnected member has not acknowledged goes to another member, except what the member may have received with QoS 2
//! ([MQTT-4.8.2-5]). A message that is not `stored` goes to a member that is connected now, or is dropped.
//!
//! Reading order: `group` (the next member, the outcome of a copy; pure), `copy` (the sent messages), `members`
//! (those that are connected and have room), `assignment`, `reclaim`, `leader`. The rest of the node feeds the
//! leader through [`crate::share_feed`].
//!
//! A crash neither loses a message nor assigns it twice: a copy has an idempotency key of the group, the message and
//! the turn, and a group's place moves only behind what was assigned. A message goes to a second member before the
//! first one's copy is cancelled, so a member that returns at this moment may get it as well.

mod assignment;
mod copy;
mod group;
mod leader;
mod members;
mod reclaim;

use std::sync::Arc;

use noroshi_store::{JoinShares, LeaveShares};
use noroshi_telemetry::metrics;
use noroshi_types::{AppId, DeviceId};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::cluster::Nodes;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::context::Context;
use crate::devices::Devices;
use crate::error::Error;
use crate::publish::Publisher;
use crate::sessions::Sessions;
use crate::share_feed::ShareFeed;

pub(crate) use leader::run;

metrics! {
    pub(crate) struct Metrics {
        share_groups: Gauge = "Groups of shared subscriptions, on the leader",
        share_messages_assigned: Counter = "Messages assigned to a member of a shared subscription",
        share_messages_moved: Counter =
            "Messages assigned to another member because the first one disconnected",
        pub(crate) share_messages_dropped: Counter =
            "Messages that are not stored and found no connected member, or a full queue",
        share_groups_waiting: Gauge =
            "Groups whose messages wait because all connected members have too many unacknowledged copies",
    }
}

pub struct Shares {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) feed: Arc<ShareFeed>,
    pub(crate) metrics: Metrics,
}

impl Shares {
    /// A connection joins groups: it and its fellow members share what is published from now on.
    pub async fn join(&self, join: JoinShares) -> Result<(), Error> {
        let app = join.app;
        self.context.store.join_shares(join).await?;
        self.changed(app).await;
        Ok(())
    }

    /// A device leaves groups, or its connection or session ends.
    pub async fn leave(&self, app: AppId, leave: LeaveShares) -> Result<(), Error> {
        if self.context.store.leave_shares(leave).await? {
            self.changed(app).await;
        }
        Ok(())
    }

    /// Whether devices of the app share subscriptions, as far as this node knows: it may lag by seconds if another node
    /// could not report the change.
    pub fn has(&self, app: AppId) -> bool {
        self.feed.has(app)
    }

    /// Sends what a device has not acknowledged to other members, before the device is deleted.
    pub(crate) async fn release(&self, app: AppId, device: &DeviceId) -> Result<(), Error> {
        match self.has(app) {
            true => reclaim::release(self, app, device).await,
            false => Ok(()),
        }
    }

    async fn changed(&self, app: AppId) {
        self.feed.groups_changed(app);
        if let Some(peers) = self.nodes.peers() {
            peers.send_now(To::Gateways, Record::SharesChanged { app }).await;
        }
    }
}
