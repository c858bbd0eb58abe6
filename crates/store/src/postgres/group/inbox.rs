//! The inbox rows that a group writes, and the rows that it replaces or evicts.
//!
//! All rows of a group are written at once, so this module decides how they replace or evict each other. Their effect
//! on existing rows takes one statement, and only if collapse keys or full inboxes are involved.

use std::collections::{BTreeMap, HashMap, HashSet};

use noroshi_types::{DeviceNum, Outcome, limits};
use tokio_postgres::Row;

use super::reading::Found;
use crate::ids::Num;

/// Locks the rows that [`COLLAPSE`] and [`MAKE_ROOM`] may remove, in the order in which all calls lock inbox rows. An
/// inbox loses at most as many rows as it gets ($4) and had above the limit before ($5), unless the limit was
/// lowered.
pub(in crate::postgres) const LOCK: &str = "SELECT 1 FROM (
         SELECT o.device, o.num FROM unnest($1::bigint[], $2::text[]) u (device, key)
         JOIN inbox o ON o.device = u.device AND o.collapse_key = u.key
         UNION
         SELECT u.device, o.num FROM unnest($3::bigint[], $4::bigint[]) u (device, new) CROSS JOIN LATERAL (
             SELECT n.num FROM inbox n WHERE n.device = u.device ORDER BY n.num LIMIT u.new + $5) o) v
     JOIN inbox i ON i.device = v.device AND i.num = v.num ORDER BY i.device, i.num FOR UPDATE OF i";

/// Removes older rows with the same collapse keys.
pub(super) const COLLAPSE: &str = "DELETE FROM inbox i USING unnest($1::bigint[], $2::text[]) u (device, key)
     WHERE i.device = u.device AND i.collapse_key = u.key RETURNING i.device, i.collapse_key, i.num";

/// Counts inboxes that get `new` rows. If that exceeds the limit ($3) and its slack ($4), the oldest rows above the
/// limit are evicted. Returns a row with the count of each inbox, and a row for each evicted notification.
pub(in crate::postgres) const MAKE_ROOM: &str = "WITH counted AS (
         SELECT u.device, u.new, (SELECT count(*) FROM inbox i WHERE i.device = u.device) AS rows
         FROM unnest($1::bigint[], $2::bigint[]) u (device, new)),
     gone AS (
         DELETE FROM inbox i USING (
             SELECT c.device, o.num FROM counted c CROSS JOIN LATERAL (
                 SELECT n.num FROM inbox n WHERE n.device = c.device ORDER BY n.num
                 LIMIT greatest(c.rows + c.new - $3, 0)) o
             WHERE c.rows + c.new > $3 + $4) v
         WHERE i.device = v.device AND i.num = v.num RETURNING i.device, i.num)
     SELECT device, rows, NULL FROM counted UNION ALL SELECT device, NULL, num FROM gone";

pub(in crate::postgres) const INSERT: &str = "INSERT INTO inbox (device, num, collapse_key, rank)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[])";

/// The same for many rows, at two thirds of the cost per row and one round trip more.
pub(super) const COPY: &str = "COPY inbox (device, num, collapse_key, rank) FROM STDIN (FORMAT binary)";

/// A row to write.
struct NewRow<'a> {
    device: i64,
    num: Num,
    key: Option<&'a str>,
    rank: i64,
    /// Index of its notification in the group.
    place: usize,
    /// A later notification of the group replaced it: it is not written.
    gone: bool,
}

/// The rows of a group.
pub(in crate::postgres) struct Inboxes<'a> {
    rows: Vec<NewRow<'a>>,
    rows_max: i64,
    /// See [`limits::inbox_slack`].
    slack: i64,
    /// The rank of each device's newest row.
    ranks: HashMap<i64, i64>,
    /// Index of the latest row of a key, and the index in the group of the first notification with the key.
    keys: HashMap<(i64, &'a str), (usize, usize)>,
    /// Devices whose inboxes may get too many rows.
    crowded: HashSet<i64>,
    removals: RemovedDevices,
}

/// Devices by the notification that removed rows, the removed notification, and the outcome.
type RemovedDevices = BTreeMap<(usize, Num, u8), (Outcome, Vec<i64>)>;

/// Devices (sorted) that lost a notification because of the one at `place`.
#[derive(Debug, PartialEq)]
pub(in crate::postgres) struct InboxRemoval {
    pub place: usize,
    pub num: Num,
    pub outcome: Outcome,
    pub devices: Vec<DeviceNum>,
}

/// Columns of [`INSERT`], which takes slices of them.
#[derive(Default)]
pub(in crate::postgres) struct InboxColumns<'a> {
    pub devices: Vec<i64>,
    pub nums: Vec<Num>,
    pub keys: Vec<Option<&'a str>>,
    pub ranks: Vec<i64>,
    /// The rank of each device's newest row.
    pub newest: HashMap<i64, i64>,
}

