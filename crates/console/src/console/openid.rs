//! Log-in with an OpenID provider: the authorization code flow of OpenID Connect Core 1.0 §3.1, with PKCE (RFC 7636).
//!
//! ```text
//!   OpenIds::start   ─► address of the provider, and a sealed cookie with what the callback must match ([`pending`])
//!   OpenIds::finish  ─► code for tokens ([`exchange`]) ─► claims ([`id_token`]) ─► person and roles ([`claims`])
//!                          └── addresses and keys of the provider, cached ([`discovery`])
//! ```
//!
//! No node keeps anything between start and callback, so the callback may reach another node of the cluster. Each provider has
//! its own slots and its own cache: one that does not answer delays nobody else.

mod claims;
mod discovery;
mod exchange;
mod id_token;
mod pending;
mod person;

use std::sync::Arc;
use std::time::Duration;

use noroshi_egress::{Egress, Limits};
use noroshi_store::Person;
use noroshi_types::{AppId, PersonId, Role, Timestamp, names};
use tokio::sync::Semaphore;

use crate::console::{Client, Console, LoggedIn};
use discovery::Cache;
pub(crate) use pending::Seal;
use pending::{Pending, Purpose};

const LIMITS: Limits = Limits { body_bytes_max: 256 << 10, timeout: Duration::from_secs(10) };
/// How long a person may take at the provider.
pub const PENDING_LIFETIME: Duration = Duration::from_secs(600);
/// Log-ins of one provider that wait for its answers at once. Each may take three requests of 10 s.
const SLOTS: usize = 16;
/// The longest path of the page to which a log-in returns.
const RETURN_BYTES_MAX: usize = 512;
/// The page, and what a log-in returns to without another path.
const HOME: &str = "/console/";
/// Where a confirmation ends, in a window of its own.
const CONFIRMED: &str = "/console/confirmed";

/// Path of the routes.
pub const OPENID_ROUTES: &str = "/console/api/v1/session/oidc";

/// A provider as the operator configures it.
#[derive(Clone)]
pub struct Provider {
    /// In addresses: `a-z`, `0-9` and `-`.
    pub name: String,
    /// On the button.
    pub title: String,
    pub issuer: String,
    pub client_id: String,
    pub client_secret: String,
    /// Separated by spaces.
    pub scopes: String,
    /// The claim whose values the mappings compare. A name with dots leads into objects.
    pub roles_claim: String,
    /// For each app, the first one that applies decides.
    pub mappings: Vec<Mapping>,
    /// If no mapping applies.
    pub default_role: Option<(AppRef, Role)>,
    /// In lower case. Empty: any.
    pub email_domains: Vec<String>,
    pub accepts_unverified_email: bool,
    /// A first log-in takes over the person with the same verified address.
    pub links_by_email: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub value: String,
    pub app: AppRef,
    pub role: Role,
}

/// An app in the configuration. It may be created later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppRef {
    All,
    Named(String),
}

impl AppRef {
    pub fn parse(text: &str) -> Self {
        if text == "*" { Self::All } else { Self::Named(text.to_owned()) }
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, issuer, client_id, .. } = self;
        let mut text = f.debug_struct("Provider");
        text.field("name", name).field("issuer", issuer).field("client_id", client_id).finish_non_exhaustive()
    }
}

names! {
    /// Why a log-in with a provider failed. The page has a text for each.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum OpenIdFailure {
        /// The person or the provider refused.
        Denied => "denied",
        /// No mapping applies, and there is no default.
        NoRole => "no_role",
        NoEmail => "no_email",
        UnverifiedEmail => "unverified_email",
        EmailDomain => "email_domain",
        /// Another person has the address.
        EmailTaken => "email_taken",
        Disabled => "disabled",
        /// The provider does not answer, or not as the standards say.
        Unavailable => "unavailable",
        /// The browser has no log-in in progress that the response belongs to.
        Expired => "expired",
        /// The response or its tokens are not acceptable.
        Invalid => "invalid",
        /// Too many log-ins from this network.
        TooMany => "too_many",
        /// Too many log-ins at once.
        Busy => "busy",
        /// A confirmation: the provider did not report a new log-in.
        NotRecent => "not_recent",
        /// A confirmation: another person logged in at the provider.
        OtherPerson => "other_person",
        /// The session to confirm is over.
        NoSession => "no_session",
        /// The node failed.
        Failed => "failed",
    }
}

