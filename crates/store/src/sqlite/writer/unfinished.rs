//! Jobs of the writer that a commit did not end: expansions, the acceptances that wait for them, and jobs for which a
//! group had no time.

use std::collections::{HashMap, VecDeque};

use noroshi_types::AppId;

use super::Job;
use crate::sqlite::expanding::Expanding;
use crate::sqlite::options::Options;

#[derive(Default)]
pub(super) struct Unfinished {
    /// They take turns: each group has one slice.
    expanding: VecDeque<Box<dyn Job>>,
    /// In the order in which they arrived.
    aside: VecDeque<Box<dyn Job>>,
    /// How many of each app are in `aside`.
    of_app: HashMap<AppId, usize>,
    rows: usize,
    /// They run first in the next group.
    postponed: VecDeque<Box<dyn Job>>,
}

impl Unfinished {
    /// Whether the next group has work without another job.
    pub(super) fn has_work(&self) -> bool {
        !self.expanding.is_empty() || !self.postponed.is_empty()
    }

    pub(super) fn expanding(&self) -> impl Iterator<Item = &dyn Job> {
        self.expanding.iter().map(|job| &**job)
    }

    /// Whether a job of the app would overtake another one.
    pub(super) fn has_aside(&self, app: AppId) -> bool {
        self.of_app.contains_key(&app)
    }

    /// Whether no more jobs can wait. A part of the queue's bounds: other apps need the rest.
    pub(super) fn is_full(&self, options: &Options) -> bool {
        self.aside.len() >= (options.write_queue / 4).max(1) || self.rows > options.write_queue_rows / 4
    }

    /// A job waits behind those of its app.
    pub(super) fn set_aside(&mut self, job: Box<dyn Job>) {
        self.count(&*job);
        self.aside.push_back(job);
    }

    /// Jobs that were in a group wait before those that were not. They are in order.
    pub(super) fn set_aside_first(&mut self, jobs: Vec<Box<dyn Job>>) {
        for job in jobs.into_iter().rev() {
            self.count(&*job);
            self.aside.push_front(job);
        }
    }

    fn count(&mut self, job: &dyn Job) {
        self.rows += job.rows();
        if let Some(app) = job.app() {
            *self.of_app.entry(app).or_default() += 1;
        }
    }

    pub(super) fn again(&mut self, job: Box<dyn Job>) {
        self.expanding.push_back(job);
    }

    /// Jobs that did not run. They are in order.
    pub(super) fn postpone(&mut self, jobs: Vec<Box<dyn Job>>) {
        self.postponed.extend(jobs);
    }

    /// Starts a group: the next slice, what was postponed, and what no longer waits. Returns its rows.
    pub(super) fn begin(
        &mut self,
        group: &mut Vec<Box<dyn Job>>,
        expanding: &Expanding,
        options: &Options,
    ) -> usize {
        // First, because jobs without savepoints are.
        group.extend(self.expanding.pop_front());
        group.extend(self.postponed.drain(..));
        let mut rows = group.iter().map(|job| job.rows()).sum();
        let mut index = 0;
        while rows < options.group_rows_max
            && group.len() < options.group_operations_max
            && let Some(job) = self.aside.get(index)
        {
            if job.app().is_some_and(|app| expanding.has(app)) {
                index += 1;
                continue;
            }
            let Some(job) = self.aside.remove(index) else { break };
            self.rows -= job.rows();
            if let Some(app) = job.app()
                && let Some(left) = self.of_app.get_mut(&app)
            {
                *left -= 1;
                if *left == 0 {
                    self.of_app.remove(&app);
                }
            }
            rows += job.rows();
            group.push(job);
        }
        rows
    }
}
