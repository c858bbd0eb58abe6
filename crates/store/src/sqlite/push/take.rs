//! Taking batches that are due.
//!
//! In each lane the first free row of every group (app, service, campaign) is found by seeks; a heap
//! gives the oldest of them, and the group's next row takes its place. What turns out to be nobody's is
//! dropped on the way, with its outcome.

use std::cmp::Reverse;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BinaryHeap, HashMap};

use noroshi_types::{AppId, BatchId, DeviceNum, Lane, Outcome, PushService, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::claim;
use super::queue::{Fallback, service_code};
use crate::push::SPREAD;
use crate::sqlite::campaign::{self, CampaignNum, CampaignRow};
use crate::sqlite::device_list;
use crate::sqlite::ids::Num;
use crate::sqlite::notification::Standing;
use crate::sqlite::writer::Write;
use crate::sqlite::{outcome, variant};
use crate::{Batch, CampaignState, Error, SENDER_ENDED, SetAside, TAKES_MAX, Take, Taken, VariantNum, Work};

/// Devices looked up or dropped by one call, about a microsecond each: what is left is due at once.
const DEVICES_MAX: usize = 16_384;

/// What the batches of a notification need to know of it.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub created_at: i64,
    pub expires_at: i64,
    pub standing: Standing,
    pub topic: Option<i64>,
    pub offset: i64,
}

/// The first row of a group: (due, app, service, campaign).
type First = (i64, u32, u8, CampaignNum);

struct Row {
    id: i64,
    num: Num,
    variant: Option<VariantNum>,
    due_at: i64,
    attempt: u32,
    takes: u32,
    fallback: Fallback,
    recipients: Vec<DeviceNum>,
}

struct Taking<'w, 'c> {
    w: &'w Write<'c>,
    asked: &'w Take,
    taken: Taken,
    notifications: HashMap<Num, Option<Known>>,
    campaigns: HashMap<CampaignNum, Option<CampaignRow>>,
    looked_at: usize,
}

pub(super) fn take(w: &Write<'_>, asked: &Take) -> Result<Taken, Error> {
    w.db.prepare_cached(LAPSE)?.execute((asked.now.0 as i64, SPREAD.as_millis() as i64))?;
    let mut taking = Taking {
        w,
        asked,
        taken: Taken::default(),
        notifications: HashMap::new(),
        campaigns: HashMap::new(),
        looked_at: 0,
    };
    for lane in Lane::ALL.into_iter().filter(|lane| asked.lanes.contains(lane)) {
        taking.lane(lane)?;
    }
    let sql = "SELECT min(leased_until) FROM push_queue WHERE leased_until > 0";
    let lapse: Option<i64> = w.db.prepare_cached(sql)?.query_row((), |row| row.get(0))?;
    if let Some(lapse) = lapse {
        taking.ask_again(lapse);
    }
    Ok(taking.taken)
}

impl Taking<'_, '_> {
    fn lane(&mut self, lane: Lane) -> Result<(), Error> {
        let mut firsts = self.firsts(lane)?;
        while let Some(&Reverse((due_at, app, service, campaign))) = firsts.peek() {
            let enough = self.taken.batches.len() >= self.asked.batches_max || self.looked_at >= DEVICES_MAX;
            if due_at > self.asked.now.0 as i64 || enough {
                self.ask_again(due_at);
                break;
            }
            firsts.pop();
            if let Some(row) = first_row(self.w.db, lane, app, service, campaign)? {
                self.one(row, lane, AppId(app), service, campaign)?;
            }
            if let Some(due_at) = first_due(self.w.db, lane, app, service, campaign)? {
                firsts.push(Reverse((due_at, app, service, campaign)));
            }
        }
        Ok(())
    }

    fn ask_again(&mut self, at: i64) {
        let at = Timestamp(at as u64);
        self.taken.next_due = Some(self.taken.next_due.map_or(at, |known| known.min(at)));
    }

    /// The groups of a lane that may be taken from, by a few seeks each.
    fn firsts(&mut self, lane: Lane) -> Result<BinaryHeap<Reverse<First>>, Error> {
        let mut firsts = BinaryHeap::new();
        let mut last = None;
        while let Some(first @ (_, app, service, campaign)) = next_group(self.w.db, lane, last)? {
            if self.may_take(AppId(app), service, campaign)? {
                firsts.push(Reverse(first));
            }
            last = Some((app, service, campaign));
        }
        Ok(firsts)
    }

