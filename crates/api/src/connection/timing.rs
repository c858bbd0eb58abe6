//! How long a client may take to send a request body and to receive a response.

use std::time::Duration;

use noroshi_types::limits;

/// Deadlines of one listener.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// From the first read of a body to its first byte; every `body_rate_min` bytes extend the deadline by a second.
    pub body_first_byte: Duration,
    /// To the last byte, at any rate.
    pub body: Duration,
    /// Bytes a second.
    pub body_rate_min: u32,
    /// How long a client may receive nothing of a response; every `body_rate_min` bytes received earn a second back.
    pub send: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            body_first_byte: limits::BODY_FIRST_BYTE_TIMEOUT,
            body: limits::BODY_TIMEOUT,
            body_rate_min: limits::BODY_RATE_MIN,
            send: limits::SEND_TIMEOUT,
        }
    }
}

impl Timing {
    /// The time that a body may take once `received` bytes have arrived.
    pub(super) fn body_allowance(&self, received: u64) -> Duration {
        let earned =
            Duration::from_millis(received.saturating_mul(1_000) / u64::from(self.body_rate_min.max(1)));
        self.body_first_byte.saturating_add(earned).min(self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_bytes_extend_the_deadline_up_to_the_total() {
        let timing = Timing {
            body_first_byte: Duration::from_secs(10),
            body: Duration::from_secs(30),
            body_rate_min: 1_024,
            send: Duration::from_secs(30),
        };
        let check = |received, seconds| {
            assert_eq!(timing.body_allowance(received).as_secs(), seconds, "{received}");
        };
        check(0, 10);
        check(1_023, 10);
        check(5 << 10, 15);
        check(1 << 30, 30);
        check(u64::MAX, 30);
    }
}
