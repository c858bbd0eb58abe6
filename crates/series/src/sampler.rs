//! Reads the figures of this node: totals since its start, and the present values of gauges.

use std::collections::HashMap;
use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_delivery::quota::AppFigures;
use noroshi_telemetry::histogram::BOUNDS_US;
use noroshi_telemetry::{Registry, reading};
use noroshi_types::AppId;

use crate::figure::{FIGURES, Figure, Kind, Source, TIME_BUCKETS, kind_of};
use crate::row::{Values, add};

pub struct Sampler {
    registry: Arc<Registry>,
    delivery: Arc<Delivery>,
    /// By the name of the metric.
    sources: HashMap<&'static str, Vec<(&'static Figure, &'static Source)>>,
}

impl Sampler {
    pub fn new(registry: Arc<Registry>, delivery: Arc<Delivery>) -> Self {
        let mut sources: HashMap<_, Vec<_>> = HashMap::new();
        for figure in FIGURES {
            for source in figure.sources {
                sources.entry(source.metric).or_default().push((figure, source));
            }
        }
        Self { registry, delivery, sources }
    }

    /// Of the whole node.
    pub fn totals(&self) -> Values {
        let mut sums: HashMap<u16, f64> = HashMap::new();
        // By figure and bucket: how many took at most its bound.
        let mut times: HashMap<u16, [u64; TIME_BUCKETS]> = HashMap::new();
        let read = reading::read(&self.registry, |name, labels, value| {
            let Some(sources) = self.sources.get(name) else { return };
            let Ok(value) = value.parse::<f64>() else { return };
            for (figure, source) in sources.iter().filter(|(_, source)| labels.contains(source.label)) {
                match figure.kind {
                    Kind::Gauge | Kind::Count => {
                        *sums.entry(figure.number).or_default() += value * source.factor;
                    }
                    Kind::Time => {
                        if let Some(bucket) = bucket_of(labels) {
                            times.entry(figure.number).or_default()[bucket] += value as u64;
                        }
                    }
                }
            }
        });
        if read.is_err() {
            // Writing to memory does not fail.
            tracing::error!("the metrics of the node could not be read");
        }
        let mut values = Values::new();
        sums.into_iter().for_each(|(number, sum)| add(&mut values, number, sum as u64));
        for (number, counts) in times {
            let mut below = 0;
            for (bucket, count) in (0..).zip(counts) {
                add(&mut values, number + bucket, count.saturating_sub(below));
                below = count;
            }
        }
        values
    }

    pub fn apps(&self) -> HashMap<u32, Values> {
        let figures = self.delivery.quotas.figures();
        figures.iter().map(|figures| (figures.app.0, values_of(figures))).collect()
    }

    pub fn app(&self, app: AppId) -> Option<Values> {
        self.delivery.quotas.figures_of(app).map(|figures| values_of(&figures))
    }
}

fn values_of(figures: &AppFigures) -> Values {
    let mut values = Values::new();
    for figure in FIGURES {
        if let Some(of_app) = figure.of_app {
            add(&mut values, figure.number, of_app(figures));
        }
    }
    values
}

fn bucket_of(labels: &str) -> Option<usize> {
    let bound = labels.split_once("le=\"")?.1.split_once('"')?.0;
    let seconds: f64 = bound.parse().ok()?;
    let us = (seconds * 1e6).round();
    match us.is_finite() {
        true => BOUNDS_US.iter().position(|bound| *bound as f64 == us),
        false => Some(BOUNDS_US.len()),
    }
}

/// What happened between two totals, and the gauges of the second. A total goes back if one of its labels is forgotten, such
/// as a deleted app; then nothing is known to have happened.
pub fn since(before: &Values, now: &Values) -> Values {
    let difference = |(number, value): (&u16, &u64)| {
        let before = before.get(number).copied().unwrap_or_default();
        let value = match kind_of(*number) {
            Some(Kind::Gauge) | None => *value,
            Some(Kind::Count | Kind::Time) => value.saturating_sub(before),
        };
        (value > 0).then_some((*number, value))
    };
    now.iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_differences_and_gauges_are_not() {
        let before = Values::from_iter([(1, 5), (4, 10), (5, 7), (260, 3)]);
        let now = Values::from_iter([(1, 4), (4, 12), (5, 2), (260, 3), (261, 1)]);
        // The total of 5 went back.
        assert_eq!(since(&before, &now), Values::from_iter([(1, 4), (4, 2), (261, 1)]));
    }

    #[test]
    fn every_bound_has_its_bucket() {
        for (text, bucket) in [("0.0001", 0), ("0.00025", 1), ("60.0", 17), ("+Inf", 18)] {
            assert_eq!(bucket_of(&format!("a=\"b\",le=\"{text}\"")), Some(bucket));
        }
        assert_eq!(bucket_of("le=\"0.3\""), None);
    }
}
