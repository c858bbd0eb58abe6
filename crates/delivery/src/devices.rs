//! Changes of devices in the store, with their effects on open connections: subscriptions, revocation, deletion, opened
//! notifications.
//!
//! The methods are not cancel-safe: a dropped future may have committed the change without its effects, such as the end
//! of a revoked device's connection.

use std::sync::Arc;

use noroshi_types::{AppId, CloseReason, DeviceId, DeviceNum, NotificationId, Topic, UserId};

use crate::context::Context;
use crate::error::Error;
use crate::freshness::Freshness;
use crate::quota::Usage;
use crate::sessions::Sessions;

pub struct Devices {
    pub(crate) context: Arc<Context>,
    pub(crate) freshness: Arc<Freshness>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) usage: Arc<Usage>,
}

impl Devices {
    /// Records that the user opened notifications on a device of an app: durable when this returns. Returns how many were
    /// not opened there before. Acknowledges nothing.
    pub async fn open(&self, app: AppId, device: DeviceNum, ids: Vec<NotificationId>) -> Result<u64, Error> {
        let now = self.context.now();
        let opened = self.context.store.open(device, ids, now).await?;
        self.context.outcomes.opened(app, device, &opened, now);
        Ok(opened.len() as u64)
    }

    /// Subscribes durably, also on an open connection. Returns whether the subscription is new.
    pub async fn subscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) -> Result<bool, Error> {
        let topics = std::slice::from_ref(topic);
        let held = self.usage.admit_subscriptions(app, device, topics).await?;
        let new = self.context.store.subscribe(app, device, topic, self.context.now()).await?;
        held.settle();
        self.freshness.device_changed(app, device);
        self.sessions.subscribed(app, &[(device, topics)]).await;
        Ok(new)
    }

    /// Returns whether there was a subscription.
    pub async fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) -> Result<bool, Error> {
        let was_subscribed = self.context.store.unsubscribe(app, device, topic).await?;
        self.freshness.device_changed(app, device);
        self.sessions.unsubscribed(app, device, topic).await;
        Ok(was_subscribed)
    }

    /// Deletes a device and ends its connection. Callers use [`crate::Delivery::delete_device`].
    pub(crate) async fn delete(&self, app: AppId, device: &DeviceId) -> Result<(), Error> {
        self.context.store.delete_device(app, device, self.context.now()).await?;
        self.changed_and_closed(app, device).await;
        Ok(())
    }

    /// Revokes the tokens and app JWTs of a device, and ends its connection. Returns the new token version.
    pub async fn revoke(&self, app: AppId, device: &DeviceId) -> Result<u32, Error> {
        let version = self.context.store.revoke_tokens(app, device, self.context.now()).await?;
        self.changed_and_closed(app, device).await;
        Ok(version)
    }

    /// Revokes the app JWTs of a user and the tokens of the user's devices, and ends their connections. Returns the
    /// number of devices.
    pub async fn revoke_user(&self, app: AppId, user: &UserId) -> Result<usize, Error> {
        let devices = self.context.store.revoke_user(app, user, self.context.now()).await?;
        self.freshness.devices_changed(app, &devices);
        self.sessions.close(app, &devices, CloseReason::Revoked).await;
        Ok(devices.len())
    }

    async fn changed_and_closed(&self, app: AppId, device: &DeviceId) {
        self.freshness.device_changed(app, device);
        self.sessions.close(app, std::slice::from_ref(device), CloseReason::Revoked).await;
    }
}
