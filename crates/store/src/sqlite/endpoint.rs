//! [`Endpoints`] for SQLite.

use noroshi_types::{AppId, DeviceId, DeviceNum, EndpointId, Timestamp};
use rusqlite::Connection;

use super::Sqlite;
use super::statement::{Statements, ready};
use crate::engine::endpoint;
use crate::{Endpoint, EndpointHash, Endpoints, Error, NewEndpoint};

#[async_trait::async_trait]
impl Endpoints for Sqlite {
    async fn create_endpoint(&self, endpoint: NewEndpoint, now: Timestamp) -> Result<Endpoint, Error> {
        self.write(1, move |w| ready(endpoint::create(w.db, endpoint, now))).await
    }

    async fn endpoints(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<Vec<Endpoint>, Error> {
        let device = device.clone();
        self.read(move |db| ready(endpoint::of_device(db, app, &device, now))).await
    }

    async fn endpoint(&self, hash: &EndpointHash, now: Timestamp) -> Result<Option<Endpoint>, Error> {
        let hash = *hash;
        self.read(move |db| ready(endpoint::find(db, &hash, now))).await
    }

    async fn delete_endpoint(&self, app: AppId, device: &DeviceId, id: EndpointId) -> Result<(), Error> {
        let device = device.clone();
        self.write(1, move |w| ready(endpoint::delete(w.db, app, &device, id))).await
    }
}

pub(super) fn remove_all(db: &Connection, device: DeviceNum) -> Result<(), Error> {
    db.run("DELETE FROM endpoints WHERE device = ?1", (device.0 as i64,)).map(drop)
}
