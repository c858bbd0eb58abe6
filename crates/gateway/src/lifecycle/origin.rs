//! How a connection arrived.

/// How a connection was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Admitted,
    /// Over the rate of connects, or their number: a device is told to reconnect later, the API serves its requests.
    OverRate,
}
