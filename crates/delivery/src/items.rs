//! Items of users' notification centres: changes of their state, and reports of changes to the user's connected devices.
//!
//! ```text
//!   accepted, changed, deleted ─┬─► reports ─► task: counts from the store ─► Edge::items
//!                               └─► Record::Items ─► reports of other nodes
//! ```
//!
//! A report is sent after the commit, and each node with sessions of the user reads the counts after it has received the
//! report. So the last report that a device receives has the counts after all changes, in whatever order reports arrive.
//! Reports may be lost: the queue is bounded, and other nodes may be unreachable. A device reads the counts when it
//! connects.

use std::collections::VecDeque;
use std::sync::Arc;

use noroshi_store::{Accepted, ChangedItems, ItemChange, WhichItems};
use noroshi_telemetry::metrics;
use noroshi_types::{AppId, ItemAction, ItemEvent, ItemsNotice, UserId, limits};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

use crate::cluster::Nodes;
use crate::cluster::outbox::To;
use crate::cluster::wire::{ItemReport, Record};
use crate::context::Context;
use crate::error::Error;
use crate::freshness::Freshness;

/// Users in reports that wait for the task: at 64 bytes each, 4 MiB.
const USERS_MAX: usize = 65_536;
/// Users whose counts are read together.
const USERS_PER_READ: usize = 500;

metrics! {
    pub(crate) struct Metrics {
        items_added: Counter = "Items written for users",
        items_changed: Counter = "Items of which devices changed the state",
        item_reports: Counter = "Reports of added or changed items to connected users",
        item_reports_dropped: Counter = "Reports of items dropped because too many waited or the store failed",
    }
}

#[derive(Default)]
struct Queued {
    reports: VecDeque<ItemReport>,
    users: usize,
}

pub struct Items {
    context: Arc<Context>,
    nodes: Arc<Nodes>,
    freshness: Arc<Freshness>,
    metrics: Metrics,
    /// Guards the queue only; nothing is called or awaited under it.
    queued: Mutex<Queued>,
    filled: Notify,
}

impl Items {
    pub(crate) fn new(
        context: Arc<Context>,
        nodes: Arc<Nodes>,
        freshness: Arc<Freshness>,
        metrics: Metrics,
    ) -> Self {
        Self { context, nodes, freshness, metrics, queued: Mutex::default(), filled: Notify::new() }
    }

    /// Changes the state of a user's items: durable when this returns. The user's connected devices get a
    /// report, also the one that made the change: its answer may have been overtaken.
    pub async fn change(
        &self,
        app: AppId,
        user: &UserId,
        action: ItemAction,
        which: WhichItems,
    ) -> Result<ChangedItems, Error> {
        let change = ItemChange { app, user: user.clone(), action, which, now: self.context.now() };
        let changed = self.context.store.change_items(change).await?;
        if !changed.ids.is_empty() {
            self.metrics.items_changed.inc_by(changed.ids.len() as u64);
            // Of many, the newest are the ones on display.
            let mut ids = changed.ids.clone();
            let older = ids.len().saturating_sub(limits::ITEM_IDS_MAX);
            let ids = ids.split_off(older);
            let users = vec![user.clone()];
            self.report(ItemReport { app, users, event: action.event(), ids, more: older > 0 });
        }
        Ok(changed)
    }

    /// Deletes all items of a user. Returns how many.
    pub async fn delete(&self, app: AppId, user: &UserId) -> Result<u64, Error> {
        let deleted = self.context.store.delete_items(app, user).await?;
        if deleted > 0 {
            let (users, ids) = (vec![user.clone()], Vec::new());
            self.report(ItemReport { app, users, event: ItemEvent::Deleted, ids, more: true });
        }
        Ok(deleted)
    }

    /// An accepted notification added items. Never waits: it runs on the store's thread.
    pub(crate) fn added(&self, accepted: &Accepted) {
        if accepted.item_users.is_empty() {
            return;
        }
        self.metrics.items_added.inc_by(accepted.item_users.len() as u64);
        let (app, users) = (accepted.message.app, accepted.item_users.clone());
        let ids = vec![accepted.message.id];
        self.report(ItemReport { app, users, event: ItemEvent::Added, ids, more: false });
    }

    fn report(&self, report: ItemReport) {
        self.freshness.users_changed(report.app, &report.users);
        if let Some(peers) = self.nodes.peers() {
            // A look-up for each of many users would cost more than the frames that it saves.
            let to = match &report.users[..] {
                [user] => To::Holders(peers.cluster.keys.user(report.app, user)),
                _ => To::Gateways,
            };
            peers.send(to, Record::Items(report.clone()));
        }
        self.queue(report);
    }

    /// A report of this node or of another one, for the sessions of this node.
    pub(crate) fn queue(&self, report: ItemReport) {
        if self.context.edge().is_none() {
            return;
        }
        let mut queued = self.queued.lock();
        if queued.users + report.users.len() > USERS_MAX {
            drop(queued);
            self.metrics.item_reports_dropped.inc_by(report.users.len() as u64);
            return;
        }
        queued.users += report.users.len();
        queued.reports.push_back(report);
        drop(queued);
        self.filled.notify_one();
    }

    /// Sends reports to connected devices until it is dropped.
    pub(crate) async fn run(&self) {
        loop {
            let next = {
                let mut queued = self.queued.lock();
                let next = queued.reports.pop_front();
                queued.users -= next.as_ref().map_or(0, |report| report.users.len());
                next
            };
            match next {
                Some(report) => self.send(report).await,
                None => self.filled.notified().await,
            }
        }
    }

    async fn send(&self, report: ItemReport) {
        let Some(edge) = self.context.edge() else { return };
        let ItemReport { app, users, event, ids, more } = report;
        let sessions = self.context.local_sessions(app, &users);
        let reached = users.into_iter().zip(sessions).filter(|(_, sessions)| !sessions.is_empty());
        let users: Vec<UserId> = reached.map(|(user, _)| user).collect();
        for users in users.chunks(USERS_PER_READ) {
            let counts = self.context.store.item_counts(app, users.to_vec(), self.context.now()).await;
            let counts = match counts {
                Ok(counts) => counts,
                Err(error) => {
                    tracing::debug!(%error, "could not count items; connected devices get no report");
                    self.metrics.item_reports_dropped.inc_by(users.len() as u64);
                    continue;
                }
            };
            for (user, unread) in users.iter().zip(counts) {
                let notice = Arc::new(ItemsNotice { event, ids: ids.clone(), more, unread });
                edge.items(app, user, &notice);
                self.metrics.item_reports.inc();
            }
        }
    }
}
