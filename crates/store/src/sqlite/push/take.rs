//! Taking batches that are due.
//!
//! In each lane, seeks find the first free row of every group (app, service, campaign); a heap yields the oldest of them,
//! and the group's next row takes its place. Obsolete rows are dropped with their outcome.

use std::cmp::Reverse;
use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BinaryHeap, HashMap};

use noroshi_types::{AppId, DeviceNum, Lane, Outcome, Timestamp};

use super::claim;
use crate::engine::campaign::{CampaignNum, CampaignRow};
use crate::engine::device_list;
use crate::engine::notification::Standing;
use crate::engine::push::{DEVICES_MAX, Known, QUEUE_COLUMNS, QueueRow, leased_until, service_code};
use crate::engine::record::Record;
use crate::ids::Num;
use crate::metrics::Held;
use crate::push::SPREAD;
use crate::sqlite::statement::Db;
use crate::sqlite::writer::Write;
use crate::sqlite::{Sqlite, campaign_row, outcome};
use crate::{CampaignState, Error, Fallback, Take, Taken};

/// The first row of a group: due time, app, service, campaign.
type First = (i64, u32, u8, CampaignNum);

struct Taking<'w, 'c> {
    w: &'w Write<'c>,
    asked: &'w Take,
    taken: Taken,
    notifications: HashMap<Num, Option<Known>>,
    campaigns: HashMap<CampaignNum, Option<CampaignRow>>,
    /// Devices looked up or dropped.
    examined: usize,
}

pub(crate) async fn take(store: &Sqlite, asked: Take) -> Result<Taken, Error> {
    store.write(asked.batches_max, move |w| take_now(w, &asked)).await
}

fn take_now(w: &Write<'_>, asked: &Take) -> Result<Taken, Error> {
    w.held.set(Held::Push);
    w.db.run(EXPIRE, (asked.now.0 as i64, SPREAD.as_millis() as i64))?;
    let mut taking = Taking {
        w,
        asked,
        taken: Taken::default(),
        notifications: HashMap::new(),
        campaigns: HashMap::new(),
        examined: 0,
    };
    for lane in Lane::ALL.into_iter().filter(|lane| asked.lanes.contains(lane)) {
        taking.lane(lane)?;
    }
    let sql = "SELECT min(leased_until) FROM push_queue WHERE leased_until > 0";
    if let Some(expiry) = w.db.first(sql, (), |row| row.int_or_null(0))?.flatten() {
        taking.ask_again(expiry);
    }
    Ok(taking.taken)
}

