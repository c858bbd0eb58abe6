//! Wire protocols without IO: parsers, encoders and state machines that use no socket, clock or randomness.
//! Callers pass in received bytes and get values, or pass in values and get bytes to write. Limits are
//! arguments and are checked before anything is allocated.
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
//! [`mqtt`]; [`xmpp`]; [`http2`], the only client. Transport and conversation are independent: `ws` does not
//! know the JSON inside frames, `native` does not know frames.

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
