//! Web Push endpoints (RFC 8030 calls them push resources): addresses that a device asked for, at which others post
//! messages to it without an API key. The address is the permission, so only its hash is kept.
//!
//! An endpoint goes with its device, with its app, and when the device gets another user: it was given away by the
//! one before.

use noroshi_types::{AppId, DeviceId, EndpointId, Timestamp, Urgency, limits};

use crate::Error;

/// SHA-256 of an endpoint's secret, which is random: a look-up needs no salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndpointHash(pub [u8; 32]);

/// An uncompressed point of P-256 (RFC 8292 §3.2).
pub type VapidKey = [u8; 65];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub id: EndpointId,
    pub app: AppId,
    pub device: DeviceId,
    /// Scheme and authority of its URL, without a slash at the end.
    pub base: String,
    /// Only who signs with it may post; none: anybody may.
    pub vapid_key: Option<VapidKey>,
    /// What the device calls it.
    pub label: Option<String>,
    /// Messages below it wait while the device is idle.
    pub idle_urgency: Urgency,
    pub created_at: Timestamp,
    /// Gone from this moment on.
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct NewEndpoint {
    pub app: AppId,
    pub device: DeviceId,
    pub hash: EndpointHash,
    pub base: String,
    pub vapid_key: Option<VapidKey>,
    pub label: Option<String>,
    pub idle_urgency: Urgency,
    pub expires_at: Option<Timestamp>,
}

#[async_trait::async_trait]
pub trait Endpoints: Send + Sync {
    /// [`Error::NotFound`] if there is no such device, [`Error::Limit`] if it has as many as it may. What of it
    /// expired is removed by the same commit, and does not count.
    async fn create_endpoint(&self, endpoint: NewEndpoint, now: Timestamp) -> Result<Endpoint, Error>;
    /// Those of a device that have not expired, oldest first; none for a device that is not there.
    async fn endpoints(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<Vec<Endpoint>, Error>;
    /// None if there is none, or it has expired. The one question that names no tenant: the hash is of a secret
    /// that belongs to one.
    async fn endpoint(&self, hash: &EndpointHash, now: Timestamp) -> Result<Option<Endpoint>, Error>;
    /// [`Error::NotFound`] if the device has no such endpoint.
    async fn delete_endpoint(&self, app: AppId, device: &DeviceId, id: EndpointId) -> Result<(), Error>;
}

/// Whether a device may have one more.
pub(crate) fn check_room(count: i64) -> Result<(), Error> {
    let max = limits::ENDPOINTS_PER_DEVICE_MAX;
    match usize::try_from(count).is_ok_and(|count| count < max) {
        true => Ok(()),
        false => Err(Error::Limit(format!("a device has at most {max} endpoints"))),
    }
}

impl NewEndpoint {
    /// As it is kept under a number.
    pub(crate) fn numbered(self, id: i64, now: Timestamp) -> Endpoint {
        let Self { app, device, hash: _, base, vapid_key, label, idle_urgency, expires_at } = self;
        let id = EndpointId(id as u64);
        Endpoint { id, app, device, base, vapid_key, label, idle_urgency, created_at: now, expires_at }
    }
}

/// A row of an endpoint and its device, as every engine reads it.
pub(crate) struct EndpointRow {
    pub(crate) id: i64,
    pub(crate) app: AppId,
    pub(crate) device: String,
    pub(crate) base: String,
    pub(crate) vapid_key: Option<Vec<u8>>,
    pub(crate) label: Option<String>,
    pub(crate) idle_urgency: u8,
    pub(crate) created_at: i64,
    pub(crate) expires_at: Option<i64>,
}

impl TryFrom<EndpointRow> for Endpoint {
    type Error = Error;

    fn try_from(row: EndpointRow) -> Result<Self, Error> {
        let wrong = |what: &str| Error::Engine(format!("a stored endpoint has no usable {what}"));
        let vapid_key = row.vapid_key.map(|key| key.try_into().map_err(|_| wrong("key"))).transpose()?;
        Ok(Self {
            id: EndpointId(row.id as u64),
            app: row.app,
            device: DeviceId::parse(&row.device).map_err(|_| wrong("device"))?,
            base: row.base,
            vapid_key,
            label: row.label,
            idle_urgency: Urgency::from_code(row.idle_urgency).ok_or_else(|| wrong("urgency"))?,
            created_at: Timestamp(row.created_at as u64),
            expires_at: row.expires_at.map(|at| Timestamp(at as u64)),
        })
    }
}
