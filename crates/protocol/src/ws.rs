//! WebSocket (RFC 6455) for both ends: the frame decoder, the frame encoders and the opening handshake. The
//! only extension is permessage-deflate (RFC 7692), without context takeover. The owner of the socket answers
//! pings, runs the closing handshake and owns the inflater, which many connections share; this module only
//! reports what arrived.
//!
//! Reading order: [`mod@frame`], [`decoder`], [`handshake`]; [`extension`] and [`deflate`].

pub mod decoder;
pub mod deflate;
mod error;
pub mod extension;
pub mod frame;
pub mod handshake;
mod input;
mod mask;

pub use decoder::{Decoder, Terms};
pub use deflate::Inflater;
pub use error::{UpgradeError, WsError};
pub use extension::Deflate;
pub use frame::{
    Opcode, Role, frame, frame_head, push_close, push_deflated_head, push_frame, push_frame_head,
    push_masked_frame, text_frame,
};
pub use handshake::{
    OFFER_DEFLATE, Refusal, Upgrade, accept_key, check_upgrade_response, check_upgrade_response_to,
    push_upgrade_request, push_upgrade_response, upgrade, upgrade_to,
};
pub use input::{Deflated, Input};
