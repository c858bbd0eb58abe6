//! What webhooks answered, for as long as it counts.
//!
//! Two halves take turns: when the younger one is full, the older one is dropped as a whole. So the memory is bounded,
//! a look-up is one or two steps, and what was asked lately stays.

use std::collections::HashMap;

use noroshi_types::rule::Action;
use noroshi_types::{AppId, DeviceId, Timestamp, UserId};
use parking_lot::Mutex;

use super::Holder;

/// Of each half: with ids and a topic of some 30 bytes each, 2 × 32,768 × 200 bytes are 13 MiB.
const HALF_MAX: usize = 1 << 15;

/// What a webhook was asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Question {
    app: AppId,
    /// Of the rules.
    edition: u64,
    action: Action,
    device: DeviceId,
    user: Option<UserId>,
    topic: Box<str>,
}

impl Question {
    pub(super) fn new(edition: u64, holder: &Holder, action: Action, topic: &str) -> Self {
        let Holder { app, device, user, .. } = holder;
        Self { app: *app, edition, action, device: device.clone(), user: user.clone(), topic: topic.into() }
    }
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    allowed: bool,
    expires_at: Timestamp,
}

/// Locked for a look-up; nothing else is locked or awaited under it.
#[derive(Default)]
pub(super) struct Cache(Mutex<Halves>);

#[derive(Default)]
struct Halves {
    young: HashMap<Question, Answer>,
    old: HashMap<Question, Answer>,
}

impl Cache {
    pub(super) fn answer(&self, question: &Question, now: Timestamp) -> Option<bool> {
        let halves = self.0.lock();
        let answer = halves.young.get(question).or_else(|| halves.old.get(question))?;
        (now < answer.expires_at).then_some(answer.allowed)
    }

    pub(super) fn put(&self, question: Question, allowed: bool, expires_at: Timestamp) {
        let mut halves = self.0.lock();
        if halves.young.len() >= HALF_MAX {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(question, Answer { allowed, expires_at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(topic: &str) -> Question {
        let device = DeviceId::parse("d1").expect("a device");
        let holder = Holder { app: AppId(1), device, user: None, claims: None };
        Question::new(0, &holder, Action::Subscribe, topic)
    }

    #[test]
    fn an_answer_counts_until_it_expires() {
        let cache = Cache::default();
        cache.put(question("a"), true, Timestamp(10));
        cache.put(question("b"), false, Timestamp(10));
        assert_eq!(cache.answer(&question("a"), Timestamp(9)), Some(true));
        assert_eq!(cache.answer(&question("b"), Timestamp(9)), Some(false));
        assert_eq!(cache.answer(&question("a"), Timestamp(10)), None);
        assert_eq!(cache.answer(&question("c"), Timestamp(0)), None);
        let holder = Holder {
            app: AppId(1),
            device: DeviceId::parse("d1").expect("a device"),
            user: UserId::parse("u1").ok(),
            claims: None,
        };
        let of_a_user = Question::new(0, &holder, Action::Subscribe, "a");
        assert_eq!(cache.answer(&of_a_user, Timestamp(0)), None, "the device changed its user");
    }

    #[test]
    fn its_size_is_bounded() {
        let cache = Cache::default();
        for number in 0..3 * HALF_MAX {
            cache.put(question(&number.to_string()), true, Timestamp(10));
        }
        let halves = cache.0.lock();
        assert!(halves.young.len() + halves.old.len() <= 2 * HALF_MAX);
        drop(halves);
        assert_eq!(cache.answer(&question(&(3 * HALF_MAX - 1).to_string()), Timestamp(0)), Some(true));
    }
}
