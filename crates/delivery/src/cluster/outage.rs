//! That there is no bus, and what could not be told meanwhile.
//!
//! While the engine does not answer, each node hands messages to its own connections only. What is kept and
//! was not told to the others is remembered by one number, the place in the order of commits in front of the
//! first of it; when the engine is back the others are told to look from there ([`crate::cluster::sweep`]).

use std::time::{Duration, Instant};

use noroshi_store::Place;
use parking_lot::Mutex;

/// How long the engine is let alone after it failed: a request that waits for a dead one waits in vain.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct Outage {
    /// Guards the two words only.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// None: the engine answers.
    ask_again: Option<Instant>,
    since: Option<Place>,
}

impl Outage {
    /// Whether the engine may be asked.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        self.state.lock().ask_again.is_none_or(|again| again <= now)
    }

    /// The engine failed. True if it had not before.
    pub(crate) fn failed(&self, now: Instant) -> bool {
        self.state.lock().ask_again.replace(now + PAUSE).is_none()
    }

    /// The engine was heard of: it may be asked at once.
    pub(crate) fn heard_of(&self, now: Instant) {
        let mut state = self.state.lock();
        state.ask_again = state.ask_again.map(|again| again.min(now));
    }

    /// Something kept that stands behind `place` was not told.
    pub(crate) fn untold(&self, place: Place) {
        let mut state = self.state.lock();
        state.since = Some(state.since.map_or(place, |since| since.min(place)));
    }

    /// The engine answered. True if it had failed before.
    pub(crate) fn ended(&self) -> bool {
        self.state.lock().ask_again.take().is_some()
    }

    /// Where the others have to look from, if anything was not told and the engine may be asked. To be
    /// given back by [`Outage::untold`] if they cannot be told now either.
    pub(crate) fn due(&self, now: Instant) -> Option<Place> {
        let mut state = self.state.lock();
        match state.ask_again.is_none_or(|again| again <= now) {
            true => state.since.take(),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_untold_place_is_told_once() {
        let (outage, now) = (Outage::default(), Instant::now());
        assert!(outage.may_ask(now) && outage.failed(now) && !outage.failed(now));
        assert!(!outage.may_ask(now) && outage.may_ask(now + PAUSE));
        for place in [7, 3, 5] {
            outage.untold(Place(place));
        }
        assert_eq!(outage.due(now), None);
        outage.heard_of(now);
        assert!(outage.may_ask(now));
        assert!(outage.ended() && !outage.ended());
        assert_eq!((outage.due(now), outage.due(now)), (Some(Place(3)), None));
    }
}
