//! The addresses and keys of a provider (OpenID Connect Discovery 1.0), fetched at its first log-in and then every hour. While a
//! fetch fails, the last values stay in use. A key that is unknown causes one early fetch per [`EARLY`].
//!
//! Waiting log-ins share one fetch. They are bounded by the provider's slots, and each fetch by its timeout.

use std::sync::Arc;
use std::time::Duration;

use noroshi_auth::SigningKeys;
use noroshi_egress::Egress;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use super::{Failed, LIMITS, Live};

const FRESH_FOR: Duration = Duration::from_secs(3_600);
/// After a failed fetch, and between early fetches of keys.
const EARLY: Duration = Duration::from_secs(10);

/// What a log-in needs of the provider's metadata (OpenID Connect Discovery 1.0 §3, RFC 9207 §3).
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    jwks_uri: String,
    pub userinfo_endpoint: Option<String>,
    #[serde(default = "basic")]
    token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// OpenID Connect Discovery 1.0 §3: the default.
fn basic() -> Vec<String> {
    vec!["client_secret_basic".to_owned()]
}

/// How the client authenticates at the token endpoint (RFC 6749 §2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientAuth {
    Basic,
    Post,
}

impl Metadata {
    fn parse(body: &[u8], issuer: &str) -> Result<Self, String> {
        let metadata: Self = serde_json::from_slice(body)
            .map_err(|error| format!("the provider's configuration is invalid: {error}"))?;
        // OpenID Connect Discovery 1.0 §4.3.
        if metadata.issuer != issuer {
            let found = &metadata.issuer;
            return Err(format!("the provider calls itself {found:?}, the configuration {issuer:?}"));
        }
        let endpoints = [&metadata.authorization_endpoint, &metadata.token_endpoint, &metadata.jwks_uri];
        for endpoint in endpoints.into_iter().chain(&metadata.userinfo_endpoint) {
            let url = Url::parse(endpoint).map_err(|error| format!("{endpoint:?}: {error}"))?;
            // Cleartext only where the operator chose it: for a provider on the same machine.
            let is_allowed = url.scheme() == "https" || url.scheme() == "http" && issuer.starts_with("http:");
            if !is_allowed || url.host().is_none() || url.fragment().is_some() {
                return Err(format!("the provider's address {endpoint:?} is no https URL"));
            }
        }
        Ok(metadata)
    }

    pub(super) fn client_auth(&self) -> Result<ClientAuth, Failed> {
        let supports = |name: &str| self.token_endpoint_auth_methods_supported.iter().any(|one| one == name);
        if supports("client_secret_basic") {
            return Ok(ClientAuth::Basic);
        }
        let detail = "the provider supports neither client_secret_basic nor client_secret_post";
        supports("client_secret_post").then_some(ClientAuth::Post).ok_or_else(|| Failed::unavailable(detail))
    }
}

/// A value, and when it was fetched.
type Fetched<T> = Option<(Arc<T>, Instant)>;

#[derive(Default)]
pub(super) struct Cache {
    metadata: Mutex<Slot<Metadata>>,
    keys: Mutex<Slot<SigningKeys>>,
}

/// The mutex around it is held during a fetch.
struct Slot<T> {
    value: Fetched<T>,
    failed: Option<(String, Instant)>,
    /// The last fetch before the hour.
    early_at: Option<Instant>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { value: None, failed: None, early_at: None }
    }
}

impl<T> Slot<T> {
    /// The value, fetched if it is missing or `is_stale`. A recent failure counts for a missing value.
    async fn get(
        &mut self,
        is_stale: bool,
        fetch: impl Future<Output = Result<T, String>>,
    ) -> Result<Arc<T>, Failed> {
        let now = Instant::now();
        let recent = self.failed.as_ref().filter(|(_, at)| now.duration_since(*at) < EARLY);
        match (&self.value, recent) {
            (Some((value, _)), _) if !is_stale => return Ok(value.clone()),
            (Some((value, _)), Some(_)) => return Ok(value.clone()),
            (None, Some((error, _))) => return Err(Failed::unavailable(error)),
            (_, None) => {}
        }
        match fetch.await {
            Ok(value) => {
                let value = Arc::new(value);
                (self.value, self.failed) = (Some((value.clone(), Instant::now())), None);
                Ok(value)
            }
            Err(error) => {
                self.failed = Some((error.clone(), Instant::now()));
                let Some((value, _)) = &self.value else { return Err(Failed::unavailable(error)) };
                tracing::warn!(%error, "an OpenID provider's configuration could not be fetched again");
                Ok(value.clone())
            }
        }
    }

