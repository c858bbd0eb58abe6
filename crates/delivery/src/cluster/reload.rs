//! Copies that every node keeps of shared configuration: apps and keys, push credentials; and wake-ups for push work.
//!
//! The node that changes one of them notifies the others, which read it again. A record may be lost, so every node also
//! reads everything again at intervals. Other nodes are woken for push work at most twenty times a second, however much
//! is published.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use noroshi_types::AppId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::cluster::{Handler, Peers, Reload};

/// The pause between two wake-ups.
const WAKE_INTERVAL: Duration = Duration::from_millis(50);

pub(crate) struct Changes {
    reload: Arc<dyn Reload>,
    apps: AtomicBool,
    /// Guards the set only.
    credentials: Mutex<HashSet<AppId>>,
    changed: Notify,
    woken: Notify,
}

impl Changes {
    pub(crate) fn new(reload: Arc<dyn Reload>) -> Self {
        let (apps, credentials) = (AtomicBool::new(false), Mutex::default());
        Self { reload, apps, credentials, changed: Notify::new(), woken: Notify::new() }
    }

    /// Another node changed apps or keys.
    pub(crate) fn apps(&self) {
        self.apps.store(true, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// Another node changed an app's credentials.
    pub(crate) fn credentials(&self, app: AppId) {
        self.credentials.lock().insert(app);
        self.changed.notify_one();
    }

    pub(crate) fn wake(&self) {
        self.woken.notify_one();
    }
}

/// Reads changes again and wakes senders, until it is dropped.
pub(crate) async fn run(peers: &Peers, handler: &dyn Handler) {
    tokio::join!(reload_changed(peers, handler), reload_all(peers, handler), wake_others(peers));
}

async fn reload_changed(peers: &Peers, handler: &dyn Handler) {
    loop {
        peers.changes.changed.notified().await;
        if peers.changes.apps.swap(false, Ordering::SeqCst) {
            peers.changes.reload.reload().await;
        }
        let apps = std::mem::take(&mut *peers.changes.credentials.lock());
        for app in apps {
            if let Err(error) = handler.reload_credentials(app).await {
                tracing::warn!(%error, app = app.0, "could not reload push credentials; retrying");
            }
        }
    }
}

async fn reload_all(peers: &Peers, handler: &dyn Handler) {
    loop {
        tokio::time::sleep(peers.config.reload_interval).await;
        peers.changes.reload.reload().await;
        if let Err(error) = handler.reload_changed_credentials().await {
            tracing::warn!(%error, "could not reload push credentials; retrying");
        }
    }
}

async fn wake_others(peers: &Peers) {
    loop {
        peers.changes.woken.notified().await;
        peers.send(To::Senders, Record::WakePush);
        tokio::time::sleep(WAKE_INTERVAL).await;
    }
}
