//! Requests of the console: a person with a session, instead of a bearer token.
//!
//! The session is in a cookie that scripts cannot read and that the browser sends to this origin only. Each route of the console
//! says what it needs ([`Needed`]); [`admit`] checks that before any handler runs. A request that changes something repeats the
//! session's value of `Noroshi-Csrf`, which no other origin knows.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, Request, State as Shared};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};
use noroshi_auth::Auth;
use noroshi_console::{Caller, Client, Console, Made, OPENID_ROUTES, csrf_of};
use noroshi_delivery::Delivery;
use noroshi_store::App;
use noroshi_types::{AppId, Permission, Timestamp};

use crate::audit::Trail;
use crate::connection;
use crate::error::{Code, Problem};
use crate::metrics::Metrics;
use crate::request::caller::record_provider;

const COOKIE: &str = "noroshi_session";
const COOKIE_PATH: &str = "/console";
/// Where the console has the API.
pub const CONSOLE_API: &str = "/console/api";
const CSRF_HEADER: &str = "noroshi-csrf";
const APP_HEADER: &str = "noroshi-app";
/// The page sends `true` when it repeats a request while nobody uses it.
const BACKGROUND_HEADER: &str = "noroshi-background";
/// A statement of the browser about where a request comes from, which no script can change.
const FETCH_SITE: &str = "sec-fetch-site";

/// What a route of the console needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// Nothing: it logs a person in.
    Nothing,
    /// Any person.
    Person,
    /// The permission in the app that the request names.
    InApp(Permission),
    /// The permission in all apps.
    OnNode(Permission),
}

/// What a route needs beyond [`Needed`]: a recent log-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dangerous;

/// The components of the console.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) console: Arc<Console>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) delivery: Arc<Delivery>,
    /// Whether the node is a front.
    pub(crate) front: bool,
    pub(crate) metrics: Metrics,
}

impl Desk {
    pub(crate) fn now(&self) -> Timestamp {
        self.delivery.clock().now()
    }
}

/// A request of a person. The extension is set before the handler runs.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) caller: Caller,
    /// The value of the cookie.
    pub(crate) token: String,
    /// The app that the request names. `None`: the route needs none.
    pub(crate) app: Option<App>,
    pub(crate) desk: Desk,
    pub(crate) client: Client,
}

/// A client that may not be logged in.
pub(crate) struct Visitor {
    pub(crate) desk: Desk,
    pub(crate) client: Client,
    /// The connection is encrypted.
    pub(crate) is_secure: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Person {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        person_of(parts).cloned()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let desk = parts.extensions.get::<Desk>().cloned().ok_or_else(no_session)?;
        // A proxy that ends TLS reports it. A client that lies only keeps its own browser from sending the cookie.
        let is_forwarded = parts.headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        let peer = parts.extensions.get::<connection::Peer>();
        let is_secure = is_forwarded || peer.is_some_and(|peer| peer.secure);
        Ok(Self { desk, client: client(&parts.extensions, &parts.headers), is_secure })
    }
}

impl Person {
    /// The app of a route that needs one.
    pub(crate) fn app_id(&self) -> Result<AppId, Problem> {
        self.app.as_ref().map(|app| app.id).ok_or_else(|| Problem::not_found("app"))
    }
}

/// The person of a request, if the route is one of the console.
pub(crate) fn person_of(parts: &Parts) -> Result<&Person, Problem> {
    parts.extensions.get::<Arc<Person>>().map(|person| &**person).ok_or_else(no_session)
}

fn no_session() -> Problem {
    noroshi_console::Refused::Session.into()
}