    fn may_take(&mut self, app: AppId, service: u8, campaign: CampaignNum) -> Result<bool, Error> {
        if campaign != 0 {
            match self.campaign(campaign)? {
                Some(row) if row.state.ended() => return Ok(true), // to be dropped
                Some(row) if row.state != CampaignState::Running => return Ok(false),
                Some(row) if self.asked.held.contains(&row.id) => return Ok(false),
                Some(_) => {}
                None => return Ok(true),
            }
        }
        Ok(!self.asked.busy.iter().any(|(busy, by)| *busy == app && service_code(Some(*by)) == service))
    }

    fn campaign(&mut self, num: CampaignNum) -> Result<Option<CampaignRow>, Error> {
        match self.campaigns.entry(num) {
            MapEntry::Occupied(known) => Ok(*known.get()),
            MapEntry::Vacant(vacant) => Ok(*vacant.insert(campaign::row(self.w.db, num)?)),
        }
    }

    fn notification(&mut self, num: Num) -> Result<Option<Known>, Error> {
        match self.notifications.entry(num) {
            MapEntry::Occupied(known) => Ok(*known.get()),
            MapEntry::Vacant(vacant) => Ok(*vacant.insert(known(self.w.db, num)?)),
        }
    }

    /// Leases a row, or drops it with what became of it.
    fn one(
        &mut self,
        row: Row,
        lane: Lane,
        app: AppId,
        service: u8,
        campaign: CampaignNum,
    ) -> Result<(), Error> {
        let of = match campaign {
            0 => None,
            campaign => self.campaign(campaign)?,
        };
        let notification = if row.num > 0 { self.notification(row.num)? } else { None };
        let lost = (campaign != 0 && of.is_none()) || (row.num > 0 && notification.is_none());
        if lost || of.is_some_and(|of| of.state.ended()) {
            return self.drop_row(&row, of, Outcome::Cancelled, row.recipients.clone());
        }
        let mut still = row.recipients.clone();
        if let Some(known) = notification {
            if known.standing == Standing::Cancelled {
                return self.drop_row(&row, of, Outcome::Cancelled, still);
            }
            let expired = claim::expired(&known, row.fallback, self.asked.now);
            if row.fallback != Fallback::Settled {
                self.looked_at += still.len();
                let (needed, confirmed) =
                    claim::split(self.w.db, row.num, &known, row.fallback, &row.recipients, expired)?;
                self.record(&row, of, Outcome::PushNotNeeded, &confirmed)?;
                still = needed;
            }
            if expired || still.is_empty() {
                return self.drop_row(&row, of, Outcome::PushExpired, still);
            }
        }
        if row.takes >= TAKES_MAX {
            self.taken.set_aside.extend(self.work(&row, of).map(|work| SetAside {
                batch: BatchId(row.id as u64),
                app,
                service: PushService::from_code(service),
                lane,
                work,
                recipients: still.clone(),
            }));
            return self.drop_row(&row, of, Outcome::PushRefused, still);
        }
        let leased_until = self.lease(&row, &still)?;
        self.taken.batches.extend(self.work(&row, of).map(|work| Batch {
            id: BatchId(row.id as u64),
            app,
            service: PushService::from_code(service),
            lane,
            due_at: Timestamp(row.due_at as u64),
            attempt: row.attempt,
            work,
            campaign: of.map(|of| of.id),
            variant: row.variant,
            leased_until,
            recipients: still,
        }));
        Ok(())
    }

    fn work(&self, row: &Row, of: Option<CampaignRow>) -> Option<Work> {
        Work::of(self.w.ids, row.num, of.map(|of| of.id))
    }

