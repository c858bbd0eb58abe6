//! Reads the present values of a registry, as `/metrics` shows them, without building its text.

use std::fmt;

use prometheus_client::registry::Registry;

/// Calls `sample` for every sample: its name, its labels as text (`le="0.1"`) and its value as text.
pub fn read(registry: &Registry, sample: impl FnMut(&str, &str, &str)) -> Result<(), fmt::Error> {
    let mut lines = Lines { line: String::with_capacity(256), sample };
    prometheus_client::encoding::text::encode(&mut lines, registry)
}

/// Holds one line at a time.
struct Lines<F> {
    line: String,
    sample: F,
}

impl<F: FnMut(&str, &str, &str)> fmt::Write for Lines<F> {
    fn write_str(&mut self, mut text: &str) -> fmt::Result {
        while let Some((end, rest)) = text.split_once('\n') {
            self.line.push_str(end);
            if let Some((name, labels, value)) = parts(&self.line) {
                (self.sample)(name, labels, value);
            }
            self.line.clear();
            text = rest;
        }
        self.line.push_str(text);
        Ok(())
    }
}

/// `name{labels} value`. Values have no spaces, label values may have some.
fn parts(line: &str) -> Option<(&str, &str, &str)> {
    let (sample, value) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    match sample.split_once('{') {
        Some((name, labels)) => Some((name, labels.strip_suffix('}')?, value)),
        None => Some((sample, "", value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use std::time::Duration;

    #[test]
    fn every_sample_is_read_once() {
        let mut registry = crate::registry();
        let family = Family::<crate::Labels<1>, Counter>::default();
        family.get_or_create(&[("kind", "a b {c}")]).inc_by(7);
        registry.register("logins", "Log-ins", family);
        let time = Histogram::default();
        time.observe(Duration::from_micros(90));
        registry.register("time_seconds", "Time", time);
        let mut samples = Vec::new();
        read(&registry, |name, labels, value| samples.push(format!("{name}|{labels}|{value}")))
            .expect("read");
        assert_eq!(samples[0], "noroshi_logins_total|kind=\"a b {c}\"|7");
        assert!(samples.contains(&"noroshi_time_seconds_bucket|le=\"0.0001\"|1".to_owned()), "{samples:?}");
        assert!(samples.contains(&"noroshi_time_seconds_count||1".to_owned()), "{samples:?}");
    }
}
