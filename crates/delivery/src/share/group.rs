//! Which member of a group is next, and the outcome of copies that a member has not acknowledged.
//!
//! Pure: `members` provides connections and unacknowledged copies.

use std::collections::{HashMap, HashSet};

use noroshi_protocol::mqtt::{ShareCopy, filter_matches, share_filter};
use noroshi_store::{MemberState, Place, ShareGroup, ShareMember};
use noroshi_types::{DeviceNum, NotificationId};

/// Members with an open connection, and its generation.
pub(super) type Connections = HashSet<(DeviceNum, u64)>;

/// The copies that each member has not acknowledged.
#[derive(Default)]
pub(super) struct UnacknowledgedCopies {
    copies: HashMap<DeviceNum, Vec<NotificationId>>,
    /// How many copies a member may have before it is skipped.
    most: usize,
}

impl UnacknowledgedCopies {
    pub(super) fn new(most: usize) -> Self {
        Self { copies: HashMap::new(), most }
    }

    /// Whether the member has room. `None`: its copies were not read yet.
    pub(super) fn has(&self, device: DeviceNum) -> Option<bool> {
        Some(self.copies.get(&device)?.len() < self.most)
    }

    pub(super) fn of(&self, device: DeviceNum) -> &[NotificationId] {
        self.copies.get(&device).map_or(&[], Vec::as_slice)
    }

    pub(super) fn set(&mut self, device: DeviceNum, ids: Vec<NotificationId>) {
        self.copies.insert(device, ids);
    }

    /// Adds a copy, if those of the member were read.
    pub(super) fn add(&mut self, device: DeviceNum, id: NotificationId) {
        if let Some(ids) = self.copies.get_mut(&device) {
            ids.push(id);
        }
    }

    /// A message became this copy, or was not sent.
    pub(super) fn replace(
        &mut self,
        device: DeviceNum,
        message: NotificationId,
        copy: Option<NotificationId>,
    ) {
        let Some(ids) = self.copies.get_mut(&device) else { return };
        let Some(at) = ids.iter().rposition(|id| *id == message) else { return };
        match copy {
            Some(copy) => ids[at] = copy,
            None => drop(ids.swap_remove(at)),
        }
    }

    pub(super) fn retain(&mut self, devices: &HashSet<DeviceNum>) {
        self.copies.retain(|device, _| devices.contains(device));
    }
}

/// How far a group's turn got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    /// The log has more.
    More,
    /// The connected members have too much unacknowledged.
    Blocked,
}

pub(super) struct Group {
    pub(super) of: ShareGroup,
    /// The filter as members subscribe to it.
    pub(super) share: Box<str>,
    /// Everything up to here was assigned. The store may have an earlier place.
    pub(super) since: Place,
    pub(super) progress: Progress,
    /// The member that got the last message.
    pub(super) last: DeviceNum,
    /// The member whose copies were counted last.
    counted: DeviceNum,
}

impl Group {
    /// `before`: the group when it was last read.
    pub(super) fn new(of: ShareGroup, before: Option<&Group>) -> Self {
        let share = share_filter(&of.share.name, &of.share.filter).into();
        let since = before.map_or(of.since, |before| before.since.max(of.since));
        let (last, counted) =
            before.map_or((DeviceNum(0), DeviceNum(0)), |before| (before.last, before.counted));
        let progress = before.map_or(Progress::Done, |before| before.progress);
        Self { of, share, since, progress, last, counted }
    }

    pub(super) fn matches(&self, topic: &str) -> bool {
        filter_matches(&self.of.share.filter, topic)
    }

    /// Whether the group still has members.
    pub(super) fn is_alive(&self) -> bool {
        self.of.members.iter().any(|member| member.state < MemberState::Left && member.device.is_some())
    }

    pub(super) fn has_candidates(&self, connected: &Connections) -> bool {
        self.candidates(connected).next().is_some()
    }

    fn candidates<'g>(&'g self, connected: &'g Connections) -> impl Iterator<Item = &'g ShareMember> {
        let members = self.of.members.iter().filter(|member| member.state == MemberState::Here);
        let has_connection = |member: &&ShareMember| connected.contains(&(member.num, member.generation));
        members.filter(|member| member.device.is_some()).filter(has_connection)
    }

