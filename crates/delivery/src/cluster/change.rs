//! What every node keeps a copy of: apps and keys, push credentials, and that there is push work.
//!
//! Who changes them tells the others, which read them again. A message may be lost, so everything is read again
//! every few seconds besides. Wakes for push work are told at most twenty times a second, whatever is published.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use noroshi_types::AppId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::cluster::{Peers, Reload};
use crate::delivery::Delivery;
use crate::push::credential::Seen;

/// Between two wakes.
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

impl Delivery {
    /// Apps or keys were changed here: the other nodes read them again.
    pub fn apps_changed(&self) {
        if let Some(peers) = self.peers() {
            peers.tell(To::All, Record::AppsChanged);
        }
    }

    pub(crate) fn credentials_changed(&self, app: AppId) {
        if let Some(peers) = self.peers() {
            peers.tell(To::Senders, Record::CredentialsChanged { app });
        }
    }
}

/// Reads again and tells, until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    tokio::join!(reload_changed(delivery, peers), reload_all(delivery, peers), wake_others(peers));
}

async fn reload_changed(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    loop {
        peers.changes.changed.notified().await;
        if peers.changes.apps.swap(false, Ordering::SeqCst) {
            peers.changes.reload.reload().await;
        }
        let apps = std::mem::take(&mut *peers.changes.credentials.lock());
        for app in apps {
            if let Err(error) = delivery.reload_credentials(app).await {
                tracing::warn!(%error, app = app.0, "credentials could not be read again; trying again later");
            }
        }
    }
}

async fn reload_all(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    let mut seen = Seen::new();
    loop {
        tokio::time::sleep(peers.config.reload_interval).await;
        peers.changes.reload.reload().await;
        if let Err(error) = delivery.reload_changed_credentials(&mut seen).await {
            tracing::warn!(%error, "credentials could not be read again; trying again later");
        }
    }
}

async fn wake_others(peers: &Arc<Peers>) {
    loop {
        peers.changes.woken.notified().await;
        peers.tell(To::Senders, Record::WakePush);
        tokio::time::sleep(WAKE_INTERVAL).await;
    }
}
