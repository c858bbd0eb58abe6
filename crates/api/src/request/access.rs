//! Authentication and authorization: each extractor accepts one kind of credential, so a handler that names it cannot run
//! without.
//!
//! [`Provider`] takes an API key with a scope; [`Consumer`] a device token or app JWT whose device exists and whose version
//! is current; [`Registrar`] either; [`Manager`] an `admin` key or the operator's token. An extractor also has the components
//! that most of its handlers use. The credential comes only from `Authorization: Bearer`: a token in a query would end up in
//! logs. Routes of the console take a session instead, which [`session`] has checked before the extractor runs.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Uri, header};
use noroshi_auth::{Access, Auth, ClientNetwork, Credential, Identity, Refused};
use noroshi_delivery::Delivery;
use noroshi_protocol::app_name;
use noroshi_store::{App, Device, Registration};
use noroshi_types::{AppId, Permission, Scope, Timestamp};
use ring::digest;
use serde::Deserialize;

use crate::audit::Trail;
use crate::body::Author;
use crate::connection::{Client, Trust};
use crate::error::{Code, Problem};
use crate::registration::register_one;
use crate::request::caller::{record_app, record_provider, record_trust};
use crate::request::parameter::Path;
use crate::request::session;

/// The listener that a request arrived on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    Public,
    /// Loopback by default.
    Admin,
    /// The routes of the console, which take sessions instead of bearer tokens.
    Console,
}

/// Verifies the credentials of requests on one listener.
pub struct Authenticator {
    pub(crate) auth: Arc<Auth>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) listener: Listener,
    /// A request to a host directly under this domain names the app.
    pub(crate) app_domain: Option<String>,
    /// None: no credential belongs to the operator.
    pub(crate) operator_token: Option<String>,
}

/// A scope as a type, so that a handler's signature shows what it requires.
pub trait Needs {
    const SCOPE: Scope;
}

macro_rules! needs {
    ($($name:ident)*) => {
        $(
            pub struct $name;

            impl Needs for $name {
                const SCOPE: Scope = Scope::$name;
            }
        )*
    };
}

needs! { Publish Devices Read }

/// Public only in this crate: other crates have no routes for it.
pub(crate) struct Admin;

impl Needs for Admin {
    const SCOPE: Scope = Scope::Admin;
}

/// An API key with the scope `N`.
pub struct Provider<N> {
    pub app: AppId,
    pub(crate) delivery: Arc<Delivery>,
    needs: PhantomData<N>,
}

/// A device, by its token or an app JWT. The device exists; it was read for this request.
pub(crate) struct Consumer {
    pub(crate) device: Device,
    pub(crate) identity: Identity,
    pub(crate) delivery: Arc<Delivery>,
}

/// A device by its credential. [`crate::first_call`] checks whether the device exists and the credential is current.
pub(crate) struct FirstCaller {
    pub(crate) identity: Identity,
}

/// Who may register a device.
pub(crate) enum Registrar {
    Provider(AppId),
    /// Not read from the store: the device of an app JWT may not exist yet.
    Consumer(Identity),
}

/// Who may change apps and keys: the operator on the admin listener, a key with the scope `admin` on the public one, or a
/// person with a role.
pub(crate) struct Manager {
    /// The app of an `admin` key, or of a person who does not manage all apps. None: the operator.
    own: Option<AppId>,
    pub(crate) trail: Trail,
    /// The app's name in the path. Empty if the path has none.
    pub(crate) name: String,
    pub(crate) auth: Arc<Auth>,
    pub(crate) delivery: Arc<Delivery>,
}

/// The operator, on the admin listener.
pub struct Operator;

/// The client's network, for handlers that verify a credential themselves.
pub struct Network(pub Option<ClientNetwork>);

impl Authenticator {
    /// An API key with the scope, or a person.
    fn provider(&self, parts: &Parts, scope: Scope) -> Result<AppId, Problem> {
        if self.listener == Listener::Console {
            return session::person_of(parts)?.app_id();
        }
        self.verified_key(parts, self.key(parts)?, scope)
    }

    /// The API key of the request. The outer error: the request has no credential.
    pub(crate) fn key(&self, parts: &Parts) -> Result<Result<Access, Refused>, Problem> {
        Ok(self.auth.key(bearer(&parts.headers)?, self.delivery.clock().now()))
    }

