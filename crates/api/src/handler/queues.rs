//! What waits in the queues of the node that answers, from its metrics, and what it lost or set aside since its start.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State as Shared;
use noroshi_telemetry::Registry;
use serde::Serialize;

use crate::error::Problem;
use crate::inspection::Inspector;
use crate::request::access::Manager;
use crate::respond::{self, Answer};

/// What a metric says about a queue.
#[derive(Clone, Copy)]
enum Says {
    Waiting,
    InWork,
    Bytes,
    OldestSeconds,
    /// Entries that no one will send again on their own, since the node started.
    Failed,
}

struct Gauge {
    queue: &'static str,
    metric: &'static str,
    says: Says,
    /// Only samples with one of these values of a label.
    only: Option<(&'static str, &'static [&'static str])>,
}

const fn gauge(queue: &'static str, metric: &'static str, says: Says) -> Gauge {
    Gauge { queue, metric, says, only: None }
}

/// A test of the node compares these names with its metrics.
const GAUGES: [Gauge; 21] = [
    gauge("store", "noroshi_store_queue_operations", Says::Waiting),
    gauge("connections", "noroshi_mailbox_items", Says::Waiting),
    gauge("cluster", "noroshi_delivery_cluster_waiting", Says::Waiting),
    gauge("links", "noroshi_cluster_link_queued_bytes", Says::Bytes),
    gauge("push", "noroshi_push_queued", Says::Waiting),
    gauge("push", "noroshi_push_in_flight", Says::InWork),
    gauge("push_batches", "noroshi_push_batches_in_flight", Says::InWork),
    gauge("push_batches", "noroshi_push_batches_failed_total", Says::Failed),
    gauge("campaigns", "noroshi_push_campaign_batches_waiting", Says::Waiting),
    gauge("campaigns", "noroshi_push_campaigns_running", Says::InWork),
    gauge("broadcasts", "noroshi_push_channels_waiting", Says::Waiting),
    gauge("shared_subscriptions", "noroshi_share_groups_waiting", Says::Waiting),
    gauge("intake", "noroshi_intake_in_work", Says::InWork),
    Gauge {
        queue: "intake",
        metric: "noroshi_intake_messages_total",
        says: Says::Failed,
        only: Some(("result", &["poison", "exhausted"])),
    },
    gauge("events", "noroshi_events_sink_backlog", Says::Waiting),
    gauge("events", "noroshi_events_sink_backlog_age_seconds", Says::OldestSeconds),
    gauge("events", "noroshi_events_sink_spool_bytes", Says::Bytes),
    gauge("events", "noroshi_events_lost_total", Says::Failed),
    gauge("cells", "noroshi_cells_outbox_parts", Says::Waiting),
    gauge("cells", "noroshi_cells_outbox_oldest_seconds", Says::OldestSeconds),
    gauge("receipts", "noroshi_web_push_receipts_waiting", Says::Waiting),
];

#[derive(Serialize)]
struct QueuesBody<'a> {
    node: Option<&'a str>,
    /// Whether this node leads the push work of a store that several nodes share. Some figures are known to the leader only.
    leads: bool,
    queues: Vec<QueueBody>,
}

#[derive(Serialize)]
struct QueueBody {
    queue: &'static str,
    /// Which of several: a push service, a sink, a cell.
    of: BTreeMap<String, String>,
    waiting: Option<f64>,
    in_work: Option<f64>,
    bytes: Option<f64>,
    oldest_s: Option<f64>,
    failed: Option<f64>,
}

/// `GET /v1/queues`
pub(crate) async fn list(
    Shared(registry): Shared<Arc<Registry>>,
    Shared(inspector): Shared<Option<Arc<Inspector>>>,
    _: Manager,
) -> Answer {
    let text = noroshi_telemetry::encode(&registry).map_err(Problem::internal)?;
    let leads = samples(&text).any(|sample| sample.metric == "noroshi_push_leader" && sample.value > 0.0);
    let node = inspector.as_ref().map(|inspector| inspector.node());
    respond::ok(&QueuesBody { node, leads, queues: queues(&text) })
}

fn queues(text: &str) -> Vec<QueueBody> {
    let mut found: Vec<QueueBody> = Vec::new();
    for sample in samples(text) {
        let of_metric = GAUGES.iter().find(|gauge| gauge.metric == sample.metric);
        let Some(Gauge { queue, says, only, .. }) = of_metric else { continue };
        let mut of = sample.labels();
        if let Some((label, values)) = only
            && !of.get(*label).is_some_and(|value| values.contains(&value.as_str()))
        {
            continue;
        }
        // Why something failed is no queue of its own.
        of.retain(|label, _| !matches!(label.as_str(), "why" | "result"));
        let at = found.iter().position(|one| one.queue == *queue && one.of == of).unwrap_or_else(|| {
            let none = None;
            found.push(QueueBody {
                queue,
                of,
                waiting: none,
                in_work: none,
                bytes: none,
                oldest_s: none,
                failed: none,
            });
            found.len() - 1
        });
        let body = &mut found[at];
        let place = match says {
            Says::Waiting => &mut body.waiting,
            Says::InWork => &mut body.in_work,
            Says::Bytes => &mut body.bytes,
            Says::OldestSeconds => &mut body.oldest_s,
            Says::Failed => &mut body.failed,
        };
        *place = Some(place.unwrap_or(0.0) + sample.value);
    }
    let rank = |queue: &str| GAUGES.iter().position(|gauge| gauge.queue == queue);
    found.sort_by(|one, other| rank(one.queue).cmp(&rank(other.queue)).then_with(|| one.of.cmp(&other.of)));
    found
}

/// A line of `/metrics`.
struct Sample<'a> {
    metric: &'a str,
    labels: &'a str,
    value: f64,
}

fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (what, value) = line.rsplit_once(' ')?;
        let (metric, labels) = what.split_once('{').unwrap_or((what, ""));
        Some(Sample {
            metric,
            labels: labels.strip_suffix('}').unwrap_or_default(),
            value: value.parse().ok()?,
        })
    })
}

impl Sample<'_> {
    /// The labels of these metrics are words of a fixed list, or names of cells: without quotes and commas.
    fn labels(&self) -> BTreeMap<String, String> {
        let pair = |text: &str| {
            let (name, value) = text.split_once('=')?;
            Some((name.to_owned(), value.trim_matches('"').to_owned()))
        };
        self.labels.split(',').filter_map(pair).collect()
    }
}

/// The metrics that `list` reads.
pub fn queue_metrics() -> impl Iterator<Item = &'static str> {
    GAUGES.iter().map(|gauge| gauge.metric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_one_queue_are_one_entry() {
        let text = "# TYPE noroshi_push_queued gauge\n\
            noroshi_push_queued{service=\"apns\",environment=\"production\",lane=\"direct\"} 3\n\
            noroshi_events_sink_backlog{sink=\"kafka\"} 7\n\
            noroshi_events_sink_backlog_age_seconds{sink=\"kafka\"} 1.5\n\
            noroshi_events_lost_total{sink=\"kafka\",why=\"ring\"} 2\n\
            noroshi_events_lost_total{sink=\"kafka\",why=\"refused\"} 1\n\
            noroshi_intake_messages_total{result=\"accepted\"} 9\n\
            noroshi_intake_messages_total{result=\"poison\"} 4\n\
            noroshi_store_queue_operations 5\n\
            noroshi_unrelated 1\n";
        let body = serde_json::to_value(queues(text)).expect("JSON");
        let queue = |queue: &str, of: serde_json::Value, figures: [Option<f64>; 5]| {
            let [waiting, in_work, bytes, oldest_s, failed] = figures;
            serde_json::json!({
                "queue": queue, "of": of, "waiting": waiting, "in_work": in_work, "bytes": bytes,
                "oldest_s": oldest_s, "failed": failed,
            })
        };
        let apns = serde_json::json!({"service": "apns", "environment": "production", "lane": "direct"});
        let kafka = serde_json::json!({"sink": "kafka"});
        let none = serde_json::json!({});
        let expected = [
            queue("store", none.clone(), [Some(5.0), None, None, None, None]),
            queue("push", apns, [Some(3.0), None, None, None, None]),
            queue("intake", none, [None, None, None, None, Some(4.0)]),
            queue("events", kafka, [Some(7.0), None, None, Some(1.5), Some(3.0)]),
        ];
        assert_eq!(body, serde_json::Value::Array(expected.into()));
    }
}
