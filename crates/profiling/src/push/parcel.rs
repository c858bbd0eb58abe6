//! What waits to be posted: of each kind the newest, and no other.

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::profiler::Taken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Cpu,
    Heap,
}

impl Kind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Cpu => "cpu",
            Kind::Heap => "heap",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parcel {
    pub(super) kind: Kind,
    pub(super) taken: Taken,
}

#[derive(Default)]
pub(super) struct Parcels {
    /// Guards what waits; nothing is waited for under it.
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    parcels: [Option<Parcel>; 2],
    closed: bool,
}

impl Parcels {
    /// True if one that waited made room.
    pub(super) fn put(&self, parcel: Parcel) -> bool {
        let kind = parcel.kind as usize;
        let before = self.waiting.lock().parcels[kind].replace(parcel);
        self.changed.notify_one();
        before.is_some()
    }

    /// One that could not be posted, unless there is a newer one.
    pub(super) fn put_back(&self, parcel: Parcel) {
        self.waiting.lock().parcels[parcel.kind as usize].get_or_insert(parcel);
    }

    /// The next to be posted; none once nothing waits and nothing comes. Cancel-safe.
    pub(super) async fn next(&self) -> Option<Parcel> {
        loop {
            let changed = self.changed.notified();
            {
                let mut waiting = self.waiting.lock();
                let next = waiting.parcels.iter_mut().find_map(Option::take);
                if next.is_some() || waiting.closed {
                    return next;
                }
            }
            changed.await;
        }
    }

    pub(super) fn close(&self) {
        self.waiting.lock().closed = true;
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn parcel(kind: Kind, name: &'static str) -> Parcel {
        let now = SystemTime::now();
        Parcel {
            kind,
            taken: Taken { pprof: name.into(), stacks: 1, from: now, until: now, cost: Duration::ZERO },
        }
    }

    async fn next(parcels: &Parcels) -> Option<(Kind, bytes::Bytes)> {
        parcels.next().await.map(|parcel| (parcel.kind, parcel.taken.pprof))
    }

    #[tokio::test]
    async fn the_newest_of_each_kind_waits() {
        let parcels = Parcels::default();
        assert!(!parcels.put(parcel(Kind::Cpu, "1")));
        assert!(!parcels.put(parcel(Kind::Heap, "h")));
        assert!(parcels.put(parcel(Kind::Cpu, "2")));
        assert_eq!(next(&parcels).await, Some((Kind::Cpu, "2".into())));
        // It comes back behind a newer one, and before nothing.
        parcels.put(parcel(Kind::Cpu, "3"));
        parcels.put_back(parcel(Kind::Cpu, "2"));
        assert_eq!(next(&parcels).await, Some((Kind::Cpu, "3".into())));
        parcels.put_back(parcel(Kind::Cpu, "3"));
        parcels.close();
        assert_eq!(next(&parcels).await, Some((Kind::Cpu, "3".into())));
        assert_eq!(next(&parcels).await, Some((Kind::Heap, "h".into())));
        assert_eq!(next(&parcels).await, None);
    }
}
