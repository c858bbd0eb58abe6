//! What a push service registers: how its credentials are read, and how its content is checked. Each service's
//! folder has one constant of this type, and [`crate::catalog`] lists them.

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{PushEnvironment, PushToken};
use serde_json::{Map, Value};

use crate::exchange::{Client, Quota};
use crate::fields::{Fields, InvalidContent};
use crate::object::{Invalid, Object};
use crate::shown::Shown;

/// A credential's client, and what of the credential may be shown again: never a secret.
pub(crate) type ClientAndShown = (Arc<dyn Client>, Map<String, Value>);

/// Who chooses the servers of a push service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origins {
    /// The service, or a credential that names a test server. They speak HTTP/2.
    Service,
    /// The operator who adds a credential: any server, over HTTP/1.1.
    Credential,
    /// Devices (Web Push endpoints). There are many, and the pool trusts none of them. HTTP/2 or HTTP/1.1.
    Devices,
}

/// One push service.
pub(crate) struct Service {
    pub(crate) has_sandbox: bool,
    pub(crate) origins: Origins,
    /// An app has several credentials, and each token names the provider whose credential it is for. Then a credential's
    /// name is its provider's.
    pub(crate) provider: Option<fn(&PushToken) -> Option<String>>,
    /// Requests name the device and the user of a push.
    pub(crate) names_recipients: bool,
    pub(crate) quota: Quota,
    /// How long a push waits at least after a failure for which the service named no time. The caller decides when it
    /// is tried again after that.
    pub(crate) retry_after: Duration,
    /// Takes the service's own fields out of a credential. The text is the provider of [`Self::provider`].
    pub(crate) read: fn(&mut Object, PushEnvironment, &str) -> Result<ClientAndShown, Invalid>,
    /// Whether the service would accept the content, as far as this is known beforehand.
    pub(crate) check: fn(&Fields, &Shown) -> Result<(), InvalidContent>,
    /// What the service does not show of a notification with typed fields: the path of each field, and why.
    pub(crate) warn: fn(&Fields, &Shown) -> Vec<(&'static str, &'static str)>,
}
