//! The result of verifying a credential: which provider or device the caller is, and what it may do.

use std::sync::Arc;

use noroshi_store::Issued;
use noroshi_types::rule::Claims;
use noroshi_types::{AppId, DeviceId, KeyId, Scope, Scopes, Timestamp, Topic, UserId};

/// A provider, identified by its API key.
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

/// A device, identified by its device token or app JWT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub app: AppId,
    pub device: DeviceId,
    /// From an app JWT.
    pub user: Option<UserId>,
    /// Whether to create the device on first use: set for an app JWT.
    pub create: bool,
    /// From a device token; compared with the device's own version at log-in.
    pub token_version: Option<u32>,
    /// From an app JWT; compared with the time of revocation.
    pub issued: Issued,
    /// Durable subscriptions in an app JWT that the app's topic rules allow.
    pub topics: Vec<Topic>,
    /// Topic filters in the JWT's claim `topics`, until the app's rules are applied.
    pub(crate) topic_filters: Vec<Box<str>>,
    /// Subscriptions in the JWT that the app's topic rules deny.
    pub denied_topics: Vec<Topic>,
    /// The claims of a JWT that the app's topic rules need. None without rules, and for a device token.
    pub claims: Option<Arc<Claims>>,
    pub expires_at: Timestamp,
}

impl Identity {
    /// A device without a token.
    pub fn anonymous(app: AppId, device: DeviceId) -> Self {
        Self {
            app,
            device,
            user: None,
            create: true,
            token_version: None,
            issued: Issued::Elsewhere,
            topics: Vec::new(),
            topic_filters: Vec::new(),
            denied_topics: Vec::new(),
            claims: None,
            expires_at: Timestamp(u64::MAX),
        }
    }
}
