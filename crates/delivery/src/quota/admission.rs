//! A batch of requests of which quotas admit some and refuse others.
//!
//! The caller writes the admitted ones; [`Admission::finish`] merges their answers with the refusals, in order.

use super::reservation::Held;
use crate::error::Error;

/// A batch, split into admitted items and refusals.
pub struct Admission<T> {
    admitted: Vec<T>,
    held: Vec<Held>,
    /// `None`: admitted.
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

    /// The admitted items, for the caller to write.
    pub fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.admitted)
    }

    /// Settles what was written, and returns the answers in the order of the batch.
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
        let missing = || noroshi_store::Error::Engine("the store returned too few answers".to_owned()).into();
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
    fn answers_are_in_the_order_of_the_batch() {
        let refused = || Err(Error::Overloaded);
        let mut admission = Admission::new(
            vec![1, 2, 3, 4],
            vec![Ok(Held::default()), refused(), Ok(Held::default()), refused()],
        );
        assert_eq!(admission.take(), [1, 3]);
        assert_eq!(admission.finish(vec!["one"], |_| true, |_| "none"), ["one", "none", "none", "none"]);
    }
}
