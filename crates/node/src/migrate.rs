//! Migrates a single node to a cluster: copies the store of a data folder into a PostgreSQL database, and with it the secrets
//! that a single node keeps in files and a cluster in its database.
//!
//! The key of push credentials stays in the operator's file.

use std::path::Path;

pub use noroshi_store::migrate::{MigrateError, Migrated, Progress};

use crate::data::{self, DEV_JWT_SECRET, DEV_KEY, OPERATOR_TOKEN};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Data(#[from] data::Error),
    #[error(transparent)]
    Store(#[from] MigrateError),
}

/// Copies `folder` into the empty database at `url`. No node may run on the folder.
pub async fn migrate(folder: &Path, url: &str, on: impl FnMut(Progress<'_>)) -> Result<Migrated, Error> {
    let mut secrets = Vec::new();
    for name in [OPERATOR_TOKEN, DEV_KEY, DEV_JWT_SECRET] {
        if let Some(secret) = data::known_secret(folder, name)? {
            secrets.push((name.to_owned(), secret.into_bytes()));
        }
    }
    Ok(noroshi_store::migrate::migrate(folder, url, secrets, on).await?)
}