/// A failure, and for the log what happened. It contains neither tokens nor secrets.
#[derive(Debug)]
pub(crate) struct Failed {
    pub failure: OpenIdFailure,
    pub detail: String,
}

impl Failed {
    fn new(failure: OpenIdFailure, detail: impl ToString) -> Self {
        Self { failure, detail: detail.to_string() }
    }

    fn invalid(detail: impl ToString) -> Self {
        Self::new(OpenIdFailure::Invalid, detail)
    }

    /// The operator needs the reason; the browser gets the code only.
    fn logged(self, provider: &str) -> OpenIdFailure {
        let Self { failure, detail } = self;
        tracing::info!(provider, failure = failure.as_str(), %detail, "a log-in with an OpenID provider failed");
        failure
    }

    fn unavailable(detail: impl ToString) -> Self {
        Self::new(OpenIdFailure::Unavailable, detail)
    }
}

impl From<noroshi_store::Error> for Failed {
    fn from(error: noroshi_store::Error) -> Self {
        Self::new(OpenIdFailure::Failed, error)
    }
}

/// What a log-in is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFor {
    /// Returns to this path of the page.
    LogIn { to: Option<String> },
    /// Confirms a session of the person.
    Confirm { session: u64, person: PersonId },
}

/// Where the browser continues, and the cookie that it needs at its return.
#[derive(Debug)]
pub struct Started {
    pub location: String,
    pub cookie: String,
}

/// The parameters of an authorization response (RFC 6749 §4.1.2, RFC 9207).
#[derive(Debug, Default, Clone)]
pub struct AuthorizationResponse {
    pub code: Option<String>,
    pub state: Option<String>,
    pub iss: Option<String>,
    pub error: Option<String>,
}

#[derive(Debug)]
pub enum OpenIdOutcome {
    LoggedIn(Box<LoggedIn>),
    Confirmed,
}

/// A person whose roles the provider's groups decided.
#[derive(Debug)]
pub struct MappedRoles {
    /// `None`: the log-in created the person.
    pub before: Option<Person>,
    pub after: Person,
}

/// The end of a log-in. The mapping is stored even if it leaves no role, and the log-in fails.
#[derive(Debug)]
pub struct Finished {
    pub result: Result<OpenIdOutcome, OpenIdFailure>,
    /// The path of the page to which the browser returns.
    pub to: String,
    pub mapped: Option<MappedRoles>,
}

/// A provider in use.
pub(crate) struct Live {
    pub provider: Provider,
    cache: Cache,
    egress: Arc<Egress>,
    slots: Semaphore,
    redirect_uri: String,
}

/// All providers of a node.
pub(crate) struct OpenIds {
    live: Vec<Live>,
    /// `None`: there are no providers.
    seal: Option<Seal>,
}

/// What a handler knows about apps.
pub type AppOf<'a> = &'a (dyn Fn(&str) -> Option<AppId> + Sync);

impl OpenIds {
    pub(crate) const fn none() -> Self {
        Self { live: Vec::new(), seal: None }
    }

    /// `url`: the origin at which browsers reach the console.
    pub(crate) fn new(providers: Vec<Provider>, url: &str, egress: &Arc<Egress>, seal: Seal) -> Self {
        let live = providers.into_iter().map(|provider| Live {
            cache: Cache::default(),
            egress: egress.clone(),
            slots: Semaphore::new(SLOTS),
            redirect_uri: format!("{url}{OPENID_ROUTES}/{}/callback", provider.name),
            provider,
        });
        Self { live: live.collect(), seal: Some(seal) }
    }

    fn find(&self, name: &str) -> Option<(&Live, &Seal)> {
        self.live.iter().find(|live| live.provider.name == name).zip(self.seal.as_ref())
    }
}

