//! Who is asking: each extractor accepts one kind of credential, and a handler that names it cannot run
//! without.
//!
//! [`Provider`] takes an API key with a scope, [`Consumer`] a device token or app JWT whose device exists
//! and whose version is current, [`Registrar`] either, [`Manager`] whoever may change an app. Only
//! `Authorization: Bearer` is looked at: a token in a query would end up in logs.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri, header};
use noroshi_auth::{Access, ClientNetwork, Credential, Identity, Refused};
use noroshi_protocol::app_name;
use noroshi_store::{App, Device, Registration};
use noroshi_types::{AppId, Scope, Timestamp};
use ring::digest;

use crate::body::Author;
use crate::error::{Code, Problem};
use crate::link::{Client, Link};
use crate::pool::Trust;
use crate::registration::register_one;
use crate::state::{Api, Door, State};

/// Which app a request turned out to be for, told to the log by whoever checked the credential.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller(pub(crate) Arc<OnceLock<AppId>>);

/// A scope as a type, so that a route's signature says what it needs.
pub trait Needs {
    const SCOPE: Scope;
}

pub struct Publish;
pub struct Devices;
pub struct Read;

impl Needs for Publish {
    const SCOPE: Scope = Scope::Publish;
}
impl Needs for Devices {
    const SCOPE: Scope = Scope::Devices;
}
impl Needs for Read {
    const SCOPE: Scope = Scope::Read;
}

/// An API key with the scope `N`.
pub struct Provider<N> {
    pub app: AppId,
    needs: PhantomData<N>,
}

/// A device, by its token or its app's JWT. The device is there, as it was read for this request.
pub(crate) struct Consumer {
    pub(crate) device: Device,
    pub(crate) identity: Identity,
}

/// A device by its credential, not looked at yet: whether it is there and the credential is current is for
/// [`crate::first_call`] to say.
pub(crate) struct FirstCaller {
    pub(crate) identity: Identity,
}

/// Who may register a device.
pub(crate) enum Registrar {
    Provider(AppId),
    /// Not read from the store: a JWT's device may not exist yet.
    Consumer(Identity),
}

/// Who may change apps and keys.
pub(crate) enum Manager {
    /// The operator, on the admin listener.
    Operator,
    /// A key with the scope `admin`: its own app only.
    Admin(AppId),
}

impl<N: Needs> FromRequestParts<Api> for Provider<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let access = api.auth.key(bearer(&parts.headers)?)?;
        seen_provider(parts, access.app);
        scoped(&access, N::SCOPE)?;
        Ok(Self { app: access.app, needs: PhantomData })
    }
}

impl FromRequestParts<Api> for Consumer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let identity = consumer(parts, api).await?;
        let device = own_device(api, &identity).await?;
        Ok(Self { device, identity })
    }
}

impl FromRequestParts<Api> for FirstCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        Ok(Self { identity: consumer(parts, api).await? })
    }
}

impl FromRequestParts<Api> for Registrar {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match api.auth.key(bearer(&parts.headers)?) {
            Ok(access) => {
                seen_provider(parts, access.app);
                scoped(&access, Scope::Devices)?;
                Ok(Self::Provider(access.app))
            }
            Err(Refused::NotAKey) => consumer(parts, api).await.map(Self::Consumer),
            Err(refused) => Err(refused.into()),
        }
    }
}

impl FromRequestParts<Api> for Manager {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let bearer = bearer(&parts.headers)?;
        match api.door {
            Door::Admin if is_operator(api, bearer) => {
                has_shown(parts, Trust::Provider);
                Ok(Self::Operator)
            }
            Door::Admin => Err(Refused::Unknown.into()),
            Door::Public => {
                let access = api.auth.key(bearer)?;
                seen_provider(parts, access.app);
                scoped(&access, Scope::Admin)?;
                Ok(Self::Admin(access.app))
            }
        }
    }
}

/// The operator, on the admin listener.
pub struct Operator;

impl FromRequestParts<Api> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match Manager::from_request_parts(parts, api).await? {
            Manager::Operator => Ok(Self),
            Manager::Admin(_) => Err(Refused::Unknown.into()),
        }
    }
}

impl Manager {
    pub(crate) fn author(&self) -> Author {
        match self {
            Manager::Operator => Author::Operator,
            Manager::Admin(_) => Author::Tenant,
        }
    }

    /// The app of this name, if it may be managed: another's is as unknown as one that is not there.
    pub(crate) fn app(&self, state: &State, name: &str) -> Result<App, Problem> {
        let app = state.auth.app(name).ok_or_else(|| Problem::not_found("app"))?;
        match self {
            Manager::Operator => Ok(app),
            Manager::Admin(own) if *own == app.id => Ok(app),
            Manager::Admin(_) => Err(Problem::not_found("app")),
        }
    }
}

/// RFC 6750 §2.1.
pub fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let missing = || Problem::from(Refused::Missing);
    let value = headers.get(header::AUTHORIZATION).ok_or_else(missing)?;
    let text = value.to_str().map_err(|_| Problem::from(Refused::Malformed("it is not visible ASCII")))?;
    let (scheme, token) = text.split_once(' ').ok_or_else(missing)?;
    let token = token.trim();
    match scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        true => Ok(token),
        false => Err(missing()),
    }
}

