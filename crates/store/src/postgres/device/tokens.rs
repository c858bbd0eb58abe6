//! Writes rows of `push_tokens` of any number of devices at once. The devices' rows are locked or new.

use crate::engine::push_token::TokenWrites;
use crate::postgres::columns::columns;
use crate::postgres::transaction::{Failed, Tx};
use crate::{Device, DeviceToken};

columns! {
    /// Columns of [`REMOVE`].
    Removed<'d> { apps: i64, ids: &'d str, kinds: i64, names: &'d str }
}

columns! {
    /// Columns of [`PUT`].
    Put<'d> {
        apps: i64, ids: &'d str, kinds: i64, names: &'d str, services: i64, environments: i64, tokens: &'d str,
        registered: i64, suspect_at: Option<i64>, reasons: Option<&'d str>, expires_at: Option<i64>,
    }
}

#[derive(Default)]
pub(super) struct Writes<'d> {
    removed: Removed<'d>,
    put: Put<'d>,
}

pub(super) const REMOVE: &str = "DELETE FROM push_tokens p
     USING unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[]) AS gone (app, id, kind, name)
     JOIN devices d ON d.app = gone.app AND d.id = gone.id
     WHERE p.device = d.num AND p.kind = gone.kind AND p.name = gone.name";

pub(super) const PUT: &str = "INSERT INTO push_tokens (device, kind, name, service, environment, token, registered_at,
         suspect_at, suspect_reason, expires_at)
     SELECT d.num, new.kind, new.name, new.service, new.environment, new.token, new.registered_at, new.suspect_at,
         new.suspect_reason, new.expires_at
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[],
                 $8::bigint[], $9::bigint[], $10::text[], $11::bigint[])
         AS new (app, id, kind, name, service, environment, token, registered_at, suspect_at, suspect_reason, expires_at)
     JOIN devices d ON d.app = new.app AND d.id = new.id
     ON CONFLICT (device, kind, name) DO UPDATE SET service = excluded.service, environment = excluded.environment,
         token = excluded.token, registered_at = excluded.registered_at, suspect_at = excluded.suspect_at,
         suspect_reason = excluded.suspect_reason, expires_at = excluded.expires_at";

impl<'d> Writes<'d> {
    pub(super) fn add(&mut self, device: &'d Device, writes: &'d TokenWrites) {
        let (app, id) = (i64::from(device.app.0), device.id.as_str());
        for key in &writes.removed {
            self.removed.push_row((app, id, key.kind() as i64, key.name()));
        }
        for DeviceToken { key, token, registered_at, suspect, expires_at } in &writes.put {
            self.put.push_row((
                app,
                id,
                key.kind() as i64,
                key.name(),
                token.service as i64,
                token.environment as i64,
                token.json.as_str(),
                registered_at.0 as i64,
                suspect.as_ref().map(|suspect| suspect.at.0 as i64),
                suspect.as_ref().map(|suspect| suspect.reason.as_str()),
                expires_at.map(|at| at.0 as i64),
            ));
        }
    }

    /// Devices that are created have been sent before.
    pub(super) async fn write(&self, tx: &Tx) -> Result<(), Failed> {
        let remove = async {
            if self.removed.apps.is_empty() {
                Ok(0)
            } else {
                tx.execute(REMOVE, &self.removed.values()).await
            }
        };
        let put = async {
            if self.put.apps.is_empty() { Ok(0) } else { tx.execute(PUT, &self.put.values()).await }
        };
        tokio::try_join!(remove, put).map(drop)
    }
}
