//! What a push service registers: how its credentials are read, and how its content is checked. Each service's
//! folder has one constant of this type, and [`crate::catalog`] lists them.

use std::sync::Arc;

use noroshi_types::PushEnvironment;
use serde_json::{Map, Value};

use crate::exchange::{Client, Quota};
use crate::fields::{Fields, InvalidContent};
use crate::object::{Invalid, Object};

/// A credential's client, and what of the credential may be shown again: never a secret.
pub(crate) type ClientAndShown = (Arc<dyn Client>, Map<String, Value>);

/// One push service.
pub(crate) struct Service {
    pub(crate) has_sandbox: bool,
    /// Devices determine its origins (Web Push endpoints). There are many, and the pool trusts none of them.
    pub(crate) origins_from_devices: bool,
    pub(crate) quota: Quota,
    /// Takes the service's own fields out of a credential.
    pub(crate) read: fn(&mut Object, PushEnvironment) -> Result<ClientAndShown, Invalid>,
    /// Whether the service would accept the content, as far as this is known beforehand.
    pub(crate) check: fn(&Fields) -> Result<(), InvalidContent>,
}