    /// The next connected member that `may` be chosen, in the order of their numbers.
    pub(super) fn next<'g>(
        &'g self,
        connected: &'g Connections,
        may: impl Fn(DeviceNum) -> bool,
    ) -> Option<&'g ShareMember> {
        let may = |member: &&ShareMember| may(member.num);
        let behind = self.candidates(connected).filter(may).find(|member| member.num > self.last);
        behind.or_else(|| self.candidates(connected).find(may))
    }

    /// Up to `most` connected members whose copies should be counted. The next call returns those after them.
    pub(super) fn next_to_count(&mut self, connected: &Connections, most: usize) -> Vec<DeviceNum> {
        let all: Vec<DeviceNum> = self.candidates(connected).map(|member| member.num).collect();
        let from = all.partition_point(|num| *num <= self.counted);
        let chosen: Vec<DeviceNum> = all[from..].iter().chain(&all[..from]).take(most).copied().collect();
        self.counted = chosen.last().copied().unwrap_or(self.counted);
        chosen
    }
}

/// The outcome of a copy that a member had not acknowledged when it disconnected or left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The member gets it when it reconnects.
    Stays,
    /// The member has started to receive it, and its session completes that ([MQTT-3.10.4-3], [MQTT-4.8.2-4]).
    Waits,
    /// Another member gets it.
    Moves,
    /// No other member may get it ([MQTT-4.8.2-5]).
    Ends,
}

/// `is_connected`: the connection that subscribed is open.
pub(super) fn fate(member: &ShareMember, id: NotificationId, copy: &ShareCopy, is_connected: bool) -> Fate {
    let has_begun = member.held.contains(&id);
    let is_exactly_once = has_begun && member.qos.min(copy.qos as u8) == 2;
    match member.state {
        MemberState::Here => Fate::Stays,
        MemberState::Away if is_exactly_once => Fate::Stays,
        MemberState::Left if is_exactly_once || has_begun && is_connected => Fate::Waits,
        MemberState::Ended if is_exactly_once => Fate::Ends,
        _ => Fate::Moves,
    }
}

#[cfg(test)]
mod tests {
    use noroshi_protocol::mqtt::Qos;
    use noroshi_store::{Share, ShareNum};
    use noroshi_types::{AppId, DeviceId};

    use super::*;

    fn group(members: &[(u64, MemberState)]) -> Group {
        let member = |(num, state): &(u64, MemberState)| ShareMember {
            num: DeviceNum(*num),
            device: DeviceId::parse(&format!("d{num}")).ok(),
            qos: 1,
            generation: 1,
            expiry_s: 60,
            state: *state,
            ends_at: None,
            held: Vec::new(),
        };
        let of = ShareGroup {
            num: ShareNum(1),
            app: AppId(1),
            share: Share { name: "g".into(), filter: "a/+".into() },
            since: Place(5),
            members: members.iter().map(member).collect(),
        };
        Group::new(of, None)
    }

    fn connected(members: &[u64]) -> Connections {
        members.iter().map(|num| (DeviceNum(*num), 1)).collect()
    }

    fn turns(
        group: &mut Group,
        members: &[u64],
        rooms: &UnacknowledgedCopies,
        count: usize,
    ) -> Vec<Option<u64>> {
        let connected = connected(members);
        let mut turn = || {
            let num = group.next(&connected, |num| rooms.has(num) != Some(false))?.num;
            group.last = num;
            Some(num.0)
        };
        (0..count).map(|_| turn()).collect()
    }

    #[test]
    fn connected_members_take_turns() {
        use MemberState::{Away, Here, Left};
        let mut group = group(&[(1, Here), (2, Away), (3, Here), (4, Left), (5, Here)]);
        let rooms = UnacknowledgedCopies::new(9);
        let all = [1, 2, 3, 4, 5];
        assert_eq!(turns(&mut group, &all, &rooms, 4), [Some(1), Some(3), Some(5), Some(1)]);
        assert_eq!(turns(&mut group, &[5], &rooms, 2), [Some(5), Some(5)]);
        assert_eq!(turns(&mut group, &[1, 3], &rooms, 2), [Some(1), Some(3)]);
        assert_eq!(turns(&mut group, &[2, 4], &rooms, 1), [None]);
        let later: Connections = [(DeviceNum(3), 2)].into();
        assert!(!group.has_candidates(&later), "a later connection of the device did not subscribe");
    }

