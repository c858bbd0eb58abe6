//! Reads addresses and generated secrets from the data folder of a node on the same machine, so that a developer need not type
//! them.

use std::path::{Path, PathBuf};

use noroshi_node::data;

use crate::failure::Failure;

/// A credential. Never shown.
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
            false => Err("a credential must be printable ASCII without spaces"),
        }
    }
}

/// The addresses of the node on this folder. None if it is not running.
pub(crate) fn addresses(folder: &Path) -> Option<data::Addresses> {
    data::read_addresses(folder)
}

/// The development app's API key.
pub(crate) fn key(folder: &Path) -> Result<Secret, Failure> {
    secret(folder.join(data::DEV_KEY), "an API key", "--key or NOROSHI_KEY")
}

/// The credential for the admin address.
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
            Err(Failure::Usage(format!("{what} is required: pass {otherwise} ({path}: {error})")))
        }
    }
}
