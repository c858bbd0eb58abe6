//! What answers say about tokens: who is removed, who is set aside, and when that says more about us.
//!
//! A token goes only on proof. A doubted token is set aside until its device registers it anew, unless so
//! many of an (app, service, environment) are doubted at once that the credential or its environment must be
//! wrong: then none is set aside, and an alarm stands until the rate is normal again.

use std::collections::HashMap;

use noroshi_types::{AppId, PushEnvironment, PushService, Timestamp};
use parking_lot::Mutex;

/// What a rate is measured for.
pub(crate) type Realm = (AppId, PushService, PushEnvironment);

/// Answers are looked at for this long, in steps of a minute.
const MINUTES: u64 = 10;

/// Doubted tokens among [`MINUTES`] that can be an accident, whatever their share: a small app with a few
/// old test devices.
const SUSPECTS_MIN: u64 = 10;

/// One doubted token in this many answers is not normal: among devices that register at each start even one
/// in a hundred is rare.
const NORMAL_PART: u64 = 5;

/// Realms that are remembered; the one that was quiet the longest goes.
const REALMS_MAX: usize = 4_096;

/// What the answers of a batch changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rate {
    Normal,
    /// Abnormal since now: to be told once.
    Alarm {
        suspects: u64,
        answers: u64,
    },
    Abnormal,
    /// Normal again since now.
    Over,
}

impl Rate {
    /// Whether doubted tokens may be set aside.
    pub(crate) fn is_normal(self) -> bool {
        matches!(self, Rate::Normal | Rate::Over)
    }
}

/// The rates of doubted tokens.
#[derive(Default)]
pub(crate) struct Hygiene {
    /// Guards only the map; nothing is awaited or called under it.
    realms: Mutex<HashMap<Realm, Window>>,
}

#[derive(Default)]
struct Window {
    /// By minute, modulo [`MINUTES`]: which minute it is, answers, suspects.
    minutes: [(u64, u64, u64); MINUTES as usize],
    last: u64,
    alarm: bool,
}

impl Hygiene {
    /// Counts a batch's answers of one realm as a whole, so that a first batch of nothing but doubted
    /// tokens is recognised before one of them is set aside.
    pub(crate) fn count(&self, realm: Realm, answers: u64, suspects: u64, now: Timestamp) -> Rate {
        let minute = now.0 / 60_000;
        let mut realms = self.realms.lock();
        if realms.len() >= REALMS_MAX && !realms.contains_key(&realm) {
            let quietest =
                realms.iter().filter(|(_, window)| !window.alarm).min_by_key(|(_, window)| window.last);
            if let Some(quietest) = quietest.map(|(realm, _)| *realm) {
                realms.remove(&quietest);
            }
        }
        realms.entry(realm).or_default().count(minute, answers, suspects)
    }
}

impl Window {
    fn count(&mut self, minute: u64, answers: u64, suspects: u64) -> Rate {
        let place = &mut self.minutes[usize::try_from(minute % MINUTES).unwrap_or(0)];
        if place.0 != minute {
            *place = (minute, 0, 0);
        }
        place.1 += answers;
        place.2 += suspects;
        self.last = minute;
        let recent = self.minutes.iter().filter(|(at, ..)| at + MINUTES > minute);
        let (answers, suspects) =
            recent.fold((0, 0), |sum, (_, answers, suspects)| (sum.0 + answers, sum.1 + suspects));
        let abnormal = suspects >= SUSPECTS_MIN && suspects * NORMAL_PART > answers;
        match (std::mem::replace(&mut self.alarm, abnormal), abnormal) {
            (false, false) => Rate::Normal,
            (false, true) => Rate::Alarm { suspects, answers },
            (true, true) => Rate::Abnormal,
            (true, false) => Rate::Over,
        }
    }
}

/// Whether a push service's word that a token is gone is proof against this one: a token that was registered
/// after the service knew it dead is alive again.
pub(crate) fn is_proof(since: Option<Timestamp>, token_at: Timestamp) -> bool {
    since.is_none_or(|since| token_at < since)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REALM: Realm = (AppId(1), PushService::Apns, PushEnvironment::Production);

    fn minute(minute: u64) -> Timestamp {
        Timestamp(1_800_000_000_000 + minute * 60_000)
    }

    #[test]
    fn a_few_doubted_tokens_are_normal() {
        let hygiene = Hygiene::default();
        assert_eq!(hygiene.count(REALM, 1, 1, minute(0)), Rate::Normal);
        assert_eq!(hygiene.count(REALM, 8, 8, minute(0)), Rate::Normal);
        assert_eq!(hygiene.count(REALM, 10_000, 1_500, minute(0)), Rate::Normal);
    }

    #[test]
    fn a_batch_of_doubted_tokens_is_recognised_at_once_and_told_once() {
        let hygiene = Hygiene::default();
        assert_eq!(hygiene.count(REALM, 500, 500, minute(0)), Rate::Alarm { suspects: 500, answers: 500 });
        assert_eq!(hygiene.count(REALM, 500, 500, minute(1)), Rate::Abnormal);
        let other = (AppId(2), REALM.1, REALM.2);
        assert_eq!(hygiene.count(other, 500, 1, minute(1)), Rate::Normal);
        assert_eq!(hygiene.count(REALM, 500, 0, minute(9)), Rate::Abnormal);
        // The first thousand are forgotten.
        assert_eq!(hygiene.count(REALM, 500, 0, minute(12)), Rate::Over);
        assert_eq!(hygiene.count(REALM, 500, 1, minute(12)), Rate::Normal);
    }

    #[test]
    fn the_number_of_realms_is_bounded() {
        let hygiene = Hygiene::default();
        let app = |app| (AppId(app), REALM.1, REALM.2);
        hygiene.count(app(0), 500, 500, minute(0));
        for number in 1..5_000 {
            hygiene.count(app(number), 1, 0, minute(1));
        }
        assert_eq!(hygiene.realms.lock().len(), REALMS_MAX);
        assert_eq!(hygiene.count(app(0), 1, 1, minute(2)), Rate::Abnormal, "alarms are not forgotten");
    }

    #[test]
    fn proof_is_older_than_the_token() {
        let at = |ms| Timestamp(ms);
        assert!(is_proof(None, at(5)));
        assert!(is_proof(Some(at(6)), at(5)));
        assert!(!is_proof(Some(at(5)), at(5)));
        assert!(!is_proof(Some(at(4)), at(5)));
    }
}
