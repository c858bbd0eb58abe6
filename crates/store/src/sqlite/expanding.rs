//! Which expansions have not ended (see [`crate::engine::expansion`]), as the writer's jobs show.

use std::collections::HashSet;

use noroshi_types::AppId;

use crate::ids::Num;

/// The apps whose notifications wait, and the notifications whose rows are being written.
#[derive(Debug, Default)]
pub(crate) struct Expanding {
    apps: HashSet<AppId>,
    nums: HashSet<Num>,
}

impl Expanding {
    /// Whether notifications of the app wait.
    pub(super) fn has(&self, app: AppId) -> bool {
        self.apps.contains(&app)
    }

    pub(super) fn is_active(&self, num: Num) -> bool {
        self.nums.contains(&num)
    }

    pub(super) fn add_app(&mut self, app: AppId) {
        self.apps.insert(app);
    }

    pub(super) fn add_num(&mut self, num: Num) {
        self.nums.insert(num);
    }

    /// Starts again from what has not ended: a rollback may have undone a beginning.
    pub(super) fn reset(&mut self, unfinished: impl Iterator<Item = (Option<AppId>, Option<Num>)>) {
        self.apps.clear();
        self.nums.clear();
        for (app, num) in unfinished {
            self.apps.extend(app);
            self.nums.extend(num);
        }
    }
}
