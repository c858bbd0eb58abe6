//! Items of several apps, served so that each app gets an equal share, whatever the sizes and numbers of its items.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996): each app has a virtual time, the units that it was served. The
//! app with the lowest is next. An app that returns after a pause begins at the present virtual time, so it cannot save
//! up service. Within an app the higher level is served first.
//!
//! Bounds: the caller limits the items. An app without items is remembered only until the others have caught up.

use std::collections::{BTreeSet, HashMap, VecDeque};

use noroshi_types::{AppId, Urgency};

const LEVELS: usize = 4;

pub(super) struct FairQueue<T> {
    apps: HashMap<AppId, App<T>>,
    /// Apps with items, by the units that they were served.
    next: BTreeSet<(u64, AppId)>,
    /// Apps without items that were served more than the present virtual time.
    ahead: BTreeSet<(u64, AppId)>,
    /// The virtual time: what the app that was served last had been served before.
    present: u64,
    len: usize,
    units: usize,
}

struct App<T> {
    served: u64,
    /// By urgency, the highest last.
    levels: [VecDeque<Entry<T>>; LEVELS],
    len: usize,
}

struct Entry<T> {
    ticket: u64,
    units: usize,
    item: T,
}

/// Where an item is.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) app: AppId,
    pub(super) urgency: Urgency,
    /// Grows from one item to the next.
    pub(super) ticket: u64,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        let (next, ahead) = (BTreeSet::new(), BTreeSet::new());
        Self { apps: HashMap::new(), next, ahead, present: 0, len: 0, units: 0 }
    }
}

impl<T> FairQueue<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The units of all items.
    pub(super) fn units(&self) -> usize {
        self.units
    }

    pub(super) fn push(&mut self, at: At, units: usize, item: T) {
        let present = self.present;
        let app = self.apps.entry(at.app).or_insert_with(|| App {
            served: present,
            levels: Default::default(),
            len: 0,
        });
        if app.len == 0 {
            self.ahead.remove(&(app.served, at.app));
            app.served = app.served.max(present);
            self.next.insert((app.served, at.app));
        }
        app.levels[level(at.urgency)].push_back(Entry { ticket: at.ticket, units, item });
        app.len += 1;
        self.len += 1;
        self.units += units;
    }

    /// The next item and its units: the oldest of its app.
    pub(super) fn pop(&mut self) -> Option<(T, usize)> {
        let (served, id) = self.next.first().copied()?;
        let app = self.apps.get_mut(&id)?;
        let entry = app.levels.iter_mut().rev().find_map(VecDeque::pop_front)?;
        Some(self.served(id, served, entry))
    }

    /// The next item that is `eligible`, and its units: the newest of its app. Older items than one that is not eligible
    /// are not eligible either.
    pub(super) fn pop_newest(&mut self, eligible: impl Fn(&T) -> bool) -> Option<(T, usize)> {
        for (served, id) in &self.next {
            let Some(app) = self.apps.get_mut(id) else { continue };
            let newest = |level: &mut VecDeque<Entry<T>>| level.pop_back_if(|entry| eligible(&entry.item));
            if let Some(entry) = app.levels.iter_mut().rev().find_map(newest) {
                return Some(self.served(*id, *served, entry));
            }
        }
        None
    }

    /// An entry was taken from an app. `served`: what the app had been served before.
    fn served(&mut self, id: AppId, served: u64, entry: Entry<T>) -> (T, usize) {
        self.present = served;
        if let Some(app) = self.apps.get_mut(&id) {
            app.served = served + entry.units.max(1) as u64;
            app.len -= 1;
        }
        self.taken(id, served, entry.units);
        (entry.item, entry.units)
    }

    pub(super) fn remove(&mut self, at: At) -> Option<T> {
        let app = self.apps.get_mut(&at.app)?;
        let level = &mut app.levels[level(at.urgency)];
        let index = level.binary_search_by_key(&at.ticket, |entry| entry.ticket).ok()?;
        let entry = level.remove(index)?;
        app.len -= 1;
        let served = app.served;
        self.taken(at.app, served, entry.units);
        Some(entry.item)
    }

    /// Removes an item of the app with the most items: the one that would be served last.
    pub(super) fn evict(&mut self, newest: bool) -> Option<T> {
        let (id, app) = self.apps.iter_mut().max_by_key(|(_, app)| app.len)?;
        let level = app.levels.iter_mut().find(|level| !level.is_empty())?;
        let entry = if newest { level.pop_front() } else { level.pop_back() }?;
        app.len -= 1;
        let (id, served) = (*id, app.served);
        self.taken(id, served, entry.units);
        Some(entry.item)
    }

    /// The lowest ticket.
    pub(super) fn oldest(&self) -> Option<&T> {
        let fronts = self.apps.values().flat_map(|app| app.levels.iter()).filter_map(VecDeque::front);
        fronts.min_by_key(|entry| entry.ticket).map(|entry| &entry.item)
    }

    /// An item left an app. `before`: what the app had been served.
    fn taken(&mut self, id: AppId, before: u64, units: usize) {
        self.len -= 1;
        self.units -= units;
        let Some(app) = self.apps.get(&id) else { return };
        self.next.remove(&(before, id));
        match app.len {
            0 => drop(self.ahead.insert((app.served, id))),
            _ => drop(self.next.insert((app.served, id))),
        }
        if self.len == 0 {
            return *self = Self::default();
        }
        while let Some((served, id)) =
            self.ahead.first().copied().filter(|(served, _)| *served <= self.present)
        {
            self.ahead.remove(&(served, id));
            self.apps.remove(&id);
        }
    }
}

