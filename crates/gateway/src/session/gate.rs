//! Where a connection waits for a webhook of topic rules: what it asked for waits at its *gate*, and what it asks for
//! meanwhile waits behind that, so nothing changes its order. A log-in waits at a gate too.
//!
//! A gate ends with its session, and the question is dropped with it. Every question sends one answer, even if it is
//! dropped or panics, so the shard knows how many are out.
//!
//! An answer counts only while the rules are those that had it asked: after a change the operation is decided again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::future::join_all;
use noroshi_delivery::Delivery;
use noroshi_delivery::rules::{AppRules, Holder};
use noroshi_store::Error as StoreError;
use noroshi_types::rule::Action;
use noroshi_types::{AppId, Topic};

use crate::session::operation::Operation;
use crate::session::permission::Verdicts;

/// Questions of one shard that are out at once: no more connections than that wait for a webhook.
pub(crate) const ASKING_MAX: usize = 1_024;

/// Questions of one shard that are out, those of gates that ended among them. Apps share the places: an app may ask while
/// it holds fewer than three for each free place, so an app whose webhook hangs leaves a quarter of the places to others.
#[derive(Default)]
pub(crate) struct Asking {
    total: usize,
    by_app: HashMap<AppId, usize>,
}

impl Asking {
    pub(crate) fn has_room(&self, app: AppId) -> bool {
        let held = self.by_app.get(&app).copied().unwrap_or(0);
        held < 3 * ASKING_MAX.saturating_sub(self.total)
    }

    pub(crate) fn begin(&mut self, app: AppId) {
        self.total += 1;
        *self.by_app.entry(app).or_default() += 1;
    }

    pub(crate) fn end(&mut self, app: AppId) {
        let Some(held) = self.by_app.get_mut(&app) else { return };
        self.total -= 1;
        *held -= 1;
        if *held == 0 {
            self.by_app.remove(&app);
        }
    }
}

/// What has to be decided with the help of a webhook.
pub(crate) struct Asked {
    /// None: a log-in waits.
    pub(crate) op: Option<Box<dyn Operation>>,
    pub(crate) rules: Arc<AppRules>,
    pub(crate) holder: Holder,
    pub(crate) action: Action,
    pub(crate) verdicts: Verdicts,
    /// Those among the verdicts that a log-in cannot go on without: durable subscriptions and filters of its session.
    pub(crate) needed: Vec<Box<str>>,
    /// Those among the verdicts that end in the store if they are denied.
    pub(crate) durable: Vec<Topic>,
}

/// A connection that waits for a webhook.
pub(crate) struct Gate {
    /// Tells it from a later one of the same slot.
    pub(crate) number: u64,
    pub(crate) app: AppId,
    /// By which the webhook is asked.
    pub(crate) rules: Arc<AppRules>,
    /// None: a log-in waits.
    pub(crate) op: Option<Box<dyn Operation>>,
    pub(crate) waiting: VecDeque<Box<dyn Operation>>,
    /// Dropped with the gate.
    pub(crate) _question: noroshi_delivery::AbortOnDrop,
}

/// What webhooks and the store answered for a gate.
#[derive(Debug)]
pub(crate) struct Permitted {
    pub(crate) number: u64,
    pub(crate) app: AppId,
    pub(crate) verdicts: Verdicts,
    /// A log-in cannot go on: something it needs is neither allowed nor ended. Or the question panicked.
    pub(crate) failed: bool,
}

/// Tells the shard what became of a question, whatever becomes of its task: without an answer it failed.
pub(crate) struct Answering<F: FnMut(Permitted)> {
    permitted: Permitted,
    tell: F,
}

impl<F: FnMut(Permitted)> Answering<F> {
    pub(crate) fn new(number: u64, app: AppId, tell: F) -> Self {
        Self { permitted: Permitted { number, app, verdicts: Verdicts::new(), failed: true }, tell }
    }

    pub(crate) fn answer(mut self, verdicts: Verdicts, failed: bool) {
        (self.permitted.verdicts, self.permitted.failed) = (verdicts, failed);
    }
}

impl<F: FnMut(Permitted)> Drop for Answering<F> {
    fn drop(&mut self) {
        let Permitted { number, app, verdicts, failed } = &mut self.permitted;
        let (number, app, failed) = (*number, *app, *failed);
        (self.tell)(Permitted { number, app, verdicts: std::mem::take(verdicts), failed });
    }
}

/// Ends durable subscriptions that are denied. False if the store did not.
pub(crate) async fn end_durable(delivery: &Delivery, holder: &Holder, topics: &[Topic]) -> bool {
    if topics.is_empty() {
        return true;
    }
    let store = delivery.store();
    let ends = topics.iter().map(|topic| store.unsubscribe(holder.app, &holder.device, topic));
    let mut failed = join_all(ends).await.into_iter().filter_map(Result::err);
    let failed = failed.rfind(|error| !matches!(error, StoreError::NotFound));
    delivery.device_changed(holder.app, &holder.device);
    if let Some(error) = &failed {
        tracing::warn!(%error, "subscriptions that topic rules deny could not be ended");
    }
    failed.is_none()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn an_app_that_asks_a_lot_leaves_places_to_others() {
        let (loud, quiet) = (AppId(1), AppId(2));
        let mut asking = Asking::default();
        let flood = |asking: &mut Asking, app| {
            let places = (0..).take_while(|_| asking.has_room(app).then(|| asking.begin(app)).is_some());
            places.count()
        };
        assert_eq!(flood(&mut asking, loud), ASKING_MAX * 3 / 4);
        assert_eq!(flood(&mut asking, quiet), ASKING_MAX * 3 / 16);
        assert!(!asking.has_room(loud) && asking.has_room(AppId(3)));
        (0..ASKING_MAX * 3 / 4).for_each(|_| asking.end(loud));
        (0..ASKING_MAX * 3 / 16).for_each(|_| asking.end(quiet));
        assert!(asking.total == 0 && asking.by_app.is_empty());
    }

    #[test]
    fn a_question_that_is_dropped_or_panics_answers_too() {
        let told = RefCell::new(Vec::new());
        let answering = |number| {
            Answering::new(number, AppId(1), |it: Permitted| told.borrow_mut().push((it.number, it.failed)))
        };
        answering(1).answer(Verdicts::new(), false);
        drop(answering(2));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _answering = answering(3);
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*told.borrow(), [(1, false), (2, true), (3, true)]);
    }
}
