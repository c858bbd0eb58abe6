//! From an accepted request to push work, in the operation that accepts it.

use std::collections::BTreeMap;

use noroshi_types::{DeviceNum, Lane, Outcome, PushMode, PushService, Target, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::queue::{self, Entry, Fallback};
use crate::sqlite::campaign::CampaignNum;
use crate::sqlite::ids::Num;
use crate::sqlite::outcome;
use crate::{Accept, Error};

/// Puts the work onto the queue: of users and devices the batches (`devices` sorted), else a walk. Who
/// cannot be pushed to was recorded and is answered.
pub(in crate::sqlite) fn plan(
    db: &Connection,
    num: Num,
    accept: &Accept,
    campaign: CampaignNum,
    devices: &[DeviceNum],
) -> Result<Vec<(Outcome, Vec<DeviceNum>)>, Error> {
    let request = &accept.request;
    let due_at = match request.push.mode {
        PushMode::Never => return Ok(Vec::new()),
        PushMode::Always => accept.now,
        PushMode::Fallback => {
            accept.now.saturating_add(request.push.after).min(request.expires_at(accept.now))
        }
    };
    let entry = Entry {
        app: accept.app,
        lane: accept.campaign.map_or(Lane::Direct, |of| of.lane),
        service: None,
        campaign,
        num,
        variant: None,
        due_at,
        attempt: 0,
        fallback: Fallback::of(request),
    };
    match &request.target {
        Target::Users(_) | Target::Devices(_) => by_service(db, entry, devices, accept.now),
        Target::Topic(_) | Target::Condition(_) | Target::Everyone => {
            let sql = "INSERT INTO push_walks (app, num, lane, fallback, due_at, cursor)
                       VALUES (?1, ?2, ?3, ?4, ?5, 0)";
            let values = (entry.app.0, num, entry.lane as u8, entry.fallback as u8, due_at.0 as i64);
            db.prepare_cached(sql)?.execute(values)?;
            Ok(Vec::new())
        }
    }
}

fn by_service(
    db: &Connection,
    entry: Entry,
    devices: &[DeviceNum],
    now: Timestamp,
) -> Result<Vec<(Outcome, Vec<DeviceNum>)>, Error> {
    let mut of_service: BTreeMap<PushService, Vec<DeviceNum>> = BTreeMap::new();
    let (mut without, mut suspect) = (Vec::new(), Vec::new());
    let mut find = db.prepare_cached("SELECT push_service, push_suspect_at FROM devices WHERE num = ?1")?;
    for &device in devices {
        let found = find
            .query_row((device.0 as i64,), |row| {
                Ok((row.get::<_, Option<u8>>(0)?, row.get::<_, Option<i64>>(1)?))
            })
            .optional()?;
        match found {
            Some((Some(code), None)) if let Some(service) = PushService::from_code(code) => {
                of_service.entry(service).or_default().push(device);
            }
            Some((Some(_), Some(_))) => suspect.push(device),
            _ => without.push(device),
        }
    }
    for (service, devices) in of_service {
        queue::pack(db, &Entry { service: Some(service), ..entry }, &devices)?;
    }
    let unreachable = [(Outcome::NoPushToken, without), (Outcome::PushTokenSuspect, suspect)];
    for (outcome, devices) in &unreachable {
        outcome::add(db, entry.num, *outcome, now, devices, devices.len() as u64)?;
    }
    Ok(unreachable.into_iter().filter(|(_, devices)| !devices.is_empty()).collect())
}
