//! What answers reveal about push tokens: which are removed, which are suspended, and when the answers point to a wrong
//! credential instead.
//!
//! A token is removed only on proof. A suspect token is suspended until its device registers it again. If too many
//! tokens of an (app, service, environment) are suspect at once, by their share or by their number, the credential or its
//! environment must be wrong: then none is suspended, and an alarm stays on until both are normal again.

use std::collections::HashMap;

use noroshi_types::{AppId, PushEnvironment, PushService, Timestamp};
use parking_lot::Mutex;

/// The unit for which rates are measured.
pub(crate) type Realm = (AppId, PushService, PushEnvironment);

/// The window of a rate, in steps of a minute.
const MINUTES: u64 = 10;

/// Suspect tokens in the window that may be an accident, whatever their share: a small app with a few old test devices.
const SUSPECTS_MIN: u64 = 10;

/// More than one suspect token in this many answers is not normal: among devices that register at each start, one in a
/// hundred is already rare.
const NORMAL_PART: u64 = 5;

/// More suspect tokens than this in the window are not normal, however many others are accepted: a mistake that concerns
/// a part of a large app's devices would otherwise suspend all of them without an alarm. A large app that has old tokens
/// loses no more than this number in a window, which is no harm: later pushes find the others.
const SUSPECTS_MAX: u64 = 1_000;

/// Realms that are remembered; beyond it the one that was quiet the longest is evicted.
const REALMS_MAX: usize = 4_096;

/// The rate after the answers of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rate {
    Normal,
    /// Abnormal from now on: reported once.
    Alarm {
        suspects: u64,
        answers: u64,
    },
    Abnormal,
    /// Normal again from now on.
    Over,
}

impl Rate {
    /// Whether suspect tokens may be suspended.
    pub(crate) fn is_normal(self) -> bool {
        matches!(self, Rate::Normal | Rate::Over)
    }
}

/// The rates of suspect tokens.
#[derive(Default)]
pub(crate) struct TokenHealth {
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

impl TokenHealth {
    /// Counts the answers of one realm in a batch as a whole, so that a first batch of only suspect tokens raises the
    /// alarm before one of them is suspended.
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
        let by_share = suspects >= SUSPECTS_MIN && suspects * NORMAL_PART > answers;
        let abnormal = by_share || suspects > SUSPECTS_MAX;
        match (std::mem::replace(&mut self.alarm, abnormal), abnormal) {
            (false, false) => Rate::Normal,
            (false, true) => Rate::Alarm { suspects, answers },
            (true, true) => Rate::Abnormal,
            (true, false) => Rate::Over,
        }
    }
}

/// Whether the answer "gone" proves that this token is dead: a token that was registered after the service's time is
/// alive again.
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
    fn a_few_suspect_tokens_are_normal() {
        let health = TokenHealth::default();
        assert_eq!(health.count(REALM, 1, 1, minute(0)), Rate::Normal);
        assert_eq!(health.count(REALM, 8, 8, minute(0)), Rate::Normal);
        assert_eq!(health.count(REALM, 10_000, 990, minute(0)), Rate::Normal);
    }

    #[test]
    fn many_suspect_tokens_raise_the_alarm_whatever_their_share() {
        let health = TokenHealth::default();
        for _ in 0..10 {
            assert_eq!(health.count(REALM, 100_000, 100, minute(0)), Rate::Normal);
        }
        let alarm = Rate::Alarm { suspects: 1_001, answers: 1_000_001 };
        assert_eq!(health.count(REALM, 1, 1, minute(5)), alarm);
        assert_eq!(health.count(REALM, 1_000, 1, minute(9)), Rate::Abnormal);
        assert_eq!(health.count(REALM, 1_000, 1, minute(11)), Rate::Over, "the first are forgotten");
    }

    #[test]
    fn a_batch_of_suspect_tokens_raises_one_alarm_at_once() {
        let health = TokenHealth::default();
        assert_eq!(health.count(REALM, 500, 500, minute(0)), Rate::Alarm { suspects: 500, answers: 500 });
        assert_eq!(health.count(REALM, 500, 500, minute(1)), Rate::Abnormal);
        let other = (AppId(2), REALM.1, REALM.2);
        assert_eq!(health.count(other, 500, 1, minute(1)), Rate::Normal);
        assert_eq!(health.count(REALM, 500, 0, minute(9)), Rate::Abnormal);
        // The first thousand are forgotten.
        assert_eq!(health.count(REALM, 500, 0, minute(12)), Rate::Over);
        assert_eq!(health.count(REALM, 500, 1, minute(12)), Rate::Normal);
    }

    #[test]
    fn the_number_of_realms_is_bounded() {
        let health = TokenHealth::default();
        let app = |app| (AppId(app), REALM.1, REALM.2);
        health.count(app(0), 500, 500, minute(0));
        for number in 1..5_000 {
            health.count(app(number), 1, 0, minute(1));
        }
        assert_eq!(health.realms.lock().len(), REALMS_MAX);
        assert_eq!(
            health.count(app(0), 1, 1, minute(2)),
            Rate::Abnormal,
            "a realm with an alarm is not evicted"
        );
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
