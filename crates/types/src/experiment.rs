//! Assigns a user to a variant of an experiment: deterministic across nodes, restarts and any language that
//! can multiply 64-bit numbers.
//!
//! Uses weighted rendezvous hashing: each variant gets a number from a hash of (experiment, variant, user),
//! scaled by its weight, and the smallest wins. A change of weight therefore moves users only to or from that
//! variant; users between two other variants stay, unlike with ranges over a single hash. The hash includes
//! the experiment, so experiments are independent of each other. This is the logarithmic method of
//! Schindelhauer and Schomaker, "Weighted Distributed Hash Tables" (SPAA 2005): -ln(u) / weight is
//! exponential with that rate, and the probability that an exponential is the smallest is its share of the
//! rates.

use crate::hash::{BEGIN, fnv, mix};
use crate::{DeviceId, Label, UserId};

/// Who is assigned: the user on all devices or, without a logged-in user, the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    User(&'a UserId),
    Device(&'a DeviceId),
}

/// The variants of one experiment, prepared for assignment.
#[derive(Debug, Clone, PartialEq)]
pub struct Variants {
    /// Index in the definition, hash of experiment and variant, and the reciprocal of the weight. Variants of
    /// weight 0 are omitted.
    draws: Vec<(usize, u64, f64)>,
}

impl<'a> Subject<'a> {
    pub fn of(user: Option<&'a UserId>, device: &'a DeviceId) -> Self {
        user.map_or(Self::Device(device), Self::User)
    }

    fn hash(self, hash: u64) -> u64 {
        match self {
            Self::User(user) => fnv(fnv(hash, b"u"), user.as_str().as_bytes()),
            Self::Device(device) => fnv(fnv(hash, b"d"), device.as_str().as_bytes()),
        }
    }
}

impl Variants {
    /// Names and weights, in the order of the definition.
    pub fn new<'a>(experiment: &Label, variants: impl IntoIterator<Item = (&'a Label, u32)>) -> Self {
        let hash = fnv(fnv(BEGIN, experiment.as_str().as_bytes()), b"\0");
        let draw = |(at, (name, weight)): (usize, (&Label, u32))| {
            let hash = fnv(fnv(hash, name.as_str().as_bytes()), b"\0");
            (weight > 0).then(|| (at, hash, 1.0 / f64::from(weight)))
        };
        Self { draws: variants.into_iter().enumerate().filter_map(draw).collect() }
    }

    /// The index of the assigned variant in the definition; `None` if every weight is 0.
    pub fn draw(&self, subject: Subject<'_>) -> Option<usize> {
        let scores = self.draws.iter().map(|(at, hash, scale)| (*at, score(subject.hash(*hash)) * scale));
        scores.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at)
    }
}

/// -ln(u), with u uniform in (0, 1), from the 53 bits that a double represents exactly.
fn score(hash: u64) -> f64 {
    // (x + 0.5) / 2^53 is never 0 or 1.
    let uniform = ((mix(hash) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -uniform.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: usize = 100_000;

    fn label(name: &str) -> Label {
        Label::parse(name).expect(name)
    }

    fn user(number: usize) -> UserId {
        UserId::parse(&format!("user-{number}")).expect("a user")
    }

    fn variants(experiment: &str, weights: &[(&str, u32)]) -> Variants {
        let names: Vec<(Label, u32)> = weights.iter().map(|(name, weight)| (label(name), *weight)).collect();
        Variants::new(&label(experiment), names.iter().map(|(name, weight)| (name, *weight)))
    }

    fn draws(experiment: &str, weights: &[(&str, u32)]) -> Vec<usize> {
        let variants = variants(experiment, weights);
        let draw = |number| variants.draw(Subject::User(&user(number))).expect("a variant");
        (0..USERS).map(draw).collect()
    }

    /// Pearson's chi-squared statistic of counts against shares.
    fn chi_square(counts: &[usize], expected: &[f64]) -> f64 {
        counts
            .iter()
            .zip(expected)
            .map(|(count, expected)| (*count as f64 - expected).powi(2) / expected)
            .sum()
    }

    #[test]
    fn shares_follow_the_weights() {
        for weights in [[1, 1, 1], [1, 2, 7], [900_000, 90_000, 10_000]] {
            let sum = weights.iter().sum::<u32>();
            let draws = draws("checkout", &[("a", weights[0]), ("b", weights[1]), ("c", weights[2])]);
            let mut counts = [0; 3];
            draws.iter().for_each(|at| counts[*at] += 1);
            let expected = weights.map(|weight| USERS as f64 * f64::from(weight) / f64::from(sum));
            // 2 degrees of freedom: above 13.8 with probability 0.1 % (the users are fixed, so the result is
            // deterministic).
            assert!(chi_square(&counts, &expected) < 13.8, "{weights:?}: {counts:?}");
        }
    }

    #[test]
    fn experiments_are_independent() {
        let of = |experiment| draws(experiment, &[("a", 1), ("b", 1)]);
        let mut counts = [0; 4];
        of("first").iter().zip(of("second")).for_each(|(one, other)| counts[one * 2 + other] += 1);
        // 3 degrees of freedom: above 16.3 with probability 0.1 %.
        assert!(chi_square(&counts, &[USERS as f64 / 4.0; 4]) < 16.3, "{counts:?}");
    }

    #[test]
    fn changed_weight_moves_users_only_to_or_from_its_variant() {
        let before = draws("checkout", &[("a", 10), ("b", 10), ("c", 10)]);
        let check = |weights: &[(&str, u32)], moves: &dyn Fn(usize, usize) -> bool| {
            let moved = before.iter().zip(draws("checkout", weights)).filter(|(was, is)| *was != is);
            let moved: Vec<_> = moved.map(|(was, is)| (*was, is)).collect();
            assert!(!moved.is_empty() && moved.iter().all(|(was, is)| moves(*was, *is)), "{weights:?}");
            moved.len() as f64 / USERS as f64
        };
        // a: 1/3 to 1/2.
        let share = check(&[("a", 20), ("b", 10), ("c", 10)], &|_, is| is == 0);
        assert!((share - 1.0 / 6.0).abs() < 0.01, "{share}");
        check(&[("a", 5), ("b", 10), ("c", 10)], &|was, is| was == 0 && is != 0);
        check(&[("a", 0), ("b", 10), ("c", 10)], &|was, is| was == 0 && is != 0);
        check(&[("a", 10), ("b", 10), ("c", 10), ("d", 10)], &|_, is| is == 3);
    }

    #[test]
    fn assignments_are_stable() {
        // Expected values from an implementation in another language.
        let two = variants("checkout-button", &[("control", 50), ("green", 50)]);
        let drawn: Vec<_> =
            (1..=8).map(|number| two.draw(Subject::User(&user(number))).expect("one")).collect();
        assert_eq!(drawn, [1, 1, 1, 1, 0, 1, 1, 0]);
        let device = DeviceId::parse("user-1").expect("a device");
        assert_eq!(two.draw(Subject::Device(&device)), Some(1));
    }

    #[test]
    fn zero_weights_assign_nobody() {
        assert_eq!(variants("x", &[("a", 0)]).draw(Subject::User(&user(1))), None);
    }
}
