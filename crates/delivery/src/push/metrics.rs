//! Metrics of push.

use noroshi_store::{Batch, ChannelCounts, Finished};
use noroshi_telemetry::{Histogram, Labels, metrics};
use noroshi_types::{AppId, BroadcastState, Lane, Outcome, PushEnvironment, PushService};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::token_health::Realm;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RealmLabels {
    app: u32,
    service: &'static str,
    environment: &'static str,
}

/// The fate of a parcel on the queue between the dispatcher and the senders.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParcelFate {
    /// Put there by this node.
    Put,
    /// Pulled by this node, which sends its batch.
    Claimed,
    /// Its batch belongs to another node, or is finished.
    Stale,
    /// Its push service has too much in flight: given back to the store.
    Busy,
    /// Unreadable, or pulled too often: left to the store.
    Poison,
}

metrics! {
    pub(crate) struct Metrics {
        /// By outcome, reason and lane.
        recipients: Family<Labels<3>, Counter> = "Recipients, by the outcome of their push",
        /// By lane.
        batches: Family<Labels<1>, Counter> = "Batches taken from the queue",
        retries: Counter = "Recipients scheduled for a retry",
        pub(crate) answered_seconds: Histogram = "Time from the claim of a batch to the answer of the push service, per push",
        pub(crate) recipients_in_flight: Gauge = "Recipients waiting for an answer",
        pub(crate) batches_in_flight: Gauge = "Batches in flight",
        pub(crate) campaign_batches_waiting: Gauge = "Batches of running campaigns on the queue",
        pub(crate) campaigns_running: Gauge = "Running campaigns",
        pub(crate) walk_pages: Counter = "Pages read from audiences",
        pub(crate) tokens_removed: Counter = "Push tokens removed because the push service reported them invalid",
        pub(crate) tokens_set_aside: Counter = "Push tokens suspended as suspect",
        suspect_alarm: Family<RealmLabels, Gauge> =
            "1 while so many tokens are suspect that the credential or its environment must be wrong",
        pub(crate) store_errors: Counter = "Store and queue operations that failed and are retried",
        pub(crate) credentials_unreadable: Gauge = "Credentials that could not be decrypted",
        pub(crate) leader: Gauge = "1 while this node leads the push work of its store",
        pub(crate) batches_lost: Counter =
            "Batches whose lease expired on this node, and that another node sends",
        pub(crate) batches_failed: Counter =
            "Times that sending a batch panicked; after five times on one node the batch is set aside",
        pub(crate) batches_set_aside: Counter =
            "Batches that no sender could send, with all recipients refused (sender_failed, sender_ended)",
        /// By result and reason.
        broadcasts: Family<Labels<2>, Counter> = "Broadcasts to channels of APNs that ended, by result",
        pub(crate) broadcast_retries: Counter = "Broadcasts to channels scheduled for a retry",
        channels: Gauge = "Broadcast channels of all apps, counted once a minute by the node that leads the push work",
        channels_waiting: Gauge = "Broadcast channels with broadcasts that wait, counted with them",
        pub(crate) activity_seconds: Histogram =
            "Time from an update of a Live Activity to the last answer for a slice of its devices, per slice",
        pub(crate) activity_updates_coalesced: Counter =
            "Updates of Live Activities that were not sent to a slice of devices, because a newer one came before",
        parcels: Family<Labels<1>, Counter> = "Entries of the cluster's push queue, by result",
    }
}

impl Metrics {
    /// Creates a series of every metric, for the list of metrics in the documentation.
    pub(crate) fn describe(&self) {
        self.count(Outcome::Pushed, None, Lane::Direct, 0);
        self.batches.get_or_create(&[("lane", Lane::Direct.as_str())]).inc_by(0);
        self.alarm((AppId(0), PushService::Apns, PushEnvironment::Production), false);
        self.parcels(ParcelFate::Put, 0);
        self.broadcasts.get_or_create(&[("result", BroadcastState::Sent.as_str()), ("reason", "")]).inc_by(0);
    }

    pub(crate) fn broadcasts(&self, state: BroadcastState, reason: Option<&'static str>, count: u64) {
        if count > 0 {
            let labels = [("result", state.as_str()), ("reason", reason.unwrap_or_default())];
            self.broadcasts.get_or_create(&labels).inc_by(count);
        }
    }

    pub(crate) fn channels(&self, counts: ChannelCounts) {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.channels.set(number(counts.channels));
        self.channels_waiting.set(number(counts.waiting));
    }

    pub(crate) fn parcels(&self, fate: ParcelFate, count: usize) {
        let result = match fate {
            ParcelFate::Put => "put",
            ParcelFate::Claimed => "claimed",
            ParcelFate::Stale => "stale",
            ParcelFate::Busy => "busy",
            ParcelFate::Poison => "poison",
        };
        self.parcels.get_or_create(&[("result", result)]).inc_by(count as u64);
    }

    pub(crate) fn count_taken(&self, batches: &[Batch]) {
        for lane in Lane::ALL {
            let count = batches.iter().filter(|batch| batch.lane == lane).count();
            if count > 0 {
                self.batches.get_or_create(&[("lane", lane.as_str())]).inc_by(count as u64);
            }
        }
    }

    pub(crate) fn count_finished(&self, finished: &Finished, lane: Lane) {
        for part in &finished.parts {
            self.count(part.outcome, part.reason, lane, part.devices.len() as u64);
        }
        let again = finished.again.iter().map(|again| again.recipients.len() as u64);
        self.retries.inc_by(again.sum());
    }

    /// Counts recipients by outcome.
    pub(crate) fn count(&self, outcome: Outcome, reason: Option<&'static str>, lane: Lane, count: u64) {
        let (outcome, reason) = (outcome.as_str(), reason.unwrap_or_default());
        let labels = [("outcome", outcome), ("reason", reason), ("lane", lane.as_str())];
        self.recipients.get_or_create(&labels).inc_by(count);
    }

    pub(crate) fn alarm(&self, (app, service, environment): Realm, on: bool) {
        let labels = RealmLabels { app: app.0, service: service.as_str(), environment: environment.as_str() };
        self.suspect_alarm.get_or_create(&labels).set(i64::from(on));
    }
}