    fn verified_key(
        &self,
        parts: &Parts,
        key: Result<Access, Refused>,
        scope: Scope,
    ) -> Result<AppId, Problem> {
        let access = key?;
        record_provider(parts, access.app);
        scoped(&access, scope)?;
        Ok(access.app)
    }

    async fn consumer(&self, parts: &Parts) -> Result<Identity, Problem> {
        if self.listener == Listener::Console {
            return Err(Refused::Unknown.into());
        }
        let app = named_app(&parts.uri, &parts.headers, self.app_domain.as_deref());
        let token = bearer(&parts.headers)?;
        let credential = Credential { token, app: app.as_deref(), client: client(parts) };
        let identity = self.auth.authenticate(credential, self.delivery.clock().now()).await;
        let identity = identity.map_err(|refused| Problem::failed_log_in(token, refused))?;
        record_app(parts, identity.app);
        record_trust(parts, Trust::Device);
        Ok(identity)
    }

    async fn registrar(&self, parts: &Parts) -> Result<Registrar, Problem> {
        if self.listener == Listener::Console {
            return session::person_of(parts)?.app_id().map(Registrar::Provider);
        }
        match self.key(parts)? {
            Err(Refused::NotAKey) => self.consumer(parts).await.map(Registrar::Consumer),
            key => self.verified_key(parts, key, Scope::Devices).map(Registrar::Provider),
        }
    }

    /// The app of an `admin` key or of a person. None: the operator, or a person who manages all apps.
    fn manager(&self, parts: &Parts, trail: &Trail) -> Result<Option<AppId>, Problem> {
        match self.listener {
            Listener::Admin if self.is_operator(bearer(&parts.headers)?) => {
                record_trust(parts, Trust::Provider);
                trail.by_operator_token();
                Ok(None)
            }
            Listener::Admin => Err(Refused::Unknown.into()),
            Listener::Public => {
                let access = self.key(parts)?;
                let key = access.as_ref().ok().map(|access| access.key);
                let app = self.verified_key(parts, access, Scope::Admin)?;
                let name = self.auth.keys(app).into_iter().find(|one| Some(one.id) == key);
                trail.by_key(name.map(|key| key.name).unwrap_or_default(), app);
                Ok(Some(app))
            }
            Listener::Console => {
                let person = session::person_of(parts)?;
                let manages_all = person.caller.permissions(None).contains(Permission::Manage);
                Ok(person.app.as_ref().filter(|_| !manages_all).map(|app| app.id))
            }
        }
    }

    /// Compares hashes, so the duration reveals nothing about the token.
    fn is_operator(&self, bearer: &str) -> bool {
        let hash = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
        self.operator_token.as_deref().is_some_and(|token| hash(token).as_ref() == hash(bearer).as_ref())
    }
}

/// Extractors that use the listener's [`Authenticator`].
macro_rules! extractors {
    ($($extractor:ident $(<$needs:ident>)?: |$authenticator:ident, $parts:ident| $extracted:expr;)*) => {
        $(impl<$($needs: Needs,)? S: Send + Sync> FromRequestParts<S> for $extractor $(<$needs>)?
        where
            Arc<Authenticator>: FromRef<S>,
        {
            type Rejection = Problem;

            async fn from_request_parts($parts: &mut Parts, state: &S) -> Result<Self, Problem> {
                let $authenticator = Arc::<Authenticator>::from_ref(state);
                $extracted
            }
        })*
    };
}

extractors! {
    Provider<N>: |authenticator, parts| {
        let app = authenticator.provider(parts, N::SCOPE)?;
        Ok(Self { app, delivery: authenticator.delivery.clone(), needs: PhantomData })
    };
    Consumer: |authenticator, parts| {
        let identity = authenticator.consumer(parts).await?;
        let device = own_device(&authenticator.delivery, &identity).await?;
        authenticator.delivery.seen.device(device.num);
        Ok(Self { device, identity, delivery: authenticator.delivery.clone() })
    };
    FirstCaller: |authenticator, parts| Ok(Self { identity: authenticator.consumer(parts).await? });
    Registrar: |authenticator, parts| authenticator.registrar(parts).await;
    Manager: |authenticator, parts| {
        let trail = parts.extensions.get::<Trail>().cloned().unwrap_or_default();
        let own = authenticator.manager(parts, &trail)?;
        let Path(NamedApp { app }) = Path::from_request_parts(parts, &()).await?;
        let Authenticator { auth, delivery, .. } = &*authenticator;
        Ok(Self { own, trail, name: app, auth: auth.clone(), delivery: delivery.clone() })
    };
    Operator: |authenticator, parts| {
        let trail = parts.extensions.get::<Trail>().cloned().unwrap_or_default();
        match authenticator.manager(parts, &trail)? {
            None => Ok(Self),
            Some(_) => Err(Refused::Unknown.into()),
        }
    };
}

