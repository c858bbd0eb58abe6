//! Bytes to packets and packets to bytes: everything a connection says, without a socket, a clock or
//! randomness. Callers hand in bytes they read and get values; they hand in values and get bytes to
//! write. Limits are arguments and are checked before anything is allocated.
//!
//! ```text
//!   bytes ── http::parse ──┬─ ws::upgrade ── ws::Decoder ── native::parse_client_frame ── values
//!                          └─ sse::last_event_id
//!   WebSocket message or POST ── engine_io::Session ── socket_io::Conversation ── actions
//!   Message ── native::message_json ──┬─ ws::text_frame ── bytes
//!                                     └─ sse::event ────── bytes
//!   bytes ── mqtt::Decoder ── mqtt::Conversation ── actions, bytes
//!   bytes ── xmpp::Framer ── xmpp::Conversation ── actions, bytes
//!   request ── http2::Connection ── bytes ── a push service ── bytes ── http2::Connection ── Event
//! ```
//!
//! Reading order: [`http`], [`ws`], [`native`], [`sse`]; then [`engine_io`] and [`socket_io`] on top of it;
//! [`mqtt`]; [`xmpp`]; [`http2`] stands alone, as it is the only one that makes requests. Transport and conversation are
//! two axes: `ws` knows nothing of the JSON inside, `native` nothing of frames.

pub mod app_name;
pub mod device_path;
pub mod engine_io;
pub mod http;
pub mod http2;
pub mod mqtt;
pub mod native;
pub mod socket_io;
pub mod sse;
pub mod ws;
pub mod xmpp;