impl Taking<'_, '_> {
    fn lane(&mut self, lane: Lane) -> Result<(), Error> {
        let mut firsts = self.firsts(lane)?;
        while let Some(&Reverse((due_at, app, service, campaign))) = firsts.peek() {
            let enough = self.taken.batches.len() >= self.asked.batches_max || self.examined >= DEVICES_MAX;
            if due_at > self.asked.now.0 as i64 || enough {
                self.ask_again(due_at);
                break;
            }
            firsts.pop();
            let group = (lane as u8, app, service, campaign);
            if let Some(row) = self.w.db.first(&first_row_sql(), group, |row| QueueRow::of_row(row))? {
                self.take_row(row)?;
            }
            if let Some(due_at) = self.w.db.first(FIRST_DUE, group, |row| row.int(0))? {
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
            MapEntry::Vacant(vacant) => Ok(*vacant.insert(campaign_row::load(self.w.db, num)?)),
        }
    }

    fn notification(&mut self, num: Num) -> Result<Option<Known>, Error> {
        match self.notifications.entry(num) {
            MapEntry::Occupied(known) => Ok(*known.get()),
            MapEntry::Vacant(vacant) => Ok(*vacant.insert(known(self.w.db, num)?)),
        }
    }

    /// Leases a row, or drops it with its outcome.
    fn take_row(&mut self, mut row: QueueRow) -> Result<(), Error> {
        if row.entry.campaign != 0 {
            row.campaign = self.campaign(row.entry.campaign)?;
        }
        if row.entry.num > 0 {
            row.known = self.notification(row.entry.num)?;
        }
        let (now, ids) = (self.asked.now, self.w.ids);
        let mut still = row.recipients.clone();
        if let Some(known) = row.known
            && row.entry.fallback != Fallback::Settled
            && !row.is_cancelled()
        {
            self.examined += still.len();
            let (needed, acknowledged) = claim::split(self.w.db, &row, &known, now)?;
            self.record(&row, Outcome::PushNotNeeded, acknowledged)?;
            still = needed;
        }
        if let Some(why) = row.drop_outcome(now, &still) {
            if why == Outcome::PushRefused {
                self.taken.set_aside.extend(row.set_aside(ids, &still));
            }
            return self.drop_row(&row, why, still);
        }
        self.lease(&row, &still)?;
        self.taken.batches.extend(row.batch(ids, leased_until(self.asked), still));
        Ok(())
    }

    /// The row is claimed for the recipients that are left.
    fn lease(&self, row: &QueueRow, still: &[DeviceNum]) -> Result<(), Error> {
        let (until, counted) = (leased_until(self.asked).0 as i64, u8::from(self.asked.sends));
        let now = self.asked.now.0 as i64;
        if row.entry.fallback == Fallback::Settled {
            let sql =
                "UPDATE push_queue SET leased_until = ?2, takes = takes + ?3, taken_at = ?4 WHERE id = ?1";
            return self.w.db.run(sql, (row.id, until, counted, now)).map(drop);
        }
        let sql = "UPDATE push_queue SET leased_until = ?2, takes = takes + ?3, taken_at = ?4, fallback = 0,
                                         recipients = ?5
                   WHERE id = ?1";
        self.w.db.run(sql, (row.id, until, counted, now, device_list::encode(still))).map(drop)
    }

    fn drop_row(&mut self, row: &QueueRow, why: Outcome, devices: Vec<DeviceNum>) -> Result<(), Error> {
        self.examined += devices.len();
        self.record(row, why, devices)?;
        self.w.db.run("DELETE FROM push_queue WHERE id = ?1", (row.id,))?;
        if let Some(campaign) = row.campaign {
            self.taken.done.extend(campaign_row::settle(self.w, campaign.num, self.asked.now)?);
        }
        Ok(())
    }

    fn record(&mut self, row: &QueueRow, why: Outcome, devices: Vec<DeviceNum>) -> Result<(), Error> {
        let (part, count) = row.record(why, devices, (self.asked.now, self.w.ids), &mut self.taken);
        if let Some(part) = part {
            outcome::add(self.w.db, &part)?;
        }
        match count {
            Some(count) => campaign_row::count(self.w.db, &count),
            None => Ok(()),
        }
    }
}

/// The first row of the group after `last`. Searched column by column: for a row value SQLite seeks by the first column
/// only, and would read all rows of the groups before.
fn next_group(db: &Db, lane: Lane, last: Option<(u32, u8, CampaignNum)>) -> Result<Option<First>, Error> {
    let (app, service, campaign) = last.unwrap_or((0, 0, 0));
    let lane = lane as u8;
    let first = |row: &rusqlite::Row<'_>| Ok((row.int(0)?, row.get(1)?, row.get(2)?, row.int(3)?));
    if last.is_some() {
        if let found @ Some(_) = db.first(SAME_SERVICE, (lane, app, service, campaign), first)? {
            return Ok(found);
        }
        if let found @ Some(_) = db.first(SAME_APP, (lane, app, service), first)? {
            return Ok(found);
        }
    }
    db.first(NEXT_APP, (lane, app), first)
}

/// Ends leases that expired by ?1. A batch whose sender crashed more than once is due again within ?2 for each crash.
const EXPIRE: &str = "UPDATE push_queue SET leased_until = 0,
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

fn first_row_sql() -> String {
    format!(
        "SELECT {QUEUE_COLUMNS} FROM push_queue q
         WHERE q.lane = ?1 AND q.app = ?2 AND q.service = ?3 AND q.campaign = ?4 AND q.leased_until = 0
         ORDER BY q.due_at, q.id LIMIT 1"
    )
}

const FIRST_DUE: &str = "SELECT due_at FROM push_queue
     WHERE lane = ?1 AND app = ?2 AND service = ?3 AND campaign = ?4 AND leased_until = 0
     ORDER BY due_at, id LIMIT 1";

fn known(db: &Db, num: Num) -> Result<Option<Known>, Error> {
    let sql =
        "SELECT created_at, expires_at, standing, topic, topic_offset FROM notifications WHERE num = ?1";
    Ok(db.first(sql, (num,), |row| Known::of_row(row, 0))?.flatten())
}

/// Whether retries of the notification are still wanted.
pub(super) fn is_wanted(db: &Db, num: Num) -> Result<bool, Error> {
    Ok(known(db, num)?.is_some_and(|known| known.standing != Standing::Cancelled))
}

#[cfg(test)]
mod tests {
    use noroshi_types::PushService;
    use rusqlite::StatementStatus;

    use super::*;
    use crate::Fallback;
    use crate::engine::push::Entry;
    use crate::sqlite::{push_queue, schema};

    /// Steps of SQLite's machine for one answer: a seek takes a few dozen, however many rows there are.
    const STEPS_MAX: i32 = 100;

    #[test]
    fn finding_a_group_skips_the_rows_of_others() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let db = schema::open_writer(&folder.path().join("noroshi.db"), None).expect("opened");
        db.execute_batch("BEGIN").expect("started");
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
                token: None,
            };
            push_queue::insert(&db, &entry, &[DeviceNum(7)]).expect("inserted");
        }
        db.execute_batch("COMMIT").expect("committed");
        let check = |sql: &str, values: &[&dyn rusqlite::ToSql], found: bool| {
            let mut statement = db.prepare(sql).expect("prepared");
            assert_eq!(statement.exists(values).expect("queried"), found, "{sql}");
            let steps = statement.get_status(StatementStatus::VmStep);
            assert!(steps < STEPS_MAX, "{steps} steps: {sql}");
        };
        check(NEXT_APP, &[&3, &0], true);
        check(NEXT_APP, &[&3, &1], false);
        check(SAME_APP, &[&3, &1, &1], false);
        check(SAME_SERVICE, &[&3, &1, &1, &1], true);
        check(SAME_SERVICE, &[&3, &1, &1, &2], false);
        check(&first_row_sql(), &[&3, &1, &1, &2], true);
        check(FIRST_DUE, &[&3, &1, &1, &2], true);
        check(FIRST_DUE, &[&2, &1, &1, &2], false);
    }
}
