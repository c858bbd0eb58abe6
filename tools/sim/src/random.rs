//! Random numbers for simulations, identical for the same seed on every machine. splitmix64 is sufficient,
//! because nothing here needs to be unpredictable.

#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// Streams of a seed are independent: a change in one part of a model does not affect the others.
    pub(crate) fn new(seed: u64, stream: &str) -> Self {
        // FNV-1a, so that the stream's name determines its starting point.
        let hash = stream.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { state: seed ^ hash }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    }

    /// Uniform in `0 <= x < 1`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with this mean: the time between independent arrivals.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// `0 <= n < bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.unit() * bound as f64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_reproducible_and_streams_differ() {
        let draw = |seed, stream: &str| {
            let mut random = Random::new(seed, stream);
            (0..100).map(|_| random.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7, "a"), draw(7, "a"));
        assert_ne!(draw(7, "a"), draw(7, "b"));
        assert_ne!(draw(7, "a"), draw(8, "a"));
    }

    #[test]
    fn means_are_as_requested() {
        let mut random = Random::new(1, "means");
        let count = 200_000;
        let mean = (0..count).map(|_| random.exponential(3.0)).sum::<f64>() / f64::from(count);
        assert!((mean - 3.0).abs() < 0.05, "{mean}");
        let even = (0..count).map(|_| random.below(10) as f64).sum::<f64>() / f64::from(count);
        assert!((even - 4.5).abs() < 0.05, "{even}");
    }
}
