//! Providers of the operator's choice (other vendors, e-mail, SMS), each behind a webhook that receives batches of pushes
//! as JSON, signed by Standard Webhooks.
//!
//! `config` reads a credential, `payload` makes JSON of a message, `client` joins messages and recipients into signed
//! requests, `error` interprets answers. The same files as in `apns` and the others. An app has a credential for each
//! provider; tokens name their provider.

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::PushToken;
use serde::Deserialize;

use crate::content::Payload as _;
use crate::exchange::Quota;
use crate::service::{Origins, Service};

mod client;
mod config;
mod error;
mod payload;

use client::Client;
use config::Config;
use payload::Payload;

/// The provider may be any program: some time to recover.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A device's token as the API accepted it.
#[derive(Deserialize)]
struct Token {
    provider: String,
    token: String,
}

impl Token {
    fn parse(token: &PushToken) -> Option<Self> {
        serde_json::from_str(token.json.as_str()).ok()
    }
}

pub(crate) const SERVICE: Service = Service {
    has_sandbox: false,
    origins: Origins::Credential,
    provider: Some(|token| Some(Token::parse(token)?.provider)),
    names_recipients: true,
    quota: Quota::UNLIMITED,
    retry_after: RETRY_AFTER,
    read: |object, _, provider| {
        let config = Config::read(object, provider)?;
        let shown = config.shown();
        Ok((Arc::new(Client::new(config)), shown))
    },
    check: |fields, shown| Payload::render(fields, shown).map(drop),
    // The provider gets all fields, and decides what it shows.
    warn: |_, _| Vec::new(),
};
