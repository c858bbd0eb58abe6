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
use noroshi_delivery::rules::{AppRules, Holder, Reason, Verdict};
use noroshi_store::Error as StoreError;
use noroshi_types::rule::Action;
use noroshi_types::{AppId, CloseReason, Topic};

use crate::fanout::mailbox::Reply;
use crate::session::permission::{Decided, Op, Verdicts};
use crate::shard::Shard;

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

    fn begin(&mut self, app: AppId) {
        self.total += 1;
        *self.by_app.entry(app).or_default() += 1;
    }

    fn end(&mut self, app: AppId) {
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
    pub(crate) op: Option<Op>,
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
    number: u64,
    app: AppId,
    /// By which the webhook is asked.
    rules: Arc<AppRules>,
    /// None: a log-in waits.
    op: Option<Op>,
    pub(crate) waiting: VecDeque<Op>,
    /// Dropped with the gate.
    _question: noroshi_delivery::AbortOnDrop,
}

/// What webhooks and the store answered for a gate.
#[derive(Debug)]
pub(crate) struct Permitted {
    number: u64,
    app: AppId,
    pub(crate) verdicts: Verdicts,
    /// A log-in cannot go on: something it needs is neither allowed nor ended. Or the question panicked.
    pub(crate) failed: bool,
}

/// Tells the shard what became of a question, whatever becomes of its task: without an answer it failed.
struct Answering<F: FnMut(Permitted)> {
    permitted: Permitted,
    tell: F,
}

impl<F: FnMut(Permitted)> Answering<F> {
    fn new(number: u64, app: AppId, tell: F) -> Self {
        Self { permitted: Permitted { number, app, verdicts: Verdicts::new(), failed: true }, tell }
    }

    fn answer(mut self, verdicts: Verdicts, failed: bool) {
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

impl Shard {
    /// Asks webhooks beside the shard, then ends the durable subscriptions that are denied. The caller has checked that
    /// there is room for what it asks.
    pub(crate) fn ask_webhooks(&mut self, slot: u32, asked: Asked) {
        let Asked { op, rules, holder, action, verdicts, needed, durable } = asked;
        let Some(connection) = self.connection(slot) else { return };
        let (to, protocol) = ((slot, connection.generation), connection.protocol.as_str());
        self.gate_number += 1;
        self.asking.begin(holder.app);
        let (number, app, of_gate) = (self.gate_number, holder.app, rules.clone());
        let (shared, index, delivery) = (self.shared.clone(), usize::from(self.index), self.delivery.clone());
        let answering = Answering::new(number, app, move |permitted| {
            if std::thread::panicking() {
                shared.metrics.panics.inc();
            }
            shared.mailboxes[index].reply(Reply::Permitted { to, permitted });
        });
        let question = self.delivery.work_while_held(async move {
            let answering = answering;
            let answer = |(name, verdict): (Box<str>, Verdict)| {
                let (delivery, rules, holder) = (&delivery, &rules, &holder);
                async move {
                    match verdict {
                        Verdict::Ask => {
                            let verdict = delivery.ask_topic(rules, holder, action, &name, protocol).await;
                            (name, verdict)
                        }
                        verdict => (name, verdict),
                    }
                }
            };
            let verdicts: Verdicts = join_all(verdicts.into_iter().map(answer)).await;
            let by_name: HashMap<&str, Verdict> =
                verdicts.iter().map(|(name, verdict)| (&**name, *verdict)).collect();
            let verdict = |name: &str| by_name.get(name).copied();
            // Without an answer nothing ends for good, and nothing may be delivered: the device has to come back.
            let unanswered =
                needed.iter().any(|name| verdict(name) == Some(Verdict::Denied(Reason::Unanswered)));
            let is_denied = |topic: &Topic| {
                matches!(verdict(topic.as_str()), Some(Verdict::Denied(Reason::Rule(_) | Reason::Webhook)))
            };
            let ended: Vec<Topic> = durable.into_iter().filter(is_denied).collect();
            drop(by_name);
            // By rules that changed meanwhile nothing ends: the log-in is decided again.
            let is_current = delivery.rules().are_current(holder.app, Some(&rules));
            let ended = if is_current { ended } else { Vec::new() };
            let failed = unanswered || !end_durable(&delivery, &holder, &ended).await;
            answering.answer(verdicts, failed);
        });
        let waiting = VecDeque::new();
        self.gates.insert(slot, Gate { number, app, rules: of_gate, op, waiting, _question: question });
    }

    pub(crate) fn handle_permitted(&mut self, (slot, generation): (u32, u64), permitted: Permitted) {
        self.asking.end(permitted.app);
        if self.gates.get(&slot).is_none_or(|gate| gate.number != permitted.number) {
            return;
        }
        let Some(gate) = self.gates.remove(&slot) else { return };
        if self.at(slot, generation).is_some_and(|connection| connection.is_alive()) {
            self.guard(Some(slot), |shard| match gate.op {
                None => shard.go_on_with_log_in(slot, generation, &gate.rules, permitted),
                Some(_) => shard.pass_gate(slot, gate, permitted),
            });
        }
    }

    fn pass_gate(&mut self, slot: u32, gate: Gate, permitted: Permitted) {
        let Gate { app, rules, op, mut waiting, .. } = gate;
        let Permitted { verdicts, failed, .. } = permitted;
        if failed {
            return self.begin_close(slot, CloseReason::Internal);
        }
        match op {
            Some(op) if self.delivery.rules().are_current(app, Some(&rules)) => {
                self.perform(slot, op, Decided { rules: Some(rules), verdicts });
            }
            // The rules changed: it is decided again, before what came after it.
            Some(op) => waiting.push_front(op),
            None => {}
        }
        while let Some(op) = waiting.pop_front() {
            if !self.is_alive(slot) {
                return;
            }
            self.try_op(slot, op);
            if let Some(gate) = self.gates.get_mut(&slot) {
                gate.waiting = waiting;
                return;
            }
        }
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
