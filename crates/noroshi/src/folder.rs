//! What the command line finds in a node's data folder on the same machine: where the node listens and
//! the secrets it generated, so that a developer types neither.

use std::path::{Path, PathBuf};

use noroshi_node::data;

use crate::failure::Failure;

/// A credential. It is shown nowhere.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl std::str::FromStr for Secret {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.is_empty() {
            true => Ok(Self::new(text)),
            false => Err("a credential is printable ASCII without spaces"),
        }
    }
}

/// The addresses the node of this folder listens on; none while it does not run.
pub(crate) fn addresses(folder: &Path) -> Option<data::Addresses> {
    data::read_addresses(folder)
}

/// The development app's API key.
pub(crate) fn key(folder: &Path) -> Result<Secret, Failure> {
    secret(folder.join(data::DEV_KEY), "an API key", "--key or NOROSHI_KEY")
}

/// What the admin address asks for.
pub(crate) fn operator_token(folder: &Path) -> Result<Secret, Failure> {
    secret(
        folder.join(data::OPERATOR_TOKEN),
        "the operator's token",
        "--operator-token or NOROSHI_OPERATOR_TOKEN",
    )
}

fn secret(path: PathBuf, what: &str, otherwise: &str) -> Result<Secret, Failure> {
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Secret::new(text.trim())),
        Err(error) => {
            let path = path.display();
            Err(Failure::Usage(format!("{what} is needed: give {otherwise} ({path}: {error})")))
        }
    }
}
