//! Who of a group is next. Pure.

use std::collections::{HashMap, HashSet};

use noroshi_protocol::mqtt::{filter_matches, share_filter};
use noroshi_store::{MemberState, Place, ShareGroup, ShareMember};
use noroshi_types::{DeviceNum, NotificationId};

/// Copies that a member may leave unconfirmed before it is passed over: two windows of an MQTT connection.
pub(super) const UNCONFIRMED_MAX: usize = 128;

/// What each member has not confirmed, as far as this leader sent it.
#[derive(Default)]
pub(super) struct Rooms(HashMap<DeviceNum, Vec<NotificationId>>);

impl Rooms {
    pub(super) fn has(&self, device: DeviceNum) -> bool {
        self.0.get(&device).is_none_or(|ids| ids.len() < UNCONFIRMED_MAX)
    }

    pub(super) fn add(&mut self, device: DeviceNum, id: NotificationId) {
        self.0.entry(device).or_default().push(id);
    }

    /// A message has got its id as a copy, or was not sent.
    pub(super) fn replace(
        &mut self,
        device: DeviceNum,
        message: NotificationId,
        copy: Option<NotificationId>,
    ) {
        let Some(ids) = self.0.get_mut(&device) else { return };
        let Some(at) = ids.iter().rposition(|id| *id == message) else { return };
        match copy {
            Some(copy) => ids[at] = copy,
            None => drop(ids.swap_remove(at)),
        }
    }

    /// Half full or more: worth a look at what was confirmed since.
    pub(super) fn worth_a_look(&self, device: DeviceNum) -> Option<&[NotificationId]> {
        self.0.get(&device).filter(|ids| ids.len() >= UNCONFIRMED_MAX / 2).map(Vec::as_slice)
    }

    pub(super) fn set(&mut self, device: DeviceNum, ids: Vec<NotificationId>) {
        self.0.insert(device, ids);
    }

    pub(super) fn retain(&mut self, devices: &HashSet<DeviceNum>) {
        self.0.retain(|device, _| devices.contains(device));
    }
}

pub(super) struct Group {
    pub(super) of: ShareGroup,
    /// As it is subscribed to.
    pub(super) share: Box<str>,
    /// Everything up to here was assigned. The store may know less.
    pub(super) since: Place,
    /// The member whose turn was last.
    last: DeviceNum,
}

impl Group {
    /// `before`: the same group as it was read last.
    pub(super) fn new(of: ShareGroup, before: Option<&Group>) -> Self {
        let share = share_filter(&of.share.name, &of.share.filter).into();
        let since = before.map_or(of.since, |before| before.since.max(of.since));
        let last = before.map_or(DeviceNum(0), |before| before.last);
        Self { of, share, since, last }
    }

    pub(super) fn matches(&self, topic: &str) -> bool {
        filter_matches(&self.of.share.filter, topic)
    }

    /// Whether anybody may be assigned something.
    pub(super) fn has_members(&self, connected: &HashSet<DeviceNum>) -> bool {
        self.takers(connected).next().is_some()
    }

    /// Whether it is still subscribed to.
    pub(super) fn is_alive(&self) -> bool {
        self.of.members.iter().any(|member| member.state != MemberState::Left)
    }

    fn takers<'g>(&'g self, connected: &'g HashSet<DeviceNum>) -> impl Iterator<Item = &'g ShareMember> {
        let members = self.of.members.iter().filter(|member| member.state == MemberState::Here);
        members.filter(|member| member.device.is_some() && connected.contains(&member.num))
    }

    /// The connected member with room whose turn it is; they take turns in the order of their numbers.
    pub(super) fn next(
        &mut self,
        connected: &HashSet<DeviceNum>,
        rooms: Option<&Rooms>,
    ) -> Option<&ShareMember> {
        let has_room = |member: &&ShareMember| rooms.is_none_or(|rooms| rooms.has(member.num));
        let last = self.last;
        let behind = self.takers(connected).filter(has_room).find(|member| member.num > last);
        let next = behind.or_else(|| self.takers(connected).find(has_room))?.num;
        self.last = next;
        self.of.members.iter().find(|member| member.num == next)
    }
}

#[cfg(test)]
mod tests {
    use noroshi_store::{Share, ShareNum};
    use noroshi_types::{AppId, DeviceId};

    use super::*;

    fn group(members: &[(u64, MemberState)]) -> Group {
        let member = |(num, state): &(u64, MemberState)| ShareMember {
            num: DeviceNum(*num),
            device: DeviceId::parse(&format!("d{num}")).ok(),
            qos: 1,
            generation: 1,
            lasts: true,
            state: *state,
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

    fn turns(group: &mut Group, connected: &[u64], rooms: &Rooms, count: usize) -> Vec<Option<u64>> {
        let connected: HashSet<DeviceNum> = connected.iter().copied().map(DeviceNum).collect();
        (0..count).map(|_| group.next(&connected, Some(rooms)).map(|member| member.num.0)).collect()
    }

    #[test]
    fn connected_members_take_turns() {
        use MemberState::{Away, Here, Left};
        let mut group = group(&[(1, Here), (2, Away), (3, Here), (4, Left), (5, Here)]);
        let rooms = Rooms::default();
        let all = [1, 2, 3, 4, 5];
        assert_eq!(turns(&mut group, &all, &rooms, 4), [Some(1), Some(3), Some(5), Some(1)]);
        assert_eq!(turns(&mut group, &[5], &rooms, 2), [Some(5), Some(5)]);
        assert_eq!(turns(&mut group, &[1, 3], &rooms, 2), [Some(1), Some(3)]);
        assert_eq!(turns(&mut group, &[2, 4], &rooms, 1), [None]);
    }

    #[test]
    fn who_confirms_nothing_is_passed_over() {
        let mut group = group(&[(1, MemberState::Here), (3, MemberState::Here)]);
        let mut rooms = Rooms::default();
        for at in 0..UNCONFIRMED_MAX {
            rooms.add(DeviceNum(3), NotificationId::from_bytes([at as u8; 16]));
        }
        assert_eq!(turns(&mut group, &[1, 3], &rooms, 2), [Some(1), Some(1)]);
        assert_eq!(turns(&mut group, &[3], &rooms, 1), [None]);
        assert_eq!(rooms.worth_a_look(DeviceNum(3)).map(<[_]>::len), Some(UNCONFIRMED_MAX));
        assert_eq!(rooms.worth_a_look(DeviceNum(1)), None);
        rooms.set(DeviceNum(3), Vec::new());
        assert_eq!(turns(&mut group, &[1, 3], &rooms, 2), [Some(3), Some(1)]);
    }

    #[test]
    fn a_group_that_is_read_again_goes_on() {
        let mut first = group(&[(1, MemberState::Here), (3, MemberState::Here)]);
        first.since = Place(9);
        assert_eq!(turns(&mut first, &[1, 3], &Rooms::default(), 1), [Some(1)]);
        let mut again = Group::new(first.of.clone(), Some(&first));
        assert_eq!((again.since, &*again.share), (Place(9), "$share/g/a/+"));
        assert_eq!(turns(&mut again, &[1, 3], &Rooms::default(), 1), [Some(3)]);
        assert!(again.matches("a/b") && !again.matches("a"));
    }
}
