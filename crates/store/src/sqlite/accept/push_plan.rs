//! From an accepted request to push work, in the operation that accepts it.

use noroshi_types::{DeviceNum, Outcome, Target};
use rusqlite::OptionalExtension;

use crate::engine::accept::{PushPlan, by_service};
use crate::engine::campaign::CampaignNum;
use crate::engine::outcome::Part;
use crate::engine::push::Entry;
use crate::ids::Num;
use crate::sqlite::statement::Db;
use crate::sqlite::{outcome, push_queue};
use crate::{Accept, BATCH_RECIPIENTS_MAX, Error};

/// Enqueues batches for users and devices (`devices` sorted), and a walk for other targets. Records and returns the
/// devices that no push can reach.
pub(super) fn enqueue(
    db: &Db,
    num: Num,
    accept: &Accept,
    campaign: CampaignNum,
    devices: &[DeviceNum],
) -> Result<Vec<(Outcome, Vec<DeviceNum>)>, Error> {
    let Some(PushPlan { lane, due_at, fallback }) = PushPlan::of(accept) else { return Ok(Vec::new()) };
    let Accept { app, now, .. } = *accept;
    if !matches!(accept.request.target, Target::Users(_) | Target::Devices(_)) {
        let sql = "INSERT INTO push_walks (app, num, lane, fallback, due_at, cursor) VALUES (?1, ?2, ?3, ?4, ?5, 0)";
        db.run(sql, (app.0, num, lane as u8, fallback as u8, due_at.0 as i64))?;
        return Ok(Vec::new());
    }
    let mut find =
        db.prepare_cached("SELECT push_service, push_suspect_at IS NOT NULL FROM devices WHERE num = ?1")?;
    let mut found = Vec::with_capacity(devices.len());
    for &device in devices {
        let token = find.query_row((device.0 as i64,), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (service, suspect) = token.unwrap_or_default();
        found.push((device, service, suspect));
    }
    let (reachable, unreachable) = by_service(found.into_iter());
    for (service, devices) in reachable {
        let (service, variant, attempt) = (Some(service), None, 0);
        let entry = Entry { app, lane, service, campaign, num, variant, due_at, attempt, fallback };
        for batch in devices.chunks(BATCH_RECIPIENTS_MAX) {
            push_queue::insert(db, &entry, batch)?;
        }
    }
    for (why, devices) in &unreachable {
        outcome::add(db, &Part::of(num, *why, now, devices.clone()))?;
    }
    Ok(unreachable)
}
