//! Web Push: RFC 8030 (the protocol), RFC 8291 (encryption), RFC 8292 (VAPID).
//!
//! `config` reads a credential, `payload` makes plaintext and headers of a message, `client` seals and joins
//! them into requests, `error` says what an answer means. The same four files as in `apns` and `fcm`, and
//! `encryption` beside them.

mod client;
mod config;
mod encryption;
mod error;
mod payload;

pub(crate) use client::Client;
pub(crate) use config::Config;
pub(crate) use payload::{Payload, topic};
