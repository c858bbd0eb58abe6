//! Apps that their cell refuses for now, such as those over a quota there: their parts are handed on apart from all
//! others, so that one app's backlog does not starve the others.
//!
//! Each such app is tried again after a pause of its own, a few parts at a time, until none of its parts waits. Its
//! position moves past parts that are refused for their topic, and wraps at the end. Pure bookkeeping: [`super`] reads, sends and tells what came of it.
//!
//! Invariant: every part that waits and has a number up to `skipped` is of an app that is apart.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use noroshi_store::cells::Wanted;
use noroshi_types::AppId;

/// Between two tries of one app, doubled up to the second: a rate's bucket holds one second of tokens, so an app over
/// its rate loses none of them.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Between two looks for the newest part.
const LOOK: Duration = Duration::from_secs(1);
/// Apps tried in one round: 8 MiB of parts.
const TRIED_MAX: usize = 8;

#[derive(Debug)]
struct Lane {
    due_at: Instant,
    pause: Duration,
    /// The next parts to try have greater numbers.
    after: u64,
}

/// Of one cell.
#[derive(Debug, Default)]
pub(super) struct Apart {
    lanes: BTreeMap<AppId, Lane>,
    skipped: u64,
    looked_at: Option<Instant>,
}

impl Apart {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn apps(&self) -> Vec<AppId> {
        self.lanes.keys().copied().collect()
    }

    /// What to read of all the other apps.
    pub(super) fn others(&self) -> Wanted {
        Wanted::Others { apart: self.apps(), after: self.skipped }
    }

    /// Apps to try now, those that are due longest first.
    pub(super) fn due(&self, now: Instant) -> Vec<AppId> {
        let mut due: Vec<_> =
            self.lanes.iter().map(|(app, lane)| (lane.due_at, *app)).filter(|(at, _)| *at <= now).collect();
        due.sort_unstable();
        due.into_iter().take(TRIED_MAX).map(|(_, app)| app).collect()
    }

    /// When the next app is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lanes.values().map(|lane| lane.due_at).min()
    }

    /// Whether to look for the newest part. It counts as done.
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

    /// No part of the app waits behind its position.
    pub(super) fn wrap(&mut self, app: AppId) {
        if let Some(lane) = self.lanes.get_mut(&app) {
            lane.after = 0;
        }
    }

    /// No part of another app waits up to this number.
    pub(super) fn skip(&mut self, up_to: u64) {
        self.skipped = self.skipped.max(up_to);
    }

    /// The cell refused a part of the app for now; parts behind `past` need not wait for it. True if the app was not
    /// apart before.
    pub(super) fn refused(&mut self, app: AppId, now: Instant, past: Option<u64>) -> bool {
        let lane = self.lanes.get(&app);
        let pause = lane.map_or(PAUSE.0, |lane| (lane.pause * 2).clamp(PAUSE.0, PAUSE.1));
        let after = past.unwrap_or_else(|| self.position(app));
        self.lanes.insert(app, Lane { due_at: now + pause, pause, after }).is_none()
    }

    /// The cell took what it was sent of the app: more may go at once.
    pub(super) fn passed(&mut self, app: AppId, now: Instant) {
        if let Some(lane) = self.lanes.get_mut(&app) {
            *lane = Lane { due_at: now, pause: Duration::ZERO, after: lane.after };
        }
    }

    /// No part of the app waits up to the number that was given to [`Apart::skip`] last.
    pub(super) fn leave(&mut self, app: AppId) {
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
    fn an_app_that_is_refused_is_left_out_until_its_pause_is_over() {
        let (mut apart, now) = (Apart::default(), Instant::now());
        assert_eq!((apart.others(), apart.next_due()), (Wanted::ALL, None));
        assert!(apart.refused(A, now, None));
        apart.skip(7);
        apart.skip(5);
        assert_eq!(apart.others(), Wanted::Others { apart: vec![A], after: 7 });
        assert_eq!(apart.due(now), []);
        assert_eq!(apart.due(now + PAUSE.0), [A]);
        apart.leave(A);
        assert_eq!(apart.others(), Wanted::ALL);
    }

    #[test]
    fn pauses_grow_while_it_is_refused_and_end_when_it_passes() {
        let (mut apart, now) = (Apart::default(), Instant::now());
        for pause in [50, 100, 200, 400, 800, 1_000, 1_000] {
            apart.refused(A, now, None);
            assert_eq!(apart.next_due(), Some(now + Duration::from_millis(pause)));
        }
        apart.passed(A, now);
        assert_eq!(apart.due(now), [A]);
        assert!(!apart.refused(A, now, None));
        assert_eq!(apart.next_due(), Some(now + PAUSE.0));
        apart.passed(B, now);
        assert_eq!(apart.apps(), [A], "who is not apart stays with the others");
    }

    #[test]
    fn a_round_tries_few_apps_and_none_is_forgotten() {
        let (mut apart, now) = (Apart::default(), Instant::now());
        for number in 0..20 {
            apart.refused(AppId(number), now + Duration::from_millis(u64::from(20 - number)), None);
        }
        let later = now + PAUSE.1;
        let first = apart.due(later);
        assert_eq!(first, (12..20).rev().map(AppId).collect::<Vec<_>>());
        for app in first {
            apart.refused(app, later, None);
        }
        assert_eq!(apart.due(later)[0], AppId(11));
    }

    #[test]
    fn parts_that_cannot_pass_do_not_block_those_behind_them() {
        let (mut apart, now) = (Apart::default(), Instant::now());
        apart.refused(A, now, Some(100));
        assert_eq!(apart.position(A), 100);
        apart.refused(A, now, None);
        assert_eq!(apart.position(A), 100, "refused for another reason, it keeps its order");
        apart.passed(A, now);
        assert_eq!(apart.position(A), 100);
        apart.wrap(A);
        assert_eq!(apart.position(A), 0);
    }

    #[test]
    fn the_newest_part_is_looked_for_once_a_second() {
        let (mut apart, now) = (Apart::default(), Instant::now());
        assert!(apart.is_look_due(now) && !apart.is_look_due(now));
        assert!(apart.is_look_due(now + LOOK));
    }
}
