//! States of a client.

use std::fmt;
use std::time::Duration;

use crate::open_enum::open_enum;

/// A way to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// Carries frames in both directions.
    WebSocket,
    /// A stream of server-sent events; what the client sends takes requests.
    Sse,
}

impl Transport {
    /// `websocket` or `sse`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Sse => "sse",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

open_enum! {
    /// Why a connection ended: docs/close-reasons.md of the service, or one of this library.
    pub enum Reason {
        Drain = "drain",
        Replaced = "replaced",
        Expired = "expired",
        Revoked = "revoked",
        Unauthorized = "unauthorized",
        AuthTimeout = "auth_timeout",
        PingTimeout = "ping_timeout",
        SlowConsumer = "slow_consumer",
        RateLimited = "rate_limited",
        BadMessage = "bad_message",
        Overloaded = "overloaded",
        Internal = "internal",
        QuotaExceeded = "quota_exceeded",
        RulesChanged = "rules_changed",
        ProtocolError = "protocol_error",
        InvalidUtf8 = "invalid_utf8",
        TooBig = "too_big",
        /// The connection ended without a reason, or never began.
        ConnectionLost = "connection_lost",
        /// The application closed the client.
        Closed = "closed",
        /// Nobody is signed in ([`TokenError::SignedOut`](crate::TokenError::SignedOut)).
        SignedOut = "signed_out",
        /// The application handles messages more slowly than they arrive.
        QueueFull = "queue_full",
    }
}

/// What a client does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Not started.
    Idle,
    /// Until the service accepts the log-in.
    Connecting,
    /// In a session.
    #[non_exhaustive]
    Connected {
        /// How.
        transport: Transport,
        /// The id of the device, with a WebSocket.
        device: Option<String>,
    },
    /// Until the next attempt.
    #[non_exhaustive]
    Waiting {
        /// Why the last connection ended.
        reason: Reason,
        /// The time until the next attempt. None while the application catches up ([`Reason::QueueFull`]).
        retry_in: Option<Duration>,
    },
    /// Ended, until the next [`connect`](crate::Client::connect).
    #[non_exhaustive]
    Closed {
        /// Why.
        reason: Reason,
    },
}

impl State {
    /// `idle`, `connecting`, `connected`, `waiting` or `closed`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Connected { .. } => "connected",
            Self::Waiting { .. } => "waiting",
            Self::Closed { .. } => "closed",
        }
    }

    /// In a session.
    pub fn is_connected(&self) -> bool {
        matches!(self, Self::Connected { .. })
    }

    /// Ended.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// Why the last connection ended: waiting and closed.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Waiting { reason, .. } | Self::Closed { reason } => Some(reason),
            _ => None,
        }
    }
}

/// For logs.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Connected { transport, .. } => write!(f, " ({transport})"),
            Self::Waiting { reason, retry_in: Some(wait) } => {
                write!(f, " {:.1} s ({reason})", wait.as_secs_f64())
            }
            Self::Waiting { reason, .. } | Self::Closed { reason } => write!(f, " ({reason})"),
            _ => Ok(()),
        }
    }
}
