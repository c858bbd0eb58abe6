//! WebSocket (RFC 6455) for both ends: the frame decoder, the frame encoders and the opening handshake.
//! The one extension is permessage-deflate (RFC 7692), without windows that outlive a message. Whoever owns the socket
//! answers pings, runs the closing handshake and has the one inflater of many connections: this module only says what
//! arrived.
//!
//! Reading order: [`mod@frame`], [`decoder`], [`handshake`]; [`extension`] and [`deflate`].

pub mod decoder;
pub mod deflate;
pub mod extension;
pub mod frame;
pub mod handshake;
mod mask;

pub use decoder::{Decoder, Input, Role, Terms, WsError};
pub use deflate::{Deflated, Inflater};
pub use extension::Deflate;
pub use frame::{
    Opcode, frame, frame_head, push_close, push_deflated_head, push_frame, push_frame_head,
    push_masked_frame, text_frame,
};
pub use handshake::{
    OFFER_DEFLATE, Refusal, Upgrade, UpgradeError, accept_key, check_upgrade_response,
    check_upgrade_response_to, push_upgrade_request, push_upgrade_response, upgrade, upgrade_to,
};
