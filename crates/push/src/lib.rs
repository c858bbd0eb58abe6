//! Push services: APNs, FCM and Web Push, reached at speed and without losing anything.
//!
//! ```text
//!   delivery ──► Services::send ──► Pool (app, service, credential, environment, origin)
//!                                     │  lanes · quota · breaker
//!                                     ▼
//!                            connections (HTTP/2, few and long-lived) ──► push service
//!                                     │
//!   Answered::answered ◄── verdict ◄──┘  as answers arrive; nobody waits for another's
//! ```
//!
//! Reading order: [`push`] (what goes in, what comes out), [`content`], [`exchange`] (what a service's
//! folder makes and reads), then one folder for each service with the same files; [`services`] and `pool`
//! with what they decide by: [`quota`], [`breaker`], [`backoff`].

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
mod curve;
mod fcm;
mod key;
mod object;
mod service;
mod webpush;

pub use catalog::check_content;
pub use config::Config;
pub use content::Content;
pub use credential::{Credential, CredentialStatus};
pub use fields::{Fields, Unfit};
pub use metrics::Metrics;
pub use push::{Answer, Answered, Push, Reply};
pub use services::Services;
pub use vault::Vault;
