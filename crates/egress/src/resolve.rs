//! Resolves names with the system's resolver, which blocks a thread.
//!
//! Concurrent lookups are bounded, because all blocking work shares the threads. Hosts that the operator or a push
//! service chose have their own slots. Hosts that apps chose (JWK sets, webhooks, Web Push origins) share others, of
//! which one app gets a few at most: an app with slow name servers delays only its own lookups, not another app's or a
//! push to APNs or FCM.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::Error;

/// Concurrent lookups of hosts that the operator chose, and of well-known push services.
const OPERATOR_LOOKUPS_MAX: usize = 64;
/// Concurrent lookups of hosts that apps chose. Together half of tokio's 512 blocking threads.
const APPS_LOOKUPS_MAX: usize = 192;
/// Concurrent lookups of one app: 48 apps with slow name servers are needed to use up the shared slots.
const APP_LOOKUPS_MAX: usize = 4;
/// Apps without a running lookup whose slots are kept.
const IDLE_APPS_MAX: usize = 1_024;

/// Addresses per answer; a hostile one may have thousands.
const ADDRESSES_MAX: usize = 16;

/// Well-known push services: no app can make them slow. A leading dot includes all names below.
const WELL_KNOWN: [&str; 10] = [
    ".push.apple.com",
    "fcm.googleapis.com",
    "oauth2.googleapis.com",
    "android.googleapis.com",
    "updates.push.services.mozilla.com",
    "push.services.mozilla.com",
    ".notify.windows.com",
    "login.microsoftonline.com",
    "login.live.com",
    "push-api.cloud.huawei.com",
];

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// The party that chose a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Operator,
    App(u32),
}

/// Resolves names. Clones share the limits.
#[derive(Clone)]
pub struct Resolver {
    lookup: Arc<Lookup>,
    operator: Arc<Semaphore>,
    apps: Arc<AppSlots>,
}

struct AppSlots {
    all: Arc<Semaphore>,
    /// The lock guards the map and is never held across an `.await`. Bounded by [`IDLE_APPS_MAX`] and the waiting apps.
    each: Mutex<HashMap<u32, Arc<Semaphore>>>,
}

/// Held while a lookup runs.
type Slots = (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit);

impl AppSlots {
    fn of(&self, app: u32) -> Arc<Semaphore> {
        let mut each = self.each.lock();
        if each.len() >= IDLE_APPS_MAX && !each.contains_key(&app) {
            each.retain(|_, slots| Arc::strong_count(slots) > 1);
        }
        each.entry(app).or_insert_with(|| Arc::new(Semaphore::new(APP_LOOKUPS_MAX))).clone()
    }
}

impl Resolver {
    /// The system's resolver: `/etc/hosts`, DNS, as configured.
    pub fn system() -> Self {
        Self::new(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    /// Another resolver; it may block.
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        let slots = |count| Arc::new(Semaphore::new(count));
        let apps = AppSlots { all: slots(APPS_LOOKUPS_MAX), each: Mutex::default() };
        Self { lookup: Arc::new(lookup), operator: slots(OPERATOR_LOOKUPS_MAX), apps: Arc::new(apps) }
    }

    /// Takes the app's own slot first, so that a waiting app holds no shared one.
    async fn slots(&self, name: &str, lane: Lane) -> Result<Slots, AcquireError> {
        match lane {
            Lane::App(app) if !is_well_known(name) => {
                let own = self.apps.of(app).acquire_owned().await?;
                Ok((Some(own), self.apps.all.clone().acquire_owned().await?))
            }
            Lane::App(_) | Lane::Operator => Ok((None, self.operator.clone().acquire_owned().await?)),
        }
    }

    /// In the system's order of preference (RFC 6724). Cancel-safe; a dropped lookup keeps its slots until the system
    /// answers.
    pub(crate) async fn resolve(&self, name: &str, lane: Lane) -> Result<Vec<IpAddr>, Error> {
        let failed = |reason: String| Error::Unresolvable { host: name.to_owned(), reason };
        let slots = self.slots(name, lane).await.map_err(|error| failed(error.to_string()))?;
        let (lookup, owned) = (self.lookup.clone(), name.to_owned());
        let found = tokio::task::spawn_blocking(move || {
            let _held_while_it_blocks = slots;
            lookup(&owned)
        });
        let mut addresses = found
            .await
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(error.to_string()))?;
        let mut seen = std::collections::HashSet::new();
        addresses.retain(|address| seen.insert(*address));
        addresses.truncate(ADDRESSES_MAX);
        match addresses.is_empty() {
            true => Err(failed("no address".to_owned())),
            false => Ok(addresses),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("free_operator_slots", &self.operator.available_permits())
            .field("free_app_slots", &self.apps.all.available_permits())
            .finish()
    }
}

fn is_well_known(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    WELL_KNOWN.iter().any(|known| match known.starts_with('.') {
        true => name.ends_with(known),
        false => name == *known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_services_are_recognized_by_whole_names() {
        for name in [
            "api.push.apple.com",
            "fcm.googleapis.com.",
            "FCM.googleapis.com",
            "wns2-par02p.notify.windows.com",
        ] {
            assert!(is_well_known(name), "{name}");
        }
        for name in ["push.apple.com.example", "evilfcm.googleapis.com", "notify.windows.com", "example"] {
            assert!(!is_well_known(name), "{name}");
        }
    }

    #[test]
    fn slots_of_idle_apps_are_forgotten() {
        let resolver = Resolver::new(|_| Ok(Vec::new()));
        let used = resolver.apps.of(0);
        for app in 1..3 * IDLE_APPS_MAX as u32 {
            resolver.apps.of(app);
        }
        assert!(resolver.apps.each.lock().len() <= IDLE_APPS_MAX);
        assert!(Arc::ptr_eq(&used, &resolver.apps.of(0)), "slots in use are kept");
    }
}
