//! A worker's part of the work: workers share nothing, so they may be processes. Each has every n-th device
//! and its share of the requests, which target its own devices only.

/// `0 <= index < count`
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Partition {
    pub(crate) index: usize,
    pub(crate) count: usize,
}

impl Partition {
    /// This worker's share of `total` equal items.
    pub(crate) fn share(self, total: usize) -> usize {
        total / self.count + usize::from(self.index < total % self.count)
    }

    /// The global number of this worker's item `number`.
    pub(crate) fn global(self, number: usize) -> usize {
        number * self.count + self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_devices_have_one_worker() {
        for (total, count) in [(10_000, 3), (2, 4), (0, 1), (7, 7)] {
            let parts: Vec<_> = (0..count).map(|index| Partition { index, count }).collect();
            let mut numbers: Vec<usize> = parts
                .iter()
                .flat_map(|part| (0..part.share(total)).map(|number| part.global(number)))
                .collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..total).collect::<Vec<_>>());
        }
    }
}
