//! A profile as a tree of calls, the input of a flame graph in a browser: names once, frames with the place of their caller.
//! Frames that no screen can show are left out, which bounds the tree.

/// A frame with less than this share of the profile is left out: a thousandth of a pixel on a large screen.
#[cfg(feature = "cpu")]
const SHARE_MIN: i64 = 10_000;

/// Callers come before their calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallTree {
    pub names: Vec<String>,
    pub frames: Vec<Frame>,
    /// Value of the whole profile.
    pub sum: i64,
    pub unit: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Index of the caller in `frames`. None: a thread.
    pub caller: Option<usize>,
    /// Index in `names`.
    pub name: usize,
    /// With all calls.
    pub total: i64,
    /// Without calls.
    pub own: i64,
}

#[cfg(feature = "cpu")]
mod build {
    use std::collections::{BTreeMap, HashMap};

    use super::{CallTree, Frame, SHARE_MIN};
    use crate::folded::Folded;

    #[derive(Default)]
    struct Call<'a> {
        total: i64,
        own: i64,
        calls: BTreeMap<&'a str, usize>,
    }

    impl CallTree {
        pub(crate) fn of(folded: &Folded) -> Self {
            let mut calls = vec![Call::default()];
            for line in &folded.lines {
                // `fold` ends each line with its value.
                let Some((stack, value)) = line.rsplit_once(' ') else { continue };
                let value: i64 = value.parse().unwrap_or(0);
                let mut at = 0;
                for name in stack.split(';') {
                    let next = calls.len();
                    let found = *calls[at].calls.entry(name).or_insert(next);
                    if found == next {
                        calls.push(Call::default());
                    }
                    at = found;
                    calls[at].total = calls[at].total.saturating_add(value);
                }
                calls[at].own = calls[at].own.saturating_add(value);
            }
            let mut tree =
                Self { sum: folded.sum, unit: folded.unit.clone(), names: Vec::new(), frames: Vec::new() };
            let mut names = HashMap::new();
            // Iterative: stacks of inlined calls may be deep.
            let mut pending: Vec<(Option<usize>, &str, usize)> = Vec::new();
            pending.extend(calls[0].calls.iter().rev().map(|(name, at)| (None, *name, *at)));
            while let Some((caller, name, at)) = pending.pop() {
                let Call { total, own, calls: inner } = &calls[at];
                if total.saturating_mul(SHARE_MIN) < folded.sum {
                    continue;
                }
                let name = *names.entry(name).or_insert_with(|| {
                    tree.names.push(name.to_owned());
                    tree.names.len() - 1
                });
                let here = tree.frames.len();
                tree.frames.push(Frame { caller, name, total: *total, own: *own });
                pending.extend(inner.iter().rev().map(|(name, at)| (Some(here), *name, *at)));
            }
            tree
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn tree(lines: &[&str]) -> CallTree {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            let values = lines.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<i64>().ok());
            let sum = values.sum();
            CallTree::of(&Folded { what: "cpu".into(), unit: "nanoseconds".into(), lines, sum })
        }

        #[test]
        fn calls_of_one_caller_are_one_frame_and_names_appear_once() {
            let tree = tree(&["main;a 3", "main;a;b 4", "main;b 5", "shard 8"]);
            let frame = |caller, name, total, own| Frame { caller, name, total, own };
            assert_eq!(tree.names, ["main", "a", "b", "shard"]);
            let expected = [
                frame(None, 0, 12, 0),
                frame(Some(0), 1, 7, 3),
                frame(Some(1), 2, 4, 4),
                frame(Some(0), 2, 5, 5),
                frame(None, 3, 8, 8),
            ];
            assert_eq!((tree.frames.as_slice(), tree.sum), (expected.as_slice(), 20));
        }

        #[test]
        fn frames_too_small_to_see_are_left_out_and_their_time_stays_with_the_caller() {
            let tree = tree(&["main 999999", "main;rare;deep 1"]);
            assert_eq!(tree.names, ["main"]);
            assert_eq!(tree.frames, [Frame { caller: None, name: 0, total: 1_000_000, own: 999_999 }]);
        }

        #[test]
        fn an_idle_node_has_no_frames() {
            assert_eq!(tree(&[]).frames, []);
        }

        #[test]
        fn a_stack_may_be_deep() {
            let deep = format!("{}leaf 1", "f;".repeat(100_000));
            assert_eq!(tree(&[&deep]).frames.len(), 100_001);
        }
    }
}