    #[test]
    fn a_member_without_room_is_skipped() {
        let mut group = group(&[(1, MemberState::Here), (3, MemberState::Here)]);
        let mut rooms = UnacknowledgedCopies::new(2);
        let (a, b) = (NotificationId::from_bytes([1; 16]), NotificationId::from_bytes([2; 16]));
        assert_eq!(rooms.has(DeviceNum(3)), None);
        rooms.add(DeviceNum(3), a);
        assert_eq!(rooms.has(DeviceNum(3)), None, "its earlier copies are not known");
        rooms.set(DeviceNum(3), vec![a]);
        assert_eq!(rooms.has(DeviceNum(3)), Some(true));
        rooms.add(DeviceNum(3), b);
        assert_eq!(turns(&mut group, &[1, 3], &rooms, 2), [Some(1), Some(1)]);
        assert_eq!(turns(&mut group, &[3], &rooms, 1), [None]);
        rooms.replace(DeviceNum(3), b, None);
        assert_eq!(turns(&mut group, &[1, 3], &rooms, 2), [Some(3), Some(1)]);
    }

    #[test]
    fn members_are_counted_in_turn() {
        let mut group = group(&[1, 2, 3, 4, 5].map(|num| (num, MemberState::Here)));
        let connected = connected(&[1, 2, 4, 5]);
        let mut count =
            |most| group.next_to_count(&connected, most).iter().map(|num| num.0).collect::<Vec<_>>();
        assert_eq!(count(3), [1, 2, 4]);
        assert_eq!(count(3), [5, 1, 2]);
        assert_eq!(count(9), [4, 5, 1, 2]);
        assert_eq!(count(0), [0; 0]);
    }

    #[test]
    fn unacknowledged_copies_move_unless_the_member_may_have_received_them() {
        use MemberState::{Away, Ended, Left};
        let (begun, other) = (NotificationId::from_bytes([1; 16]), NotificationId::from_bytes([2; 16]));
        let check = |state, qos, fates: [Fate; 3]| {
            let mut member = group(&[(1, state)]).of.members.remove(0);
            (member.qos, member.held) = (2, vec![begun]);
            let copy = ShareCopy { share: "$share/g/a".into(), of: other, turn: 0, qos };
            let found = [(begun, true), (begun, false), (other, true)];
            assert_eq!(found.map(|(id, is_connected)| fate(&member, id, &copy, is_connected)), fates);
        };
        check(Away, Qos::AtLeastOnce, [Fate::Moves; 3]);
        check(Away, Qos::ExactlyOnce, [Fate::Stays, Fate::Stays, Fate::Moves]);
        check(Left, Qos::AtLeastOnce, [Fate::Waits, Fate::Moves, Fate::Moves]);
        check(Left, Qos::ExactlyOnce, [Fate::Waits, Fate::Waits, Fate::Moves]);
        check(Ended, Qos::AtLeastOnce, [Fate::Moves; 3]);
        check(Ended, Qos::ExactlyOnce, [Fate::Ends, Fate::Ends, Fate::Moves]);
    }

    #[test]
    fn a_group_continues_after_it_is_read_again() {
        let mut first = group(&[(1, MemberState::Here), (3, MemberState::Here)]);
        first.since = Place(9);
        assert_eq!(turns(&mut first, &[1, 3], &UnacknowledgedCopies::new(9), 1), [Some(1)]);
        let mut again = Group::new(first.of.clone(), Some(&first));
        assert_eq!((again.since, &*again.share), (Place(9), "$share/g/a/+"));
        assert_eq!(turns(&mut again, &[1, 3], &UnacknowledgedCopies::new(9), 1), [Some(3)]);
        assert!(again.matches("a/b") && !again.matches("a"));
    }
}
