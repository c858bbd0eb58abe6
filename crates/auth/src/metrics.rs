//! The metrics of verification: its cost, and rejections by its limits.

use noroshi_telemetry::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    verifications: Family<OutcomeLabels, Counter>,
    recalled: Family<OutcomeLabels, Counter>,
    throttled: Family<LimitLabels, Counter>,
    fetches: Family<OutcomeLabels, Counter>,
    pub(crate) good: Counter,
    pub(crate) bad: Counter,
    pub(crate) recalled_good: Counter,
    pub(crate) recalled_bad: Counter,
    pub(crate) throttled_peer: Counter,
    pub(crate) throttled_app: Counter,
    pub(crate) throttled_queue: Counter,
    pub(crate) fetched: Counter,
    pub(crate) not_fetched: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let (verifications, recalled) = (Family::<OutcomeLabels, Counter>::default(), Family::default());
        let (throttled, fetches) = (Family::<LimitLabels, Counter>::default(), Family::default());
        let of = |family: &Family<OutcomeLabels, Counter>, outcome| {
            family.get_or_create(&OutcomeLabels { outcome }).clone()
        };
        let limit = |limit| throttled.get_or_create(&LimitLabels { limit }).clone();
        Self {
            good: of(&verifications, "good"),
            bad: of(&verifications, "bad"),
            recalled_good: of(&recalled, "good"),
            recalled_bad: of(&recalled, "bad"),
            throttled_peer: limit("peer"),
            throttled_app: limit("app"),
            throttled_queue: limit("queue"),
            fetched: of(&fetches, "ok"),
            not_fetched: of(&fetches, "failed"),
            verifications,
            recalled,
            throttled,
            fetches,
        }
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "signature_verifications",
            "Public-key verifications of app JWTs (RS256, ES256), one for each key tried, by outcome",
            self.verifications.clone(),
        );
        registry.register(
            "verified_tokens_recalled",
            "App JWTs whose signature was verified earlier with the same key set, by outcome",
            self.recalled.clone(),
        );
        registry.register(
            "log_ins_throttled",
            "Log-ins rejected with advice to retry, by limit: too many failures of the client (`peer`) or of the app (`app`), or a full verification queue (`queue`)",
            self.throttled.clone(),
        );
        registry.register("jwks_fetches", "JWK sets fetched, by outcome", self.fetches.clone());
    }
}
