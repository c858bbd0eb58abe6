//! Metrics of refusals by quotas.

use noroshi_telemetry::metrics;
use noroshi_types::{AppName, Quota};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    app: String,
    quota: &'static str,
}

metrics! {
    /// A series for each app and quota that refused something. Operators create apps, so their number is bounded.
    pub struct Metrics {
        quota_refused: Family<RefusedLabels, Counter> =
            "Requests refused because a quota of the app is used up",
    }
}

impl Metrics {
    pub(crate) fn describe(&self) {
        let labels = RefusedLabels { app: "app".to_owned(), quota: Quota::ALL[0].as_str() };
        drop(self.quota_refused.get_or_create_owned(&labels));
    }

    pub(super) fn count(&self, app: &AppName, quota: Quota) {
        self.quota_refused
            .get_or_create(&RefusedLabels { app: app.to_string(), quota: quota.as_str() })
            .inc();
    }

    pub(super) fn forget(&self, app: &AppName) {
        for quota in Quota::ALL {
            self.quota_refused.remove(&RefusedLabels { app: app.to_string(), quota: quota.as_str() });
        }
    }
}
