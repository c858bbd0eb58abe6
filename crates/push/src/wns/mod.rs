//! Windows Push Notification Services (WNS).
//!
//! `config` reads a credential, `payload` makes XML and headers of a message, `client` joins them into requests, `error`
//! interprets answers. The same files as in `apns` and the others. Devices name the server of their channel, so only
//! Microsoft's servers are accepted (or the test server of the credential).

use std::sync::Arc;
use std::time::Duration;

use crate::content::Payload as _;
use crate::exchange::Quota;
use crate::service::{Origins, Service};

mod client;
mod config;
mod error;
mod payload;
mod warning;
mod xml;

use client::Client;
use config::Config;
use payload::Payload;

#[cfg(test)]
pub(crate) use payload::tests::rendered;

/// Microsoft names no time.
const RETRY_AFTER: Duration = Duration::from_secs(5);

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
