//! Metrics of threads, read from their registry on scrape.

use noroshi_supervision::{Kind, Threads, panics};
use noroshi_telemetry::Registry;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

pub(super) fn register(threads: &Threads, registry: &mut Registry) {
    registry.register_collector(Box::new(OfThreads(threads.clone())));
}

#[derive(Debug)]
struct OfThreads(Threads);

impl Collector for OfThreads {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let samples = self.0.sample();
        let help = "Iterations of a supervised thread. Grows while it makes progress";
        let turns = ConstCounter::new(0u64);
        let mut family = encoder.encode_descriptor("thread_turns", help, None, turns.metric_type())?;
        for sample in &samples {
            let labels = [("kind", sample.kind.name()), ("thread", sample.name.as_str())];
            ConstCounter::new(sample.count / 2).encode(family.encode_family(&labels)?)?;
        }
        let help = "Time that a supervised thread has been working without progress; 0 while it waits";
        let busy = ConstGauge::new(0f64);
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("thread_busy", help, unit, busy.metric_type())?;
        for sample in &samples {
            let labels = [("kind", sample.kind.name()), ("thread", sample.name.as_str())];
            ConstGauge::new(sample.busy.as_secs_f64()).encode(family.encode_family(&labels)?)?;
        }
        let help = "Panics by kind of thread, including those that ended only one connection or request";
        let mut family = encoder.encode_descriptor("thread_panics", help, None, turns.metric_type())?;
        for kind in Kind::ALL {
            ConstCounter::new(panics::of(kind)).encode(family.encode_family(&[("kind", kind.name())])?)?;
        }
        Ok(())
    }
}
