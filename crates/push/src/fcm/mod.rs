//! Firebase Cloud Messaging, HTTP v1.
//!
//! `config` reads a credential, `payload` makes JSON and headers of a message, `client` signs them and joins them
//! into requests, `error` interprets answers. The same four files as in `apns` and `webpush`.

use std::sync::Arc;
use std::time::Duration;

use crate::content::Payload as _;
use crate::service::{Origins, Service};

mod client;
mod config;
mod error;
mod payload;
mod warning;

use client::Client;
use config::Config;
use payload::Payload;

#[cfg(test)]
pub(crate) use payload::tests::rendered;

pub(crate) const SERVICE: Service = Service {
    has_sandbox: false,
    origins: Origins::Service,
    provider: None,
    names_recipients: false,
    quota: client::QUOTA,
    // "Wait at least 10 seconds before the first retry" (FCM, scale and quotas).
    retry_after: Duration::from_secs(10),
    read: |object, _, _| {
        let config = Config::read(object)?;
        let shown = config.shown();
        Ok((Arc::new(Client::new(config)), shown))
    },
    check: |fields, shown| Payload::render(fields, shown).map(drop),
    warn: warning::warnings,
};
