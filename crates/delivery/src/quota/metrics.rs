//! Metrics of refusals by quotas.

use noroshi_types::{AppName, Quota};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    app: String,
    quota: &'static str,
}

/// `noroshi_quota_refused_total`: a series for each app and quota that refused something. Operators create apps, so
/// their number is bounded.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    refused: Family<RefusedLabels, Counter>,
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut noroshi_telemetry::Registry) {
        registry.register(
            "quota_refused",
            "Requests refused because a quota of the app is used up",
            self.refused.clone(),
        );
    }

    pub(crate) fn describe(&self) {
        let labels = RefusedLabels { app: "app".to_owned(), quota: Quota::ALL[0].as_str() };
        drop(self.refused.get_or_create_owned(&labels));
    }

    pub(super) fn count(&self, app: &AppName, quota: Quota) {
        self.refused.get_or_create(&RefusedLabels { app: app.to_string(), quota: quota.as_str() }).inc();
    }

    pub(super) fn forget(&self, app: &AppName) {
        for quota in Quota::ALL {
            self.refused.remove(&RefusedLabels { app: app.to_string(), quota: quota.as_str() });
        }
    }
}
