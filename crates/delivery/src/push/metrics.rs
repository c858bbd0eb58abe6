//! Metrics of push.

use noroshi_store::{Batch, Finished};
use noroshi_telemetry::{Histogram, Registry};
use noroshi_types::{AppId, Lane, Outcome, PushEnvironment, PushService};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::token_health::Realm;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RecipientLabels {
    outcome: &'static str,
    reason: &'static str,
    lane: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    lane: &'static str,
}

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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ParcelLabels {
    result: &'static str,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    recipients: Family<RecipientLabels, Counter>,
    batches: Family<LaneLabels, Counter>,
    retries: Counter,
    suspect_alarm: Family<RealmLabels, Gauge>,
    pub(crate) answered_seconds: Histogram,
    pub(crate) recipients_in_flight: Gauge,
    pub(crate) batches_in_flight: Gauge,
    pub(crate) batches_waiting: Gauge,
    pub(crate) campaigns_running: Gauge,
    pub(crate) walk_pages: Counter,
    pub(crate) tokens_removed: Counter,
    pub(crate) tokens_set_aside: Counter,
    pub(crate) store_errors: Counter,
    pub(crate) credentials_unreadable: Gauge,
    pub(crate) leader: Gauge,
    pub(crate) batches_lost: Counter,
    pub(crate) batches_failed: Counter,
    pub(crate) batches_set_aside: Counter,
    parcels: Family<ParcelLabels, Counter>,
}

impl Metrics {
    /// Creates a series of every metric, for the list of metrics in the documentation.
    pub(crate) fn describe(&self) {
        self.count(Outcome::Pushed, None, Lane::Direct, 0);
        self.batches.get_or_create(&LaneLabels { lane: Lane::Direct.as_str() }).inc_by(0);
        self.alarm((AppId(0), PushService::Apns, PushEnvironment::Production), false);
        self.parcels(ParcelFate::Put, 0);
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("push");
        registry.register("recipients", "Recipients, by the outcome of their push", self.recipients.clone());
        registry.register("batches", "Batches taken from the queue", self.batches.clone());
        registry.register("retries", "Recipients scheduled for a retry", self.retries.clone());
        registry.register("answered_seconds", "Time from dequeue to answer", self.answered_seconds.clone());
        let in_flight = self.recipients_in_flight.clone();
        registry.register("recipients_in_flight", "Recipients waiting for an answer", in_flight);
        let in_flight = self.batches_in_flight.clone();
        registry.register("batches_in_flight", "Batches in flight", in_flight);
        let waiting = self.batches_waiting.clone();
        registry.register("campaign_batches_waiting", "Batches of running campaigns on the queue", waiting);
        registry.register("campaigns_running", "Running campaigns", self.campaigns_running.clone());
        registry.register("walk_pages", "Pages read from audiences", self.walk_pages.clone());
        registry.register("tokens_removed", "Push tokens removed on proof", self.tokens_removed.clone());
        registry.register(
            "tokens_set_aside",
            "Push tokens set aside as suspect",
            self.tokens_set_aside.clone(),
        );
        registry.register(
            "suspect_alarm",
            "1 while so many tokens are suspect that the credential or its environment must be wrong",
            self.suspect_alarm.clone(),
        );
        registry.register(
            "store_errors",
            "Store and queue operations that failed and are retried",
            self.store_errors.clone(),
        );
        registry.register(
            "credentials_unreadable",
            "Credentials that could not be opened",
            self.credentials_unreadable.clone(),
        );
        registry.register(
            "leader",
            "1 while this node leads the push work of its store",
            self.leader.clone(),
        );
        registry.register(
            "batches_lost",
            "Batches whose lease expired on this node, and that another node sends",
            self.batches_lost.clone(),
        );
        registry.register(
            "batches_failed",
            "Times that sending a batch panicked; after five times on one node the batch is set aside",
            self.batches_failed.clone(),
        );
        registry.register(
            "batches_set_aside",
            "Batches that no sender could send, with all recipients refused (sender_failed, sender_ended)",
            self.batches_set_aside.clone(),
        );
        registry.register("parcels", "Parcels on the queue of the cluster, by result", self.parcels.clone());
    }

    pub(crate) fn parcels(&self, fate: ParcelFate, count: usize) {
        let result = match fate {
            ParcelFate::Put => "put",
            ParcelFate::Claimed => "claimed",
            ParcelFate::Stale => "stale",
            ParcelFate::Busy => "busy",
            ParcelFate::Poison => "poison",
        };
        self.parcels.get_or_create(&ParcelLabels { result }).inc_by(count as u64);
    }

    pub(crate) fn count_taken(&self, batches: &[Batch]) {
        for lane in Lane::ALL {
            let count = batches.iter().filter(|batch| batch.lane == lane).count();
            if count > 0 {
                self.batches.get_or_create(&LaneLabels { lane: lane.as_str() }).inc_by(count as u64);
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
        let labels = RecipientLabels {
            outcome: outcome.as_str(),
            reason: reason.unwrap_or_default(),
            lane: lane.as_str(),
        };
        self.recipients.get_or_create(&labels).inc_by(count);
    }

    pub(crate) fn alarm(&self, (app, service, environment): Realm, on: bool) {
        let labels = RealmLabels { app: app.0, service: service.as_str(), environment: environment.as_str() };
        self.suspect_alarm.get_or_create(&labels).set(i64::from(on));
    }
}
