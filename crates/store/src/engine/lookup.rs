//! Lookups of notifications and devices: one statement for each, by primary keys.

use noroshi_types::Topic;

use super::campaign::id_of as campaign_id_of;
use super::device::{id_of as device_id_of, user_of};
use super::listing::list;
use super::record::Record;
use super::session::{Session, values};
use crate::ids::Ids;
use crate::{Found, FoundDevice, FoundNotification, LookupKeys, TARGET_KINDS};

pub(crate) async fn lookup<S: Session>(session: &S, ids: &Ids, keys: &LookupKeys) -> Result<Found, S::Error> {
    let (numbers, join) = (S::numbers("$1"), S::ORDERED_JOIN);
    let mut found = Found::default();
    let nums = list(keys.notifications.iter().filter_map(|id| ids.num(*id)));
    if nums != "[]" {
        let sql = format!(
            "SELECT n.num, n.app, n.target, n.target_text, c.id
             FROM {numbers} AS k {join} notifications n ON n.num = k.num LEFT JOIN campaigns c ON c.num = n.campaign"
        );
        let of_row = |row: &dyn Record| {
            let target = TARGET_KINDS.get(usize::from(row.code(2)?)).copied();
            let topic = match target {
                Some("topic") => row.string_or_null(3)?.and_then(|text| Topic::parse(&text).ok()),
                _ => None,
            };
            let campaign = match row.bytes_or_null(4)? {
                Some(_) => Some(campaign_id_of(row, 4)?),
                None => None,
            };
            Ok(FoundNotification { id: ids.id(row.int(0)?), app: row.app(1)?, topic, campaign })
        };
        found.notifications = session.query(&sql, &values![&nums], of_row).await?;
    }
    if !keys.devices.is_empty() {
        let nums: Vec<u64> = keys.devices.iter().map(|device| device.0).collect();
        let nums = serde_json::to_string(&nums).unwrap_or_default();
        let sql = format!(
            "SELECT d.num, d.app, d.id, d.\"user\" FROM {numbers} AS k {join} devices d ON d.num = k.num"
        );
        let of_row = |row: &dyn Record| {
            let (num, app) = (row.device(0)?, row.app(1)?);
            Ok(FoundDevice { num, app, id: device_id_of(row, 2)?, user: user_of(row, 3)? })
        };
        found.devices = session.query(&sql, &values![&nums], of_row).await?;
    }
    Ok(found)
}
