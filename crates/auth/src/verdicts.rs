//! A cache of signature verifications.
//!
//! An entry is a hash of the token and of the version of the key set. It stores only whether the signature is valid,
//! which never changes for one token and one set. Claims, expiry and revocation are checked at each log-in, so an entry
//! needs no lifetime: a changed key set has a new version, which matches no old entry.
//!
//! Valid and invalid tokens have separate tables, so a flood of invalid tokens evicts no valid one.

use noroshi_types::Recent;
use parking_lot::Mutex;
use ring::digest;

/// Some 4 MiB when full.
const GOOD_MAX: usize = 65_536;
/// Some 1 MiB when full.
const BAD_MAX: usize = 16_384;

/// The cache key: a token and the key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Question([u8; 32]);

impl Question {
    pub(crate) fn new(set_version: u64, token: &str) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&set_version.to_be_bytes());
        context.update(token.as_bytes());
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        Self(hash)
    }
}

/// Each lock guards its own table; no other lock is taken under it.
pub(crate) struct Verdicts {
    good: Mutex<Recent<Question, ()>>,
    bad: Mutex<Recent<Question, ()>>,
}

impl Verdicts {
    pub(crate) fn new() -> Self {
        Self { good: Mutex::new(Recent::new(GOOD_MAX)), bad: Mutex::new(Recent::new(BAD_MAX)) }
    }

    /// Whether the signature is valid, if that is known.
    pub(crate) fn recall(&self, question: &Question) -> Option<bool> {
        if self.good.lock().get_mut(question).is_some() {
            return Some(true);
        }
        self.bad.lock().get_mut(question).is_some().then_some(false)
    }

    pub(crate) fn keep(&self, question: Question, is_good: bool) {
        let table = if is_good { &self.good } else { &self.bad };
        table.lock().insert(question, ());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_belongs_to_one_token_and_one_key_set() {
        let verdicts = Verdicts::new();
        verdicts.keep(Question::new(1, "good"), true);
        verdicts.keep(Question::new(1, "bad"), false);
        let recall = |version, token| verdicts.recall(&Question::new(version, token));
        assert_eq!(
            [recall(1, "good"), recall(1, "bad"), recall(1, "other")],
            [Some(true), Some(false), None]
        );
        assert_eq!([recall(2, "good"), recall(2, "bad")], [None, None]);
    }

    #[test]
    fn invalid_tokens_evict_no_valid_one() {
        let verdicts = Verdicts::new();
        let good = Question::new(1, "good");
        verdicts.keep(good, true);
        for number in 0..2 * BAD_MAX {
            verdicts.keep(Question::new(1, &number.to_string()), false);
        }
        assert_eq!(verdicts.recall(&good), Some(true));
        assert!(verdicts.bad.lock().len() <= BAD_MAX);
    }
}
