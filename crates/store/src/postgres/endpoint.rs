//! [`Endpoints`] for PostgreSQL.

use noroshi_types::{AppId, DeviceId, EndpointId, Timestamp};

use super::Postgres;
use super::transaction::Tx;
use crate::engine::endpoint;
use crate::{Endpoint, EndpointHash, Endpoints, Error, NewEndpoint};

#[async_trait::async_trait]
impl Endpoints for Postgres {
    async fn create_endpoint(&self, endpoint: NewEndpoint, now: Timestamp) -> Result<Endpoint, Error> {
        self.write_with(endpoint, move |tx, new| async move { endpoint::create(&tx, new, now).await }).await
    }

    async fn endpoints(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<Vec<Endpoint>, Error> {
        self.read(async |tx: Tx| endpoint::of_device(&tx, app, device, now).await).await
    }

    async fn endpoint(&self, hash: &EndpointHash, now: Timestamp) -> Result<Option<Endpoint>, Error> {
        self.read(async |tx: Tx| endpoint::find(&tx, hash, now).await).await
    }

    async fn delete_endpoint(&self, app: AppId, device: &DeviceId, id: EndpointId) -> Result<(), Error> {
        let delete = move |tx, device| async move { endpoint::delete(&tx, app, &device, id).await };
        self.write_with(device.clone(), delete).await
    }
}

/// Removes the endpoints of these devices, whose rows are locked.
pub(super) const REMOVE_ALL: &str = "DELETE FROM endpoints WHERE device = ANY($1::bigint[])";
