//! Jobs of one shard's connections that wait for their turn or run, and how their results reach the adapter.
//!
//! Bounds: [`JOBS_MAX`] jobs in a connection's own order, [`SCANS_MAX`] scans of retained messages, each of another
//! app, and [`QUERIES_MAX`] queries without an order.

use std::any::Any;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_types::AppId;
use tokio::sync::oneshot;

use super::services::Services;
use crate::session::turns::Turns;

/// Jobs of one shard that run at once. Under overload a publication waits up to `publish.wait_max`, so there are more
/// than the store processes together.
pub(crate) const JOBS_MAX: usize = 256;
/// Scans of one shard that run at once.
pub(crate) const SCANS_MAX: usize = 16;
/// Queries of one shard that run at once. Further ones are refused, and their clients must retry.
pub(crate) const QUERIES_MAX: usize = 256;

/// A connection and its generation.
pub(crate) type At = (u32, u64);

/// What a connection's turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Its next job.
    Job,
    /// A scan of retained messages, which is its next job.
    Scan,
}

#[derive(Default)]
pub(crate) struct Jobs {
    /// Connections whose next job waits for its turn.
    pub(crate) waiting: VecDeque<At>,
    /// Jobs that run.
    pub(crate) running: usize,
    pub(crate) scans: Scans,
    /// Jobs that connections left behind the one that runs, in a form that their adapter knows.
    pub(crate) orphans: HashMap<At, Box<dyn Any + Send>>,
    /// Queries that run.
    pub(crate) queries: usize,
    /// By slot: the last message that an XMPP connection publishes, until it has its place in the order. The next one
    /// waits for that.
    pub(crate) publishing: HashMap<u32, oneshot::Receiver<()>>,
}

impl Jobs {
    /// Takes a place for a query. False if there is none.
    pub(crate) fn begin_query(&mut self) -> bool {
        let has_room = self.queries < QUERIES_MAX;
        self.queries += usize::from(has_room);
        has_room
    }
}

/// The result of a job. Its adapter receives it in `handle_done`.
pub(crate) trait Completed: Send + 'static {
    /// Frees the place that the job had. Returns the result if its connection still exists, and otherwise deals with it
    /// here.
    fn settle(self: Box<Self>, outside: &mut Outside<'_>) -> Option<Box<dyn Any>>;
}

/// For protocols without jobs.
impl Completed for std::convert::Infallible {
    fn settle(self: Box<Self>, _: &mut Outside<'_>) -> Option<Box<dyn Any>> {
        match *self {}
    }
}

/// What the end of a job may need beyond its connection.
pub(crate) struct Outside<'a> {
    pub(crate) services: &'a Arc<Services>,
    pub(crate) delivery: &'a Arc<Delivery>,
    pub(crate) jobs: &'a mut Jobs,
    /// The connection that the job was for.
    pub(crate) at: At,
    pub(crate) is_connected: bool,
}

/// Scans of one shard: an app has one at a time and further ones wait behind it; apps take turns. An app that has a scan
/// `out` has no turn.
#[derive(Default)]
pub(crate) struct Scans {
    waiting: Turns<At>,
    out: HashSet<AppId>,
}

impl Scans {
    pub(crate) fn push(&mut self, app: AppId, at: At) {
        self.waiting.push(app, at, self.out.contains(&app));
    }

    /// The scan whose turn it is; it is out then.
    pub(crate) fn pop(&mut self) -> Option<(AppId, At)> {
        let next = if self.out.len() < SCANS_MAX { self.waiting.pop() } else { None };
        self.out.extend(next.map(|(app, _)| app));
        next
    }

    pub(crate) fn done(&mut self, app: AppId) {
        if self.out.remove(&app) {
            self.waiting.give_turn(app);
        }
    }

    /// Removes a connection that has ended.
    pub(crate) fn remove(&mut self, app: AppId, at: At) {
        self.waiting.retain(app, |waits| *waits != at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apps_take_turns_and_have_one_scan_out() {
        let (loud, quiet) = (AppId(1), AppId(2));
        let mut scans = Scans::default();
        (0..5).for_each(|slot| scans.push(loud, (slot, 0)));
        scans.push(quiet, (9, 0));
        assert_eq!(scans.pop(), Some((loud, (0, 0))));
        assert_eq!(scans.pop(), Some((quiet, (9, 0))), "behind one, not behind all");
        assert_eq!(scans.pop(), None);
        scans.remove(loud, (1, 0));
        scans.done(loud);
        scans.push(quiet, (8, 0));
        assert_eq!(scans.pop(), Some((loud, (2, 0))));
        scans.done(quiet);
        assert_eq!(scans.pop(), Some((quiet, (8, 0))));
        for slot in [3, 4] {
            scans.remove(loud, (slot, 0));
        }
        scans.done(loud);
        scans.done(quiet);
        assert!(scans.waiting.is_empty() && scans.out.is_empty());
    }
}