impl<'a> Inboxes<'a> {
    pub(in crate::postgres) fn new(rows_max: u32) -> Self {
        Self {
            rows: Vec::new(),
            rows_max: i64::from(rows_max.max(1)),
            slack: i64::from(limits::inbox_slack(rows_max)),
            ranks: HashMap::new(),
            keys: HashMap::new(),
            crowded: HashSet::new(),
            removals: BTreeMap::new(),
        }
    }

    /// Adds a notification to the inboxes of `devices`.
    pub(in crate::postgres) fn put(
        &mut self,
        place: usize,
        num: Num,
        key: Option<&'a str>,
        devices: &[Found],
    ) {
        self.rows.reserve(devices.len());
        for found in devices {
            let device = found.num;
            let rank = self.ranks.entry(device).or_insert(found.rank);
            *rank = rank.saturating_add(1);
            if *rank > self.rows_max + self.slack {
                self.crowded.insert(device);
            }
            let row = NewRow { device, num, key, rank: *rank, place, gone: false };
            if let Some(key) = key {
                let latest = self.rows.len();
                let known = self.keys.get_mut(&(device, key));
                if let Some((before, _)) = known {
                    let before = std::mem::replace(before, latest);
                    self.leave(before, place, Outcome::Collapsed);
                } else {
                    self.keys.insert((device, key), (latest, place));
                }
            }
            self.rows.push(row);
        }
    }

    /// The notification at `place` removes a row of the group.
    fn leave(&mut self, row: usize, place: usize, why: Outcome) {
        let row = &mut self.rows[row];
        row.gone = true;
        let (device, num) = (row.device, row.num);
        self.add_removal(place, num, why, device);
    }

    fn add_removal(&mut self, place: usize, num: Num, why: Outcome, device: i64) {
        self.removals.entry((place, num, why as u8)).or_insert_with(|| (why, Vec::new())).1.push(device);
    }

    /// Devices and collapse keys whose older rows are removed first; sorted.
    pub(super) fn collapsing(&self) -> (Vec<i64>, Vec<&'a str>) {
        let mut keys: Vec<(i64, &str)> = self.keys.keys().copied().collect();
        keys.sort_unstable();
        keys.into_iter().unzip()
    }

    /// Devices to count, and how many rows each gets; sorted.
    pub(in crate::postgres) fn over_limit(&self) -> (Vec<i64>, Vec<i64>) {
        let mut new: BTreeMap<i64, i64> = self.crowded.iter().map(|device| (*device, 0)).collect();
        for row in self.rows.iter().filter(|row| !row.gone) {
            if let Some(count) = new.get_mut(&row.device) {
                *count += 1;
            }
        }
        new.into_iter().unzip()
    }

    /// Records a row that [`COLLAPSE`] removed.
    pub(super) fn collapsed(&mut self, device: i64, key: &str, num: Num) {
        if let Some((_, place)) = self.keys.get(&(device, key)) {
            self.add_removal(*place, num, Outcome::Collapsed, device);
        }
    }

    /// Records the result of [`MAKE_ROOM`]: how many rows each device had, and which of them were evicted.
    pub(super) fn apply_evictions(&mut self, counted: &[(i64, i64)], mut evicted: Vec<(i64, Num)>) {
        let mut of_device: HashMap<i64, Vec<usize>> = HashMap::new();
        for (i, row) in self.rows.iter().enumerate().filter(|(_, row)| !row.gone) {
            if self.crowded.contains(&row.device) {
                of_device.entry(row.device).or_default().push(i);
            }
        }
        evicted.sort_unstable();
        for &(device, rows) in counted {
            let Some(new) = of_device.get(&device) else { continue };
            let first = evicted.partition_point(|(one, _)| *one < device);
            let old: Vec<Num> =
                evicted[first..].iter().take_while(|(one, _)| *one == device).map(|(_, num)| *num).collect();
            let left = rows - old.len() as i64;
            // The group has more rows than an inbox takes: its oldest rows are not written.
            let over = match rows + new.len() as i64 > self.rows_max + self.slack {
                true => (left + new.len() as i64 - self.rows_max).max(0) as usize,
                false => 0,
            };
            // Each of the latest rows evicts one other row.
            let pushed_out = old.len() + over;
            let cause = |i: usize| new.len().saturating_sub(pushed_out - i).min(new.len() - 1);
            for (i, num) in old.iter().enumerate() {
                let place = self.rows[new[cause(i)]].place;
                self.add_removal(place, *num, Outcome::Evicted, device);
            }
            for i in 0..over {
                let place = self.rows[new[cause(old.len() + i)]].place;
                self.leave(new[i], place, Outcome::Evicted);
            }
            for (rank, &row) in (left + 1..).zip(&new[over..]) {
                self.rows[row].rank = rank;
            }
            self.ranks.insert(device, left + (new.len() - over) as i64);
        }
    }

    /// The same, from the rows of [`MAKE_ROOM`].
    pub(in crate::postgres) fn apply_room(&mut self, room: &[Row]) {
        let (mut counted, mut evicted) = (Vec::new(), Vec::new());
        for row in room {
            match row.get::<_, Option<i64>>(1) {
                Some(rows) => counted.push((row.get(0), rows)),
                None => evicted.push((row.get(0), row.get(2))),
            }
        }
        self.apply_evictions(&counted, evicted);
    }