fn level(urgency: Urgency) -> usize {
    match urgency {
        Urgency::VeryLow => 0,
        Urgency::Low => 1,
        Urgency::Normal => 2,
        Urgency::High => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        queue: FairQueue<(u32, u64)>,
        tickets: u64,
    }

    impl Bench {
        fn new() -> Self {
            Self { queue: FairQueue::default(), tickets: 0 }
        }

        fn push(&mut self, app: u32, urgency: Urgency, units: usize) -> At {
            self.tickets += 1;
            let at = At { app: AppId(app), urgency, ticket: self.tickets };
            self.queue.push(at, units, (app, self.tickets));
            at
        }

        fn pop(&mut self) -> (u32, u64) {
            self.queue.pop().expect("an item").0
        }
    }

    #[test]
    fn apps_get_equal_units() {
        let mut bench = Bench::new();
        for _ in 0..100 {
            bench.push(1, Urgency::Normal, 300);
            bench.push(2, Urgency::Normal, 100);
        }
        let mut units = [0_u32; 3];
        for _ in 0..80 {
            let (app, _) = bench.pop();
            units[app as usize] += if app == 1 { 300 } else { 100 };
        }
        assert!(units[1].abs_diff(units[2]) <= 300, "{units:?}");
    }

    #[test]
    fn an_app_with_one_item_at_a_time_gets_no_more_than_its_share() {
        let mut bench = Bench::new();
        for _ in 0..100 {
            bench.push(1, Urgency::Normal, 100);
        }
        bench.push(2, Urgency::Normal, 100);
        let mut served = [0; 3];
        for _ in 0..50 {
            let (app, _) = bench.pop();
            served[app as usize] += 1;
            if app == 2 {
                bench.push(2, Urgency::Normal, 100);
            }
        }
        assert_eq!((served[1], served[2]), (25, 25));
    }

    #[test]
    fn a_newcomer_is_next_and_saves_up_nothing() {
        let mut bench = Bench::new();
        for _ in 0..50 {
            bench.push(1, Urgency::Normal, 100);
        }
        for _ in 0..20 {
            assert_eq!(bench.pop().0, 1);
        }
        for _ in 0..20 {
            bench.push(2, Urgency::Normal, 100);
        }
        let served: Vec<u32> = (0..10).map(|_| bench.pop().0).collect();
        assert_eq!(served.iter().filter(|app| **app == 2).count(), 5, "{served:?}");
    }

    #[test]
    fn urgent_items_of_an_app_come_first_and_the_newest_on_request() {
        let mut bench = Bench::new();
        bench.push(1, Urgency::Low, 1);
        bench.push(1, Urgency::Normal, 1);
        bench.push(1, Urgency::High, 1);
        bench.push(1, Urgency::High, 1);
        assert_eq!([bench.pop().1, bench.pop().1, bench.pop().1], [3, 4, 2]);
        bench.push(1, Urgency::Low, 1);
        assert_eq!(bench.queue.oldest().map(|item| item.1), Some(1));
        assert_eq!(bench.queue.pop_newest(|item| item.1 > 5), None);
        assert_eq!(bench.queue.pop_newest(|item| item.1 > 4), Some(((1, 5), 1)));
        assert_eq!(bench.pop().1, 1);
        assert!(bench.queue.pop().is_none() && bench.queue.apps.is_empty());
    }

    #[test]
    fn items_are_removed_and_evicted_from_the_largest_app() {
        let mut bench = Bench::new();
        let first = bench.push(1, Urgency::Normal, 5);
        bench.push(2, Urgency::Normal, 5);
        bench.push(2, Urgency::Normal, 5);
        assert_eq!((bench.queue.len(), bench.queue.units()), (3, 15));
        assert_eq!(bench.queue.evict(false), Some((2, 3)), "the one that is served last");
        assert_eq!(bench.queue.remove(first), Some((1, 1)));
        assert!(bench.queue.remove(first).is_none());
        assert_eq!((bench.queue.len(), bench.queue.units()), (1, 5));
        assert_eq!(bench.pop(), (2, 2));
        assert!(bench.queue.len() == 0 && bench.queue.apps.is_empty() && bench.queue.ahead.is_empty());
    }
}
