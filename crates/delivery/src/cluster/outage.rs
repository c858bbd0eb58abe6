//! Outages of the bus, and the first stored message that it did not carry.
//!
//! While Redis does not answer, each node hands messages to its own connections only. The outage remembers one place in
//! the order of commits, before the first stored message that other nodes did not get. When Redis is back, the
//! node asks other nodes to sweep from there ([`crate::cluster::sweep`]).

use std::time::{Duration, Instant};

use noroshi_store::Place;
use parking_lot::Mutex;

/// The pause after a failure before Redis is asked again.
const PAUSE: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct Outage {
    /// Guards only itself.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None`: Redis answers.
    retry_at: Option<Instant>,
    since: Option<Place>,
}

impl Outage {
    /// Whether Redis may be asked.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        self.state.lock().retry_at.is_none_or(|again| again <= now)
    }

    /// Redis failed. Returns true for the first failure of an outage.
    pub(crate) fn failed(&self, now: Instant) -> bool {
        self.state.lock().retry_at.replace(now + PAUSE).is_none()
    }

    /// Redis delivered something: it may be asked at once.
    pub(crate) fn seen(&self, now: Instant) {
        let mut state = self.state.lock();
        state.retry_at = state.retry_at.map(|again| again.min(now));
    }

    /// Other nodes missed a stored message behind `place`.
    pub(crate) fn missed(&self, place: Place) {
        let mut state = self.state.lock();
        state.since = Some(state.since.map_or(place, |since| since.min(place)));
    }

    /// Redis answered. Returns true if it had failed before.
    pub(crate) fn ended(&self) -> bool {
        self.state.lock().retry_at.take().is_some()
    }

    /// Where other nodes must sweep from, if they missed anything and Redis may be asked. The caller returns it through
    /// [`Outage::missed`] if it cannot tell them now.
    pub(crate) fn due(&self, now: Instant) -> Option<Place> {
        let mut state = self.state.lock();
        match state.retry_at.is_none_or(|again| again <= now) {
            true => state.since.take(),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_missed_place_is_due_once() {
        let (outage, now) = (Outage::default(), Instant::now());
        assert!(outage.may_ask(now) && outage.failed(now) && !outage.failed(now));
        assert!(!outage.may_ask(now) && outage.may_ask(now + PAUSE));
        for place in [7, 3, 5] {
            outage.missed(Place(place));
        }
        assert_eq!(outage.due(now), None);
        outage.seen(now);
        assert!(outage.may_ask(now));
        assert!(outage.ended() && !outage.ended());
        assert_eq!((outage.due(now), outage.due(now)), (Some(Place(3)), None));
    }
}
