//! The phases of a connection, from its request head to its removal.
//!
//! Only the shard changes a phase; adapters of protocols read it.

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The request head is not complete.
    Head,
    /// Waits for the token: in a frame of a WebSocket, in a CONNECT, by SASL. XMPP stays here while its token is
    /// verified.
    AwaitToken,
    /// The token is being verified, or the store is being asked: from then on `Opening::login` is set.
    LoggingIn,
    /// A session is attached (or it is an echo).
    Open,
    /// The close is sent: input is discarded until the peer ends the connection or time is up.
    Closing,
    /// To be removed at the end of this turn's handler.
    Dead,
}

/// The ping of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ping {
    /// No ping is pending.
    None,
    /// One was sent, and nothing was received since.
    Sent,
    /// Something was received since one was sent.
    Answered,
}

impl Ping {
    /// Something was received.
    pub(crate) fn receive(&mut self) {
        if *self == Ping::Sent {
            *self = Ping::Answered;
        }
    }
}
