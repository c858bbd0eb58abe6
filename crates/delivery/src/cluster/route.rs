//! Which node gets which part of a message, by what the directory returned. Pure.
//!
//! A target that only one node holds is *sole* to it: if that node has no session for it, it counts it as offline. A
//! target that several nodes hold goes to each of them, and none counts it as offline, since none knows whether another
//! found it. A target without a holder is looked up on this node, which costs nothing: the directory may have forgotten
//! it.

use std::sync::Arc;

use noroshi_cluster::{Epoch, Keys, SessionKey};
use noroshi_types::{AppId, Message, Request, Target};
use smallvec::SmallVec;

use crate::cluster::wire::{self, Part};

/// The nodes that hold one target, by the directory.
pub(crate) type Holders = SmallVec<[Epoch; 2]>;

/// Indexes into a request's list of targets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedTargets {
    pub(crate) sole: Vec<usize>,
    pub(crate) shared: Vec<usize>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) own: NamedTargets,
    pub(crate) nobody: Vec<usize>,
    /// In no order; at most one entry for each node.
    pub(crate) others: Vec<(Epoch, NamedTargets)>,
}

/// The part of a message for this node.
#[derive(Debug)]
pub(crate) struct OwnPart {
    pub(crate) message: Arc<Message>,
    pub(crate) target: OwnTarget,
    /// NamedTargets targets before this index are offline if they have no session here.
    pub(crate) sole: usize,
    /// NamedTargets targets from this index on are at this node by the directory, as well as those before `known`.
    pub(crate) shared_from: usize,
    pub(crate) known: usize,
}

#[derive(Debug)]
pub(crate) enum OwnTarget {
    Whole(Arc<Request>),
    Part(Target),
}

impl OwnTarget {
    pub(crate) fn target(&self) -> &Target {
        match self {
            OwnTarget::Whole(request) => &request.target,
            OwnTarget::Part(target) => target,
        }
    }
}

impl OwnPart {
    /// The whole message, without a look at the directory.
    pub(crate) fn whole(message: Arc<Message>, request: Arc<Request>) -> Self {
        let target = OwnTarget::Whole(request);
        Self { message, target, sole: usize::MAX, shared_from: usize::MAX, known: 0 }
    }

    /// `None` if no target is for this node.
    pub(crate) fn of(message: &Arc<Message>, request: &Arc<Request>, split: &Split) -> Option<Self> {
        let (own, nobody) = (&split.own, &split.nobody);
        let count = own.sole.len() + nobody.len() + own.shared.len();
        if count == 0 {
            return None;
        }
        let places = || [&own.sole, nobody, &own.shared].into_iter().flatten();
        let whole = split.others.is_empty() && places().copied().eq(0..count);
        let target = match (whole, &request.target) {
            (true, _) => OwnTarget::Whole(request.clone()),
            (false, Target::Users(users)) => {
                OwnTarget::Part(Target::Users(places().map(|at| users[*at].clone()).collect()))
            }
            (false, Target::Devices(devices)) => {
                OwnTarget::Part(Target::Devices(places().map(|at| devices[*at].clone()).collect()))
            }
            (false, _) => OwnTarget::Whole(request.clone()),
        };
        let sole = own.sole.len() + nobody.len();
        Some(Self { message: message.clone(), target, sole, shared_from: sole, known: own.sole.len() })
    }

    /// Whether a target without a session here is offline.
    pub(crate) fn is_offline(&self, index: usize) -> bool {
        index < self.sole
    }

    /// Whether the directory named this node for the target.
    pub(crate) fn was_here(&self, index: usize) -> bool {
        index < self.known || index >= self.shared_from
    }
}

/// Sorts the targets of one request by the nodes that hold them.
pub(crate) fn split(located: &[Holders], own: Option<Epoch>) -> Split {
    let mut split = Split::default();
    for (at, holders) in located.iter().enumerate() {
        match &holders[..] {
            [] => split.nobody.push(at),
            [one] => split.of(*one, own).sole.push(at),
            several => several.iter().for_each(|one| split.of(*one, own).shared.push(at)),
        }
    }
    split
}

impl Split {
    fn of(&mut self, epoch: Epoch, own: Option<Epoch>) -> &mut NamedTargets {
        if Some(epoch) == own {
            return &mut self.own;
        }
        let at = self.others.iter().position(|(other, _)| *other == epoch).unwrap_or_else(|| {
            self.others.push((epoch, NamedTargets::default()));
            self.others.len() - 1
        });
        &mut self.others[at].1
    }
}

/// The directory keys of named targets; none for other kinds of targets.
pub(crate) fn keys(keys: &Keys, app: AppId, target: &Target, into: &mut Vec<SessionKey>) {
    match target {
        Target::Users(users) => into.extend(users.iter().map(|user| keys.user(app, user))),
        Target::Devices(devices) => into.extend(devices.iter().map(|device| keys.device(app, device))),
        Target::Topic(_) | Target::Condition(_) | Target::Everyone => {}
    }
}

/// Encodes the record for a node that holds some of the named targets.
pub(crate) fn encode_named(message: &Message, target: &Target, named: &NamedTargets, out: &mut Vec<u8>) {
    let places: Vec<usize> = named.sole.iter().chain(&named.shared).copied().collect();
    let sole = named.sole.len();
    match target {
        Target::Users(users) => {
            wire::encode_named(message, true, places.iter().map(|at| users[*at].as_str()), sole, out);
        }
        Target::Devices(devices) => {
            wire::encode_named(message, false, places.iter().map(|at| devices[*at].as_str()), sole, out);
        }
        Target::Topic(_) | Target::Condition(_) | Target::Everyone => {}
    }
}

/// The part that every gateway gets; `None` for named targets.
pub(crate) fn fanned(target: &Target) -> Option<Part> {
    match target {
        Target::Topic(topic) => Some(Part::Topic(topic.clone())),
        Target::Condition(condition) => Some(Part::Condition(condition.clone())),
        Target::Everyone => Some(Part::Everyone),
        Target::Users(_) | Target::Devices(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    #[test]
    fn targets_are_sorted_by_their_holders() {
        let (own, a, b) = (Epoch(1), Epoch(2), Epoch(3));
        let located: Vec<Holders> =
            vec![smallvec![own], smallvec![], smallvec![a], smallvec![a, own], smallvec![b, a]];
        let split = split(&located, Some(own));
        assert_eq!(split.own, NamedTargets { sole: vec![0], shared: vec![3] });
        assert_eq!(split.nobody, [1]);
        let of_a = NamedTargets { sole: vec![2], shared: vec![3, 4] };
        let of_b = NamedTargets { sole: vec![], shared: vec![4] };
        assert_eq!(split.others, [(a, of_a), (b, of_b)]);
    }
}
