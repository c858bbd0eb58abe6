//! Bodies of the console: how people log in, and whom they invite.

use noroshi_types::Role;
use serde::Deserialize;

use crate::json::{Bounded, Text};

/// Roles that one invitation gives.
const ROLES_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogIn {
    pub(crate) email: String,
    pub(crate) password: String,
}

/// The second step of a log-in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecondStep {
    pub(crate) ticket: String,
    pub(crate) code: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) token: String,
}

/// Either of the two.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Confirmation {
    pub(crate) password: Option<String>,
    pub(crate) code: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPassword {
    pub(crate) current: Option<String>,
    pub(crate) new: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TotpCode {
    pub(crate) code: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acceptance {
    pub(crate) token: String,
    pub(crate) name: String,
    pub(crate) password: String,
}

/// A role in an app; `*` stands for all apps.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoleInApp {
    pub(crate) app: String,
    pub(crate) role: Text<Role>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewInvitation {
    pub(crate) email: String,
    pub(crate) roles: Bounded<RoleInApp, ROLES_MAX>,
}

/// An invitation to one app.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AppInvitation {
    pub(crate) email: String,
    pub(crate) role: Text<Role>,
}

/// A person by their address.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Named {
    pub(crate) email: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRole {
    pub(crate) role: Text<Role>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PersonChanges {
    pub(crate) name: Option<String>,
    pub(crate) disabled: Option<bool>,
}
