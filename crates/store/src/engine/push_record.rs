//! Records of what was sent to push services. The store does not read the attempts; their format is that of the caller.

use noroshi_types::{AppId, BroadcastId, DeviceNum};

use super::device_list;
use super::session::{Session, values};
use crate::{PushRecord, Work};

/// Rows of one notification that are searched for a device, newest first.
const SEARCHED_MAX: i64 = 20_000;
/// Rows that one statement searches.
const PAGE: i64 = 1_000;
/// Rows of a device that are returned.
const FOUND_MAX: usize = 100;

/// What a row belongs to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Of {
    Work(Work),
    Broadcast(BroadcastId),
    /// A slice of an activity. Failures have rows of their own: accepted pushes displace none of them.
    Slice {
        activity: u64,
        slice: u64,
        failed: bool,
    },
}

impl Of {
    /// The column `work`. Those of work have 16 bytes, the others more, and a first byte of their kind.
    pub(crate) fn key(self) -> Vec<u8> {
        match self {
            Self::Work(Work::Notification(id)) => id.as_bytes().to_vec(),
            Self::Work(Work::Campaign(id)) => id.as_bytes().to_vec(),
            Self::Broadcast(id) => [&b"b"[..], id.as_bytes()].concat(),
            Self::Slice { activity, slice, failed } => {
                [&of_activity(activity)[..], &slice.to_be_bytes(), &[u8::from(failed)]].concat()
            }
        }
    }
}

/// Begins the keys of an activity's slices.
fn of_activity(num: u64) -> [u8; 9] {
    let mut key = [b'a'; 9];
    key[1..].copy_from_slice(&num.to_be_bytes());
    key
}

/// Adds a row, and removes older ones of the same key than the newest `rows_max`.
pub(crate) async fn add<S: Session>(
    session: &S,
    app: AppId,
    of: Of,
    record: &PushRecord,
    rows_max: usize,
) -> Result<(), S::Error> {
    let PushRecord { keep_until, devices, attempts } = record;
    let (key, devices) = (of.key(), device_list::encode(devices));
    let sql =
        "INSERT INTO push_records (app, work, keep_until, devices, attempts) VALUES ($1, $2, $3, $4, $5)";
    session.execute(sql, &values![app, &key, *keep_until, &devices, attempts]).await?;
    let sql = "DELETE FROM push_records WHERE id IN (
                   SELECT id FROM push_records WHERE app = $1 AND work = $2 ORDER BY id DESC LIMIT $3 OFFSET $4)";
    session.execute(sql, &values![app, &key, PAGE, rows_max]).await.map(drop)
}

/// Removes at most `rows_max` rows of an activity.
pub(crate) async fn remove_activity<S: Session>(
    session: &S,
    app: AppId,
    activity: u64,
    rows_max: usize,
) -> Result<u64, S::Error> {
    let sql = "DELETE FROM push_records WHERE id IN (
                   SELECT id FROM push_records WHERE app = $1 AND work > $2 AND work < $3 AND length(work) > 16 LIMIT $4)";
    session.execute(sql, &values![app, &of_activity(activity), &of_activity(activity + 1), rows_max]).await
}

/// The attempts at a broadcast, oldest first.
pub(crate) async fn of_broadcast<S: Session>(
    session: &S,
    app: AppId,
    id: BroadcastId,
) -> Result<Vec<Vec<u8>>, S::Error> {
    of_device(session, app, Of::Broadcast(id), PushRecord::NO_DEVICE).await
}

/// The attempts of the rows that name a device, oldest first.
pub(crate) async fn of_device<S: Session>(
    session: &S,
    app: AppId,
    of: Of,
    device: DeviceNum,
) -> Result<Vec<Vec<u8>>, S::Error> {
    let sql = "SELECT id, devices FROM push_records WHERE app = $1 AND work = $2 AND id < $3
               ORDER BY id DESC LIMIT $4";
    let (work, mut before, mut searched, mut found) = (of.key(), i64::MAX, 0, Vec::new());
    while searched < SEARCHED_MAX && found.len() < FOUND_MAX {
        let rows = session
            .query(sql, &values![app, &work, before, PAGE], |row| {
                Ok((row.int(0)?, device_list::decode(row.bytes(1)?).any(|listed| listed == device)))
            })
            .await?;
        let Some((last, _)) = rows.last() else { break };
        (before, searched) = (*last, searched + rows.len() as i64);
        found.extend(rows.iter().filter(|(_, has)| *has).map(|(id, _)| *id));
        if (rows.len() as i64) < PAGE {
            break;
        }
    }
    found.truncate(FOUND_MAX);
    let mut attempts = Vec::with_capacity(found.len());
    for id in found.into_iter().rev() {
        let sql = "SELECT attempts FROM push_records WHERE id = $1";
        attempts.extend(session.query(sql, &values![id], |row| Ok(row.bytes(0)?.to_vec())).await?);
    }
    Ok(attempts)
}
