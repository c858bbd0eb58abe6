//! Push services: delivers pushes to APNs, FCM, Web Push and others at high rate without losing any.
//!
//! ```text
//!   delivery ──► Services::send ──► Pool (app, service, environment, provider, origin)
//!                                     │  lanes · quota · breaker
//!                                     ▼
//!                            connections (HTTP/2, few and long-lived) ──► push service
//!                                     │
//!   Answered::answered ◄── verdict ◄──┘  as answers arrive, in any order
//! ```
//!
//! Reading order: [`push`] (input and output), [`attempt`], [`fields`], `shown`, [`content`], [`exchange`] (the interface of a service's
//! folder), then one folder per service with the same files; `catalog` lists them. [`services`] and `pool` send, with
//! [`quota`], [`breaker`] and [`backoff`].
//!
//! A new push service: see `catalog`.

mod access;
pub mod attempt;
pub mod backoff;
pub mod breaker;
mod call;
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
mod hms;
mod key;
mod object;
mod service;
mod shown;
mod webhook;
mod webpush;
mod wns;

pub use apns::{
    ActivityAlert, ActivityEvent, ActivityUpdate, BROADCAST_BYTES_MAX, ChannelAnswer, ChannelCall,
    ChannelError, is_channel_id,
};
pub use attempt::{Attempt, Received, Record};
pub use breaker::Condition;
pub use catalog::{Checked, check_content, has_many_pools, names_recipients, provider_of};
pub use config::Config;
pub use content::{Content, ToChannel};
pub use credential::{Credential, CredentialStatus};
pub use exchange::ChannelSite;
pub use fields::{Fields, InvalidContent};
pub use metrics::Metrics;
pub use push::{Answer, Answered, Details, Push, Recipient, Reply};
pub use services::Services;
pub use shown::{Direction, Level, UNREAD_BADGE, Warning};
pub use vault::Vault;
