//! Topic filters with wildcards of one shard's connections. A topic message is compared with the filters of its app,
//! each distinct one once, however many connections have it.
//!
//! Filters are few where topics are many: a connection has at most some tens (`mqtt::WILDCARDS_MAX`), and devices of
//! one app share them.

use hashbrown::{HashMap, HashSet};
use noroshi_protocol::mqtt::filter_matches;
use noroshi_types::AppId;

#[derive(Default)]
pub(crate) struct Wildcards {
    by_app: HashMap<AppId, HashMap<Box<str>, HashSet<u32>>>,
}

impl Wildcards {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_app.is_empty()
    }

    pub(crate) fn add(&mut self, app: AppId, filter: &str, slot: u32) {
        self.by_app.entry(app).or_default().entry(filter.into()).or_default().insert(slot);
    }

    pub(crate) fn remove(&mut self, app: AppId, filter: &str, slot: u32) {
        let Some(filters) = self.by_app.get_mut(&app) else { return };
        if let Some(slots) = filters.get_mut(filter) {
            slots.remove(&slot);
            if slots.is_empty() {
                filters.remove(filter);
            }
        }
        if filters.is_empty() {
            self.by_app.remove(&app);
        }
    }

    /// Adds the connections whose filters match a topic.
    pub(crate) fn matching(&self, app: AppId, name: &str, slots: &mut Vec<u32>) {
        let Some(filters) = self.by_app.get(&app) else { return };
        for (_, subscribers) in filters.iter().filter(|(filter, _)| filter_matches(filter, name)) {
            slots.extend(subscribers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_belongs_to_an_app_and_ends_with_its_last_connection() {
        let mut wildcards = Wildcards::default();
        for (app, filter, slot) in [(1, "a/+", 5), (1, "a/+", 6), (1, "#", 6), (2, "#", 7)] {
            wildcards.add(AppId(app), filter, slot);
        }
        let matching = |wildcards: &Wildcards, app, name: &str| {
            let mut slots = Vec::new();
            wildcards.matching(AppId(app), name, &mut slots);
            slots.sort_unstable();
            slots.dedup();
            slots
        };
        assert_eq!(matching(&wildcards, 1, "a/b"), [5, 6]);
        assert_eq!(matching(&wildcards, 1, "b"), [6]);
        assert_eq!(matching(&wildcards, 2, "b"), [7]);
        for (app, filter, slot) in [(1, "a/+", 5), (1, "a/+", 6), (1, "#", 6), (2, "#", 7), (2, "#", 7)] {
            wildcards.remove(AppId(app), filter, slot);
        }
        assert!(wildcards.is_empty());
    }
}