    /// Claimed with the recipients that are left.
    fn lease(&self, row: &Row, still: &[DeviceNum]) -> Result<Timestamp, Error> {
        let leased_until = Timestamp(self.asked.now.saturating_add(self.asked.lease).0.max(1));
        let until = leased_until.0 as i64;
        let counted = u8::from(self.asked.sends);
        if row.fallback == Fallback::Settled {
            let sql = "UPDATE push_queue SET leased_until = ?2, takes = takes + ?3 WHERE id = ?1";
            self.w.db.prepare_cached(sql)?.execute((row.id, until, counted))?;
        } else {
            let sql =
                "UPDATE push_queue SET leased_until = ?2, takes = takes + ?3, fallback = 0, recipients = ?4
                       WHERE id = ?1";
            let still = device_list::encode(still);
            self.w.db.prepare_cached(sql)?.execute((row.id, until, counted, still))?;
        }
        Ok(leased_until)
    }

    fn drop_row(
        &mut self,
        row: &Row,
        of: Option<CampaignRow>,
        why: Outcome,
        devices: Vec<DeviceNum>,
    ) -> Result<(), Error> {
        self.looked_at += devices.len();
        self.record(row, of, why, &devices)?;
        self.w.db.prepare_cached("DELETE FROM push_queue WHERE id = ?1")?.execute((row.id,))?;
        if let Some(of) = of {
            self.taken.done.extend(campaign::settle(self.w, of.num, self.asked.now)?);
        }
        Ok(())
    }

    fn record(
        &mut self,
        row: &Row,
        of: Option<CampaignRow>,
        why: Outcome,
        devices: &[DeviceNum],
    ) -> Result<(), Error> {
        let (db, count) = (self.w.db, devices.len() as u64);
        let reason = (why == Outcome::PushRefused).then_some(SENDER_ENDED);
        let under = variant::recorded_under(db, row.num, of, row.variant)?;
        if let Some(under) = under {
            outcome::add_with_reason(db, under, why, reason, self.asked.now, devices, count)?;
        }
        if let (Some(of), Some(under)) = (of, under) {
            campaign::count(db, of.num, why, reason, count)?;
            variant::count(db, under, why, reason, count)?;
        }
        // What is set aside is told as such.
        if why != Outcome::PushRefused {
            self.taken.departed.add(self.work(row, of), why, self.asked.now, devices);
        }
        Ok(())
    }
}

/// The first row of the group behind `last`. Asked column by column: SQLite finds the begin of a row value's
/// range by its first column alone, and would read all rows of the groups before.
fn next_group(
    db: &Connection,
    lane: Lane,
    last: Option<(u32, u8, CampaignNum)>,
) -> Result<Option<First>, Error> {
    let (app, service, campaign) = last.unwrap_or((0, 0, 0));
    let lane = lane as u8;
    let first = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    if last.is_some() {
        let mut same_service = db.prepare_cached(SAME_SERVICE)?;
        let found = same_service.query_row((lane, app, service, campaign), first).optional()?;
        if found.is_some() {
            return Ok(found);
        }
        let found = db.prepare_cached(SAME_APP)?.query_row((lane, app, service), first).optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(db.prepare_cached(NEXT_APP)?.query_row((lane, app), first).optional()?)
}

/// Frees what lapsed by ?1. What ended its sender before waits within ?2 for each time.
const LAPSE: &str = "UPDATE push_queue SET leased_until = 0,
         due_at = CASE WHEN takes > 1 THEN max(due_at, ?1 + (random() & 1073741823) % (?2 * (takes - 1))) ELSE due_at END
     WHERE leased_until > 0 AND leased_until <= ?1";

const SAME_SERVICE: &str = "SELECT due_at, app, service, campaign FROM push_queue
     WHERE lane = ?1 AND app = ?2 AND service = ?3 AND campaign > ?4 AND leased_until = 0
     ORDER BY campaign, due_at LIMIT 1";

const SAME_APP: &str = "SELECT due_at, app, service, campaign FROM push_queue
     WHERE lane = ?1 AND app = ?2 AND service > ?3 AND leased_until = 0
     ORDER BY service, campaign, due_at LIMIT 1";

const NEXT_APP: &str = "SELECT due_at, app, service, campaign FROM push_queue
     WHERE lane = ?1 AND app > ?2 AND leased_until = 0
     ORDER BY app, service, campaign, due_at LIMIT 1";

const FIRST_ROW: &str =
    "SELECT id, num, variant, due_at, attempt, takes, fallback, recipients FROM push_queue
     WHERE lane = ?1 AND app = ?2 AND service = ?3 AND campaign = ?4 AND leased_until = 0
     ORDER BY due_at, id LIMIT 1";

const FIRST_DUE: &str = "SELECT due_at FROM push_queue
     WHERE lane = ?1 AND app = ?2 AND service = ?3 AND campaign = ?4 AND leased_until = 0
     ORDER BY due_at, id LIMIT 1";

fn first_row(
    db: &Connection,
    lane: Lane,
    app: u32,
    service: u8,
    campaign: CampaignNum,
) -> Result<Option<Row>, Error> {
    let mut statement = db.prepare_cached(FIRST_ROW)?;
    let found = statement.query_row((lane as u8, app, service, campaign), |row| {
        Ok(Row {
            id: row.get(0)?,
            num: row.get(1)?,
            variant: VariantNum::from_code(row.get(2)?),
            due_at: row.get(3)?,
            attempt: row.get(4)?,
            takes: row.get(5)?,
            fallback: Fallback::from_code(row.get(6)?),
            recipients: device_list::decode(row.get_ref(7)?.as_blob()?).collect(),
        })
    });
    Ok(found.optional()?)
}

fn first_due(
    db: &Connection,
    lane: Lane,
    app: u32,
    service: u8,
    campaign: CampaignNum,
) -> Result<Option<i64>, Error> {
    let mut statement = db.prepare_cached(FIRST_DUE)?;
    Ok(statement.query_row((lane as u8, app, service, campaign), |row| row.get(0)).optional()?)
}

fn known(db: &Connection, num: Num) -> Result<Option<Known>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT created_at, expires_at, standing, topic, topic_offset FROM notifications WHERE num = ?1",
    )?;
    let found = statement.query_row((num,), |row| {
        Ok(Known {
            created_at: row.get(0)?,
            expires_at: row.get(1)?,
            standing: Standing::from_code(row.get(2)?),
            topic: row.get(3)?,
            offset: row.get::<_, Option<i64>>(4)?.unwrap_or(0),
        })
    });
    Ok(found.optional()?)
}

