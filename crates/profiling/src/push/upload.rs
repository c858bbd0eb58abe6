//! Pending uploads: only the newest profile of each kind.

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
pub(super) struct Upload {
    pub(super) kind: Kind,
    pub(super) taken: Taken,
}

#[derive(Default)]
pub(super) struct Uploads {
    /// The lock guards the pending uploads; never held across an `.await`.
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    uploads: [Option<Upload>; 2],
    closed: bool,
}

impl Uploads {
    /// True if it replaced a pending one.
    pub(super) fn put(&self, upload: Upload) -> bool {
        let kind = upload.kind as usize;
        let before = self.waiting.lock().uploads[kind].replace(upload);
        self.changed.notify_one();
        before.is_some()
    }

    /// Returns a failed upload, unless a newer one is pending.
    pub(super) fn put_back(&self, upload: Upload) {
        self.waiting.lock().uploads[upload.kind as usize].get_or_insert(upload);
    }

    /// The next upload; none once nothing is pending and nothing will come. Cancel-safe.
    pub(super) async fn next(&self) -> Option<Upload> {
        loop {
            let changed = self.changed.notified();
            {
                let mut waiting = self.waiting.lock();
                let next = waiting.uploads.iter_mut().find_map(Option::take);
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

    fn upload(kind: Kind, name: &'static str) -> Upload {
        let now = SystemTime::now();
        Upload {
            kind,
            taken: Taken { pprof: name.into(), stacks: 1, from: now, until: now, cost: Duration::ZERO },
        }
    }

    async fn next(uploads: &Uploads) -> Option<(Kind, bytes::Bytes)> {
        uploads.next().await.map(|upload| (upload.kind, upload.taken.pprof))
    }

    #[tokio::test]
    async fn only_the_newest_of_each_kind_is_pending() {
        let uploads = Uploads::default();
        assert!(!uploads.put(upload(Kind::Cpu, "1")));
        assert!(!uploads.put(upload(Kind::Heap, "h")));
        assert!(uploads.put(upload(Kind::Cpu, "2")));
        assert_eq!(next(&uploads).await, Some((Kind::Cpu, "2".into())));
        // A returned upload is dropped if a newer one is pending, and kept otherwise.
        uploads.put(upload(Kind::Cpu, "3"));
        uploads.put_back(upload(Kind::Cpu, "2"));
        assert_eq!(next(&uploads).await, Some((Kind::Cpu, "3".into())));
        uploads.put_back(upload(Kind::Cpu, "3"));
        uploads.close();
        assert_eq!(next(&uploads).await, Some((Kind::Cpu, "3".into())));
        assert_eq!(next(&uploads).await, Some((Kind::Heap, "h".into())));
        assert_eq!(next(&uploads).await, None);
    }
}
