//! Huawei Push Kit, REST API v3 (HarmonyOS 5 and newer).
//!
//! `config` reads a credential, `payload` makes JSON of a message, `client` signs and joins them into requests, `error`
//! interprets answers. The same files as in `apns` and the others. docs/push.md states which facts come from Huawei's
//! reference, and which are unverified.

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

use client::Client;
use config::Config;
use payload::Payload;

#[cfg(test)]
pub(crate) use payload::tests::rendered;

/// Huawei names no time.
const RETRY_AFTER: Duration = Duration::from_secs(5);

pub(crate) const SERVICE: Service = Service {
    has_sandbox: false,
    origins: Origins::Service,
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
