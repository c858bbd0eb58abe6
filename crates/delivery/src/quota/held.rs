//! Room that was found, for one and for a batch: it counts as used until it is settled or given back.

use std::sync::Arc;

use noroshi_types::Quota;

use super::known::Claim;
use super::{OfApp, OverQuota, Reservation};
use crate::delivery::Error;

/// Room that counts as used. Dropped, it is given back.
#[must_use]
#[derive(Default)]
pub struct Held {
    reserved: Vec<Reservation>,
    topics: Option<Claim>,
}

impl Held {
    /// It was written.
    pub fn settle(self) {
        self.reserved.into_iter().for_each(Reservation::settle);
        if let Some(topics) = self.topics {
            topics.settle();
        }
    }

    pub(super) fn add(&mut self, reserved: Reservation) {
        self.reserved.push(reserved);
    }

    /// Room for as many of these topics as are new, given that the store does not know them.
    pub(super) fn add_topics<'a>(
        &mut self,
        of_app: &Arc<OfApp>,
        unknown: impl Iterator<Item = &'a noroshi_types::Topic>,
    ) -> Result<(), OverQuota> {
        let reserve = |new: u64| of_app.reserve(&[(Quota::Topics, new)]);
        let (reserved, claimed) = of_app.topics.claim(unknown, reserve)?;
        self.reserved.push(reserved);
        self.topics = Some(Claim::new(of_app.clone(), claimed));
        Ok(())
    }
}

/// A batch, split into admitted items and refusals.
pub struct Admission<T> {
    admitted: Vec<T>,
    held: Vec<Held>,
    /// None: it has room.
    refused: Vec<Option<Error>>,
}

impl<T> Admission<T> {
    /// `answers` are in the order of `asked`.
    pub fn new(asked: Vec<T>, answers: Vec<Result<Held, Error>>) -> Self {
        let mut admission =
            Self { admitted: Vec::new(), held: Vec::new(), refused: Vec::with_capacity(asked.len()) };
        for (one, answer) in asked.into_iter().zip(answers) {
            admission.refused.push(match answer {
                Ok(held) => {
                    admission.admitted.push(one);
                    admission.held.push(held);
                    None
                }
                Err(error) => Some(error),
            });
        }
        admission
    }

    /// Those that have room, to be written.
    pub fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.admitted)
    }

    /// Settles what was written, and puts answers into the order in which was asked.
    pub fn finish<A>(
        self,
        written: Vec<A>,
        is_written: impl Fn(&A) -> bool,
        refuse: impl Fn(Error) -> A,
    ) -> Vec<A> {
        for (held, answer) in self.held.into_iter().zip(&written) {
            if is_written(answer) {
                held.settle();
            }
        }
        let mut written = written.into_iter();
        let missing = || noroshi_store::Error::Engine("the store gave too few answers".to_owned()).into();
        let answer = |refused: Option<Error>| match refused {
            Some(error) => refuse(error),
            None => written.next().unwrap_or_else(|| refuse(missing())),
        };
        self.refused.into_iter().map(answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_in_the_order_asked() {
        let refused = || Err(Error::Overloaded);
        let mut admission = Admission::new(
            vec![1, 2, 3, 4],
            vec![Ok(Held::default()), refused(), Ok(Held::default()), refused()],
        );
        assert_eq!(admission.take(), [1, 3]);
        assert_eq!(admission.finish(vec!["one"], |_| true, |_| "none"), ["one", "none", "none", "none"]);
    }
}
