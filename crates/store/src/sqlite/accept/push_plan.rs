//! From an accepted request to push work, in the operation that accepts it.

use noroshi_types::{DeviceNum, Outcome, Target, TokenKey};
use rusqlite::{OptionalExtension, ToSql, params_from_iter};

use crate::engine::accept::{PushPlan, by_service};
use crate::engine::campaign::CampaignNum;
use crate::engine::outcome::Part;
use crate::engine::push::Entry;
use crate::engine::push_token::{Pushed, key_text};
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
    let token = &accept.request.push.token;
    if !matches!(accept.request.target, Target::Users(_) | Target::Devices(_)) {
        let sql = "INSERT INTO push_walks (app, num, lane, fallback, due_at, cursor, token)
                   VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6)";
        let token = key_text(token.as_ref());
        db.run(sql, (app.0, num, lane as u8, fallback as u8, due_at.0 as i64, token))?;
        return Ok(Vec::new());
    }
    let (reachable, unreachable) = by_service(services(db, devices, token.as_ref())?.into_iter());
    for (service, devices) in reachable {
        let (service, variant, attempt) = (Some(service), None, 0);
        let token = token.clone();
        let entry = Entry { app, lane, service, campaign, num, variant, due_at, attempt, fallback, token };
        for batch in devices.chunks(BATCH_RECIPIENTS_MAX) {
            push_queue::insert(db, &entry, batch)?;
        }
    }
    for (why, devices) in &unreachable {
        outcome::add(db, &Part::of(num, *why, now, devices.clone()))?;
    }
    Ok(unreachable)
}

/// The devices, each with the code of its token's push service and whether the token is suspect.
fn services(
    db: &Db,
    devices: &[DeviceNum],
    token: Option<&TokenKey>,
) -> Result<Vec<(DeviceNum, Option<u8>, bool)>, Error> {
    let pushed = Pushed::new(token, '?', 2);
    let [_, service, _, _, suspect, _] = pushed.columns();
    let join = pushed.join();
    let sql = format!("SELECT {service}, {suspect} IS NOT NULL FROM devices d{join} WHERE d.num = ?1");
    let mut find = db.prepare_cached(&sql)?;
    let own = pushed.values();
    let mut found = Vec::with_capacity(devices.len());
    for &device in devices {
        let num = device.0 as i64;
        let values = std::iter::once(&num as &dyn ToSql).chain(own.iter().map(|value| value as _));
        let token =
            find.query_row(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (service, suspect) = token.unwrap_or_default();
        found.push((device, service, suspect));
    }
    Ok(found)
}
