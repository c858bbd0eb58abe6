//! Firebase Cloud Messaging, HTTP v1.
//!
//! `config` reads a credential, `payload` makes JSON and headers of a message, `client` signs and joins
//! them into requests, `error` says what an answer means. The same four files as in `apns` and `webpush`.

mod client;
mod config;
mod error;
mod payload;

pub(crate) use client::Client;
pub(crate) use config::Config;
pub(crate) use payload::Payload;
