//! After a change of topic rules, subscriptions of connections are checked again, and those without permission end.
//!
//! A shard visits its connections in turn, a bounded number of topics a turn. After a change it visits every connection
//! once, from its current position. A change meanwhile starts a lap of its own app again and delays no other app.
//!
//! Native clients and Socket.IO clients stay connected and are notified of each topic with the reason. MQTT and XMPP
//! have no message by which a server ends a subscription and that all clients know, so their connections close as not
//! authorized, and the next log-in has the remaining topics. Subscriptions that the new rules leave to a webhook stay
//! until the next subscription or log-in, so that a change of rules does not become a storm of webhook calls.
//!
//! A session that kept too little of its token for the new rules logs in again (`CloseReason::RulesChanged`). Such
//! sessions close at a steady rate, the apps in turn, so that a change does not become a storm of log-ins and a large
//! app does not delay a small one. Until then they receive what they received before, and any request closes them at
//! once.

use std::collections::HashMap;

use noroshi_types::AppId;

use crate::rate::{Bucket, Rate};
use crate::session::turns::Turns;

/// Sessions of one shard that are closed to log in again. Log-ins cost some tens of microseconds each.
const RETURNS: Rate = Rate { per_second: 500, burst: 50 };

/// Connections of one shard that are checked again.
pub(crate) struct Recheck {
    laps: HashMap<AppId, Lap>,
    next_place: usize,
    /// Sessions (slot and generation) that have to log in again.
    returning: Turns<(u32, u64)>,
    returns: Bucket,
}

/// How far one app's lap is.
#[derive(Debug, Clone, Copy)]
struct Lap {
    began_at: usize,
    /// The last place was passed.
    is_around: bool,
}

impl Recheck {
    pub(crate) fn new(now_ms: u32) -> Self {
        let returns = Bucket::full(RETURNS, now_ms);
        Self { laps: HashMap::new(), next_place: 0, returning: Turns::default(), returns }
    }

    /// The rules of an app changed. Its sessions that have to log in again are collected from the beginning.
    pub(crate) fn begin(&mut self, app: AppId) {
        self.laps.insert(app, Lap { began_at: self.next_place, is_around: false });
        self.returning.retain(app, |_| false);
    }

    /// Whether connections of an app are being checked.
    pub(crate) fn concerns(&self, app: AppId) -> bool {
        self.laps.contains_key(&app)
    }

    /// The next place to check. `None`: no lap is left.
    pub(crate) fn next_place(&mut self, places: usize) -> Option<usize> {
        if self.next_place >= places {
            self.next_place = 0;
            self.laps.retain(|_, lap| !std::mem::replace(&mut lap.is_around, true) && places > 0);
        }
        let next_place = self.next_place;
        self.laps.retain(|_, lap| !lap.is_around || next_place < lap.began_at);
        if self.laps.is_empty() {
            return None;
        }
        self.next_place += 1;
        Some(next_place)
    }

    /// A session (slot and generation) has to log in again.
    pub(crate) fn log_in_again(&mut self, app: AppId, session: (u32, u64)) {
        self.returning.push(app, session, false);
    }

    /// The next session that has to log in again, at their rate.
    pub(crate) fn next_to_log_in(&mut self, now_ms: u32) -> Option<(u32, u64)> {
        if self.returning.is_empty() || !self.returns.take(RETURNS, now_ms) {
            return None;
        }
        let (app, session) = self.returning.pop()?;
        self.returning.give_turn(app);
        Some(session)
    }

    /// Whether the next turn has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.laps.is_empty()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.laps.is_empty() && self.returning.is_empty()
    }

    /// How long the shard may sleep.
    pub(crate) fn patience_ms(&self, now_ms: u32) -> u64 {
        match self.returning.is_empty() {
            true => u64::MAX,
            false => self.returns.wait_ms(RETURNS, now_ms).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places up to the end of all laps, or `most` of them.
    fn places(recheck: &mut Recheck, places: usize, most: usize) -> Vec<usize> {
        std::iter::from_fn(|| recheck.next_place(places)).take(most).collect()
    }

    #[test]
    fn a_lap_passes_each_place_once() {
        let mut recheck = Recheck::new(0);
        recheck.begin(AppId(1));
        assert_eq!(places(&mut recheck, 4, 9), [0, 1, 2, 3]);
        assert!(!recheck.has_work());
        recheck.begin(AppId(1));
        assert_eq!(places(&mut recheck, 0, 9), [0; 0]);
    }

    #[test]
    fn an_app_that_changes_again_and_again_delays_no_other_and_reaches_the_last_place() {
        let mut recheck = Recheck::new(0);
        recheck.begin(AppId(1));
        let mut passed = Vec::new();
        while recheck.laps.contains_key(&AppId(1)) {
            recheck.begin(AppId(2));
            passed.extend(places(&mut recheck, 5, 1));
            assert!(passed.len() <= 6, "{passed:?}");
        }
        assert_eq!(passed[..5], [0, 1, 2, 3, 4]);
        let rest = places(&mut recheck, 5, 9);
        assert!(rest.len() >= 4 && !recheck.has_work(), "{rest:?}");
    }

    #[test]
    fn apps_take_turns_to_log_in_again() {
        let mut recheck = Recheck::new(0);
        for slot in 0..4 {
            recheck.log_in_again(AppId(1), (slot, 7));
        }
        recheck.log_in_again(AppId(2), (10, 7));
        recheck.log_in_again(AppId(3), (20, 7));
        recheck.begin(AppId(3));
        let next = || recheck.next_to_log_in(0).map(|(slot, _)| slot);
        let slots: Vec<u32> = std::iter::from_fn(next).collect();
        assert_eq!(slots, [0, 10, 1, 2, 3]);
        assert!(recheck.returning.is_empty());
    }

    #[test]
    fn a_lap_covers_all_places_while_places_are_added_and_removed() {
        let mut recheck = Recheck::new(0);
        recheck.begin(AppId(1));
        assert_eq!(places(&mut recheck, 4, 3), [0, 1, 2]);
        recheck.begin(AppId(2));
        assert_eq!(places(&mut recheck, 6, 9), [3, 4, 5, 0, 1, 2]);
        recheck.begin(AppId(1));
        assert_eq!(places(&mut recheck, 1, 9), [0]);
    }
}