/// Checks what the route needs.
pub(crate) async fn admit(Shared(desk): Shared<Desk>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match enter(&desk, &mut parts).await {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}

async fn enter(desk: &Desk, parts: &mut Parts) -> Result<(), Problem> {
    let needed = parts.extensions.get::<Needed>().copied().ok_or_else(no_session)?;
    // A page of another site must not even log a person in.
    let site = parts.headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    if is_change(&parts.method) && site.is_some_and(|site| site != b"same-origin") {
        return Err(Problem::new(Code::Csrf, "the request comes from a page of another site"));
    }
    parts.extensions.insert(desk.clone());
    if needed == Needed::Nothing {
        return Ok(());
    }
    let token = session_token(&parts.headers).ok_or_else(no_session)?.to_owned();
    let in_background = parts.headers.get(BACKGROUND_HEADER).is_some_and(|value| value == "true");
    let made = if in_background { Made::InBackground } else { Made::ByPerson };
    let caller = desk.console.caller(&token, made, desk.now()).await?;
    if is_change(&parts.method) {
        check_csrf(&parts.headers, &token)?;
    }
    let app = match needed {
        Needed::Nothing | Needed::Person => None,
        Needed::OnNode(permission) => {
            caller.require(None, permission)?;
            None
        }
        Needed::InApp(permission) => Some(named_app(desk, parts, &caller, permission).await?),
    };
    if parts.extensions.get::<Dangerous>().is_some() {
        caller.require_confirmed(desk.now())?;
    }
    if let Some(trail) = parts.extensions.get::<Trail>().filter(|_| !reads(needed)) {
        trail.by_person(&caller.person, app.as_ref());
    }
    let client = client(&parts.extensions, &parts.headers);
    let person = Person { caller, token, app, desk: desk.clone(), client };
    parts.extensions.insert(Arc::new(person));
    Ok(())
}

/// A query whose body is too large for a URL changes nothing.
fn reads(needed: Needed) -> bool {
    matches!(needed, Needed::InApp(Permission::Read) | Needed::OnNode(Permission::Read))
}

/// The app in the path, or in the header. A person without a role in it does not learn whether it exists.
async fn named_app(
    desk: &Desk,
    parts: &mut Parts,
    caller: &Caller,
    permission: Permission,
) -> Result<App, Problem> {
    let params = RawPathParams::from_request_parts(parts, &()).await.ok();
    let in_path = params.as_ref().and_then(|params| params.iter().find(|(name, _)| *name == "app"));
    let in_header = || parts.headers.get(APP_HEADER).and_then(|value| value.to_str().ok());
    let Some(name) = in_path.map(|(_, value)| value).or_else(in_header) else {
        let rule = "the request must name its app, because a session is for all apps of the person";
        return Err(Problem::parameter("Noroshi-App", rule));
    };
    let app = desk.auth.app(name).filter(|app| !caller.permissions(Some(app.id)).is_empty());
    let app = app.ok_or_else(|| Problem::not_found("app"))?;
    caller.require(Some(app.id), permission)?;
    record_provider(parts, app.id);
    Ok(app)
}

/// Whether the path is that of a provider's callback, which changes something although it is a GET.
pub(crate) fn is_openid_callback(path: &str) -> bool {
    path.strip_prefix(OPENID_ROUTES).is_some_and(|rest| rest.ends_with("/callback"))
}

/// Whether a method may change something.
pub(crate) fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn check_csrf(headers: &HeaderMap, token: &str) -> Result<(), Problem> {
    let given = headers.get(CSRF_HEADER).map(HeaderValue::as_bytes).unwrap_or_default();
    match given == csrf_of(token).as_bytes() {
        true => Ok(()),
        false => Err(Problem::new(
            Code::Csrf,
            "the header Noroshi-Csrf must repeat the value of `csrf` in GET /v1/session",
        )),
    }
}

pub(crate) fn session_token(headers: &HeaderMap) -> Option<&str> {
    cookie_of(headers, COOKIE)
}

pub(crate) fn cookie_of<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

fn client(extensions: &http::Extensions, headers: &HeaderMap) -> Client {
    let address = extensions.get::<connection::Client>().map(|client| client.0);
    let network = address.map(noroshi_auth::ClientNetwork::of);
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    Client {
        address: address.map(|address| address.to_string()).unwrap_or_default(),
        network: network.map(|network| network.to_string()).unwrap_or_default(),
        agent: agent.to_owned(),
    }
}

/// `Set-Cookie` of a new session.
pub(crate) fn cookie(token: &str, max_age_s: u64, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!(
        "{COOKIE}={token}; Path={COOKIE_PATH}; HttpOnly; SameSite=Strict; Max-Age={max_age_s}{secure}"
    );
    HeaderValue::from_str(&text).expect("a token is base64url")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_callback_is_recorded() {
        assert!(is_openid_callback("/console/api/v1/session/oidc/corp/callback"));
        for other in
            ["/console/api/v1/session/oidc/corp", "/v1/session/oidc/corp/callback", "/console/api/v1/people"]
        {
            assert!(!is_openid_callback(other), "{other}");
        }
    }
}