/// Whether work of the notification is still wanted: retries ask before they are queued.
pub(super) fn wanted(db: &Connection, num: Num) -> Result<bool, Error> {
    Ok(known(db, num)?.is_some_and(|known| known.standing != Standing::Cancelled))
}

#[cfg(test)]
mod tests {
    use noroshi_types::DeviceNum;
    use rusqlite::StatementStatus;

    use super::*;
    use crate::sqlite::push::queue::{self, Entry};
    use crate::sqlite::schema;

    /// Steps of SQLite's machine for one answer: a seek takes a few dozen, however many rows there are.
    const STEPS_MAX: i32 = 100;

    #[test]
    fn a_group_is_found_without_reading_the_rows_of_another() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let db = schema::open_writer(&folder.path().join("noroshi.db"), None).expect("opens");
        db.execute_batch("BEGIN").expect("begun");
        for i in 0..3_000 {
            let entry = Entry {
                app: AppId(1),
                lane: Lane::Campaign,
                service: Some(PushService::Apns),
                campaign: 1 + i / 1_500,
                num: 0,
                variant: None,
                due_at: Timestamp(1_000 + i as u64),
                attempt: 0,
                fallback: Fallback::Settled,
            };
            queue::insert(&db, &entry, &[DeviceNum(7)]).expect("inserted");
        }
        db.execute_batch("COMMIT").expect("committed");
        let check = |sql: &str, values: &[&dyn rusqlite::ToSql], found: bool| {
            let mut statement = db.prepare(sql).expect("prepared");
            assert_eq!(statement.exists(values).expect("asked"), found, "{sql}");
            let steps = statement.get_status(StatementStatus::VmStep);
            assert!(steps < STEPS_MAX, "{steps} steps: {sql}");
        };
        check(NEXT_APP, &[&3, &0], true);
        check(NEXT_APP, &[&3, &1], false);
        check(SAME_APP, &[&3, &1, &1], false);
        check(SAME_SERVICE, &[&3, &1, &1, &1], true);
        check(SAME_SERVICE, &[&3, &1, &1, &2], false);
        check(FIRST_ROW, &[&3, &1, &1, &2], true);
        check(FIRST_DUE, &[&3, &1, &1, &2], true);
        check(FIRST_DUE, &[&2, &1, &1, &2], false);
    }
}
