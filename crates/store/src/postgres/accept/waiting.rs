//! Operations of the accepting task that wait for an expansion of their app ([`crate::postgres::expansion`]), on this node or on
//! another one.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use noroshi_types::AppId;
use tokio::time::Instant;

use super::Operation;
use crate::postgres::options::PostgresOptions;

/// Between two looks at the expansions of other nodes.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(in crate::postgres) struct Waiting {
    /// Apps with an expansion on this node.
    expanding: HashSet<AppId>,
    /// Apps with an expansion on another node, as it was read last.
    elsewhere: HashSet<AppId>,
    /// When to read again.
    again: Option<Instant>,
    /// In the order in which they arrived.
    operations: VecDeque<Operation>,
    of_app: HashMap<AppId, usize>,
    rows: usize,
}

impl Waiting {
    /// Whether nothing waits and no expansion has to end.
    pub(super) fn is_idle(&self) -> bool {
        self.expanding.is_empty() && self.operations.is_empty()
    }

    fn is_expanding(&self, app: AppId) -> bool {
        self.expanding.contains(&app)
    }

    /// Whether operations of the app wait, or have to.
    pub(super) fn has(&self, app: AppId) -> bool {
        self.is_expanding(app) || self.of_app.contains_key(&app)
    }

    pub(super) fn begin(&mut self, app: AppId) {
        self.expanding.insert(app);
    }

    pub(super) fn ended(&mut self, app: AppId) {
        self.expanding.remove(&app);
    }

    /// Keeps operations that would overtake others. Returns the remaining ones, and those for which there is no room: a
    /// part of the queue's bounds, because other apps need the rest.
    pub(super) fn pass(
        &mut self,
        group: Vec<Operation>,
        options: &PostgresOptions,
    ) -> (Vec<Operation>, Vec<Operation>) {
        let (mut passed, mut refused) = (Vec::with_capacity(group.len()), Vec::new());
        for operation in group {
            let app = operation.accept.app;
            if !self.has(app) {
                passed.push(operation);
            } else if self.operations.len() >= (options.write_queue / 4).max(1)
                || self.rows > options.write_queue_rows / 4
            {
                refused.push(operation);
            } else {
                self.set_aside(operation);
            }
        }
        (passed, refused)
    }

    pub(super) fn set_aside(&mut self, operation: Operation) {
        operation.waits();
        self.count(&operation);
        self.operations.push_back(operation);
    }

    fn count(&mut self, operation: &Operation) {
        self.rows += operation.rows();
        *self.of_app.entry(operation.accept.app).or_default() += 1;
    }

    /// Keeps the operations of these apps, which other nodes expand for. They come before those that wait already.
    pub(super) fn wait_for(&mut self, apps: &HashSet<AppId>, group: Vec<Operation>) -> Vec<Operation> {
        let (waiting, rest): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|operation| apps.contains(&operation.accept.app));
        for operation in waiting.into_iter().rev() {
            operation.waits();
            self.count(&operation);
            self.operations.push_front(operation);
        }
        self.elsewhere.extend(apps);
        self.again = Some(Instant::now() + PAUSE);
        rest
    }

    /// Waits for operations that can be tried, and returns some of them. Cancel-safe.
    pub(super) async fn released(&mut self, operations_max: usize) -> Vec<Operation> {
        loop {
            if self.again.is_some_and(|again| again <= Instant::now()) {
                self.again = None;
                self.elsewhere.clear();
            }
            let (mut released, mut index) = (Vec::new(), 0);
            while released.len() < operations_max.max(1)
                && let Some(operation) = self.operations.get(index)
            {
                let app = operation.accept.app;
                if self.is_expanding(app) || self.elsewhere.contains(&app) {
                    index += 1;
                    continue;
                }
                let Some(mut operation) = self.operations.remove(index) else { break };
                self.rows -= operation.rows();
                if let Some(left) = self.of_app.get_mut(&app) {
                    *left -= 1;
                    if *left == 0 {
                        self.of_app.remove(&app);
                    }
                }
                operation.begin_again();
                released.push(operation);
            }
            if !released.is_empty() {
                return released;
            }
            match self.again {
                Some(again) => tokio::time::sleep_until(again).await,
                None => std::future::pending().await,
            }
        }
    }
}
