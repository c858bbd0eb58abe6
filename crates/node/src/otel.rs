//! Traces and metrics of a node: from configuration to a running exporter.

use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_otel::Metrics;
use noroshi_telemetry::Registry;

use crate::config::Config;
use crate::tasks::Tasks;

/// The exporter, which starts once the registry is complete.
pub(crate) struct Tracing {
    #[cfg(feature = "otel")]
    parts: Option<Parts>,
}

#[cfg(feature = "otel")]
struct Parts {
    config: noroshi_otel::Config,
    metrics: Metrics,
    ended: noroshi_telemetry::span::Ended,
}

#[cfg(not(feature = "otel"))]
impl Tracing {
    /// The configuration rejects an endpoint in this build.
    pub(crate) fn open(
        _: &Config,
        _: &str,
        _: &Delivery,
        registry: &mut Registry,
    ) -> Result<Self, noroshi_egress::ConfigError> {
        Metrics::new(registry);
        Ok(Self {})
    }

    pub(crate) fn spawn(self, _: &mut Tasks, _: &Arc<Registry>) -> Result<(), noroshi_egress::ConfigError> {
        Ok(())
    }
}

#[cfg(feature = "otel")]
impl Tracing {
    pub(crate) fn open(
        config: &Config,
        node: &str,
        delivery: &Delivery,
        registry: &mut Registry,
    ) -> Result<Self, noroshi_egress::ConfigError> {
        use noroshi_otel::metrics::Loss;
        use noroshi_telemetry::span::{Sampling, Spans};

        let metrics = Metrics::new(registry);
        let crate::config::Tracing { endpoint: Some(endpoint), sample_per_million, .. } = &config.tracing
        else {
            return Ok(Self { parts: None });
        };
        let sampling = Sampling::per_million(*sample_per_million);
        let (spans, ended) = Spans::new(sampling, metrics.dropped(Loss::Queue));
        delivery.context.attach_spans(spans);
        let config = exporter_config(config, endpoint, node)?;
        tracing::info!(endpoint, sample_per_million, "exporting traces to a collector");
        Ok(Self { parts: Some(Parts { config, metrics, ended }) })
    }

    pub(crate) fn spawn(
        self,
        tasks: &mut Tasks,
        registry: &Arc<Registry>,
    ) -> Result<(), noroshi_egress::ConfigError> {
        let Some(Parts { config, metrics, ended }) = self.parts else { return Ok(()) };
        let registry = registry.clone();
        let scrape = Box::new(move || noroshi_telemetry::encode(&registry).ok());
        let exporter = noroshi_otel::Exporter::new(config, metrics, scrape)?;
        tasks.spawn(crate::tasks::TaskKind::Tracing, |end| exporter.run(ended, end.cancelled_owned()));
        Ok(())
    }
}

#[cfg(feature = "otel")]
fn exporter_config(
    config: &Config,
    endpoint: &str,
    node: &str,
) -> Result<noroshi_otel::Config, noroshi_egress::ConfigError> {
    let crate::config::Tracing {
        headers, timeout, drain, metrics_interval, service_name, attributes, ..
    } = &config.tracing;
    let own = [
        ("service.name", service_name.clone()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", node.to_owned()),
        ("noroshi.roles", config.node.roles.names().join(",")),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value));
    let ca = config.egress.ca_file.as_deref().map(noroshi_egress::read_ca_file).transpose()?;
    Ok(noroshi_otel::Config {
        endpoint: endpoint.to_owned(),
        headers: headers.clone(),
        timeout: *timeout,
        metrics_interval: *metrics_interval,
        drain: *drain,
        // The operator's attributes take precedence over the node's own.
        resource: own
            .into_iter()
            .filter(|(key, _)| attributes.iter().all(|(other, _)| other != key))
            .chain(attributes.iter().cloned())
            .collect(),
        proxies: config.egress.proxies.clone(),
        ca: ca.unwrap_or_default(),
    })
}