/// The app in a path. Other parameters are ignored.
#[derive(Deserialize)]
struct NamedApp {
    #[serde(default)]
    app: String,
}

impl<S: Send + Sync> FromRequestParts<S> for Network {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(client(parts)))
    }
}

impl Manager {
    pub(crate) fn is_operator(&self) -> bool {
        self.own.is_none()
    }

    pub(crate) fn author(&self) -> Author {
        if self.is_operator() { Author::Operator } else { Author::Tenant }
    }

    /// The app that the path names. An `admin` key finds only its own app.
    pub(crate) fn app(&self) -> Result<App, Problem> {
        let found = self.auth.app(&self.name).filter(|app| self.own.is_none_or(|own| own == app.id));
        let app = found.ok_or_else(|| Problem::not_found("app"))?;
        self.trail.in_app(app.id);
        Ok(app)
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

/// The app that the request names for its JWT.
pub(crate) fn named_app<'a>(
    uri: &'a Uri,
    headers: &'a HeaderMap,
    app_domain: Option<&str>,
) -> Option<Cow<'a, str>> {
    // App names need no escapes, so the query is not decoded.
    let query = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("app="));
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let (header, host) = (text(app_name::HEADER), text(header::HOST.as_str()));
    app_name::of_request(query.map(Cow::Borrowed), header, host, app_domain)
}

/// The network whose failed log-ins are limited together.
pub fn client(parts: &Parts) -> Option<ClientNetwork> {
    parts.extensions.get::<Client>().map(|client| ClientNetwork::of(client.0))
}

/// The device of a credential. Creates it on first use if the credential allows that.
pub(crate) async fn own_device(delivery: &Delivery, identity: &Identity) -> Result<Device, Problem> {
    let found = delivery.store().device(identity.app, &identity.device).await?;
    match device_status(found.as_ref(), identity, delivery.clock().now()) {
        DeviceStatus::Current => found.ok_or_else(Problem::revoked),
        DeviceStatus::Revoked => Err(Problem::revoked()),
        DeviceStatus::NeedsRegistration => {
            let registration = Registration {
                device: Some(identity.device.clone()),
                user: identity.user.clone(),
                topics: identity.topics.clone(),
                issued: identity.issued,
                ..Registration::default()
            };
            register_one(delivery, identity.app, registration).await
        }
    }
}

/// How a credential relates to the stored device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceStatus {
    Current,
    Revoked,
    /// The device does not exist, or differs from the app JWT.
    NeedsRegistration,
}

pub(crate) fn device_status(device: Option<&Device>, identity: &Identity, now: Timestamp) -> DeviceStatus {
    match device {
        Some(device) if is_revoked(device, identity, now) => DeviceStatus::Revoked,
        Some(device) if identity.token_version.is_some_and(|version| version != device.token_version) => {
            DeviceStatus::Revoked
        }
        Some(device) if matches_identity(device, identity) => DeviceStatus::Current,
        None if !identity.create => DeviceStatus::Revoked,
        Some(_) | None => DeviceStatus::NeedsRegistration,
    }
}

/// Whether the app JWT was revoked. A revocation of the device's user does not affect the JWT of another user, which is
/// checked when the device moves to that user.
fn is_revoked(device: &Device, identity: &Identity, now: Timestamp) -> bool {
    let of_user = device.revoked.user.filter(|_| identity.user == device.user);
    identity.issued.is_revoked(device.revoked.device.max(of_user), now)
}

/// Whether the device agrees with the app JWT. Otherwise the device moves to the JWT's user, who must not read the previous
/// user's inbox, or the JWT names new topics.
fn matches_identity(device: &Device, identity: &Identity) -> bool {
    (identity.user.is_none() || identity.user == device.user)
        // Up to 1,000 each; the device's topics are sorted.
        && identity.topics.iter().all(|topic| device.topics.binary_search(topic).is_ok())
}
