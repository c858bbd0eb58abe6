//! Names to addresses, by the system's resolver, which only knows how to block a thread.
//!
//! The lookups that run at once are bounded: names come from strangers, a name server of theirs may be
//! slow on purpose, and the threads they block are shared with everything else that blocks.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::Error;

/// Tokio has 512 threads for what blocks.
const LOOKUPS_MAX: usize = 64;

/// Of one answer; a hostile one may hold thousands.
const ADDRESSES_MAX: usize = 16;

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Resolves names. Clones share the bound on lookups.
#[derive(Clone)]
pub struct Resolver {
    lookup: Arc<Lookup>,
    slots: Arc<Semaphore>,
}

impl Resolver {
    /// The system's: `/etc/hosts`, DNS, whatever it is set up for.
    pub fn system() -> Self {
        Self::new(|name| Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
    }

    /// Another one; it may block.
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self { lookup: Arc::new(lookup), slots: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }

    /// In the order of preference that the system gave (RFC 6724). Cancel-safe; a lookup that was given up
    /// keeps its slot until the system answers.
    pub(crate) async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Error> {
        let failed = |reason: String| Error::Unresolvable { host: name.to_owned(), reason };
        let slot = self.slots.clone().acquire_owned().await.map_err(|error| failed(error.to_string()))?;
        let (lookup, owned) = (self.lookup.clone(), name.to_owned());
        let found = tokio::task::spawn_blocking(move || {
            let _held_while_it_blocks = slot;
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
        f.debug_struct("Resolver").field("free_slots", &self.slots.available_permits()).finish()
    }
}
