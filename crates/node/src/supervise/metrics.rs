//! What `/metrics` shows of threads: read from the registry when somebody looks.

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
        let help = "Turns of a supervised thread: it makes progress while they grow";
        let turns = ConstCounter::new(0u64);
        let mut family = encoder.encode_descriptor("thread_turns", help, None, turns.metric_type())?;
        for sample in &samples {
            let labels = [("kind", sample.kind.name()), ("thread", sample.name.as_str())];
            ConstCounter::new(sample.count / 2).encode(family.encode_family(&labels)?)?;
        }
        let help = "How long a supervised thread has worked on what it does now; 0 while it waits";
        let busy = ConstGauge::new(0f64);
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("thread_busy", help, unit, busy.metric_type())?;
        for sample in &samples {
            let labels = [("kind", sample.kind.name()), ("thread", sample.name.as_str())];
            ConstGauge::new(sample.busy.as_secs_f64()).encode(family.encode_family(&labels)?)?;
        }
        let help = "Panics by kind of thread, those included that ended one connection or one request only";
        let mut family = encoder.encode_descriptor("thread_panics", help, None, turns.metric_type())?;
        for kind in Kind::ALL {
            ConstCounter::new(panics::of(kind)).encode(family.encode_family(&[("kind", kind.name())])?)?;
        }
        Ok(())
    }
}
