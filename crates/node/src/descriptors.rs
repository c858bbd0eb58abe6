//! File descriptors: every connection is one, so the soft limit is raised to the hard limit at the
//! start and what is left for connections is told.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// 256 for the admin address, the rest for the database, its readers, listeners, event loops and JWK
/// fetches.
const RESERVED: u64 = 512;

/// Keep-alive connections of providers and of devices that only use HTTP.
const API_CONNECTIONS_MAX: u64 = 4_096;

/// Descriptors that are left for connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available(u64);

/// How many connections each side may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    pub gateway: usize,
    pub api: usize,
}

/// Raises the limit as far as it goes without privileges.
pub fn raise() -> Available {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // What could not be raised stays as it was, and is what counts below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Available(limit.saturating_sub(RESERVED).max(limit / 2))
}

impl Available {
    /// A fifth for the API up to its bound, the rest for devices unless fewer are `wanted` (0: all).
    pub fn share(self, wanted: usize) -> Shares {
        let api = (self.0 / 5).clamp(1, API_CONNECTIONS_MAX);
        let devices = usize::try_from(self.0.saturating_sub(api).max(1)).unwrap_or(usize::MAX);
        if wanted > devices {
            tracing::warn!(wanted, devices, "gateway.connections_max is over what file descriptors allow");
        }
        let gateway = if wanted == 0 { devices } else { wanted.min(devices) };
        Shares { gateway, api: usize::try_from(api).unwrap_or(usize::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_shared_out() {
        let check = |available: u64, wanted: usize, gateway: usize, api: usize| {
            assert_eq!(Available(available).share(wanted), Shares { gateway, api }, "{available}, {wanted}");
        };
        check(19_744, 0, 15_796, 3_948);
        check(1_000_000, 0, 995_904, 4_096);
        check(1_000_000, 500_000, 500_000, 4_096);
        check(768, 10_000, 615, 153);
        check(1, 0, 1, 1);
    }

    #[test]
    fn raising_twice_changes_nothing() {
        assert_eq!(raise(), raise());
    }
}
