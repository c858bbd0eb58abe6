//! Records of what was sent to push services. The store does not read the attempts; their format is that of the caller.

use noroshi_types::{AppId, DeviceNum};

use super::device_list;
use super::session::{Session, values};
use crate::Work;

/// Rows of one notification that are searched for a device, newest first.
const SEARCHED_MAX: i64 = 20_000;
/// Rows that one statement searches.
const PAGE: i64 = 1_000;
/// Rows of a device that are returned.
const FOUND_MAX: usize = 100;

pub(crate) fn work_bytes(work: Work) -> [u8; 16] {
    match work {
        Work::Notification(id) => *id.as_bytes(),
        Work::Campaign(id) => *id.as_bytes(),
    }
}

/// The attempts of the rows that name a device, oldest first.
pub(crate) async fn of_device<S: Session>(
    session: &S,
    app: AppId,
    work: Work,
    device: DeviceNum,
) -> Result<Vec<Vec<u8>>, S::Error> {
    let sql = "SELECT id, devices FROM push_records WHERE app = $1 AND work = $2 AND id < $3
               ORDER BY id DESC LIMIT $4";
    let (work, mut before, mut searched, mut found) = (work_bytes(work), i64::MAX, 0, Vec::new());
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
