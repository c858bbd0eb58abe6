//! File descriptors: every connection uses one. Raises the soft limit to the hard limit at start, and divides it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Reserved for everything but connections of the public addresses: 128 connections of the admin address; 2 × (32 evicted +
/// 32 rejected) HTTP connections that are closing; 64 sockets beyond the devices' share, until the gateway knows whether they
/// are for the API. The other 192 are for the database, its readers, listeners, event loops and JWK fetches.
pub(crate) const RESERVED: u64 = 512;

const OTHERS_MIN: usize = 192;
const _: () = assert!(
    crate::admin::CONNECTIONS_MAX
        + 2 * (noroshi_api::EVICTED_MAX + crate::handover::REFUSED_MAX)
        + noroshi_gateway::OVER_MAX
        + OTHERS_MIN
        <= RESERVED as usize
);

/// Keep-alive connections of providers and of devices that only use HTTP.
const API_CONNECTIONS_MAX: u64 = 4_096;

/// On a node without the role `api`: for health checks, and requests to the wrong node.
const MISDIRECTED_MAX: u64 = 256;

/// What a node serves connections for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    DevicesAndApi,
    /// Only device connections; HTTP only for their log-in.
    Devices,
}

/// Descriptors available for connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Available(u64);

/// Maximum connections of gateway and API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    pub gateway: usize,
    pub api: usize,
}

/// Raises the limit as far as possible without privileges.
pub fn raise() -> Available {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // On failure the limit stays, and is read below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    Available::under(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

impl Available {
    /// Descriptors available under a limit.
    pub fn under(limit: u64) -> Self {
        Self(limit.saturating_sub(RESERVED).max(limit / 2))
    }

    /// The lowest limit that is sufficient for this number of devices.
    pub fn limit_for(devices: u64) -> u64 {
        // Devices get what the API does not: four fifths, or all but the API's maximum.
        let available = devices.saturating_add(devices.div_ceil(4).clamp(1, API_CONNECTIONS_MAX));
        available.saturating_add(RESERVED)
    }

    /// A fifth for the API up to its maximum, the rest for devices, at most `wanted` (0: all).
    pub fn share(self, wanted: usize, serves: Serves) -> Shares {
        let api_max = match serves {
            Serves::DevicesAndApi => API_CONNECTIONS_MAX,
            Serves::Devices => MISDIRECTED_MAX,
        };
        let api = (self.0 / 5).clamp(1, api_max);
        let devices = usize::try_from(self.0.saturating_sub(api).max(1)).unwrap_or(usize::MAX);
        if wanted > devices {
            tracing::warn!(wanted, devices, "gateway.connections_max exceeds the available file descriptors");
        }
        let gateway = if wanted == 0 { devices } else { wanted.min(devices) };
        Shares { gateway, api: usize::try_from(api).unwrap_or(usize::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_divided() {
        let check = |available: u64, wanted: usize, gateway: usize, api: usize| {
            let shares = Available(available).share(wanted, Serves::DevicesAndApi);
            assert_eq!(shares, Shares { gateway, api }, "{available}, {wanted}");
        };
        check(19_744, 0, 15_796, 3_948);
        check(1_000_000, 0, 995_904, 4_096);
        check(1_000_000, 500_000, 500_000, 4_096);
        check(768, 10_000, 615, 153);
        check(1, 0, 1, 1);
        let shares = Available(19_488).share(0, Serves::Devices);
        assert_eq!(shares, Shares { gateway: 19_232, api: 256 }, "devices get what the API does not need");
    }

    #[test]
    fn limit_for_is_sufficient_and_tight() {
        for devices in [1, 4, 100, 15_591, 16_384, 16_385, 100_000, 1_000_000] {
            let limit = Available::limit_for(devices);
            let allowed = |limit| Available::under(limit).share(0, Serves::DevicesAndApi).gateway as u64;
            assert!(allowed(limit) >= devices, "{limit} for {devices}");
            assert!(limit < 1_024 || allowed(limit - 2) < devices, "{limit} for {devices}");
        }
        assert_eq!(Available::limit_for(u64::MAX), u64::MAX);
    }

    #[test]
    fn raising_twice_changes_nothing() {
        assert_eq!(raise(), raise());
    }
}
