//! The native protocol `noroshi.v1`: one JSON object per text message. Frames of devices are parsed strictly
//! ([`client_frame`]). Frames of the service are encoded once per message ([`encode`]) and parsed leniently
//! by our own clients ([`server_frame`]), since fields may be added.

mod client_field;
pub mod client_frame;
pub mod encode;
pub(crate) mod frame_type;
pub mod server_frame;
mod token;

pub use client_frame::{ClientFrame, parse_client_frame};
pub use encode::{close, error, items, message_json, pong, ready, recovered, topic_error};
pub use frame_type::FrameError;
pub use server_frame::{Msg, ServerFrame, ServerFrameError, parse_server_frame};
pub use token::Token;

#[cfg(test)]
mod tests;
