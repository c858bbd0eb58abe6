//! WebSocket (RFC 6455) for both ends: the frame decoder, the frame encoders and the opening handshake.
//! Extensions are never negotiated, so a reserved bit is always an error. Whoever owns the socket
//! answers pings and runs the closing handshake: this module only says what arrived.
//!
//! Reading order: [`mod@frame`], [`decoder`], [`handshake`].

pub mod decoder;
pub mod frame;
pub mod handshake;
mod mask;

pub use decoder::{Decoder, Input, Role, WsError};
pub use frame::{Opcode, frame, push_close, push_frame, push_frame_head, push_masked_frame, text_frame};
pub use handshake::{
    Refusal, Upgrade, UpgradeError, accept_key, check_upgrade_response, push_upgrade_request,
    push_upgrade_response, upgrade, upgrade_to,
};
