//! Apps that the cell rejects for now, for example over a quota. Their parts are forwarded separately, so that one
//! app's backlog does not delay the others.
//!
//! Each deferred app is retried after its own pause, a few parts at a time, until none of its parts waits. Its position
//! moves past parts that were rejected for their topic, and wraps at the end. Pure bookkeeping: [`super`] reads, sends
//! and reports the results.
//!
//! Invariant: every waiting part with a number up to `skipped` belongs to a deferred app.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use noroshi_store::cells::Wanted;
use noroshi_types::AppId;

/// Between two attempts for one app, doubled up to a second: a rate's bucket holds one second of tokens, so an app over
/// its rate loses none of them.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Between two reads of the newest part's number.
const LOOK: Duration = Duration::from_secs(1);
/// Apps per round: 8 MiB of parts.
const APPS_PER_ROUND_MAX: usize = 8;

#[derive(Debug)]
struct Lane {
    due_at: Instant,
    pause: Duration,
    /// The next parts to try have greater numbers.
    after: u64,
}

/// The deferred apps of one cell.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    lanes: BTreeMap<AppId, Lane>,
    skipped: u64,
    looked_at: Option<Instant>,
}

impl Deferred {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn apps(&self) -> Vec<AppId> {
        self.lanes.keys().copied().collect()
    }

    /// Selects the parts of all other apps.
    pub(super) fn others(&self) -> Wanted {
        Wanted::Others { apart: self.apps(), after: self.skipped }
    }

    /// The apps to try now, longest due first.
    pub(super) fn due(&self, now: Instant) -> Vec<AppId> {
        let mut due: Vec<_> =
            self.lanes.iter().map(|(app, lane)| (lane.due_at, *app)).filter(|(at, _)| *at <= now).collect();
        due.sort_unstable();
        due.into_iter().take(APPS_PER_ROUND_MAX).map(|(_, app)| app).collect()
    }

    /// When the next app is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lanes.values().map(|lane| lane.due_at).min()
    }

    /// Whether to read the newest part's number now. Counts as done.
    pub(super) fn is_look_due(&mut self, now: Instant) -> bool {
        let is_due = self.looked_at.is_none_or(|at| now.saturating_duration_since(at) >= LOOK);
        if is_due {
            self.looked_at = Some(now);
        }
        is_due
    }

    /// The app's next parts have greater numbers.
    pub(super) fn position(&self, app: AppId) -> u64 {
        self.lanes.get(&app).map_or(0, |lane| lane.after)
    }

    /// No part of the app waits after its position.
    pub(super) fn wrap(&mut self, app: AppId) {
        if let Some(lane) = self.lanes.get_mut(&app) {
            lane.after = 0;
        }
    }

    /// No part of another app waits up to this number.
    pub(super) fn skip(&mut self, up_to: u64) {
        self.skipped = self.skipped.max(up_to);
    }

    /// The cell rejected a part of the app for now; parts after `past` need not wait for it. True if the app was not
    /// deferred before.
    pub(super) fn refused(&mut self, app: AppId, now: Instant, past: Option<u64>) -> bool {
        let lane = self.lanes.get(&app);
        let pause = lane.map_or(PAUSE.0, |lane| (lane.pause * 2).clamp(PAUSE.0, PAUSE.1));
        let after = past.unwrap_or_else(|| self.position(app));
        self.lanes.insert(app, Lane { due_at: now + pause, pause, after }).is_none()
    }

    /// The cell accepted the app's parts: more may follow at once.
    pub(super) fn passed(&mut self, app: AppId, now: Instant) {
        if let Some(lane) = self.lanes.get_mut(&app) {
            *lane = Lane { due_at: now, pause: Duration::ZERO, after: lane.after };
        }
    }

    /// No part of the app waits up to the number that was last passed to [`Deferred::skip`].
    pub(super) fn remove(&mut self, app: AppId) {
        self.lanes.remove(&app);
        if self.lanes.is_empty() {
            self.skipped = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: AppId = AppId(1);
    const B: AppId = AppId(2);

    #[test]
    fn a_rejected_app_pauses() {
        let (mut deferred, now) = (Deferred::default(), Instant::now());
        assert_eq!((deferred.others(), deferred.next_due()), (Wanted::ALL, None));
        assert!(deferred.refused(A, now, None));
        deferred.skip(7);
        deferred.skip(5);
        assert_eq!(deferred.others(), Wanted::Others { apart: vec![A], after: 7 });
        assert_eq!(deferred.due(now), []);
        assert_eq!(deferred.due(now + PAUSE.0), [A]);
        deferred.remove(A);
        assert_eq!(deferred.others(), Wanted::ALL);
    }

    #[test]
    fn pauses_grow_with_rejections_and_end_with_acceptance() {
        let (mut deferred, now) = (Deferred::default(), Instant::now());
        for pause in [50, 100, 200, 400, 800, 1_000, 1_000] {
            deferred.refused(A, now, None);
            assert_eq!(deferred.next_due(), Some(now + Duration::from_millis(pause)));
        }
        deferred.passed(A, now);
        assert_eq!(deferred.due(now), [A]);
        assert!(!deferred.refused(A, now, None));
        assert_eq!(deferred.next_due(), Some(now + PAUSE.0));
        deferred.passed(B, now);
        assert_eq!(deferred.apps(), [A], "an app that is not deferred stays with the others");
    }

    #[test]
    fn a_round_tries_few_apps_in_turn() {
        let (mut deferred, now) = (Deferred::default(), Instant::now());
        for number in 0..20 {
            deferred.refused(AppId(number), now + Duration::from_millis(u64::from(20 - number)), None);
        }
        let later = now + PAUSE.1;
        let first = deferred.due(later);
        assert_eq!(first, (12..20).rev().map(AppId).collect::<Vec<_>>());
        for app in first {
            deferred.refused(app, later, None);
        }
        assert_eq!(deferred.due(later)[0], AppId(11));
    }

    #[test]
    fn rejected_parts_do_not_block_later_ones() {
        let (mut deferred, now) = (Deferred::default(), Instant::now());
        deferred.refused(A, now, Some(100));
        assert_eq!(deferred.position(A), 100);
        deferred.refused(A, now, None);
        assert_eq!(deferred.position(A), 100, "rejected for another reason: keeps its order");
        deferred.passed(A, now);
        assert_eq!(deferred.position(A), 100);
        deferred.wrap(A);
        assert_eq!(deferred.position(A), 0);
    }

    #[test]
    fn the_newest_part_is_read_once_a_second() {
        let (mut deferred, now) = (Deferred::default(), Instant::now());
        assert!(deferred.is_look_due(now) && !deferred.is_look_due(now));
        assert!(deferred.is_look_due(now + LOOK));
    }
}
