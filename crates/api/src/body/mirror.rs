//! `PUT /v1/apps/{app}`: a mirrored app with the hashes of all its keys.

use noroshi_auth::MirrorKey;
use noroshi_store::{AppSettings, KeyHash};
use noroshi_types::{Invalid, Scope, limits};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Author;
use super::app::{
    CLAIM_BYTES_MAX, CategoryList, KEY_NAME_BYTES_MAX, URL_BYTES_MAX, client_publish, essential, jwks,
    jwks_url, jwt_secret,
};
use super::push_token::Moment;
use super::topic_rules::mirrored;
use crate::error::Problem;
use crate::json::{self, Bounded, FromText, Line, Text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MirrorBody<'a> {
    jwt_secret: Option<String>,
    jwks_url: Option<Text<Line<URL_BYTES_MAX>>>,
    #[serde(borrow)]
    jwks: Option<&'a RawValue>,
    #[serde(default)]
    client_publish: Vec<String>,
    #[serde(borrow)]
    topic_rules: Option<&'a RawValue>,
    issuer: Option<Text<Line<CLAIM_BYTES_MAX>>>,
    audience: Option<Text<Line<CLAIM_BYTES_MAX>>>,
    /// Limits of the app. Absent: the node's defaults.
    #[serde(borrow)]
    quotas: Option<&'a RawValue>,
    essential_categories: Option<CategoryList>,
    keys: Bounded<MirrorKeyBody, { limits::KEYS_PER_APP_MAX }>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MirrorKeyBody {
    name: Text<Line<KEY_NAME_BYTES_MAX>>,
    hash: Text<Hash>,
    scopes: Bounded<Text<Scope>, 4>,
    /// May be in the past: the front lists its expired keys too.
    expires_at: Option<Text<Moment>>,
}

/// SHA-256 in hex.
#[derive(Debug)]
struct Hash(KeyHash);

impl FromText for Hash {
    const WHAT: &'static str = "the SHA-256 of a key (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let wrong = || Invalid::new("must be a SHA-256 in 64 hex digits");
        let mut hash = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(KeyHash(hash)))
    }
}

/// In the form of the store.
fn quotas(raw: &RawValue) -> Result<Option<String>, Problem> {
    let overrides = super::quotas(raw.get().as_bytes()).map_err(|problem| {
        let field = problem.field_path().map_or("quotas".to_owned(), |field| format!("quotas.{field}"));
        problem.at(field)
    })?;
    Ok(noroshi_delivery::quota::to_text(&overrides))
}

/// Parses a mirrored app. Only operators mirror apps.
pub fn mirror(bytes: &[u8]) -> Result<(AppSettings, Vec<MirrorKey>), Problem> {
    let body: MirrorBody<'_> = json::parse(bytes)?;
    let settings = AppSettings {
        jwt_secret: body.jwt_secret.map(jwt_secret).transpose()?,
        jwks_url: body.jwks_url.map(|url| jwks_url(url.0.0, Author::Operator)).transpose()?,
        jwks: body.jwks.map(jwks).transpose()?,
        client_publish: client_publish(body.client_publish)?,
        topic_rules: body.topic_rules.map(|rules| mirrored(rules.get())).transpose()?,
        issuer: body.issuer.map(|issuer| issuer.0.0),
        audience: body.audience.map(|audience| audience.0.0),
        quotas: body.quotas.map(quotas).transpose()?.flatten(),
        essential_categories: essential(body.essential_categories)?,
    };
    let key = |key: MirrorKeyBody| {
        let scopes = key.scopes.all("keys.scopes")?.into_iter().map(|scope| scope.0).collect();
        let expires_at = key.expires_at.map(|moment| moment.0.0);
        Ok(MirrorKey { name: key.name.0.0, hash: key.hash.0.0, scopes, expires_at })
    };
    let keys = body.keys.all("keys")?.into_iter().map(key).collect::<Result<_, Problem>>()?;
    Ok((settings, keys))
}