    fn is_old(&self) -> bool {
        self.value.as_ref().is_some_and(|(_, at)| at.elapsed() >= FRESH_FOR)
    }
}

impl Cache {
    pub(super) async fn metadata(&self, live: &Live) -> Result<Arc<Metadata>, Failed> {
        let issuer = &live.provider.issuer;
        let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let fetch = async {
            let body = get(&live.egress, &url).await?;
            Metadata::parse(&body, issuer)
        };
        let mut slot = self.metadata.lock().await;
        let is_old = slot.is_old();
        slot.get(is_old, fetch).await
    }

    pub(super) async fn keys(&self, live: &Live, metadata: &Metadata) -> Result<Arc<SigningKeys>, Failed> {
        let mut slot = self.keys.lock().await;
        let is_old = slot.is_old();
        slot.get(is_old, fetch_keys(live, metadata)).await
    }

    /// Others than `known`, if the provider has others.
    pub(super) async fn newer_keys(
        &self,
        live: &Live,
        metadata: &Metadata,
        known: &Arc<SigningKeys>,
    ) -> Result<Arc<SigningKeys>, Failed> {
        let mut slot = self.keys.lock().await;
        let is_known = slot.value.as_ref().is_some_and(|(value, _)| Arc::ptr_eq(value, known));
        let is_early = slot.early_at.is_none_or(|at| at.elapsed() >= EARLY);
        let is_stale = is_known && is_early;
        if is_stale {
            slot.early_at = Some(Instant::now());
        }
        slot.get(is_stale, fetch_keys(live, metadata)).await
    }
}

async fn fetch_keys(live: &Live, metadata: &Metadata) -> Result<SigningKeys, String> {
    let body = get(&live.egress, &metadata.jwks_uri).await?;
    let text = std::str::from_utf8(&body).map_err(|_| "the provider's JWK set is not UTF-8".to_owned())?;
    SigningKeys::parse(text).map_err(|error| error.to_string())
}

async fn get(egress: &Egress, url: &str) -> Result<bytes::Bytes, String> {
    egress.get(url, LIMITS).await.map_err(|error| format!("{url}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://id.example/realm";

    fn parse(change: impl FnOnce(&mut serde_json::Value)) -> Result<Metadata, String> {
        let mut json = serde_json::json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://id.example/auth?tenant=1",
            "token_endpoint": "https://id.example/token",
            "jwks_uri": "https://keys.example/jwks",
        });
        change(&mut json);
        Metadata::parse(json.to_string().as_bytes(), ISSUER)
    }

    #[test]
    fn the_issuer_is_the_configured_one_and_its_addresses_are_encrypted() {
        let good = parse(|_| {}).expect("valid");
        assert_eq!(good.client_auth().expect("supported"), ClientAuth::Basic, "the default");
        assert!(!good.authorization_response_iss_parameter_supported);
        for issuer in ["https://id.example/realm/", "https://id.example", "https://evil.example/realm"] {
            let error = parse(|json| json["issuer"] = issuer.into()).expect_err(issuer);
            assert!(error.contains("calls itself"), "{error}");
        }
        for url in ["http://id.example/token", "ftp://id.example/", "/token", "https://id.example/#x", ""] {
            parse(|json| json["token_endpoint"] = url.into()).expect_err(url);
            parse(|json| json["userinfo_endpoint"] = url.into()).expect_err(url);
            parse(|json| json["jwks_uri"] = url.into()).expect_err(url);
            parse(|json| json["authorization_endpoint"] = url.into()).expect_err(url);
        }
        parse(|json| json["token_endpoint"].take().as_null().unwrap_or_default()).expect_err("missing");
    }

    #[test]
    fn the_client_authenticates_as_the_provider_supports() {
        let with = |methods: &[&str]| {
            let metadata = parse(|json| json["token_endpoint_auth_methods_supported"] = methods.into());
            metadata.expect("valid").client_auth().map_err(|failed| failed.failure)
        };
        assert_eq!(with(&["client_secret_post", "client_secret_basic"]), Ok(ClientAuth::Basic));
        assert_eq!(with(&["private_key_jwt", "client_secret_post"]), Ok(ClientAuth::Post));
        assert!(with(&["private_key_jwt"]).is_err());
    }
}
