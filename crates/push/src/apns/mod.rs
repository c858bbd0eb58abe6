//! Apple Push Notification service.
//!
//! `config` reads a credential, `payload` makes JSON and headers of a message, `client` signs them and joins them
//! into requests, `error` interprets answers. The same four files as in `fcm` and `webpush`.

use std::sync::Arc;

use crate::content::Payload as _;
use crate::exchange::Quota;
use crate::service::Service;

mod client;
mod config;
mod error;
mod payload;

use client::Client;
use config::Config;
use payload::Payload;

pub(crate) const SERVICE: Service = Service {
    has_sandbox: true,
    origins_from_devices: false,
    // Apple documents no rate.
    quota: Quota::UNLIMITED,
    read: |object, environment| {
        let config = Config::read(object, environment)?;
        let shown = config.shown();
        Ok((Arc::new(Client::new(config)), shown))
    },
    check: |fields| Payload::new(fields).map(drop),
};
