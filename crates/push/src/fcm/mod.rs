//! Firebase Cloud Messaging, HTTP v1.
//!
//! `config` reads a credential, `payload` makes JSON and headers of a message, `client` signs them and joins them
//! into requests, `error` interprets answers. The same four files as in `apns` and `webpush`.

use std::sync::Arc;

use crate::content::Payload as _;
use crate::service::Service;

mod client;
mod config;
mod error;
mod payload;

use client::Client;
use config::Config;
use payload::Payload;

pub(crate) const SERVICE: Service = Service {
    has_sandbox: false,
    origins_from_devices: false,
    quota: client::QUOTA,
    read: |object, _| {
        let config = Config::read(object)?;
        let shown = config.shown();
        Ok((Arc::new(Client::new(config)), shown))
    },
    check: |fields| Payload::new(fields).map(drop),
};
