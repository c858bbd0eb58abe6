//! Apple Push Notification service.
//!
//! `config` reads a credential, `payload` makes JSON and headers of a message, `client` signs them and joins them
//! into requests, `error` interprets answers. The same four files as in `fcm` and `webpush`. `channel` manages broadcast
//! channels, which only APNs has.

use std::sync::Arc;
use std::time::Duration;

use crate::content::Payload as _;
use crate::exchange::Quota;
use crate::service::{Origins, Service};

pub(crate) mod channel;
mod client;
mod config;
mod error;
mod payload;
mod warning;

use client::Client;
use config::Config;
use payload::Payload;

pub use channel::{ChannelAnswer, ChannelCall, ChannelError, is_channel_id};
#[cfg(test)]
pub(crate) use payload::tests::rendered;
pub(crate) use payload::typed_aps;
pub use payload::{ActivityAlert, ActivityEvent, ActivityUpdate, BROADCAST_BYTES_MAX};

pub(crate) const SERVICE: Service = Service {
    has_sandbox: true,
    origins: Origins::Service,
    provider: None,
    names_recipients: false,
    // Apple documents no rate.
    quota: Quota::UNLIMITED,
    // Apple names none.
    retry_after: Duration::from_secs(1),
    read: |object, environment, _| {
        let config = Config::read(object, environment)?;
        let shown = config.shown();
        Ok((Arc::new(Client::new(config)), shown))
    },
    check: |fields, shown| Payload::render(fields, shown).map(drop),
    warn: warning::warnings,
};
