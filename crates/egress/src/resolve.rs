//! Names to addresses, by the system's resolver, which only knows how to block a thread.
//!
//! The lookups that run at once are bounded: the threads they block are shared with everything else that blocks. Hosts
//! that the operator or a push service chose have slots of their own. All hosts that apps chose (JWK sets, webhooks, Web
//! Push origins) share others, of which one app has a few at most: an app whose name servers are slow on purpose waits
//! for its own lookups, and delays neither another app's nor a push to APNs or FCM.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::Error;

/// Lookups at once of hosts that the operator chose, and of well-known push services.
const OPERATOR_LOOKUPS_MAX: usize = 64;
/// Of hosts that apps chose. With those above half of the 512 threads that tokio has for what blocks.
const APPS_LOOKUPS_MAX: usize = 192;
/// Of hosts that one app chose: 48 apps with slow name servers fill the slots of all.
const APP_LOOKUPS_MAX: usize = 4;
/// Apps whose slots are remembered although no lookup of theirs runs.
const IDLE_APPS_MAX: usize = 1_024;

/// Of one answer; a hostile one may hold thousands.
const ADDRESSES_MAX: usize = 16;

/// Push services that everybody uses: an app that names one cannot make it slow. Beginning with a dot: any name under it.
const WELL_KNOWN: [&str; 7] = [
    ".push.apple.com",
    "fcm.googleapis.com",
    "oauth2.googleapis.com",
    "android.googleapis.com",
    "updates.push.services.mozilla.com",
    "push.services.mozilla.com",
    ".notify.windows.com",
];

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Who chose a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Operator,
    App(u32),
}

/// Resolves names. Clones share the bounds on lookups.
#[derive(Clone)]
pub struct Resolver {
    lookup: Arc<Lookup>,
    operator: Arc<Semaphore>,
    apps: Arc<AppSlots>,
}

struct AppSlots {
    all: Arc<Semaphore>,
    /// Guards the map; nothing is awaited while it is held. Bounded by [`IDLE_APPS_MAX`] and the apps that wait.
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
    /// The system's: `/etc/hosts`, DNS, whatever it is set up for.
    pub fn system() -> Self {
        Self::new(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    /// Another one; it may block.
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        let slots = |count| Arc::new(Semaphore::new(count));
        let apps = AppSlots { all: slots(APPS_LOOKUPS_MAX), each: Mutex::default() };
        Self { lookup: Arc::new(lookup), operator: slots(OPERATOR_LOOKUPS_MAX), apps: Arc::new(apps) }
    }

    /// The app's own slot comes first: who waits for it holds none of those that all share.
    async fn slots(&self, name: &str, lane: Lane) -> Result<Slots, AcquireError> {
        match lane {
            Lane::App(app) if !is_well_known(name) => {
                let own = self.apps.of(app).acquire_owned().await?;
                Ok((Some(own), self.apps.all.clone().acquire_owned().await?))
            }
            Lane::App(_) | Lane::Operator => Ok((None, self.operator.clone().acquire_owned().await?)),
        }
    }

    /// In the order of preference that the system gave (RFC 6724). Cancel-safe; a lookup that was given up
    /// keeps its slots until the system answers.
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
            true => Err(failed("it has no address".to_owned())),
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
    fn push_services_are_known_by_their_whole_names() {
        for name in ["api.push.apple.com", "fcm.googleapis.com.", "FCM.googleapis.com", "wns2-par02p.notify.windows.com"] {
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
        assert!(Arc::ptr_eq(&used, &resolver.apps.of(0)), "those in use are not");
    }
}
