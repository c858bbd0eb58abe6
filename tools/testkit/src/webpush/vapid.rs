//! VAPID (RFC 8292): `Authorization: vapid t=<token>, k=<key>`. The token is signed with the key, for this
//! origin, and valid for at most one day; a subscription restricted to a key accepts only that key.

use parking_lot::Mutex;

use super::Wrong;
use crate::jwt::{Algorithm, Unverified, decode};
use crate::rules::{IncomingRequest, single};

const LIFE_S_MAX: u64 = 24 * 3_600;

/// Caches the last valid token, because senders reuse a token for hours.
#[derive(Debug, Default)]
pub(super) struct Vapid(Mutex<Option<Verified>>);

#[derive(Debug)]
struct Verified {
    text: String,
    key: String,
    expires_s: u64,
}

fn unauthorized(why: &'static str) -> Wrong {
    Wrong(401, 109, why)
}

impl Vapid {
    pub(super) fn check(
        &self,
        request: &IncomingRequest<'_>,
        origin: &str,
        server_key: Option<&str>,
    ) -> Result<(), Wrong> {
        let text = single(request.headers, "authorization")
            .map_err(|()| unauthorized("authorization is not text"))?;
        let Some(text) = text else {
            // RFC 8292 §4.2: "401 if the authentication is missing" on a restricted subscription.
            return server_key
                .map_or(Ok(()), |_| Err(unauthorized("the subscription is restricted to a key")));
        };
        let now_s = request.now_ms / 1_000;
        let mut believed = self.0.lock();
        let known = believed.as_ref().filter(|known| known.text == text);
        let key = match known {
            Some(known) if known.expires_s > now_s => known.key.clone(),
            Some(_) => return Err(unauthorized("the token has expired")),
            None => {
                let (key, expires_s) = verify(text, origin, now_s)?;
                *believed = Some(Verified { text: text.to_owned(), key: key.clone(), expires_s });
                key
            }
        };
        match server_key {
            Some(server_key) if server_key != key => {
                Err(Wrong(403, 109, "the subscription is restricted to another key"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the key and the expiry.
fn verify(text: &str, origin: &str, now_s: u64) -> Result<(String, u64), Wrong> {
    let parameters = text.strip_prefix("vapid ").ok_or(unauthorized("the scheme is not vapid"))?;
    let (mut token, mut key) = (None, None);
    for parameter in parameters.split(',') {
        let (name, value) =
            parameter.trim().split_once('=').ok_or(unauthorized("a parameter has no value"))?;
        let place = match name {
            "t" => &mut token,
            "k" => &mut key,
            _ => return Err(unauthorized("unknown parameter")),
        };
        if place.replace(value).is_some() {
            return Err(unauthorized("repeated parameter"));
        }
    }
    let token = token.ok_or(unauthorized("t is missing"))?;
    let key = key.ok_or(unauthorized("k is missing"))?;
    // RFC 8292 §3.2: the uncompressed point.
    let point = decode(key).filter(|point| point.len() == 65 && point[0] == 4);
    let point = point.ok_or(unauthorized("k is not a P-256 point in base64url"))?;
    let token = Unverified::read(token).map_err(unauthorized)?;
    token.verify(Algorithm::Es256, &point).map_err(unauthorized)?;
    if token.text("aud") != Some(origin) {
        return Err(unauthorized("aud is not the endpoint's origin"));
    }
    let expires_s = token.seconds("exp").ok_or(unauthorized("exp is missing"))?;
    if expires_s <= now_s {
        return Err(unauthorized("the token has expired"));
    }
    // RFC 8292 §2: "MUST NOT be more than 24 hours from the time of the request".
    if expires_s > now_s + LIFE_S_MAX {
        return Err(unauthorized("exp is more than 24 hours ahead"));
    }
    let subject = token.claims.get("sub").map(|sub| sub.as_str().unwrap_or_default());
    match subject {
        Some(sub) if !sub.starts_with("mailto:") && !sub.starts_with("https:") => {
            Err(unauthorized("sub is neither mailto: nor https:"))
        }
        _ => Ok((key.to_owned(), expires_s)),
    }
}
