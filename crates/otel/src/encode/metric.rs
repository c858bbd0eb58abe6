//! Converts the registry's text (`/metrics`, Prometheus 0.0.4) into OTLP's metrics (`metrics/v1/metrics.proto`), so
//! that both have the same names and values. Pure except for [`now`].
//!
//! Counters become cumulative monotonic sums, histograms cumulative histograms (with buckets that are not accumulated),
//! gauges stay gauges. Only the output of this program's registry is supported; other lines are skipped.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use super::{pair, scope};

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// The body of `POST /v1/metrics`, with values counted from `since` to `at`.
pub(crate) fn metrics(resource: &Resource, text: &str, since: u64, at: u64) -> Vec<u8> {
    let scope_metrics =
        ScopeMetrics { scope: Some(scope()), metrics: read(text, since, at), schema_url: String::new() };
    let resource_metrics = ResourceMetrics {
        resource: Some(resource.clone()),
        scope_metrics: vec![scope_metrics],
        schema_url: String::new(),
    };
    ExportMetricsServiceRequest { resource_metrics: vec![resource_metrics] }.encode_to_vec()
}

/// One line: a name, its labels as text, and a value.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: f64,
}

fn read(text: &str, since: u64, at: u64) -> Vec<Metric> {
    let mut metrics: Vec<Metric> = Vec::new();
    let mut help = ("", "");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap_or((rest, ""));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let description = if help.0 == name { help.1 } else { "" };
            metrics.extend(empty(name, kind, description));
        } else if let (Some(metric), Some(sample)) = (metrics.last_mut(), sample(line)) {
            add(metric, sample, since, at);
        }
    }
    metrics
}

fn empty(name: &str, kind: &str, description: &str) -> Option<Metric> {
    let cumulative = AggregationTemporality::Cumulative.into();
    let data = match kind {
        "counter" => metric::Data::Sum(Sum {
            data_points: Vec::new(),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        "gauge" => metric::Data::Gauge(Gauge::default()),
        "histogram" => metric::Data::Histogram(Histogram {
            data_points: Vec::new(),
            aggregation_temporality: cumulative,
        }),
        _ => return None,
    };
    // Units as in the Unified Code for Units of Measure.
    let unit = match name.strip_suffix("_total").unwrap_or(name) {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "",
    };
    let (name, description) = (name.to_owned(), description.to_owned());
    Some(Metric { name, description, unit: unit.to_owned(), data: Some(data), ..Metric::default() })
}

fn add(metric: &mut Metric, sample: Sample<'_>, since: u64, at: u64) {
    let suffix = sample.name.strip_prefix(metric.name.as_str());
    match (&mut metric.data, suffix) {
        (Some(metric::Data::Sum(sum)), Some("")) => {
            sum.data_points.push(NumberDataPoint { start_time_unix_nano: since, ..number(sample, at) });
        }
        (Some(metric::Data::Gauge(gauge)), Some("")) => gauge.data_points.push(number(sample, at)),
        (Some(metric::Data::Histogram(histogram)), Some(part)) => {
            add_to_histogram(histogram, part, sample, since, at);
        }
        _ => {}
    }
}

fn number(sample: Sample<'_>, at: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(&sample.labels),
        time_unix_nano: at,
        value: Some(number_data_point::Value::AsDouble(sample.value)),
        ..NumberDataPoint::default()
    }
}

/// Lines with the same labels are adjacent: buckets in ascending order, sum and count before or after.
fn add_to_histogram(histogram: &mut Histogram, part: &str, sample: Sample<'_>, since: u64, at: u64) {
    let bound = sample.labels.iter().find(|(name, _)| *name == "le").map(|(_, bound)| bound.clone());
    let labels: Vec<_> = sample.labels.into_iter().filter(|(name, _)| *name != "le").collect();
    let attributes = attributes(&labels);
    if histogram.data_points.last().is_none_or(|point| point.attributes != attributes) {
        histogram.data_points.push(HistogramDataPoint {
            attributes,
            start_time_unix_nano: since,
            time_unix_nano: at,
            ..HistogramDataPoint::default()
        });
    }
    let Some(point) = histogram.data_points.last_mut() else { return };
    match (part, bound) {
        ("_sum", None) => point.sum = Some(sample.value),
        ("_count", None) => point.count = sample.value as u64,
        ("_bucket", Some(bound)) => {
            let before: u64 = point.bucket_counts.iter().sum();
            point.bucket_counts.push((sample.value as u64).saturating_sub(before));
            if bound != "+Inf"
                && let Ok(bound) = bound.parse()
            {
                point.explicit_bounds.push(bound);
            }
        }
        _ => {}
    }
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| pair(name, any_value::Value::StringValue(value.clone()))).collect()
}

