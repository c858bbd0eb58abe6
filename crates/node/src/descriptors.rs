//! File descriptors: every connection is one, so the soft limit is raised to the hard limit at the
//! start and what is left for connections is told.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For the database, its readers, listeners, event loops, JWK fetches and log files.
const RESERVED: u64 = 256;

/// Raises the limit as far as it goes without privileges; answers how many connections it allows.
pub fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // What could not be raised stays as it was, and is what counts below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections = limit.saturating_sub(RESERVED).max(limit / 2);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    #[test]
    fn some_connections_are_allowed() {
        assert!(super::raise() > 0);
        assert_eq!(super::raise(), super::raise());
    }
}