impl Live {
    /// A slot for requests to the provider.
    fn slot(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Failed> {
        let detail = "too many log-ins wait for the provider";
        self.slots.try_acquire().map_err(|_| Failed::new(OpenIdFailure::Busy, detail))
    }

    pub(crate) async fn start(
        &self,
        seal: &Seal,
        wanted: StartFor,
        now: Timestamp,
    ) -> Result<Started, Failed> {
        let _slot = self.slot()?;
        let metadata = self.cache.metadata(self).await?;
        let purpose = match wanted {
            StartFor::LogIn { to } => Purpose::LogIn { to: to.filter(|to| is_own_path(to)) },
            StartFor::Confirm { session, person } => Purpose::Confirm { session, person: person.0 },
        };
        let pending = Pending::new(&self.provider.name, purpose, now);
        let location = exchange::authorization(self, &metadata, &pending);
        Ok(Started { location, cookie: seal.close(&pending) })
    }

    /// Checks the response against the log-in in progress, and gets the claims of the person.
    async fn identify(
        &self,
        pending: &Pending,
        response: AuthorizationResponse,
        now: Timestamp,
    ) -> Result<claims::Identity, Failed> {
        let _slot = self.slot()?;
        let metadata = self.cache.metadata(self).await?;
        let code = exchange::code_of(self, &metadata, response)?;
        let tokens = exchange::tokens(self, &metadata, pending, &code).await?;
        let claims = self.verified(&metadata, &tokens.id_token).await?;
        let expected = id_token::Expected {
            issuer: &self.provider.issuer,
            client: &self.provider.client_id,
            nonce: &pending.nonce,
            now,
        };
        let mut identity = id_token::check(claims, &expected).map_err(Failed::invalid)?;
        if identity.lacks_claims(&self.provider) {
            exchange::add_user_info(self, &metadata, &tokens, &mut identity).await?;
        }
        Ok(identity)
    }

    /// The claims of an ID token. A key that is unknown may be new.
    async fn verified(&self, metadata: &discovery::Metadata, token: &str) -> Result<Vec<u8>, Failed> {
        use noroshi_auth::IdTokenRefused::{Signature, UnknownKey};
        let keys = self.cache.keys(self, metadata).await?;
        match keys.verified(token) {
            Err(UnknownKey | Signature) => {}
            other => return other.map_err(Failed::invalid),
        }
        let keys = self.cache.newer_keys(self, metadata, &keys).await?;
        keys.verified(token).map_err(Failed::invalid)
    }
}

impl Console {
    /// Providers in the order of the configuration.
    pub fn openid_providers(&self) -> impl Iterator<Item = &Provider> {
        self.openids.live.iter().map(|live| &live.provider)
    }

    /// Begins a log-in. `None`: there is no such provider.
    pub async fn start_openid(
        &self,
        name: &str,
        wanted: StartFor,
        client: &Client,
        now: Timestamp,
    ) -> Option<Result<Started, (OpenIdFailure, &'static str)>> {
        let (live, seal) = self.openids.find(name)?;
        let failed_to = match wanted {
            StartFor::LogIn { .. } => HOME,
            StartFor::Confirm { .. } => CONFIRMED,
        };
        let started = match self.attempts.admit_openid(&client.network, now) {
            true => live.start(seal, wanted, now).await,
            false => Err(too_many()),
        };
        Some(started.map_err(|failed| (failed.logged(name), failed_to)))
    }

