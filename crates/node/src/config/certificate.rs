//! Whether the certificate files a configuration names can be used: read, parsed and matched before
//! anything else is opened, so that a wrong path is a problem of the configuration among the others and
//! not a node that stops half-way. The node reads them again when it starts to listen.

use noroshi_gateway::tls::{Acceptor, Error};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;

use super::TlsFiles;
use super::reader::Reader;

/// `keys` are the keys of the certificate and of its private key.
pub(super) fn check(reader: &mut Reader, keys: (&str, &str), files: Option<&TlsFiles>) {
    let Some(files) = files else { return };
    let Err(error) = Acceptor::open(&files.cert, &files.key) else { return };
    let key = match &error {
        Error::Key { .. } => keys.1,
        Error::Certificate { .. } | Error::Pair(_) => keys.0,
    };
    reader.problem(key, error.to_string());
    if matches!(error, Error::Certificate { .. }) {
        // The attempt ended before the second file.
        if let Err(error) = PrivateKeyDer::from_pem_file(&files.key) {
            let path = files.key.display().to_string();
            reader.problem(keys.1, Error::Key { path, reason: error.to_string() }.to_string());
        }
    }
}
