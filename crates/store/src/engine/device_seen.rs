//! The last day on which each device was seen, in narrow rows beside the devices. A device has at most one write a day.

use std::collections::BTreeSet;

use noroshi_types::{DeviceNum, UtcDay};
use serde_json::Value;

use super::record::Record;
use super::session::{Session, values};
use crate::Error;

/// The column of a device `d`.
pub(crate) const DAY: &str = "(SELECT s.day FROM device_seen s WHERE s.app = d.app AND s.device = d.num)";

pub(crate) fn day_of_row(row: &(impl Record + ?Sized), column: usize) -> Result<Option<UtcDay>, Error> {
    let day = row.int_or_null(column)?;
    Ok(day.map(|day| UtcDay(u32::try_from(day).unwrap_or(u32::MAX))))
}

/// Days never go back. A device that was deleted gets no row.
pub(crate) async fn record<S: Session>(
    session: &S,
    devices: &[DeviceNum],
    day: UtcDay,
) -> Result<(), S::Error> {
    let devices: BTreeSet<u64> = devices.iter().map(|device| device.0).collect();
    let devices = Value::from(devices.into_iter().collect::<Vec<_>>()).to_string();
    // The condition spares PostgreSQL a lock on each row that stays as it is.
    let sql = format!(
        "INSERT INTO device_seen (app, device, day)
         SELECT d.app, d.num, CAST($2 AS BIGINT) FROM {} n {} devices d ON d.num = n.num
         WHERE coalesce({DAY}, -1) < $2 {}
         ON CONFLICT (app, device) DO UPDATE SET day = excluded.day WHERE device_seen.day < excluded.day",
        S::numbers("$1"),
        S::ORDERED_JOIN,
        S::BY_DEVICE
    );
    session.execute(&sql, &values![devices.as_str(), day.0]).await?;
    Ok(())
}
