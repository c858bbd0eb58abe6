//! Web Push endpoints (RFC 8030 calls them push resources): URLs that a device created, to which others post messages
//! without an API key. The URL itself is the permission, so the store only keeps its hash.
//!
//! An endpoint is removed with its device, with its app, and when the device gets another user, because the previous
//! user gave it away.

use noroshi_types::{AppId, DeviceId, EndpointId, Timestamp, Urgency};

use crate::Error;

/// SHA-256 of an endpoint's random secret; a lookup needs no salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EndpointHash(pub [u8; 32]);

/// An uncompressed point of P-256 (RFC 8292 §3.2).
pub type VapidKey = [u8; 65];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub id: EndpointId,
    pub app: AppId,
    pub device: DeviceId,
    /// Scheme and authority of its URL, without a trailing slash.
    pub base: String,
    /// Only requests signed with this key are accepted; `None`: all are.
    pub vapid_key: Option<VapidKey>,
    /// The device's name for the endpoint.
    pub label: Option<String>,
    /// Messages of a lower urgency wait while the device is idle.
    pub idle_urgency: Urgency,
    pub created_at: Timestamp,
    /// The endpoint is gone from then on.
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
    /// [`Error::NotFound`] if there is no such device, [`Error::Limit`] if it has the maximum. Expired endpoints do
    /// not count; the same commit removes them.
    async fn create_endpoint(&self, endpoint: NewEndpoint, now: Timestamp) -> Result<Endpoint, Error>;
    /// The device's endpoints that have not expired, oldest first; empty for an unknown device.
    async fn endpoints(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<Vec<Endpoint>, Error>;
    /// `None` if there is none or it has expired. The only lookup that names no tenant: the secret behind the hash
    /// belongs to one.
    async fn endpoint(&self, hash: &EndpointHash, now: Timestamp) -> Result<Option<Endpoint>, Error>;
    /// [`Error::NotFound`] if the device has no such endpoint.
    async fn delete_endpoint(&self, app: AppId, device: &DeviceId, id: EndpointId) -> Result<(), Error>;
}