    /// The rows to write, in the order of the table's key, and the removed ones by group index and notification.
    pub(in crate::postgres) fn finish(mut self) -> (InboxColumns<'a>, Vec<InboxRemoval>) {
        self.rows.sort_unstable_by_key(|row| (row.device, row.num));
        let mut columns = InboxColumns { newest: self.ranks, ..InboxColumns::default() };
        for row in self.rows.into_iter().filter(|row| !row.gone) {
            columns.devices.push(row.device);
            columns.nums.push(row.num);
            columns.keys.push(row.key);
            columns.ranks.push(row.rank);
        }
        let removals = self.removals.into_iter().map(|((place, num, _), (outcome, mut devices))| {
            devices.sort_unstable();
            let devices = devices.into_iter().map(|device| DeviceNum(device as u64)).collect();
            InboxRemoval { place, num, outcome, devices }
        });
        (columns, removals.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(num: i64, rank: i64) -> Found {
        Found { num, service: None, suspect: false, rank }
    }

    /// Rows by device, number and rank; removed rows, of one device each.
    fn check(inboxes: Inboxes<'_>, rows: &[(i64, Num, i64)], left: &[(usize, Num, Outcome, u64)]) {
        let (columns, found) = inboxes.finish();
        let written = columns.devices.iter().zip(&columns.nums).zip(&columns.ranks);
        assert!(written.map(|((device, num), rank)| (*device, *num, *rank)).eq(rows.iter().copied()));
        let found = found.iter().map(|left| (left.place, left.num, left.outcome, left.devices[0].0));
        assert_eq!(found.collect::<Vec<_>>(), left);
    }

    #[test]
    fn ranks_increase_without_counting_while_there_is_room() {
        let mut inboxes = Inboxes::new(3);
        inboxes.put(0, 100, None, &[found(1, 0), found(2, 1)]);
        inboxes.put(1, 101, None, &[found(1, 0), found(2, 1)]);
        assert!(inboxes.over_limit().0.is_empty());
        check(inboxes, &[(1, 100, 1), (1, 101, 2), (2, 100, 2), (2, 101, 3)], &[]);
    }

    #[test]
    fn a_later_notification_of_the_group_replaces_an_earlier_one() {
        let mut inboxes = Inboxes::new(9);
        inboxes.put(0, 100, Some("k"), &[found(1, 0)]);
        inboxes.put(1, 101, Some("k"), &[found(1, 0)]);
        assert_eq!(inboxes.collapsing(), (vec![1], vec!["k"]));
        inboxes.collapsed(1, "k", 50);
        check(inboxes, &[(1, 101, 2)], &[(0, 50, Outcome::Collapsed, 1), (1, 100, Outcome::Collapsed, 1)]);
    }

    #[test]
    fn excess_rows_are_evicted_oldest_first() {
        let mut inboxes = Inboxes::new(2);
        for (place, num) in (0..).zip([100, 101, 102]) {
            inboxes.put(place, num, None, &[found(1, 2)]);
        }
        assert_eq!(inboxes.over_limit(), (vec![1], vec![3]));
        inboxes.apply_evictions(&[(1, 2)], vec![(1, 51), (1, 50)]);
        check(
            inboxes,
            &[(1, 101, 1), (1, 102, 2)],
            &[(0, 50, Outcome::Evicted, 1), (1, 51, Outcome::Evicted, 1), (2, 100, Outcome::Evicted, 1)],
        );
    }

    #[test]
    fn the_oldest_are_evicted_together_once_the_slack_is_used() {
        // 32 are kept, and up to 2 more.
        let mut inboxes = Inboxes::new(32);
        inboxes.put(0, 100, None, &[found(1, 33), found(2, 34)]);
        assert_eq!(inboxes.over_limit(), (vec![2], vec![1]));
        inboxes.apply_evictions(&[(2, 34)], vec![(2, 3), (2, 1), (2, 2)]);
        let evicted = |num| (0, num, Outcome::Evicted, 2);
        check(inboxes, &[(1, 100, 34), (2, 100, 32)], &[evicted(1), evicted(2), evicted(3)]);
        // The inbox had fewer rows than the rank of its newest row.
        let mut inboxes = Inboxes::new(32);
        inboxes.put(0, 100, None, &[found(1, 34)]);
        inboxes.apply_evictions(&[(1, 33)], Vec::new());
        check(inboxes, &[(1, 100, 34)], &[]);
    }

    #[test]
    fn a_rank_that_is_too_high_is_corrected() {
        let mut inboxes = Inboxes::new(2);
        inboxes.put(0, 100, None, &[found(1, 1 << 62)]);
        inboxes.apply_evictions(&[(1, 1)], Vec::new());
        check(inboxes, &[(1, 100, 2)], &[]);
    }
}
