//! Settings and keys of apps, set by operators and admins.

use noroshi_protocol::mqtt::TopicFilter;
use noroshi_store::AppSettings;
use noroshi_types::topic::needs_rule;
use noroshi_types::{AppName, Label, Scope, Scopes, Timestamp, limits};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::each_once;
use super::push_token::Moment;
use crate::error::{Code, Problem};
use crate::json::{self, Bounded, Change, Line, Text};

/// Room for tens of RSA keys.
const JWKS_BYTES_MAX: usize = 64 << 10;
/// Each filter is matched against every message that a client publishes.
const CLIENT_PUBLISH_MAX: usize = 64;
pub(super) const URL_BYTES_MAX: usize = 2_048;
/// Issuers are URLs or short names (RFC 7519 §4.1.1). Each token's claims are compared with both settings.
pub(super) const CLAIM_BYTES_MAX: usize = 512;
pub(super) const KEY_NAME_BYTES_MAX: usize = 64;

/// Who sets an app's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// With an admin key of the app, on the public listener.
    Tenant,
    /// On the admin listener.
    Operator,
}

/// A key to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAppKey {
    pub name: String,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppBody<'a> {
    name: Text<AppName>,
    jwt_secret: Option<String>,
    jwks_url: Option<Text<Line<URL_BYTES_MAX>>>,
    #[serde(borrow)]
    jwks: Option<&'a RawValue>,
    #[serde(default)]
    client_publish: Vec<String>,
    issuer: Option<Text<Line<CLAIM_BYTES_MAX>>>,
    audience: Option<Text<Line<CLAIM_BYTES_MAX>>>,
    essential_categories: Option<CategoryList>,
}

pub(super) type CategoryList = Bounded<Text<Label>, { limits::PREFERENCE_CATEGORIES_MAX }>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AppChangeBody<'a> {
    #[serde(default)]
    jwt_secret: Change<String>,
    #[serde(default)]
    jwks_url: Change<Text<Line<URL_BYTES_MAX>>>,
    #[serde(borrow, default)]
    jwks: Change<&'a RawValue>,
    client_publish: Option<Vec<String>>,
    #[serde(default)]
    issuer: Change<Text<Line<CLAIM_BYTES_MAX>>>,
    #[serde(default)]
    audience: Change<Text<Line<CLAIM_BYTES_MAX>>>,
    essential_categories: Option<CategoryList>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyBody {
    name: Text<Line<KEY_NAME_BYTES_MAX>>,
    scopes: Bounded<Text<Scope>, 4>,
    expires_at: Option<Text<Moment>>,
}

/// Parses a new app. Only operators create apps.
pub fn app(bytes: &[u8]) -> Result<(AppName, AppSettings), Problem> {
    let body: AppBody<'_> = json::parse(bytes)?;
    let settings = AppSettings {
        jwt_secret: body.jwt_secret.map(jwt_secret).transpose()?,
        jwks_url: body.jwks_url.map(|url| jwks_url(url.0.0, Author::Operator)).transpose()?,
        jwks: body.jwks.map(jwks).transpose()?,
        client_publish: client_publish(body.client_publish)?,
        issuer: body.issuer.map(|issuer| issuer.0.0),
        audience: body.audience.map(|audience| audience.0.0),
        essential_categories: essential(body.essential_categories)?,
        ..AppSettings::default()
    };
    Ok((body.name.0, settings))
}

/// Parses a change and applies it to `settings`: absent fields stay, `null` clears.
pub fn app_change(bytes: &[u8], mut settings: AppSettings, author: Author) -> Result<AppSettings, Problem> {
    let body: AppChangeBody<'_> = json::parse(bytes)?;
    body.jwt_secret.check(jwt_secret)?.apply(&mut settings.jwt_secret);
    body.jwks_url.check(|url| jwks_url(url.0.0, author))?.apply(&mut settings.jwks_url);
    body.jwks.check(jwks)?.apply(&mut settings.jwks);
    if let Some(filters) = body.client_publish {
        settings.client_publish = client_publish(filters)?;
    }
    if body.essential_categories.is_some() {
        settings.essential_categories = essential(body.essential_categories)?;
    }
    let (issuer, audience) =
        (body.issuer.into_update(|issuer| issuer.0.0), body.audience.into_update(|one| one.0.0));
    settings.issuer = claim("issuer", settings.issuer, issuer, author)?;
    settings.audience = claim("audience", settings.audience, audience, author)?;
    Ok(settings)
}

