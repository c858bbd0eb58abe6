//! Reads single figures of a node's admin address in the Prometheus text format. A scrape costs the node a
//! little, so scenarios read before and after a measurement.

use crate::Error;
use crate::http::{Client, Origin, Request};

pub(crate) struct Metrics {
    client: Client,
    text: String,
}

impl Metrics {
    /// Reads the metrics for the first time.
    pub(crate) fn open(admin: &Origin) -> Result<Self, Error> {
        let mut metrics = Self { client: Client::new(admin.clone())?, text: String::new() };
        metrics.refresh()?;
        Ok(metrics)
    }

    pub(crate) fn refresh(&mut self) -> Result<(), Error> {
        let response = self.client.expect_success(Request::json("GET", "/metrics", ""), b"")?;
        self.text = String::from_utf8_lossy(&response.body).into_owned();
        Ok(())
    }

    /// The sum over all labels; 0 for a missing metric.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.sum_of(name, "")
    }

    /// The sum of the lines with `label`, in the form `name="value"`.
    pub(crate) fn sum_of(&self, name: &str, label: &str) -> f64 {
        sum(&self.text, name, label)
    }
}

fn sum(text: &str, name: &str, label: &str) -> f64 {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.split_once('}')?,
            None => ("", rest.strip_prefix(' ').map(|_| rest)?),
        };
        (label.is_empty() || labels.split(',').any(|one| one == label)).then(|| value.trim().parse::<f64>())
    });
    values.flatten().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_name_and_label() {
        let text = "# HELP a_total Things\n# TYPE a_total counter\na_total{reason=\"x\",kind=\"k\"} 3\n\
                    a_total{reason=\"y\"} 4\nb 1.5\na_total_more 9\n";
        assert_eq!(sum(text, "a_total", ""), 7.0);
        assert_eq!(sum(text, "a_total", "reason=\"x\""), 3.0);
        assert_eq!(sum(text, "b", ""), 1.5);
        assert_eq!(sum(text, "c", ""), 0.0);
    }
}
