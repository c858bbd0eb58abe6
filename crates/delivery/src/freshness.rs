//! Whether data that was read of a device is still current, on every node.
//!
//! ```text
//!   writes here ─► stamps ◄─ writes at other nodes (Record::Stale)
//!        └───────► announcement ─► Record::Stale
//! ```
//!
//! A reader takes a [`Mark`] before it reads, keeps both, and asks [`Freshness::is_fresh`] before it uses the data
//! again. A writer reports its change after the commit. This module knows neither what was read nor how it is shown.
//!
//! How old data may be: on the node that wrote, not at all; on others, as long as a bus message takes and, if one was
//! lost, [`noroshi_types::limits::FIRST_CALL_TTL`].

mod announcement;
mod stamp;

use std::sync::Arc;

use noroshi_store::{Accepted, Device};
use noroshi_types::{AppId, DeviceId, DeviceNum, Request, Target, UserId, When};

use crate::cluster::Nodes;
use crate::cluster::outbox::To;
use announcement::Announcement;
use stamp::Stamps;

pub use stamp::{Mark, Tags};

pub struct Freshness {
    nodes: Arc<Nodes>,
    stamps: Stamps,
    announcement: Announcement,
}

impl Freshness {
    pub(crate) fn new(nodes: Arc<Nodes>) -> Self {
        Self { nodes, stamps: Stamps::new(), announcement: Announcement::default() }
    }

    /// Taken before a device is read.
    pub fn mark(&self) -> Mark {
        self.stamps.mark()
    }

    /// Whether what was read of a device after `mark` is still current, as far as this node knows.
    pub fn is_fresh(&self, tags: &Tags, mark: Mark) -> bool {
        self.stamps.is_fresh(tags, mark)
    }

    /// A device was changed.
    pub fn device_changed(&self, app: AppId, device: &DeviceId) {
        self.stale([stamp::device(app, device)]);
    }

    pub fn devices_changed<'a>(&self, app: AppId, devices: impl IntoIterator<Item = &'a DeviceId>) {
        self.stale(devices.into_iter().map(|device| stamp::device(app, device)));
    }

    /// Devices were changed of which only the numbers are known.
    pub(crate) fn nums_changed(&self, devices: impl IntoIterator<Item = DeviceNum>) {
        self.stale(devices.into_iter().map(stamp::num));
    }

    /// Data of users was changed that their devices show.
    pub(crate) fn users_changed<'a>(&self, app: AppId, users: impl IntoIterator<Item = &'a UserId>) {
        self.stale(users.into_iter().map(|user| stamp::user(app, user)));
    }

    /// Unknown devices of the app were changed.
    pub(crate) fn app_changed(&self, app: AppId) {
        self.stale([stamp::app(app)]);
    }

    /// An accepted notification changed the inboxes of its recipients.
    pub(crate) fn inboxes_changed(&self, accepted: &Accepted, request: &Request) {
        if request.when != When::Stored {
            return;
        }
        let app = accepted.message.app;
        match &request.target {
            Target::Users(users) => self.stale(users.iter().map(|user| stamp::user(app, user))),
            Target::Devices(devices) => self.devices_changed(app, devices),
            // Only the store knows the recipients.
            Target::Condition(_) => self.app_changed(app),
            // One row in a log, whatever the number of subscribers.
            Target::Topic(_) | Target::Everyone => {}
        }
    }

    fn stale(&self, tags: impl IntoIterator<Item = u64>) {
        let stamps = &self.stamps;
        match self.nodes.peers() {
            Some(_) => self.announcement.add(tags.into_iter().inspect(|tag| stamps.stamp(*tag))),
            None => tags.into_iter().for_each(|tag| stamps.stamp(tag)),
        }
    }

    /// Another node changed devices.
    pub(crate) fn changed_elsewhere(&self, tags: Vec<u64>) {
        tags.into_iter().for_each(|tag| self.stamps.stamp(tag));
    }

    /// Changes of other nodes may have been missed.
    pub(crate) fn all_changed(&self) {
        self.stamps.stamp_all();
    }

    /// Announces changes to other nodes until it is dropped.
    pub(crate) async fn run(&self) {
        let Some(peers) = self.nodes.peers() else { return std::future::pending().await };
        loop {
            let record = self.announcement.next().await;
            peers.send(To::Apis, record);
        }
    }
}

/// The tags of a device that was read.
pub fn tags_of(device: &Device) -> Tags {
    Tags::new(device.app, &device.id, device.num, device.user.as_ref().map(UserId::as_str))
}
