//! Where a connection waits for a webhook of topic rules: the operation waits at its *gate*, and the client's later
//! requests wait behind it, so the order stays. A log-in waits at a gate too.
//!
//! Owns the questions that one shard has asked; it does not interpret answers. A gate ends with its session, and the
//! question is dropped with it. Every question sends one answer, even if it is dropped or panics, so the count of
//! pending questions stays exact.
//!
//! An answer counts only while the rules that it was asked under are in force: after a change the operation is decided
//! again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use futures_util::future::join_all;
use noroshi_delivery::Delivery;
use noroshi_delivery::rules::{AppRules, Holder, Reason, Verdict};
use noroshi_store::Error as StoreError;
use noroshi_types::rule::Action;
use noroshi_types::{AppId, Topic, limits};

use crate::session::permission::Verdicts;
use crate::session::request::BoxedRequest;

/// Pending questions of one shard: at most so many connections wait for a webhook.
pub(crate) const ASKING_MAX: usize = 1_024;
/// Operations that wait at one gate.
const WAITING_MAX: usize = 64;
/// What they hold together, where several wait: with [`ASKING_MAX`] 64 MiB of a shard. One may wait in any case: its
/// message was not too large.
const WAITING_BYTES_MAX: usize = limits::CLIENT_MESSAGE_BYTES;

/// The gates of one shard.
#[derive(Default)]
pub(crate) struct Gates {
    by_slot: HashMap<u32, Gate>,
    /// The number of the last gate.
    last: u64,
    asking: Asking,
}

/// Pending questions of one shard, including those of gates that ended. Apps share the places: an app may ask while it
/// holds fewer than three for each free place, so an app whose webhook hangs leaves a quarter of the places to others.
#[derive(Default)]
struct Asking {
    total: usize,
    by_app: HashMap<AppId, usize>,
}

/// A decision that needs a webhook.
pub(crate) struct Asked {
    /// None: a log-in waits.
    pub(crate) op: Option<BoxedRequest>,
    pub(crate) rules: Arc<AppRules>,
    pub(crate) holder: Holder,
    pub(crate) action: Action,
    pub(crate) verdicts: Verdicts,
    /// Those among the verdicts that a log-in cannot continue without: durable subscriptions and filters of its
    /// session.
    pub(crate) needed: Vec<Box<str>>,
    /// Those among the verdicts that end in the store if they are denied.
    pub(crate) durable: Vec<Topic>,
}

/// A connection that waits for a webhook.
pub(crate) struct Gate {
    /// Distinguishes it from a later one of the same slot.
    number: u64,
    /// The rules under which the webhook is asked.
    pub(crate) rules: Arc<AppRules>,
    /// None: a log-in waits.
    pub(crate) op: Option<BoxedRequest>,
    /// Later operations of the client, in order.
    pub(crate) waiting: VecDeque<BoxedRequest>,
    /// Dropped with the gate.
    _question: noroshi_delivery::AbortOnDropHandle<()>,
}

/// What webhooks and the store answered for a gate.
#[derive(Debug)]
pub(crate) struct Permitted {
    number: u64,
    pub(crate) app: AppId,
    pub(crate) verdicts: Verdicts,
    /// Something a log-in needs is neither allowed nor ended, or the question panicked.
    pub(crate) failed: bool,
}

/// What became of an operation at a gate.
pub(crate) enum Entry {
    /// No gate is there.
    Pass(BoxedRequest),
    Waits,
    /// Too much waits there already.
    Full,
}

impl Asked {
    /// Whether a webhook must be called; otherwise only subscriptions end.
    pub(crate) fn needs_webhook(&self) -> bool {
        self.verdicts.iter().any(|(_, verdict)| *verdict == Verdict::Ask)
    }
}

