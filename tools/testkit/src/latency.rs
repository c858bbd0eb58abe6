//! The delay of an answer: none, fixed, or lognormal as for remote services. The random generator has a fixed
//! seed, so that two runs have the same delays.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The 99th percentile of the standard normal distribution.
const Z_P99: f64 = 2.326_347_874;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Latency {
    #[default]
    None,
    FixedMs(f64),
    LogNormal {
        median_ms: f64,
        p99_ms: f64,
    },
}

/// A share of the devices whose answers take longer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// 0 to 1
    pub share: f64,
    pub ms: u64,
}

impl Latency {
    pub(crate) fn check(&self) -> Result<(), String> {
        let fine = |ms: f64| ms.is_finite() && (0.0..=3_600_000.0).contains(&ms);
        match *self {
            Latency::None => Ok(()),
            Latency::FixedMs(ms) if fine(ms) => Ok(()),
            Latency::LogNormal { median_ms, p99_ms }
                if fine(p99_ms) && median_ms > 0.0 && p99_ms >= median_ms =>
            {
                Ok(())
            }
            _ => Err("a latency is 0 to 3600000 ms, and 0 < median_ms <= p99_ms".to_owned()),
        }
    }

    pub(crate) fn sample(&self, random: &mut Random) -> Duration {
        let ms = match *self {
            Latency::None => return Duration::ZERO,
            Latency::FixedMs(ms) => ms,
            // ln X is normal: the median gives its mean, the 99th percentile its standard deviation.
            Latency::LogNormal { median_ms, p99_ms } => {
                median_ms * ((p99_ms / median_ms).ln() / Z_P99 * random.normal()).exp()
            }
        };
        Duration::from_nanos((ms.min(3_600_000.0) * 1e6) as u64)
    }
}

/// Whether the answers to this device are late, for a given share of late devices; the same for every caller.
pub fn is_late(token: &str, share: f64) -> bool {
    (hash(token.as_bytes()) >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
}

/// FNV-1a with a final mix, so that similar tokens are spread.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// xorshift64*, sufficient for delays.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Random {
    /// In (0, 1].
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        (bits + 1) as f64 / (1u64 << 53) as f64
    }

    /// Box-Muller transform.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = ((-2.0 * self.uniform().ln()).sqrt(), std::f64::consts::TAU * self.uniform());
        radius * angle.cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lognormal_delays_have_the_requested_median_and_p99() {
        let latency = Latency::LogNormal { median_ms: 300.0, p99_ms: 1_500.0 };
        let mut random = Random::default();
        let mut ms: Vec<f64> = (0..50_000).map(|_| latency.sample(&mut random).as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        assert!((ms[25_000] - 300.0).abs() < 10.0, "median {}", ms[25_000]);
        assert!((ms[49_500] - 1_500.0).abs() < 120.0, "p99 {}", ms[49_500]);
    }

    #[test]
    fn the_share_of_late_devices_is_as_requested() {
        let late = |share| (0..100_000).filter(|n| is_late(&format!("{n:064x}"), share)).count();
        assert!((900..1_100).contains(&late(0.01)), "{}", late(0.01));
        assert_eq!((late(0.0), late(1.0)), (0, 100_000));
    }

    #[test]
    fn invalid_latencies_are_rejected() {
        for latency in [
            Latency::FixedMs(-1.0),
            Latency::FixedMs(f64::NAN),
            Latency::LogNormal { median_ms: 0.0, p99_ms: 1.0 },
            Latency::LogNormal { median_ms: 5.0, p99_ms: 1.0 },
        ] {
            assert!(latency.check().is_err(), "{latency:?}");
        }
    }
}
