//! Shared subscriptions: limits, codecs, and groups with their members.

use std::collections::BTreeMap;

use noroshi_types::{DeviceId, NotificationId, limits};

use super::record::Record;
use super::session::Session;
use crate::{Error, Leave, MemberState, Place, Share, ShareGroup, ShareMember, ShareNum};

const GROUPS: &str = "SELECT g.num, g.app, g.name, g.filter, g.since,
            m.device, d.id, m.qos, m.generation, m.lasts, m.state, m.ends_at, m.held
     FROM share_groups AS g LEFT JOIN share_members AS m ON m.share = g.num LEFT JOIN devices AS d ON d.num = m.device
     ORDER BY g.num, m.device";

/// All groups, by number.
pub(crate) async fn groups<S: Session>(session: &S) -> Result<Vec<ShareGroup>, S::Error> {
    let mut groups: Vec<ShareGroup> = Vec::new();
    for (group, member) in session.query(GROUPS, &[], group_of).await? {
        match groups.last_mut().filter(|last| last.num == group.num) {
            Some(last) => last.members.extend(member),
            None => groups.push(ShareGroup { members: member.into_iter().collect(), ..group }),
        }
    }
    Ok(groups)
}

/// A group, still without members, and one of its members, if it has any.
fn group_of(row: &dyn Record) -> Result<(ShareGroup, Option<ShareMember>), Error> {
    let group = ShareGroup {
        num: ShareNum(row.int(0)?),
        app: row.app(1)?,
        share: Share { name: row.text(2)?.into(), filter: row.text(3)?.into() },
        since: Place(row.int(4)?),
        members: Vec::new(),
    };
    if row.int_or_null(5)?.is_none() {
        return Ok((group, None));
    }
    let (unacknowledged, _) = row.bytes_or_null(12)?.unwrap_or_default().as_chunks::<16>();
    let member = ShareMember {
        num: row.device(5)?,
        device: row.text_or_null(6)?.and_then(|id| DeviceId::parse(id).ok()),
        qos: row.code(7)?,
        generation: row.count(8)?,
        expiry_s: u32::try_from(row.int(9)?).unwrap_or(u32::MAX),
        state: match row.code(10)? {
            0 => MemberState::Here,
            1 => MemberState::Away,
            2 => MemberState::Left,
            _ => MemberState::Ended,
        },
        ends_at: row.time_or_null(11)?,
        held: unacknowledged.iter().copied().map(NotificationId::from_bytes).collect(),
    };
    Ok((group, Some(member)))
}

/// Each share once, sorted by name and filter; of duplicates the last QoS counts.
pub(crate) fn distinct(shares: Vec<(Share, u8)>) -> Vec<(Share, u8)> {
    let shares: BTreeMap<(Box<str>, Box<str>), u8> =
        shares.into_iter().map(|(Share { name, filter }, qos)| ((name, filter), qos)).collect();
    shares.into_iter().map(|((name, filter), qos)| (Share { name, filter }, qos)).collect()
}

/// Memberships of the device $2 and of the app $1, and groups of the app.
pub(crate) const COUNTS: &str = "SELECT (SELECT count(*) FROM share_members WHERE device = $2 AND state < 2),
         (SELECT count(*) FROM share_groups AS g JOIN share_members AS m ON m.share = g.num WHERE g.app = $1),
         (SELECT count(*) FROM share_groups WHERE app = $1)";

/// Fails if the counts of [`COUNTS`] exceed a limit.
pub(crate) fn check_limits(row: &(impl Record + ?Sized)) -> Result<(), Error> {
    for (column, max, what) in [
        (0, limits::SHARES_PER_DEVICE_MAX, "a device may have {max} shared subscriptions"),
        (2, limits::SHARES_PER_APP_MAX, "an app may have {max} groups of shared subscriptions"),
        (1, limits::SHARE_MEMBERS_PER_APP_MAX, "an app may have {max} shared subscriptions"),
    ] {
        if row.count(column)? > max as u64 {
            return Err(Error::Limit(what.replace("{max}", &max.to_string())));
        }
    }
    Ok(())
}

/// The codes that a change of memberships writes: the state, and when the session ends.
pub(crate) fn codes(what: &Leave) -> (i64, Option<i64>) {
    match what {
        Leave::Connection { ends_at } => {
            (MemberState::Away as i64, Some(i64::try_from(ends_at.0).unwrap_or(i64::MAX)))
        }
        Leave::Session => (MemberState::Ended as i64, None),
        Leave::Shares(_) => (MemberState::Left as i64, None),
    }
}

/// [`ShareMember::held`] as it is stored; `None` leaves the stored list unchanged.
pub(crate) fn held_bytes(ids: &[NotificationId]) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.as_bytes().to_owned()).collect();
    (!bytes.is_empty()).then_some(bytes)
}
