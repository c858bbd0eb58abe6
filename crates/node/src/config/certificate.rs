//! Validates the configured certificate files, before anything is opened: an invalid file is a configuration problem like any
//! other, not a failure half-way through the start. The node reads the files again when it starts to listen.

use noroshi_gateway::tls::{Acceptor, Error};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

use super::TlsFiles;
use super::reader::Reader;

/// `keys`: the configuration keys of the certificate and of its private key.
pub(super) fn check(reader: &mut Reader, keys: (&str, &str), files: Option<&TlsFiles>) {
    let Some(files) = files else { return };
    let Err(error) = Acceptor::open(&files.cert, &files.key) else { return };
    let key = match &error {
        Error::Key { .. } => keys.1,
        Error::Certificate { .. } | Error::Pair(_) => keys.0,
    };
    reader.problem(key, error.to_string());
    if matches!(error, Error::Certificate { .. }) {
        // The first file failed, so the second one was not checked.
        if let Err(error) = PrivateKeyDer::from_pem_file(&files.key) {
            let path = files.key.display().to_string();
            reader.problem(keys.1, Error::Key { path, reason: error.to_string() }.to_string());
        }
    }
}
