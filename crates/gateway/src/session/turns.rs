//! Items of apps that take turns, so that a large app does not delay a small one.

use std::collections::{HashMap, VecDeque};

use noroshi_types::AppId;

/// An app is in `turn` if it has items, unless [`Turns::pop`] took it out.
pub(crate) struct Turns<T> {
    items: HashMap<AppId, VecDeque<T>>,
    turn: VecDeque<AppId>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { items: HashMap::new(), turn: VecDeque::new() }
    }
}

impl<T> Turns<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.turn.is_empty()
    }

    /// `is_out`: the app has no turn now.
    pub(crate) fn push(&mut self, app: AppId, item: T, is_out: bool) {
        let items = self.items.entry(app).or_default();
        items.push_back(item);
        if items.len() == 1 && !is_out {
            self.turn.push_back(app);
        }
    }

    /// The item whose turn it is. Its app has no further turn until [`Turns::give_turn`].
    pub(crate) fn pop(&mut self) -> Option<(AppId, T)> {
        let app = self.turn.pop_front()?;
        let items = self.items.get_mut(&app)?;
        let item = items.pop_front()?;
        if items.is_empty() {
            self.items.remove(&app);
        }
        Some((app, item))
    }

    /// Gives an app another turn, if it has items.
    pub(crate) fn give_turn(&mut self, app: AppId) {
        if self.items.contains_key(&app) {
            self.turn.push_back(app);
        }
    }

    /// Keeps the items of an app for which `keeps` is true.
    pub(crate) fn retain(&mut self, app: AppId, keeps: impl FnMut(&T) -> bool) {
        let Some(items) = self.items.get_mut(&app) else { return };
        items.retain(keeps);
        if items.is_empty() {
            self.items.remove(&app);
            self.turn.retain(|other| *other != app);
        }
    }
}
