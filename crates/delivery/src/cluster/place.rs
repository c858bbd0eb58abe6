//! From a moment to a place in the order of commits.
//!
//! "Messages may have been lost since half past" has to become "look at what was kept behind this place".
//! The store is asked for its place now and then; a moment's place is one that was read well before it,
//! since a message is handed to the bus a little after its commit. For moments before what is remembered
//! the clock tells: a notification's number begins with its time ([RFC 9562] §5.7), and clocks of nodes differ.
//! Nothing before the place that was read when no device had come yet was missed by anyone here.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use noroshi_store::Place;
use noroshi_types::{NotificationId, Timestamp};
use parking_lot::Mutex;

use crate::cluster::Peers;
use crate::delivery::Delivery;
use crate::edge::SESSION_PAGES;

const INTERVAL: Duration = Duration::from_secs(2);
/// A little more than a sweep interval.
const REMEMBERED: usize = 64;
/// From a commit to the end of its hand-over, at most: a node that takes longer has lost its message to the
/// outage of its bus and says so itself.
const HAND_OVER: Duration = Duration::from_secs(3);
/// By how much the clocks of nodes may differ.
const SKEW: Duration = Duration::from_secs(60);
/// Devices that are about to come had read the store so long ago, at most.
const LOG_IN: Duration = Duration::from_secs(10);
/// Of a notification's number that are its counter; the time in milliseconds stands above it.
const COUNTER_BITS: u32 = 12;

#[derive(Default)]
pub(crate) struct Places {
    /// Guards the list only. Oldest first.
    read: Mutex<VecDeque<(Instant, Place)>>,
    /// Where this node began.
    began: OnceLock<Place>,
}

impl Places {
    pub(crate) fn note(&self, at: Instant, place: Place) {
        let mut read = self.read.lock();
        if read.len() == REMEMBERED {
            read.pop_front();
        }
        read.push_back((at, place));
    }

    /// A place behind which everything stands that was handed over at `moment` or later, and while this node ran.
    pub(crate) fn before(&self, moment: Instant, now: Timestamp) -> Place {
        let place = self.read_before(moment, now);
        self.began.get().map_or(place, |began| place.max(*began))
    }

    fn read_before(&self, moment: Instant, now: Timestamp) -> Place {
        let enough = moment.checked_sub(HAND_OVER);
        let read = self.read.lock();
        let found = read.iter().rev().find(|(at, _)| enough.is_some_and(|enough| *at <= enough));
        match found {
            Some((_, place)) => *place,
            None => {
                let ago = moment.elapsed() + SKEW;
                let ms = now.0.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX));
                Place(i64::try_from(ms << COUNTER_BITS).unwrap_or(0))
            }
        }
    }
}

/// Asks the store for its place for as long as it runs.
pub(crate) async fn run(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    // Without a read, as with devices that came before it, the clock decides.
    let mut is_first = true;
    loop {
        let at = Instant::now();
        match delivery.store.place().await {
            Ok(place) => {
                if std::mem::take(&mut is_first) && !has_sessions(delivery) {
                    let _ = peers.places.began.set(back(place, LOG_IN));
                }
                peers.places.note(at, place);
            }
            Err(error) => tracing::debug!(%error, "the store's place could not be read"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn back(place: Place, by: Duration) -> Place {
    let numbers = i64::try_from(by.as_millis()).unwrap_or(i64::MAX).saturating_mul(1 << COUNTER_BITS);
    Place(place.0.saturating_sub(numbers))
}

fn has_sessions(delivery: &Delivery) -> bool {
    delivery.edge().is_some_and(|edge| (0..SESSION_PAGES).any(|page| !edge.sessions_page(page).is_empty()))
}

/// The id that stands where the place is: greater than none behind it.
pub fn id_at(place: Place) -> NotificationId {
    let number = u128::from(place.0.max(0).cast_unsigned());
    let (ms, counter) = (number >> COUNTER_BITS, number & ((1 << COUNTER_BITS) - 1));
    let bits = ms << 80 | 7 << 76 | counter << 64 | u128::from(u64::MAX);
    NotificationId::from_bytes(bits.to_be_bytes())
}

/// The place in front of a notification.
pub(crate) fn before_id(id: NotificationId) -> Place {
    let bits = u128::from_be_bytes(*id.as_bytes());
    let number = (bits >> 80 << COUNTER_BITS) | (bits >> 64 & ((1 << COUNTER_BITS) - 1));
    // 60 bits: 48 of the time and 12 of the counter.
    Place(i64::try_from(number).unwrap_or(i64::MAX) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_and_its_place_stand_in_the_same_order() {
        let id = NotificationId::parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").expect("RFC 9562 A.6");
        let before = before_id(id);
        assert!(id_at(before) < id && id_at(Place(before.0 + 1)) > id);
        assert_eq!(before_id(id_at(Place(77))), Place(76));
    }

    #[test]
    fn a_moment_has_a_place_that_was_read_well_before() {
        let (mut places, start) = (Places::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..=10 {
            places.note(at(second * 2), Place(i64::try_from(second).expect("small")));
        }
        let now = Timestamp(1_000_000_000);
        assert_eq!(places.before(at(13), now), Place(5));
        assert_eq!(places.before(at(100), now), Place(10));
        let by_clock = places.before(start, now).0 >> COUNTER_BITS;
        assert!((999_900_000..1_000_000_000).contains(&by_clock), "{by_clock}");
        // Whoever came to a node missed nothing from before it was there.
        places.began.set(Place(4)).expect("once");
        assert_eq!([13, 11].map(|second| places.before(at(second), now)), [Place(5), Place(4)]);
        places.began = Place(i64::MAX).into();
        assert_eq!(places.before(start, now), Place(i64::MAX));
    }
}