/// None: the line is not a sample.
fn sample(line: &str) -> Option<Sample<'_>> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let name_end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        while !rest.starts_with('}') {
            let (label, quoted) = rest.trim_start_matches(',').split_once("=\"")?;
            let (value, after) = unquote(quoted)?;
            labels.push((label, value));
            rest = after;
        }
        rest = &rest[1..];
    }
    let value = rest.split_ascii_whitespace().next()?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        value => value.parse().ok()?,
    };
    Some(Sample { name, labels, value })
}

/// A label's value up to its quote, and the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[place + 1..])),
            '\\' => value.push(match letters.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP noroshi_logins_total Log-ins.
# TYPE noroshi_logins_total counter
noroshi_logins_total{app="a \"b\"\\",kind="x"} 7
noroshi_logins_total{app="c",kind="x"} 8
# HELP noroshi_connections Open now.
# TYPE noroshi_connections gauge
noroshi_connections -3
# HELP noroshi_wait_seconds Waits.
# TYPE noroshi_wait_seconds histogram
noroshi_wait_seconds_sum{q="1"} 2.5
noroshi_wait_seconds_count{q="1"} 6
noroshi_wait_seconds_bucket{le="0.1",q="1"} 1
noroshi_wait_seconds_bucket{le="1.0",q="1"} 4
noroshi_wait_seconds_bucket{le="+Inf",q="1"} 6
noroshi_wait_seconds_sum{q="2"} 0.0
noroshi_wait_seconds_count{q="2"} 0
noroshi_wait_seconds_bucket{le="+Inf",q="2"} 0
"#;

    #[test]
    fn each_type_is_converted() {
        let read = read(TEXT, 1, 2);
        assert_eq!(read.len(), 3);
        let Some(metric::Data::Sum(sum)) = &read[0].data else { panic!("{:?}", read[0]) };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        assert_eq!(sum.data_points.len(), 2);
        let first = &sum.data_points[0];
        assert_eq!((first.start_time_unix_nano, first.time_unix_nano), (1, 2));
        assert_eq!(first.value, Some(number_data_point::Value::AsDouble(7.0)));
        assert_eq!(first.attributes[0], pair("app", any_value::Value::StringValue("a \"b\"\\".to_owned())));
        assert_eq!((read[0].description.as_str(), read[0].unit.as_str()), ("Log-ins.", ""));
        let Some(metric::Data::Gauge(gauge)) = &read[1].data else { panic!("{:?}", read[1]) };
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(-3.0)));
        let Some(metric::Data::Histogram(histogram)) = &read[2].data else { panic!("{:?}", read[2]) };
        assert_eq!(read[2].unit, "s");
        let [one, two] = &histogram.data_points[..] else { panic!("{histogram:?}") };
        assert_eq!((one.count, one.sum), (6, Some(2.5)));
        assert_eq!((&one.bucket_counts[..], &one.explicit_bounds[..]), (&[1, 3, 2][..], &[0.1, 1.0][..]));
        assert_eq!((two.count, &two.bucket_counts[..]), (0, &[0][..]));
    }

    #[test]
    fn lines_without_a_sample_are_skipped() {
        for line in ["", "# EOF", "a", "a{b=\"c} 1", "a{b=\"c\"", "a one", "a{b} 1"] {
            assert!(sample(line).is_none(), "{line}");
        }
    }
}
