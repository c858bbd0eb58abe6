//! Metrics of the pools: open, evicted and rejected connections, and HTTP/2 connections and streams.

use noroshi_telemetry::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::{Http2Close, Rejection, Trust};

/// `reason` of a stream that is rejected because requests of reset streams are still in progress.
pub(super) const TOO_MANY_STREAMS: &str = "streams";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ListenerLabels {
    pub(super) listener: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct EvictedLabels {
    pub(super) listener: &'static str,
    /// `none`, `device` or `provider`
    pub(super) credential: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RefusedLabels {
    pub(super) listener: &'static str,
    /// `full`, `client` or `streams`
    pub(super) reason: &'static str,
}

/// Metrics of all pools of a node.
#[derive(Debug, Clone)]
pub struct PoolMetrics {
    pub(super) open: Family<ListenerLabels, Gauge>,
    pub(super) evicted: Family<EvictedLabels, Counter>,
    pub(super) refused: Family<RefusedLabels, Counter>,
    pub(super) http2: Family<ListenerLabels, Gauge>,
    pub(super) http2_streams: Family<ListenerLabels, Gauge>,
    pub(super) http2_closed: Family<ClosedLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ClosedLabels {
    pub(super) listener: &'static str,
    pub(super) reason: &'static str,
}

impl PoolMetrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::unregistered();
        let help = "Open HTTP connections, by listener";
        registry.register("api_connections", help, metrics.open.clone());
        let help = "Evicted HTTP connections and HTTP/2 streams, by listener and best credential";
        registry.register("api_connections_evicted", help, metrics.evicted.clone());
        let help = "Rejected HTTP connections and HTTP/2 streams, by listener and reason: 503 because the pool is full (full) or the client reached \
             its limit (client), REFUSED_STREAM because requests of reset streams are still in progress (streams)";
        registry.register("api_connections_refused", help, metrics.refused.clone());
        let help = "Open HTTP/2 connections, by listener";
        registry.register("api_http2_connections", help, metrics.http2.clone());
        let help = "Open HTTP/2 streams, by listener";
        registry.register("api_http2_streams", help, metrics.http2_streams.clone());
        let help = "Closed HTTP/2 connections, by listener and reason: closed by the client (client), no requests (idle), node shutdown or drain (drain), \
             evicted by the pool (evicted), no answer to PING (unresponsive), flood of frames or resets (flood), broken (error)";
        registry.register("api_http2_connections_closed", help, metrics.http2_closed.clone());
        metrics
    }

    /// For tests.
    pub fn unregistered() -> Self {
        let metrics = Self {
            open: Family::default(),
            evicted: Family::default(),
            refused: Family::default(),
            http2: Family::default(),
            http2_streams: Family::default(),
            http2_closed: Family::default(),
        };
        // All series exist from the first scrape, at 0.
        for listener in ["public", "admin"] {
            drop(metrics.open.get_or_create_owned(&ListenerLabels { listener }));
            for trust in Trust::ALL {
                let labels = EvictedLabels { listener, credential: trust.as_str() };
                drop(metrics.evicted.get_or_create_owned(&labels));
            }
            for reason in [Rejection::PoolFull.as_str(), Rejection::ClientFull.as_str(), TOO_MANY_STREAMS] {
                let labels = RefusedLabels { listener, reason };
                drop(metrics.refused.get_or_create_owned(&labels));
            }
            drop(metrics.http2.get_or_create_owned(&ListenerLabels { listener }));
            drop(metrics.http2_streams.get_or_create_owned(&ListenerLabels { listener }));
            for ended in Http2Close::ALL {
                let labels = ClosedLabels { listener, reason: ended.as_str() };
                drop(metrics.http2_closed.get_or_create_owned(&labels));
            }
        }
        metrics
    }
}
