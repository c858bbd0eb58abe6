//! What requests occupy: the number of requests in progress and the memory of their bodies, both bounded for the node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::rate_limit::RateLimiter;

/// The counters of a node. Its listeners share them.
#[derive(Default)]
pub struct Load {
    requests: Arc<AtomicUsize>,
    body_bytes: Arc<AtomicUsize>,
    /// For requests to Web Push endpoints, which bring no API key.
    pub(crate) web_push: Arc<RateLimiter>,
}

impl Load {
    pub(crate) fn requests(&self, max: usize) -> Quantity {
        Quantity { used: self.requests.clone(), max }
    }

    pub(crate) fn body_bytes(&self, max: usize) -> Quantity {
        Quantity { used: self.body_bytes.clone(), max }
    }
}

/// A bounded quantity, shared by all requests.
pub(crate) struct Quantity {
    used: Arc<AtomicUsize>,
    max: usize,
}

impl Quantity {
    /// A share of size 0.
    pub(crate) fn share(&self) -> Share {
        Share { used: self.used.clone(), max: self.max, size: 0 }
    }
}

/// A part of a [`Quantity`]. Dropping it releases the part.
pub(crate) struct Share {
    used: Arc<AtomicUsize>,
    max: usize,
    size: usize,
}

impl Share {
    /// False, and unchanged, if the total would exceed the maximum.
    pub(crate) fn grow(&mut self, by: usize) -> bool {
        let fits = |used: usize| used.checked_add(by).filter(|used| *used <= self.max);
        let grown = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        self.size += if grown { by } else { 0 };
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.fetch_sub(self.size, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_released_and_never_exceed_the_maximum() {
        let quantity = Load::default().requests(4);
        let (mut first, mut second) = (quantity.share(), quantity.share());
        assert!(first.grow(3));
        assert!(!second.grow(2));
        assert!(!second.grow(usize::MAX));
        drop(first);
        assert!(second.grow(4));
        drop(second);
        assert_eq!(quantity.used.load(Ordering::Relaxed), 0);
    }
}
