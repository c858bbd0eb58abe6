//! How a connection arrived.

/// How it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Admitted,
    /// Over the rate of connects, or the number: a device is told to come back, the API serves it.
    OverRate,
}