impl Asking {
    fn has_room(&self, app: AppId) -> bool {
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

impl Gates {
    /// Whether an app may ask another question now.
    pub(crate) fn has_room(&self, app: AppId) -> bool {
        self.asking.has_room(app)
    }

    /// Puts an operation behind the gate of its connection, if there is one.
    pub(crate) fn enter(&mut self, slot: u32, op: BoxedRequest) -> Entry {
        let Some(gate) = self.by_slot.get_mut(&slot) else { return Entry::Pass(op) };
        let bytes: usize = gate.waiting.iter().chain([&op]).map(|op| op.bytes()).sum();
        let is_over = bytes > WAITING_BYTES_MAX && !gate.waiting.is_empty();
        if is_over || gate.waiting.len() >= WAITING_MAX {
            return Entry::Full;
        }
        gate.waiting.push_back(op);
        Entry::Waits
    }

    /// Asks webhooks off the shard, then ends the durable subscriptions that are denied. The caller has checked that
    /// there is room. `answer` gets the value for [`Gates::take`].
    pub(crate) fn ask(
        &mut self,
        slot: u32,
        protocol: &'static str,
        delivery: &Arc<Delivery>,
        asked: Asked,
        answer: impl FnMut(Permitted) + Send + 'static,
    ) {
        let Asked { op, rules, holder, action, verdicts, needed, durable } = asked;
        self.last += 1;
        self.asking.begin(holder.app);
        let (number, app, of_gate) = (self.last, holder.app, rules.clone());
        // Until there is an answer, it failed.
        let permitted = Permitted { number, app, verdicts: Verdicts::new(), failed: true };
        let answering = Answering { permitted: Some(permitted), send: answer };
        let asking = delivery.clone();
        let question = delivery.work_while_held(async move {
            let mut answering = answering;
            let delivery = asking;
            let answer = |(name, verdict): (Box<str>, Verdict)| {
                let (delivery, rules, holder) = (&delivery, &rules, &holder);
                async move {
                    match verdict {
                        Verdict::Ask => {
                            let verdict = delivery.rules.ask(rules, holder, action, &name, protocol).await;
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
            // Without an answer nothing ends permanently, and nothing may be delivered: the device must reconnect.
            let unanswered =
                needed.iter().any(|name| verdict(name) == Some(Verdict::Denied(Reason::Unanswered)));
            let is_denied = |topic: &Topic| {
                matches!(verdict(topic.as_str()), Some(Verdict::Denied(Reason::Rule(_) | Reason::Webhook)))
            };
            let ended: Vec<Topic> = durable.into_iter().filter(is_denied).collect();
            drop(by_name);
            // Rules that changed meanwhile end nothing: the log-in is decided again.
            let is_current = delivery.rules.are_current(holder.app, Some(&rules));
            let ended = if is_current { ended } else { Vec::new() };
            let failed = unanswered || !end_durable(&delivery, &holder, &ended).await;
            answering.permitted = Some(Permitted { number, app, verdicts, failed });
        });
        let waiting = VecDeque::new();
        self.by_slot.insert(slot, Gate { number, rules: of_gate, op, waiting, _question: question });
    }

    /// Takes the gate that was answered. None if it ended, or another one is there.
    pub(crate) fn take(&mut self, slot: u32, permitted: &Permitted) -> Option<Gate> {
        self.asking.end(permitted.app);
        match self.by_slot.get(&slot) {
            Some(gate) if gate.number == permitted.number => self.by_slot.remove(&slot),
            _ => None,
        }
    }

    /// Puts operations behind the gate of a connection. Returns them where none is there.
    pub(crate) fn wait_behind(
        &mut self,
        slot: u32,
        waiting: VecDeque<BoxedRequest>,
    ) -> Option<VecDeque<BoxedRequest>> {
        match self.by_slot.get_mut(&slot) {
            Some(gate) => {
                gate.waiting = waiting;
                None
            }
            None => Some(waiting),
        }
    }

    /// Ends the gate of a connection, and what waits there.
    pub(crate) fn end(&mut self, slot: u32) {
        self.by_slot.remove(&slot);
    }
}

/// Answers for a question, whatever becomes of its task: without an answer it failed.
struct Answering<F: FnMut(Permitted)> {
    permitted: Option<Permitted>,
    send: F,
}

impl<F: FnMut(Permitted)> Drop for Answering<F> {
    fn drop(&mut self) {
        self.permitted.take().into_iter().for_each(&mut self.send);
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
    delivery.freshness.device_changed(holder.app, &holder.device);
    if let Some(error) = &failed {
        tracing::warn!(%error, "cannot end subscriptions that topic rules deny");
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
    fn a_dropped_or_panicked_question_still_answers() {
        let told = RefCell::new(Vec::new());
        let answering = |number| {
            let permitted = Permitted { number, app: AppId(1), verdicts: Verdicts::new(), failed: true };
            let send = |it: Permitted| told.borrow_mut().push((it.number, it.failed));
            Answering { permitted: Some(permitted), send }
        };
        let mut answered = answering(1);
        answered.permitted = answered.permitted.take().map(|it| Permitted { failed: false, ..it });
        drop(answered);
        drop(answering(2));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _answering = answering(3);
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*told.borrow(), [(1, false), (2, true), (3, true)]);
    }
}
