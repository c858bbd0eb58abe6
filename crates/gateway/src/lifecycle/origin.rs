//! How a connection arrived.

/// How a connection was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Admitted,
    /// Over the rate of connects, or over their number: a device gets a delay for its reconnect, and the API serves its
    /// requests.
    OverRate,
}
