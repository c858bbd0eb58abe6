//! The data folder: its file names, generated secrets, and the addresses of the running node. The store owns the database files
//! and the folder's lock; this module writes only while the lock is held.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_store::Store;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

/// API key of the development app.
pub const DEV_KEY: &str = "dev.key";
/// HS256 secret of the development app.
pub const DEV_JWT_SECRET: &str = "dev.jwt-secret";
/// Key of push credentials, if the operator configured no file.
pub const PUSH_KEY: &str = "push.key";
/// The operator's token for the admin address.
pub const OPERATOR_TOKEN: &str = "operator.token";
/// Locked while a node runs: by the SQLite store, or by [`lock`].
pub const LOCK: &str = "noroshi.lock";
/// Addresses of the running node.
pub const ADDRESSES: &str = "addresses.json";

/// Only its owner may read or write.
const PRIVATE: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Error {
    pub path: PathBuf,
    pub reason: String,
}

/// Base URLs of a running node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    pub http: String,
    pub admin: String,
}

/// The node's secrets: in files and, if nodes share a database, also there, so that all nodes have the same.
pub struct Secrets {
    folder: PathBuf,
    shared: Option<Arc<dyn Store>>,
}

impl Secrets {
    pub fn new(folder: &Path, shared: Option<Arc<dyn Store>>) -> Self {
        Self { folder: folder.to_owned(), shared }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The secret with this name. If shared, the first node determines it, and the file is updated for commands that read it.
    pub async fn get(&self, name: &str, prefix: &str) -> Result<String, Error> {
        let own = secret(&self.folder, name, prefix)?;
        let Some(store) = &self.shared else { return Ok(own) };
        let path = self.folder.join(name);
        let failed = |reason: String| Error { path: path.clone(), reason };
        let shared = store.secret(name, own.clone().into_bytes()).await;
        let shared = shared.map_err(|error| failed(format!("cannot read it from the database: {error}")))?;
        let shared = String::from_utf8(shared)
            .map_err(|_| failed("the value in the database is not valid UTF-8".to_owned()))?;
        if shared != own {
            write(&path, &shared).map_err(|error| failed(format!("cannot be written: {error}")))?;
        }
        Ok(shared)
    }
}

/// Locks the folder against other processes until dropped. For stores that do not lock it.
pub fn lock(folder: &Path) -> Result<File, Error> {
    let path = folder.join(LOCK);
    let failed = |reason: String| Error { path: path.clone(), reason };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| failed(error.to_string()))?;
    let file = File::create(&path).map_err(|error| failed(format!("cannot be written: {error}")))?;
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => failed("another process uses this folder".to_owned()),
        TryLockError::Error(error) => failed(error.to_string()),
    })?;
    Ok(file)
}

/// Reads a secret from a file. Generates and writes it (256 bits) if the file does not exist.
fn secret(folder: &Path, name: &str, prefix: &str) -> Result<String, Error> {
    if let Some(known) = known_secret(folder, name)? {
        return Ok(known);
    }
    let path = folder.join(name);
    let failed = |reason: String| Error { path: path.clone(), reason };
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| failed("the operating system returned no random bytes".to_owned()))?;
    let secret = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes));
    write(&path, &secret).map_err(|error| failed(format!("cannot be written: {error}")))?;
    Ok(secret)
}

/// The secret in a file, if it exists.
pub(crate) fn known_secret(folder: &Path, name: &str) -> Result<Option<String>, Error> {
    let path = folder.join(name);
    match std::fs::read_to_string(&path) {
        // A crash between creating and writing leaves an empty file.
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error { path, reason: format!("cannot be read: {error}") }),
    }
}

pub fn write_addresses(folder: &Path, addresses: &Addresses) -> Result<(), Error> {
    let path = folder.join(ADDRESSES);
    let text = serde_json::to_string(addresses).unwrap_or_default();
    write(&path, &text).map_err(|error| Error { path, reason: format!("cannot be written: {error}") })
}

/// None if no node runs on the folder, or if the file is invalid.
pub fn read_addresses(folder: &Path) -> Option<Addresses> {
    serde_json::from_str(&std::fs::read_to_string(folder.join(ADDRESSES)).ok()?).ok()
}

pub fn remove_addresses(folder: &Path) {
    // Best effort: a stale file only makes commands fail to connect.
    let _ = std::fs::remove_file(folder.join(ADDRESSES));
}

/// Atomic: writes a temporary file, syncs it and renames it.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let mut file: File =
        OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(&temporary)?;
    // The mode above applies only to a new file.
    file.set_permissions(Permissions::from_mode(PRIVATE))?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_generated_once_and_is_private() {
        let folder = tempfile::tempdir().expect("folder");
        let first = secret(folder.path(), DEV_KEY, "nk_").expect("secret");
        assert!(first.starts_with("nk_") && first.len() == 3 + 43, "{first}");
        assert_eq!(secret(folder.path(), DEV_KEY, "nk_").expect("again"), first);
        assert_ne!(secret(folder.path(), OPERATOR_TOKEN, "nk_").expect("other"), first);
        let mode = std::fs::metadata(folder.path().join(DEV_KEY)).expect("file").permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
    }

    #[test]
    fn an_unreadable_secret_names_its_file() {
        let folder = tempfile::tempdir().expect("folder");
        std::fs::create_dir(folder.path().join(DEV_KEY)).expect("a folder in its place");
        let error = secret(folder.path(), DEV_KEY, "").expect_err("a folder").to_string();
        assert!(error.contains("dev.key") && error.contains("cannot be read"), "{error}");
    }

    #[test]
    fn addresses_are_written_and_removed() {
        let folder = tempfile::tempdir().expect("folder");
        assert_eq!(read_addresses(folder.path()), None);
        let addresses =
            Addresses { http: "http://127.0.0.1:1".to_owned(), admin: "http://127.0.0.1:2".to_owned() };
        write_addresses(folder.path(), &addresses).expect("written");
        assert_eq!(read_addresses(folder.path()), Some(addresses));
        remove_addresses(folder.path());
        assert_eq!(read_addresses(folder.path()), None);
    }
}
