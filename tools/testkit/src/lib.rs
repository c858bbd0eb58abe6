//! Strict fakes of external services for tests: APNs, FCM with its token endpoint, a Web Push service, a provider behind a
//! webhook, Huawei Push Kit, WNS with its token endpoint, and, independent of these, Amazon Kinesis Data Firehose ([`firehose`]) and a Pyroscope server ([`pyroscope`]).
//! They verify every header, token, size and encryption according to the documentation of the real services,
//! answer in the same format, and fail on command. Tests can read what they received, in process or over
//! HTTP.
//!
//! ```text
//!   Fakes ──┬─ Fake (one per `Service`) ── listener ── connection ── exchange ─┬─ Rules
//!           │                                 │            │                 ├─ Behaviour
//!           └─ control (HTTP/1.1, JSON)       TLS         Seam               └─ Record
//! ```
//!
//! Reading order: [`fakes`], `rules` (the interface of the services' folders), one folder per service, [`behaviour`],
//! `connection` with its `seam`, and `control`.
//!
//! Invariant: violations are answered before scripts are applied, so a script never hides one.

mod apns;
mod authority;
mod background;
pub mod behaviour;
mod connection;
mod control;
mod exchange;
pub mod fakes;
mod fcm;
pub mod firehose;
mod form;
mod hms;
mod jwt;
pub mod keys;
mod latency;
mod plain;
pub mod pyroscope;
pub mod record;
mod rules;
mod seam;
mod service;
mod shared;
pub mod tokens;
mod webhook;
mod webpush;
mod wns;

pub use authority::ClientCertificate;
pub use behaviour::Behaviour;
pub use exchange::Listener;
pub use fakes::{Config, Fakes};
pub use latency::{Late, Latency, is_late};
pub use record::Received;
pub use service::Service;
