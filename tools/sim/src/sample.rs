//! Weighted values and their percentiles.

#[derive(Debug, Clone, Default)]
pub(crate) struct Weighted {
    values: Vec<(f64, u64)>,
    is_sorted: bool,
}

impl Weighted {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn add(&mut self, value: f64, count: u64) {
        self.values.push((value, count));
        self.is_sorted = false;
    }

    /// The smallest value that this percentage of all values does not exceed; 0 without values.
    pub(crate) fn percentile(&mut self, percent: f64) -> f64 {
        self.sort();
        let all: u64 = self.values.iter().map(|(_, count)| count).sum();
        let wanted = (all as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut so_far = 0;
        for (value, count) in &self.values {
            so_far += count;
            if so_far >= wanted {
                return *value;
            }
        }
        0.0
    }

    /// At most `points` points of the cumulative distribution, including the first and the last.
    pub(crate) fn curve(&mut self, points: usize) -> Vec<(f64, f64)> {
        self.sort();
        let all: u64 = self.values.iter().map(|(_, count)| count).sum();
        let step = self.values.len().div_ceil(points.max(1)).max(1);
        let (mut curve, mut so_far) = (Vec::new(), 0);
        for (at, (value, count)) in self.values.iter().enumerate() {
            so_far += count;
            if at % step == 0 || at + 1 == self.values.len() {
                curve.push((*value, so_far as f64 / all.max(1) as f64));
            }
        }
        curve
    }

    fn sort(&mut self) {
        if !self.is_sorted {
            self.values.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            self.is_sorted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_respect_weights() {
        let mut sample = Weighted::new();
        assert_eq!(sample.percentile(50.0), 0.0);
        sample.add(3.0, 1);
        sample.add(1.0, 98);
        sample.add(2.0, 1);
        for (percent, expected) in [(0.0, 1.0), (50.0, 1.0), (98.0, 1.0), (99.0, 2.0), (100.0, 3.0)] {
            assert_eq!(sample.percentile(percent), expected, "{percent}");
        }
        assert_eq!(sample.curve(10), [(1.0, 0.98), (2.0, 0.99), (3.0, 1.0)]);
        assert_eq!(sample.curve(1).last(), Some(&(3.0, 1.0)));
    }
}