    /// Ends a log-in. `cookie` is the one that [`Self::start_openid`] returned. `None`: there is no such provider.
    pub async fn finish_openid(
        &self,
        name: &str,
        cookie: Option<&str>,
        response: AuthorizationResponse,
        (app_of, client): (AppOf<'_>, &Client),
        now: Timestamp,
    ) -> Option<Finished> {
        let found = self.openids.find(name)?;
        let (mut to, mut mapped) = (HOME.to_owned(), None);
        let result = async {
            if !self.attempts.admit_openid(&client.network, now) {
                return Err(too_many());
            }
            let callback = Callback::find(found, cookie, &response, now)?;
            to = callback.failed_to().to_owned();
            let ends_at = callback.to();
            let outcome = self.complete(callback, response, (app_of, client), &mut mapped, now).await?;
            to = ends_at;
            Ok(outcome)
        };
        let result = result.await.map_err(|failed: Failed| failed.logged(name));
        Some(Finished { result, to, mapped })
    }
}

fn too_many() -> Failed {
    Failed::new(OpenIdFailure::TooMany, "too many log-ins from this network")
}

/// A log-in in progress that a callback belongs to.
pub(crate) struct Callback<'a> {
    pub live: &'a Live,
    pub pending: Pending,
}

impl<'a> Callback<'a> {
    /// Finds the log-in by its cookie. The state must be that of this browser, and the provider that of the path.
    pub(crate) fn find(
        (live, seal): (&'a Live, &Seal),
        cookie: Option<&str>,
        response: &AuthorizationResponse,
        now: Timestamp,
    ) -> Result<Self, Failed> {
        let expired = |detail: &str| Failed::new(OpenIdFailure::Expired, detail);
        let cookie = cookie.ok_or_else(|| expired("the request has no cookie of a log-in in progress"))?;
        let pending = seal.open(cookie, now).ok_or_else(|| expired("the cookie is not valid, or expired"))?;
        if pending.provider != live.provider.name {
            return Err(expired("the log-in in progress is one at another provider"));
        }
        if response.state.as_deref() != Some(pending.state.as_str()) {
            return Err(expired("the state is not that of the log-in in progress"));
        }
        Ok(Self { live, pending })
    }

    /// The path of the page to which the browser returns.
    pub(crate) fn to(&self) -> String {
        match &self.pending.purpose {
            Purpose::LogIn { to } => to.clone().unwrap_or_else(|| HOME.to_owned()),
            Purpose::Confirm { .. } => CONFIRMED.to_owned(),
        }
    }

    /// Where the page shows why it failed.
    pub(crate) fn failed_to(&self) -> &'static str {
        match self.pending.purpose {
            Purpose::LogIn { .. } => HOME,
            Purpose::Confirm { .. } => CONFIRMED,
        }
    }
}

/// Whether a log-in may return to it: a path of the page, in the characters of URLs. Anything else could lead elsewhere.
fn is_own_path(to: &str) -> bool {
    let path = to.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    let is_safe = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'<' | b'>' | b'\\');
    to.len() <= RETURN_BYTES_MAX
        && to.strip_prefix(HOME).is_some_and(|rest| !rest.starts_with("api") && !rest.starts_with('/'))
        && !path.contains("..")
        && !path.contains("%2e")
        && to.bytes().all(is_safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_returns_to_the_page_only() {
        for own in ["/console/", "/console/user?app=dev&id=a%40example.com", "/console/audit#x"] {
            assert!(is_own_path(own), "{own}");
        }
        let long = format!("/console/{}", "a".repeat(RETURN_BYTES_MAX));
        for other in [
            "",
            "/",
            "/console",
            "//evil.example/console/",
            "https://evil.example/console/",
            "/console//evil.example",
            "/console/api/v1/session",
            "/console/../v1/devices",
            "/console/a/%2E%2e/%2e./v1",
            "/console/\\evil.example",
            "/console/\"><script>",
            "/console/ x",
            "/console/\n",
            "javascript:alert(1)",
            &long,
        ] {
            assert!(!is_own_path(other), "{other}");
        }
    }

    #[test]
    fn a_provider_is_shown_without_its_secret() {
        let provider = Provider {
            name: "corp".to_owned(),
            title: "Corp".to_owned(),
            issuer: "https://id.example".to_owned(),
            client_id: "noroshi".to_owned(),
            client_secret: "hidden".to_owned(),
            scopes: "openid".to_owned(),
            roles_claim: "groups".to_owned(),
            mappings: Vec::new(),
            default_role: None,
            email_domains: Vec::new(),
            accepts_unverified_email: false,
            links_by_email: false,
        };
        assert!(!format!("{provider:?}").contains("hidden"));
    }
}
