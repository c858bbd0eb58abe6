//! The answers of one app's webhook, each until it expires.
//!
//! A cache belongs to one version of the rules of one app. So a change of the rules forgets all answers, and no app
//! evicts the answers of another.

use noroshi_types::rule::Action;
use noroshi_types::{DeviceId, Recent, Timestamp, UserId};
use parking_lot::Mutex;

use super::Holder;

/// With ids and a topic of some 30 bytes each, 16,384 × 200 bytes are 3 MiB for an app.
const ANSWERS_MAX: usize = 16_384;

/// A question to a webhook.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Question {
    action: Action,
    device: DeviceId,
    user: Option<UserId>,
    topic: Box<str>,
}

impl Question {
    pub(super) fn new(holder: &Holder, action: Action, topic: &str) -> Self {
        let Holder { device, user, .. } = holder;
        Self { action, device: device.clone(), user: user.clone(), topic: topic.into() }
    }
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    allowed: bool,
    expires_at: Timestamp,
}

/// Locked for a look-up; nothing else is locked or awaited under it.
#[derive(Debug)]
pub(super) struct Cache(Mutex<Recent<Question, Answer>>);

impl Default for Cache {
    fn default() -> Self {
        Self(Mutex::new(Recent::new(ANSWERS_MAX)))
    }
}

impl Cache {
    pub(super) fn answer(&self, question: &Question, now: Timestamp) -> Option<bool> {
        let mut answers = self.0.lock();
        let answer = answers.get_mut(question)?;
        (now < answer.expires_at).then_some(answer.allowed)
    }

    pub(super) fn put(&self, question: Question, allowed: bool, expires_at: Timestamp) {
        self.0.lock().insert(question, Answer { allowed, expires_at });
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::AppId;

    use super::*;

    fn question(topic: &str) -> Question {
        let device = DeviceId::parse("d1").expect("a device");
        let holder = Holder { app: AppId(1), device, user: None, claims: None };
        Question::new(&holder, Action::Subscribe, topic)
    }

    #[test]
    fn an_answer_is_valid_until_it_expires() {
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
        let of_a_user = Question::new(&holder, Action::Subscribe, "a");
        assert_eq!(cache.answer(&of_a_user, Timestamp(0)), None, "the user of the device changed");
    }

    #[test]
    fn the_size_is_bounded() {
        let cache = Cache::default();
        for number in 0..2 * ANSWERS_MAX {
            cache.put(question(&number.to_string()), true, Timestamp(10));
        }
        assert!(cache.0.lock().len() <= ANSWERS_MAX);
        let last = question(&(2 * ANSWERS_MAX - 1).to_string());
        assert_eq!(cache.answer(&last, Timestamp(0)), Some(true));
    }
}