pub fn scoped(access: &Access, scope: Scope) -> Result<(), Problem> {
    match access.allows(scope) {
        true => Ok(()),
        false => {
            Err(Problem::new(Code::Forbidden, format!("the API key lacks the scope \"{}\"", scope.as_str())))
        }
    }
}

/// Tells the request's log line and span whose it is.
pub(crate) fn seen(parts: &Parts, app: AppId) {
    if let Some(caller) = parts.extensions.get::<Caller>() {
        // A request has one credential: the first answer is the only one.
        let _ = caller.0.set(app);
    }
}

/// The app that the request names for its JWT.
pub fn named_app<'a>(uri: &'a Uri, headers: &'a HeaderMap, api: &State) -> Option<Cow<'a, str>> {
    // An app's name needs no escapes, so the query is only cut.
    let query = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("app="));
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let (header, host) = (text(app_name::HEADER), text(header::HOST.as_str()));
    app_name::of_request(query.map(Cow::Borrowed), header, host, api.config.app_domain.as_deref())
}

/// The same of a provider, whose connection is kept in preference to others from now on.
pub fn seen_provider(parts: &Parts, app: AppId) {
    seen(parts, app);
    has_shown(parts, Trust::Provider);
}

fn has_shown(parts: &Parts, trust: Trust) {
    if let Some(link) = parts.extensions.get::<Link>() {
        link.has_shown(trust);
    }
}

/// The client of a request, for handlers that verify a credential themselves.
pub struct Network(pub Option<ClientNetwork>);

impl FromRequestParts<Api> for Network {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Result<Self, Self::Rejection> {
        Ok(Self(client(parts)))
    }
}

/// Whose limits failed log-ins count for.
pub fn client(parts: &Parts) -> Option<ClientNetwork> {
    parts.extensions.get::<Client>().map(|client| ClientNetwork::of(client.0))
}

async fn consumer(parts: &Parts, api: &Api) -> Result<Identity, Problem> {
    let app = named_app(&parts.uri, &parts.headers, api);
    let token = bearer(&parts.headers)?;
    let credential = Credential { token, app: app.as_deref(), client: client(parts) };
    let identity = api.auth.authenticate(credential, api.now()).await;
    let identity = identity.map_err(|refused| Problem::failed_log_in(token, refused))?;
    seen(parts, identity.app);
    has_shown(parts, Trust::Device);
    Ok(identity)
}

/// The device of a credential, made on first use where the credential may do that.
pub(crate) async fn own_device(api: &State, identity: &Identity) -> Result<Device, Problem> {
    let store = api.delivery.store();
    let found = store.device(identity.app, &identity.device).await?;
    match standing(found.as_ref(), identity, api.now()) {
        Standing::Good => found.ok_or_else(revoked),
        Standing::Revoked => Err(revoked()),
        Standing::ToBeMade => {
            let registration = Registration {
                device: Some(identity.device.clone()),
                user: identity.user.clone(),
                topics: identity.topics.clone(),
                issued: identity.issued,
                ..Registration::default()
            };
            register_one(api, identity.app, registration).await
        }
    }
}

/// What a credential means for the device as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Good,
    Revoked,
    /// It is to be made, or to be brought to what an app JWT says.
    ToBeMade,
}

pub(crate) fn standing(device: Option<&Device>, identity: &Identity, now: Timestamp) -> Standing {
    match device {
        Some(device) if is_revoked(device, identity, now) => Standing::Revoked,
        Some(device) if identity.token_version.is_some_and(|version| version != device.token_version) => {
            Standing::Revoked
        }
        Some(device) if agrees(device, identity) => Standing::Good,
        None if !identity.create => Standing::Revoked,
        Some(_) | None => Standing::ToBeMade,
    }
}

/// Whether the app JWT was revoked. What concerns the device's user says nothing about another user's JWT, which is
/// looked at where the device goes over to that user.
fn is_revoked(device: &Device, identity: &Identity, now: Timestamp) -> bool {
    let of_user = device.revoked.user.filter(|_| identity.user == device.user);
    identity.issued.is_revoked(device.revoked.device.max(of_user), now)
}

/// Whether the device is as an app JWT says. If not it went over to another user, whose the first one's
/// inbox is not, or the JWT names topics that are new.
fn agrees(device: &Device, identity: &Identity) -> bool {
    (identity.user.is_none() || identity.user == device.user)
        // Both may be 1,000; the device's are sorted.
        && identity.topics.iter().all(|topic| device.topics.binary_search(topic).is_ok())
}

pub(crate) fn revoked() -> Problem {
    Problem::new(Code::Unauthorized, "the device was deleted or its tokens were revoked")
}

/// Compares hashes, so that the time it takes tells nothing about the token.
fn is_operator(state: &State, bearer: &str) -> bool {
    let hash = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
    state.operator_token.as_deref().is_some_and(|token| hash(token).as_ref() == hash(bearer).as_ref())
}
