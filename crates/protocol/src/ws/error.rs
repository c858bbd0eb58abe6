//! The errors of a connection: of its frames, and of its opening handshake.

use noroshi_types::CloseReason;

/// Why the peer's bytes end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WsError {
    #[error("{0}")]
    Protocol(&'static str),
    #[error("a text message is not valid UTF-8")]
    InvalidUtf8,
    #[error("the message exceeds the size limit")]
    TooBig,
}

impl WsError {
    pub fn reason(&self) -> CloseReason {
        match self {
            WsError::Protocol(_) => CloseReason::ProtocolError,
            WsError::InvalidUtf8 => CloseReason::InvalidUtf8,
            WsError::TooBig => CloseReason::TooBig,
        }
    }
}

/// Why a request cannot be upgraded to a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    #[error("a WebSocket handshake requires GET")]
    NotGet,
    #[error("this address requires WebSocket: send \"Connection: Upgrade\" and \"Upgrade: websocket\"")]
    NotUpgrade,
    #[error("only WebSocket version 13 is supported")]
    Version,
    #[error("{0}")]
    Malformed(&'static str),
}

impl UpgradeError {
    pub fn status(&self) -> u16 {
        match self {
            UpgradeError::NotGet => 405,
            UpgradeError::NotUpgrade | UpgradeError::Version => 426,
            UpgradeError::Malformed(_) => 400,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            UpgradeError::NotGet => "method_not_allowed",
            UpgradeError::NotUpgrade => "upgrade_required",
            UpgradeError::Version => "websocket_version",
            UpgradeError::Malformed(_) => "bad_handshake",
        }
    }

    /// Additional headers of the response.
    pub fn headers(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            UpgradeError::NotGet => &[("Allow", "GET")], // RFC 9110 §15.5.6
            UpgradeError::NotUpgrade => &[("Upgrade", "websocket")], // RFC 9110 §15.5.22
            UpgradeError::Version => &[("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")], // RFC 6455 §4.4
            UpgradeError::Malformed(_) => &[],
        }
    }
}
