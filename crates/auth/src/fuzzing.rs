//! Entry points of the fuzz targets: all code that reads a token or a key set before a signature is verified. A fuzzer
//! cannot sign, so it would never get through [`crate::Auth`].

use noroshi_store::App;
use noroshi_types::Timestamp;

use crate::jwks::{KeySet, Strictness, TRIED_KEYS_MAX};
use crate::{Identity, Refused, jwt};

/// Reads a token as if its signature were valid, and tries to verify it with a set.
pub fn jwt(token: &str, app: &App, jwks: &str, now: Timestamp) -> Result<Identity, Refused> {
    crate::provider::install();
    let header = jwt::header(token)?;
    let body = jwt::body(token)?;
    let unverified = jwt::Unverified::read(&body)?;
    if let Ok(set) = KeySet::parse(jwks, Strictness::Found) {
        let mut tried = 0;
        for key in set.candidates(&header) {
            let _ = jwt::is_signed_by(token, header.alg, key);
            tried += 1;
        }
        assert!(tried <= TRIED_KEYS_MAX, "{tried} keys were tried");
    }
    let identity = jwt::claimed(&unverified, app, now)?;
    assert!(identity.expires_at > now && identity.app == app.id, "{:?}", unverified.named);
    Ok(identity)
}

/// A set that is accepted when given can also be loaded later.
pub fn jwks(json: &str) {
    let (given, found) = (KeySet::parse(json, Strictness::Given), KeySet::parse(json, Strictness::Found));
    assert!(given.is_err() || found.is_ok());
}
