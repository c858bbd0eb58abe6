//! Recent places in the order of commits, by the time at which the store was asked for them.
//!
//! "Messages may have been lost since 12:30" becomes "read everything stored after this place". A task asks the
//! store for its place at intervals. The place of a moment is one that was read well before it, since a message reaches
//! the bus a little after its commit. For moments before the history the clock decides: a notification id begins with
//! its time ([RFC 9562] §5.7), and the clocks of nodes differ.
//!
//! A place that was read before the first device connected is safe: no device of this node missed an earlier message.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use noroshi_store::Place;
use noroshi_types::{NotificationId, Timestamp};
use parking_lot::Mutex;

use crate::cluster::Peers;
use crate::edge::{Edge, SESSION_PAGES};

const INTERVAL: Duration = Duration::from_secs(2);
/// Places that are remembered: a little more than a sweep interval.
const HISTORY_MAX: usize = 64;
/// The longest time from a commit to the end of its hand-over. A node that takes longer has lost the message to an
/// outage of its bus, and reports that itself.
const HAND_OVER: Duration = Duration::from_secs(3);
/// How far the clocks of nodes may differ.
const SKEW: Duration = Duration::from_secs(60);
/// The longest time between a login's read of the store and its session.
const LOG_IN: Duration = Duration::from_secs(10);
/// The low bits of a notification's number, which count; the time in milliseconds is above them.
const COUNTER_BITS: u32 = 12;

#[derive(Default)]
pub(crate) struct PlaceHistory {
    /// Guards the list only. Oldest first.
    read: Mutex<VecDeque<(Instant, Place)>>,
    /// The place at which this node started.
    began: OnceLock<Place>,
}

impl PlaceHistory {
    pub(crate) fn note(&self, at: Instant, place: Place) {
        let mut read = self.read.lock();
        if read.len() == HISTORY_MAX {
            read.pop_front();
        }
        read.push_back((at, place));
    }

    /// A place before everything that was handed over at `moment` or later, while this node ran.
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

/// Asks the store for its place at intervals, until it is dropped.
pub(crate) async fn run(peers: &Peers) {
    // The clock decides as long as no read succeeded, and if devices connected before the first one.
    let mut is_first = true;
    loop {
        let at = Instant::now();
        match peers.context.store.place().await {
            Ok(place) => {
                if std::mem::take(&mut is_first) && !has_sessions(peers) {
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

fn has_sessions(peers: &Peers) -> bool {
    let has_any = |edge: &Arc<dyn Edge>| (0..SESSION_PAGES).any(|page| !edge.sessions_page(page).is_empty());
    peers.context.edge().is_some_and(has_any)
}

/// The id at the place: no id behind the place is smaller.
pub fn id_at(place: Place) -> NotificationId {
    let number = u128::from(place.0.max(0).cast_unsigned());
    let (ms, counter) = (number >> COUNTER_BITS, number & ((1 << COUNTER_BITS) - 1));
    let bits = ms << 80 | 7 << 76 | counter << 64 | u128::from(u64::MAX);
    NotificationId::from_bytes(bits.to_be_bytes())
}

/// The place before a notification.
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
    fn ids_and_places_have_the_same_order() {
        let id = NotificationId::parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").expect("RFC 9562 A.6");
        let before = before_id(id);
        assert!(id_at(before) < id && id_at(Place(before.0 + 1)) > id);
        assert_eq!(before_id(id_at(Place(77))), Place(76));
    }

    #[test]
    fn the_place_of_a_moment_was_read_well_before_it() {
        let (mut history, start) = (PlaceHistory::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in 0..=10 {
            history.note(at(second * 2), Place(i64::try_from(second).expect("small")));
        }
        let now = Timestamp(1_000_000_000);
        assert_eq!(history.before(at(13), now), Place(5));
        assert_eq!(history.before(at(100), now), Place(10));
        let by_clock = history.before(start, now).0 >> COUNTER_BITS;
        assert!((999_900_000..1_000_000_000).contains(&by_clock), "{by_clock}");
        // No device missed anything from before the node started.
        history.began.set(Place(4)).expect("once");
        assert_eq!([13, 11].map(|second| history.before(at(second), now)), [Place(5), Place(4)]);
        history.began = Place(i64::MAX).into();
        assert_eq!(history.before(start, now), Place(i64::MAX));
    }
}
