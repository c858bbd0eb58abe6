//! JWK sets (RFC 7517): the public keys with which apps sign RS256 and ES256 tokens, given directly
//! or fetched from a URL.
//!
//! A set is fetched when the app is made or changed, then every ten minutes, and early when a
//! token names a key that is not in it, but never more than once in thirty seconds. While a fetch
//! fails the last set stays in use. Who chose the URL may be a stranger: it is fetched through
//! [`Egress`], which refuses what is not public, and follows no redirect.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use noroshi_egress::{Egress, Limits};
use noroshi_store::App;
use noroshi_types::AppId;
use parking_lot::RwLock;
use tokio::sync::Notify;

pub(crate) const REFRESH_INTERVAL: Duration = Duration::from_secs(600);
pub(crate) const EARLY_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
const FETCH: Limits = Limits { body_bytes_max: 256 << 10, timeout: Duration::from_secs(10) };

/// Keys of one set: a token without `kid` is tried against all of its algorithm, some 100 µs each.
const SET_KEYS_MAX: usize = 64;

/// Why a JWK set could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the JWK set could not be fetched: {0}")]
    Fetch(#[from] noroshi_egress::Error),
    #[error("the JWK set is not UTF-8")]
    NotText,
    #[error("the JWK set is not valid: {0}")]
    Set(serde_json::Error),
    #[error("the JWK set holds no RS256 or ES256 key")]
    Empty,
    #[error("the JWK set holds more than {SET_KEYS_MAX} keys")]
    TooManyKeys,
}

struct SetKey {
    kid: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The keys of one app.
pub(crate) struct KeySet(Vec<SetKey>);

impl KeySet {
    pub(crate) fn parse(json: &str) -> Result<Self, Error> {
        let set: JwkSet = serde_json::from_str(json).map_err(Error::Set)?;
        if set.keys.len() > SET_KEYS_MAX {
            return Err(Error::TooManyKeys);
        }
        let keys: Vec<SetKey> = set
            .keys
            .iter()
            .filter_map(|jwk| {
                let algorithm = match &jwk.algorithm {
                    AlgorithmParameters::RSA(_) => Algorithm::RS256,
                    AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
                        Algorithm::ES256
                    }
                    _ => return None,
                };
                let key = DecodingKey::from_jwk(jwk).ok()?;
                Some(SetKey { kid: jwk.common.key_id.clone(), algorithm, key })
            })
            .collect();
        if keys.is_empty() { Err(Error::Empty) } else { Ok(Self(keys)) }
    }

    /// The keys that may have signed a token with this header.
    fn candidates(&self, header: &Header) -> impl Iterator<Item = &DecodingKey> {
        self.0
            .iter()
            .filter(|key| key.algorithm == header.alg && (header.kid.is_none() || header.kid == key.kid))
            .map(|key| &key.key)
    }
}

/// The sets of all apps.
pub(crate) struct JwkSets {
    /// Guards the map; nothing is awaited while it is held.
    sets: RwLock<HashMap<AppId, KeySet>>,
    egress: Arc<Egress>,
    /// A token named a key that is not here.
    pub(crate) missed: Notify,
}

impl JwkSets {
    pub(crate) fn new(egress: Arc<Egress>) -> Self {
        Self { sets: RwLock::default(), egress, missed: Notify::new() }
    }

    /// The keys of `app` that may have signed the token, by `try_key`'s first success.
    pub(crate) fn find<T>(
        &self,
        app: AppId,
        header: &Header,
        mut try_key: impl FnMut(&DecodingKey) -> T,
    ) -> Vec<T> {
        let sets = self.sets.read();
        let results: Vec<T> =
            sets.get(&app).map(|set| set.candidates(header).map(&mut try_key).collect()).unwrap_or_default();
        if results.is_empty() {
            self.missed.notify_one();
        }
        results
    }

    pub(crate) fn remove(&self, app: AppId) {
        self.sets.write().remove(&app);
    }

    /// Brings one app's keys up to date; on an error the last set stays. A fetch takes time: if the app is
    /// no longer as it was (`is_current`), what was fetched is of no use.
    pub(crate) async fn refresh(&self, app: &App, is_current: impl Fn() -> bool) -> Result<(), Error> {
        let set = match (&app.settings.jwks, &app.settings.jwks_url) {
            (Some(json), _) => Some(KeySet::parse(json)?),
            (None, Some(url)) => Some(KeySet::parse(&self.fetch(url).await?)?),
            (None, None) => None,
        };
        let mut sets = self.sets.write();
        if is_current() {
            match set {
                Some(set) => sets.insert(app.id, set),
                None => sets.remove(&app.id),
            };
        }
        Ok(())
    }

    async fn fetch(&self, url: &str) -> Result<String, Error> {
        let body = self.egress.get(url, FETCH).await?;
        String::from_utf8(body.into()).map_err(|_| Error::NotText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_can_be_used() {
        let p256 = r#"{"kty":"EC","crv":"P-256","kid":"a","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}"#;
        let p384 = r#"{"kty":"EC","crv":"P-384","kid":"b","x":"MKBC","y":"4Etl"}"#;
        let set = KeySet::parse(&format!(r#"{{"keys":[{p256},{p384}]}}"#)).expect("a set");
        let mut header = Header::new(Algorithm::ES256);
        assert_eq!(set.candidates(&header).count(), 1);
        header.kid = Some("a".to_owned());
        assert_eq!(set.candidates(&header).count(), 1);
        header.kid = Some("b".to_owned());
        assert_eq!(set.candidates(&header).count(), 0);
        assert!(matches!(KeySet::parse(r#"{"keys":[]}"#), Err(Error::Empty)));
        assert!(matches!(KeySet::parse("{}"), Err(Error::Set(_))));
        let many = vec![p256; SET_KEYS_MAX + 1].join(",");
        assert!(matches!(KeySet::parse(&format!(r#"{{"keys":[{many}]}}"#)), Err(Error::TooManyKeys)));
    }
}
