//! Push services: delivers pushes to APNs, FCM and Web Push at high rate without losing any.
//!
//! ```text
//!   delivery ──► Services::send ──► Pool (app, service, credential, environment, origin)
//!                                     │  lanes · quota · breaker
//!                                     ▼
//!                            connections (HTTP/2, few and long-lived) ──► push service
//!                                     │
//!   Answered::answered ◄── verdict ◄──┘  as answers arrive, in any order
//! ```
//!
//! Reading order: [`push`] (input and output), [`fields`], [`content`], [`exchange`] (the interface of a service's
//! folder), then one folder per service with the same files; `catalog` lists them. [`services`] and `pool` send, with
//! [`quota`], [`breaker`] and [`backoff`].
//!
//! A new push service: see `catalog`.

pub mod backoff;
pub mod breaker;
mod catalog;
mod collapse;
pub mod config;
pub mod content;
pub mod credential;
pub mod exchange;
pub mod fields;
pub mod metrics;
mod pool;
pub mod push;
pub mod quota;
pub mod services;
pub mod vault;

mod apns;
mod fcm;
mod key;
mod object;
mod service;
mod webpush;

pub use catalog::check_content;
pub use config::Config;
pub use content::Content;
pub use credential::{Credential, CredentialStatus};
pub use fields::{Fields, InvalidContent};
pub use metrics::Metrics;
pub use push::{Answer, Answered, Push, Reply};
pub use services::Services;
pub use vault::Vault;
