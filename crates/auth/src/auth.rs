//! The one place that is asked.

use std::sync::Arc;

use arc_swap::ArcSwap;
use noroshi_store::{App, AppSettings, Apps, Error, Key, NewKey, Store};
use noroshi_types::{AppId, AppName, DeviceId, KeyId, NotificationId, Scope, Scopes, Timestamp, Topic, UserId};

use crate::jwks::JwkSets;
use crate::key::{ApiKey, hash};
use crate::{Refused, jwt, token};

/// A provider, by its API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    pub app: AppId,
    pub key: KeyId,
    pub scopes: Scopes,
}

impl Access {
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.contains(scope)
    }
}

/// A consumer, by its device token or app JWT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub app: AppId,
    pub device: DeviceId,
    /// Named by an app JWT.
    pub user: Option<UserId>,
    /// An app JWT makes its device on first use.
    pub create: bool,
    /// In a device token; compared with the device's own at log-in.
    pub token_version: Option<u32>,
    /// Durable subscriptions named by an app JWT.
    pub topics: Vec<Topic>,
    pub expires_at: Timestamp,
}

/// What is needed to decide, as of the last change.
pub(crate) struct Snapshot {
    pub(crate) apps: Vec<App>,
    pub(crate) keys: Vec<Key>,
}

/// Cheap to share: all state is behind it.
pub struct Auth {
    store: Arc<dyn Store>,
    snapshot: ArcSwap<Snapshot>,
    signer: token::Signer,
    jwk_sets: JwkSets,
}