/// Parses a new key.
pub fn key(bytes: &[u8], now: Timestamp) -> Result<NewAppKey, Problem> {
    let body: KeyBody = json::parse(bytes)?;
    let scopes: Scopes = body.scopes.all("scopes")?.into_iter().map(|scope| scope.0).collect();
    if scopes.is_empty() {
        return Err(Problem::field(
            "scopes",
            "a key must have at least one of publish, devices, read, admin",
        ));
    }
    let expires_at = body.expires_at.map(|moment| moment.0.0);
    match expires_at {
        Some(at) if at <= now => Err(Problem::field("expires_at", "must be in the future")),
        Some(at) if at > now.saturating_add(limits::KEY_LIFETIME_MAX) => {
            let days = limits::KEY_LIFETIME_MAX.as_secs() / 86_400;
            let rule = format!(
                "must be at most {days} days (10 years) from now; omit it for a key that never expires"
            );
            Err(Problem::field("expires_at", rule))
        }
        expires_at => Ok(NewAppKey { name: body.name.0.0, scopes, expires_at }),
    }
}

pub(super) fn jwt_secret(secret: String) -> Result<Vec<u8>, Problem> {
    match secret.len() {
        limits::JWT_SECRET_BYTES_MIN..=limits::JWT_SECRET_BYTES_MAX => Ok(secret.into_bytes()),
        _ => {
            let (min, max) = (limits::JWT_SECRET_BYTES_MIN, limits::JWT_SECRET_BYTES_MAX);
            let rule = format!("an HS256 secret must be {min} to {max} bytes long");
            Err(Problem::field("jwt_secret", rule))
        }
    }
}

/// Issuer and audience decide which app a token belongs to. A tenant who sets them could receive another tenant's tokens, or
/// make them ambiguous.
#[allow(clippy::option_option)] // absent, null and a value are three different requests
fn claim(
    field: &str,
    before: Option<String>,
    value: Option<Option<String>>,
    author: Author,
) -> Result<Option<String>, Problem> {
    match value {
        Some(value) if value != before && author == Author::Tenant => {
            Err(Problem::new(Code::Forbidden, format!("only the operator can change the {field} of an app"))
                .at(field))
        }
        value => Ok(value.unwrap_or(before)),
    }
}

/// A tenant must not make the node send plaintext requests into its own network. An operator may run an identity service
/// there without TLS.
pub(super) fn jwks_url(url: String, author: Author) -> Result<String, Problem> {
    let plain = url.strip_prefix("http://").filter(|_| author == Author::Operator);
    let host = url.strip_prefix("https://").or(plain).unwrap_or_default();
    match host.is_empty() || host.starts_with('/') || host.contains(char::is_whitespace) {
        true => {
            Err(Problem::field("jwks_url", "must be an https URL; only the operator may set an http URL"))
        }
        false => Ok(url),
    }
}

/// Each once.
pub(super) fn essential(list: Option<CategoryList>) -> Result<Vec<Label>, Problem> {
    let list = list.map(|list| list.all("essential_categories")).transpose()?;
    Ok(each_once(list.into_iter().flatten().map(|name| name.0).collect()))
}

/// MQTT topic filters, for publishing over any protocol.
pub(super) fn client_publish(filters: Vec<String>) -> Result<Vec<String>, Problem> {
    if filters.len() > CLIENT_PUBLISH_MAX {
        return Err(Problem::field("client_publish", format!("at most {CLIENT_PUBLISH_MAX} topic filters")));
    }
    for filter in &filters {
        let parsed = TopicFilter::parse(filter)
            .map_err(|error| Problem::field("client_publish", error.to_string()))?;
        if parsed.share().is_some() {
            let rule = "clients cannot publish to a shared subscription (\"$share/\")";
            return Err(Problem::field("client_publish", rule));
        }
        if needs_rule(filter) {
            let rule = "client_publish cannot allow topics that begin with \"$\"; use topic rules";
            return Err(Problem::field("client_publish", rule));
        }
    }
    Ok(filters)
}

pub(super) fn jwks(raw: &RawValue) -> Result<String, Problem> {
    if raw.get().len() > JWKS_BYTES_MAX {
        return Err(Problem::field("jwks", format!("a JWK set is at most {JWKS_BYTES_MAX} bytes of JSON")));
    }
    match noroshi_auth::check_jwks(raw.get()) {
        Ok(()) => Ok(raw.get().to_owned()),
        Err(error) => Err(Problem::field("jwks", error.to_string())),
    }
}
