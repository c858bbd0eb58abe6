//! How far a connection is, and how it came.

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The request head is not complete.
    Head,
    /// Its token has to come: in a frame of a WebSocket, in a CONNECT, by SASL. XMPP stays here while its token is
    /// verified.
    AwaitToken,
    /// Its token is verified, or the store is asked: from then on `Opening::login` is set.
    LoggingIn,
    /// A session is attached (or it is an echo).
    Open,
    /// The last word is said: input is discarded until the peer ends it or time is up.
    Closing,
    /// To be removed at the end of this turn's handler.
    Dead,
}

/// How it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Admitted,
    /// Over the rate of connects, or the number: a device is told to come back, the API serves it.
    OverRate,
}
