//! Strict fakes of what cannot be had in a test: APNs, FCM with its token endpoint, a Web Push service, and Amazon Kinesis
//! Data Firehose ([`firehose`], on its own), and a Pyroscope server ([`pyroscope`], on its own). They
//! verify every header, token, size and encryption as the documentation of the real ones says, answer in their
//! words, and fail on command. What they received can be read by the test, in process or over HTTP.
//!
//! ```text
//!   Fakes ──┬─ Fake (apns, apns-sandbox, fcm, oauth, webpush) ── listener ── connection ── exchange ─┬─ Judge
//!           │                                                       │            │                 ├─ Behaviour
//!           └─ control (HTTP/1.1, JSON)                             TLS         Seam               └─ Record
//! ```
//!
//! Reading order: [`fakes`], [`ask`] (what a judge sees and says), one folder for each service, [`behaviour`],
//! `connection` with its `seam`, and `control`.
//!
//! Invariant: a violation is answered before anything scripted, so a script never hides one.

mod apns;
pub mod ask;
mod authority;
pub mod behaviour;
mod connection;
mod control;
mod exchange;
pub mod fakes;
mod fcm;
pub mod firehose;
mod form;
mod jwt;
pub mod keys;
mod latency;
mod plain;
pub mod pyroscope;
pub mod record;
mod seam;
pub mod tokens;
mod webpush;

pub use ask::Service;
pub use authority::ClientCertificate;
pub use behaviour::Behaviour;
pub use exchange::Listener;
pub use fakes::{Config, Fakes};
pub use latency::{Late, Latency, is_late};
pub use record::Received;
