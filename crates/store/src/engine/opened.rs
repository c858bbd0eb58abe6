//! Reads of notifications that users opened: one row for a notification and a device, kept as long as the notification.
//! Counts and traces read the rows as [`Outcome::Opened`]; a part of `outcomes` for each would make the trace of a
//! campaign as long as its audience.

use noroshi_types::{DeviceNum, Outcome};

use super::session::{self, Session, values};
use crate::TraceStep;
use crate::ids::Num;

/// The number of devices on which the notification was opened.
pub(crate) async fn count<S: Session>(session: &S, num: Num) -> Result<u64, S::Error> {
    session::one(session, "SELECT count(*) FROM openings WHERE num = $1", &values![num], |row| row.count(0))
        .await
}

/// When the notification was opened on a device.
pub(crate) async fn step<S: Session>(
    session: &S,
    num: Num,
    device: DeviceNum,
) -> Result<Option<TraceStep>, S::Error> {
    let sql = "SELECT at FROM openings WHERE num = $1 AND device = $2";
    session::first(session, sql, &values![num, device.0], |row| {
        Ok(TraceStep { at: row.time(0)?, outcome: Outcome::Opened, reason: None })
    })
    .await
}
