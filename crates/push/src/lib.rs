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
pub mod content;
pub mod credential;
pub mod exchange;
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
mod webpush;

pub use content::{Content, Fields, Unfit, check_content};
pub use credential::Credential;
pub use metrics::Metrics;
pub use push::{Answer, Answered, Push, Reply};
pub use services::{Config, CredentialStatus, Services};
pub use vault::Vault;
