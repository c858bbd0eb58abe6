//! Error codes (RFC 9113 §7) and the error that ends a connection.

/// The codes of RST_STREAM and GOAWAY.
pub mod code {
    macro_rules! codes {
        ($($name:ident $code:literal)+) => {
            $(pub const $name: u32 = $code;)+

            /// The code's name, for logs and metric labels.
            pub fn name(code: u32) -> &'static str {
                match code {
                    $($name => stringify!($name),)+
                    _ => "unknown",
                }
            }
        };
    }

    codes! {
        NO_ERROR 0x0
        PROTOCOL_ERROR 0x1
        INTERNAL_ERROR 0x2
        FLOW_CONTROL_ERROR 0x3
        SETTINGS_TIMEOUT 0x4
        STREAM_CLOSED 0x5
        FRAME_SIZE_ERROR 0x6
        REFUSED_STREAM 0x7
        CANCEL 0x8
        COMPRESSION_ERROR 0x9
        CONNECT_ERROR 0xa
        ENHANCE_YOUR_CALM 0xb
        INADEQUATE_SECURITY 0xc
        HTTP_1_1_REQUIRED 0xd
    }
}

/// Why the peer's bytes end the connection (RFC 9113 §5.4.1). The output contains the matching GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", code::name(*.code))]
pub struct ConnectionError {
    /// One of [`code`].
    pub code: u32,
    pub reason: &'static str,
}

impl ConnectionError {
    pub(super) const fn new(code: u32, reason: &'static str) -> Self {
        Self { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(code::PROTOCOL_ERROR, reason)
    }

    pub(super) const fn frame_size(reason: &'static str) -> Self {
        Self::new(code::FRAME_SIZE_ERROR, reason)
    }

    pub(super) const fn flow_control(reason: &'static str) -> Self {
        Self::new(code::FLOW_CONTROL_ERROR, reason)
    }

    /// The peer sent more of something harmless than an honest peer would.
    pub(super) const fn flood(reason: &'static str) -> Self {
        Self::new(code::ENHANCE_YOUR_CALM, reason)
    }
}
