//! Web Push: RFC 8030 (the protocol), RFC 8291 (encryption), RFC 8292 (VAPID).
//!
//! `config` reads a credential, `payload` makes JSON and headers of a message, `client` signs them and joins them
//! into requests, `error` interprets answers. The same four files as in `apns` and `fcm`, plus `encryption`.

use std::sync::Arc;
use std::time::Duration;

use crate::content::Payload as _;
use crate::exchange::Quota;
use crate::service::{Origins, Service};

mod client;
mod config;
mod encryption;
mod error;
mod payload;
mod warning;

use client::Client;
use config::Config;
use payload::Payload;

pub(crate) use payload::options;
#[cfg(test)]
pub(crate) use payload::tests::rendered;

/// RFC 8030 names no time.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(crate) const SERVICE: Service = Service {
    has_sandbox: false,
    origins: Origins::Devices,
    provider: None,
    names_recipients: false,
    quota: Quota::UNLIMITED,
    retry_after: RETRY_AFTER,
    read: |object, _, _| {
        let config = Config::read(object)?;
        let shown = config.shown();
        Ok((Arc::new(Client::new(config)), shown))
    },
    check: |fields, shown| Payload::render(fields, shown).map(drop),
    warn: warning::warnings,
};
