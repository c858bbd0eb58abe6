//! Wakes the tasks that process push work, on this node and, through the cluster, on others.
//!
//! Publishing and campaigns write push work to the store and call [`PushWork::wake`]; [`crate::push`] waits on the
//! signals. Without push, no task waits for them.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::cluster::Nodes;

pub(crate) struct PushWork {
    nodes: Arc<Nodes>,
    /// Wakes the sender.
    pub(crate) senders: Arc<Notify>,
    /// Wakes the dispatcher.
    pub(crate) dispatcher: Notify,
    /// Wakes the collector.
    pub(crate) collector: Notify,
    /// Wakes the task that sends broadcasts.
    pub(crate) broadcaster: Notify,
    /// Wakes the sender of activities.
    pub(crate) activities: Notify,
    /// Wakes the task that collects the devices of activities.
    pub(crate) activity_collector: Notify,
}

impl PushWork {
    pub(crate) fn new(nodes: Arc<Nodes>) -> Self {
        Self {
            nodes,
            senders: Arc::default(),
            dispatcher: Notify::new(),
            collector: Notify::new(),
            broadcaster: Notify::new(),
            activities: Notify::new(),
            activity_collector: Notify::new(),
        }
    }

    /// Push work was added: wakes every node that sends.
    pub(crate) fn wake(&self) {
        self.wake_local();
        self.nodes.wake_senders();
    }

    /// Push work was added, perhaps by another node.
    pub(crate) fn wake_local(&self) {
        self.wake_senders();
        self.collector.notify_one();
        self.broadcaster.notify_one();
        self.activities.notify_one();
        self.activity_collector.notify_one();
    }

    /// An activity started or changed: wakes every node that sends.
    pub(crate) fn wake_activities(&self) {
        self.activities.notify_one();
        self.activity_collector.notify_one();
        self.nodes.wake_senders();
    }

    /// There are batches to take.
    pub(crate) fn wake_senders(&self) {
        self.senders.notify_one();
        self.dispatcher.notify_one();
    }
}
