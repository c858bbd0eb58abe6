//! Chooses the cell of a new device by weighted rendezvous hashing. Only names count, so two fronts make the same
//! choice without communicating. Pure.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher24;

/// A candidate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a, T> {
    pub(crate) cell: T,
    pub(crate) name: &'a str,
    pub(crate) weight: u32,
}

/// None if no candidate has a weight. Adding or removing a cell affects only the keys that it gains or loses.
pub(crate) fn choose<'a, T: Copy>(
    key: &(impl Hash + ?Sized),
    candidates: impl Iterator<Item = Candidate<'a, T>>,
) -> Option<T> {
    let scored = candidates.filter(|one| one.weight > 0).map(|one| (score(key, &one), one.cell));
    scored.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, cell)| cell)
}

/// -weight / ln(u) with u uniform in (0, 1): each cell wins with the probability of its share of the weights
/// (Schindelhauer and Schomaker, "Weighted distributed hash tables", SPAA 2005).
fn score<T>(key: &(impl Hash + ?Sized), candidate: &Candidate<'_, T>) -> f64 {
    let mut hasher = SipHasher24::new_with_keys(0x6e6f_726f_7368_6963, 0x656c_6c73_2d66_726f);
    (candidate.name, key).hash(&mut hasher);
    // A double holds 53 bits exactly; the half avoids 0 and 1.
    let uniform = ((hasher.finish() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -f64::from(candidate.weight) / uniform.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(cells: &[(&str, u32)], key: &str) -> Option<usize> {
        let candidates = cells.iter().enumerate();
        choose(key, candidates.map(|(cell, (name, weight))| Candidate { cell, name, weight: *weight }))
    }

    fn shares(cells: &[(&str, u32)]) -> Vec<usize> {
        let mut shares = vec![0; cells.len()];
        for n in 0..20_000 {
            shares[chosen(cells, &format!("user-{n}")).expect("one")] += 1;
        }
        shares
    }

    #[test]
    fn shares_follow_the_weights() {
        let found = shares(&[("a", 1), ("b", 2), ("c", 1), ("d", 0)]);
        for (share, expected) in found.iter().zip([5_000_usize, 10_000, 5_000, 0]) {
            // Four standard deviations of the largest share are 283.
            assert!(share.abs_diff(expected) < 300, "{found:?}");
        }
    }

    #[test]
    fn removing_a_cell_moves_only_its_keys() {
        let (all, fewer) = ([("a", 1), ("b", 1), ("c", 1)], [("a", 1), ("b", 1), ("c", 0)]);
        for n in 0..2_000 {
            let key = format!("user-{n}");
            let before = chosen(&all, &key);
            assert!(before == Some(2) || chosen(&fewer, &key) == before, "{key}");
        }
    }

    #[test]
    fn a_cell_without_weight_is_never_chosen() {
        assert_eq!(chosen(&[("a", 0)], "u"), None);
        assert_eq!(chosen(&[], "u"), None);
    }
}
