//! Which push services each app has credentials for, as far as warnings need to know: remembered for some seconds, so that
//! requests do not read the store each.
//!
//! Invariant: a change on another node is known within [`FRESH`], one on this node with the next request, unless that
//! request is reading already.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use noroshi_store::Store;
use noroshi_types::{AppId, PushService, Timestamp};
use parking_lot::Mutex;

use crate::error::Error;

/// A warning may be this late after a change of credentials on another node.
const FRESH: Duration = Duration::from_secs(5);

/// As many as the store has credentials.
type Services = Arc<HashMap<AppId, Vec<PushService>>>;

#[derive(Default)]
pub(crate) struct Configured {
    /// Never held across a read of the store.
    known: Mutex<Option<(Timestamp, Services)>>,
}

impl Configured {
    pub(super) async fn services(
        &self,
        store: &dyn Store,
        app: AppId,
        now: Timestamp,
    ) -> Result<Vec<PushService>, Error> {
        let of = |services: &Services| services.get(&app).cloned().unwrap_or_default();
        if let Some((read_at, services)) = &*self.known.lock()
            && now < read_at.saturating_add(FRESH)
            && *read_at <= now
        {
            return Ok(of(services));
        }
        let mut found: HashMap<AppId, Vec<PushService>> = HashMap::new();
        for stored in store.credentials().await? {
            let services = found.entry(stored.app).or_default();
            if !services.contains(&stored.service) {
                services.push(stored.service);
            }
        }
        let services = Arc::new(found);
        *self.known.lock() = Some((now, services.clone()));
        Ok(of(&services))
    }

    /// The credentials of an app changed.
    pub(super) fn forget(&self) {
        *self.known.lock() = None;
    }
}
