//! Web Push: RFC 8030 (the protocol), RFC 8291 (encryption), RFC 8292 (VAPID).
//!
//! `config` reads a credential, `payload` makes JSON and headers of a message, `client` signs them and joins them
//! into requests, `error` interprets answers. The same four files as in `apns` and `fcm`, plus `encryption`.

use std::sync::Arc;

use crate::content::Payload as _;
use crate::exchange::Quota;
use crate::service::Service;

mod client;
mod config;
mod encryption;
mod error;
mod payload;

use client::Client;
use config::Config;
use payload::Payload;

pub(crate) const SERVICE: Service = Service {
    has_sandbox: false,
    origins_from_devices: true,
    quota: Quota::UNLIMITED,
    read: |object, _| {
        let config = Config::read(object)?;
        let shown = config.shown();
        Ok((Arc::new(Client::new(config)), shown))
    },
    check: |fields| Payload::new(fields).map(drop),
};
