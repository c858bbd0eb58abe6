//! The native conversation `noroshi.v1`: one JSON object per text message. What a device may say is read
//! strictly ([`client_frame`]); what the service says is written here once per message ([`encode`]) and
//! read leniently by our own clients ([`server_frame`]), since fields may be added.

mod client_field;
pub mod client_frame;
pub mod encode;
pub mod server_frame;

pub use client_frame::{ClientFrame, FrameError, Token, parse_client_frame};
pub use encode::{close, error, message_json, pong, ready, recovered, topic_error};
pub use server_frame::{Msg, ServerFrame, ServerFrameError, parse_server_frame};

#[cfg(test)]
mod tests;
