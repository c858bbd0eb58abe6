//! Options of `noroshi bench tenants`: the steady app, and the load of the noisy one.

use super::{Common, Pacing};
use crate::Error;

#[derive(Debug, clap::Args)]
pub(crate) struct Tenants {
    /// Devices of the steady app, each with its own user
    #[arg(long, default_value_t = 500)]
    pub(crate) connections: usize,
    /// Users per request of the steady app
    #[arg(long, default_value_t = 10)]
    pub(crate) targets: usize,
    /// Bytes of `data`
    #[arg(long, default_value_t = 200)]
    pub(crate) payload: usize,
    /// Topics of the noisy app with a retained message
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) retained: u32,
    /// Threads per kind of load
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,
    /// Quotas of the noisy app, such as publishes_per_second=100; may be repeated
    #[arg(long, value_name = "QUOTA=LIMIT")]
    pub(crate) quota: Vec<String>,
    /// Fail unless the steady app's p99 and deliveries stay within this margin of the reference, such as 20%
    #[arg(long, value_parser = percent)]
    pub(crate) within: Option<f64>,
    #[command(flatten)]
    pub(crate) pacing: Pacing,
    #[command(flatten)]
    pub(crate) common: Common,
}

impl Tenants {
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.pacing.check()?;
        super::check_counts(self.connections, self.targets, self.payload, 1)?;
        super::check(
            self.targets <= self.connections / usize::from(self.common.processes),
            "a request names more users than a client process has: increase --connections",
        )?;
        super::check(
            self.common.server.is_none(),
            "the scenario creates an app: it requires a started server",
        )?;
        self.limits().map(drop)
    }

    /// The noisy app's quotas, by name.
    pub(crate) fn limits(&self) -> Result<serde_json::Map<String, serde_json::Value>, Error> {
        let limit = |text: &String| {
            let parsed =
                text.split_once('=').and_then(|(name, limit)| Some((name, limit.parse::<u64>().ok()?)));
            let (name, limit) =
                parsed.ok_or_else(|| Error::Usage(format!("--quota {text}: expected QUOTA=LIMIT")))?;
            Ok((name.to_owned(), limit.into()))
        };
        self.quota.iter().map(limit).collect()
    }
}

/// Parses a percentage as a fraction.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent.is_finite() => Ok(percent / 100.0),
        _ => Err("expected a positive percentage, such as 20%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margin_is_a_percentage() {
        assert_eq!((percent("20%"), percent("5")), (Ok(0.2), Ok(0.05)));
        for bad in ["", "%", "-1%", "0", "many", "inf"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }
}
