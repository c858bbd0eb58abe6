//! What the first call of an app is answered from, besides the device itself: whether what was read of a device still
//! holds, and what is the same for all devices.
//!
//! ```text
//!   writes here ─► stamps ◄─ writes at other nodes (Record::Stale)
//!   definitions: store ─► shared snapshot ─► Current of an app at a moment ─► who asks
//! ```
//!
//! Reading order: [`stamp`], [`shared`], `told`, `notices`. Who answers keeps what it read with a [`Mark`] from before the read, and
//! asks [`Delivery::is_fresh`] before it uses it again; nothing here knows what was read or how it is shown.
//!
//! How old an answer may be: at the node that wrote, not at all; at others as long as a bus message takes and, where
//! one was lost, [`noroshi_types::limits::FIRST_CALL_TTL`].

pub mod shared;
pub mod stamp;

mod notices;
mod told;

use std::sync::Arc;
use std::time::Duration;

use noroshi_events::Event;
use noroshi_events::event::Exposed;
use noroshi_store::{Accepted, DefinitionKind, Device};
use noroshi_types::{AppId, DeviceId, DeviceNum, Label, Request, Target, UserId, When};
use tokio::sync::Notify;

pub use shared::{Current, ShownNotice};
pub use stamp::{Mark, Tags};

use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::delivery::{Delivery, Error};
use shared::Shared;
use stamp::Stamps;
use told::Told;

/// What other nodes change is read again so often, though nobody says that they did.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Before another attempt.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct FirstCalls {
    pub(crate) stamps: Stamps,
    pub(crate) shared: Shared,
    pub(crate) told: Told,
    /// Definitions changed at another node.
    pub(crate) changed: Notify,
    /// Definitions changed here or there: notices may have to be told.
    pub(crate) notices: Notify,
}

impl FirstCalls {
    pub(crate) fn new() -> Self {
        Self {
            stamps: Stamps::new(),
            shared: Shared::default(),
            told: Told::default(),
            changed: Notify::new(),
            notices: Notify::new(),
        }
    }
}

impl Delivery {
    /// To be taken before a device is read.
    pub fn mark(&self) -> Mark {
        self.first_calls.stamps.mark()
    }

    /// Whether what was read of a device behind `mark` still holds, as far as this node was told.
    pub fn is_fresh(&self, tags: &Tags, mark: Mark) -> bool {
        self.first_calls.stamps.is_fresh(tags, mark)
    }

    /// What is the same for all devices of an app, now.
    pub fn current(&self, app: AppId) -> Arc<Current> {
        self.first_calls.shared.current(app, self.clock.now())
    }

    /// Something of a device was changed.
    pub fn device_changed(&self, app: AppId, device: &DeviceId) {
        self.stale([stamp::device(app, device)]);
    }

    /// As [`Delivery::device_changed`], of many.
    pub fn devices_changed<'a>(&self, app: AppId, devices: impl IntoIterator<Item = &'a DeviceId>) {
        self.stale(devices.into_iter().map(|device| stamp::device(app, device)));
    }

    pub(crate) fn nums_changed(&self, devices: impl IntoIterator<Item = DeviceNum>) {
        self.stale(devices.into_iter().map(stamp::num));
    }

    /// Devices of the app were changed that nobody can name.
    pub(crate) fn app_changed(&self, app: AppId) {
        self.stale([stamp::app(app)]);
    }

    /// Inboxes got something, or lost it to what came.
    pub(crate) fn inboxes_changed(&self, accepted: &Accepted, request: &Request) {
        if request.when != When::Stored {
            return;
        }
        let app = accepted.message.app;
        match &request.target {
            Target::Users(users) => self.stale(users.iter().map(|user| stamp::user(app, user))),
            Target::Devices(devices) => self.devices_changed(app, devices),
            // Who they are only the store knows.
            Target::Condition(_) => self.app_changed(app),
            // One row in a log, whoever subscribes.
            Target::Topic(_) | Target::Everyone => {}
        }
    }

    fn stale(&self, tags: impl IntoIterator<Item = u64>) {
        let FirstCalls { stamps, told, .. } = &self.first_calls;
        match self.peers() {
            Some(_) => told.add(tags.into_iter().inspect(|tag| stamps.stamp(*tag))),
            None => tags.into_iter().for_each(|tag| stamps.stamp(tag)),
        }
    }

    /// Reads experiments and maintenance notices of all apps again. Of many who want it at once one reads for all who
    /// came before it began.
    pub async fn reload_definitions(&self) -> Result<(), Error> {
        let turns = &self.first_calls.shared.turns;
        let wanted = turns.want();
        let _in_order = self.first_calls.shared.reloading.lock().await;
        let Some(turn) = turns.begin(wanted) else { return Ok(()) };
        let live = self.store.live_definitions(None).await?;
        if self.first_calls.shared.replace(live, self.clock.now()) {
            self.first_calls.notices.notify_one();
        }
        turns.end(turn);
        Ok(())
    }

    /// An experiment or a notice was made, changed or archived here: this node knows with the answer, the others soon.
    pub async fn definitions_changed(&self) -> Result<(), Error> {
        let reloaded = self.reload_definitions().await;
        if let Some(peers) = self.peers() {
            peers.tell(To::All, Record::DefinitionsChanged);
        }
        reloaded
    }
}

impl Delivery {
    /// The device says that it was shown these: its variants of those that it is in.
    pub fn exposed<'a>(&self, device: &Device, experiments: &'a [Label]) -> Vec<(&'a Label, Label)> {
        let current = self.current(device.app);
        let variant =
            |experiment: &'a Label| Some((experiment, current.variant_of(experiment, device)?.name.clone()));
        let exposed: Vec<_> = experiments.iter().filter_map(variant).collect();
        for (experiment, variant) in &exposed {
            self.metrics.exposures.inc();
            self.events().emit(self.clock.now(), || {
                let (device_id, user) = (device.id.clone(), device.user.clone());
                let (experiment, variant) = (experiment.as_str().into(), variant.as_str().into());
                Event::Exposed(Box::new(Exposed { app: device.app, device_id, user, experiment, variant }))
            });
        }
        exposed
    }
}

/// The tags of a device that was read.
pub fn tags_of(device: &Device) -> Tags {
    Tags::new(device.app, &device.id, device.num, device.user.as_ref().map(UserId::as_str))
}

/// Reads again what others change and tells them what is stale, until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>) {
    let reload = async {
        loop {
            let wait = match delivery.reload_definitions().await {
                Ok(()) => RELOAD_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "experiments and notices could not be read; trying again");
                    PAUSE
                }
            };
            archive(delivery).await;
            let _ = tokio::time::timeout(wait, delivery.first_calls.changed.notified()).await;
        }
    };
    tokio::join!(reload, told::run(delivery), notices::run(delivery));
}

/// Takes experiments that are over out of what is read.
async fn archive(delivery: &Delivery) {
    const ROWS: usize = 500;
    let now = delivery.clock.now();
    if !delivery.first_calls.shared.has_ended(DefinitionKind::Experiment, now) {
        return;
    }
    let archived = delivery.store.archive_ended(DefinitionKind::Experiment, now, ROWS).await;
    match archived {
        Ok(0) => {}
        Ok(archived) => {
            tracing::info!(archived, "experiments that are over were archived");
            delivery.first_calls.changed.notify_one();
        }
        Err(error) => tracing::warn!(%error, "experiments that are over could not be archived; trying again"),
    }
}
