//! What the handles of a client and its tasks share: the machine, and what carries out its effects.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use crate::clock::Clock;
use crate::delivery::Delivery;
use crate::error::{BoxError, Code, Error};
use crate::event::Event;
use crate::http::{Base, Http};
use crate::message::Message;
use crate::protocol::{Dial, Effect, Ended, Machine, Moment, Outcome, Request};
use crate::reports::Saver;
use crate::socket::{self, Frames};
use crate::state::Transport;
use crate::stream;
use crate::token::{TokenError, TokenRequest};

/// A larger frame is not from the service.
pub(crate) const FRAME_MAX: usize = 16 << 20;
/// Events that wait for the application.
const EVENTS_MAX: usize = 1_000;
/// How long `close` waits for acknowledgements and reports.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

type TokenFuture = Pin<Box<dyn Future<Output = Result<String, TokenError>> + Send>>;
pub(crate) type Provider = Box<dyn Fn(TokenRequest) -> TokenFuture + Send + Sync>;

pub(crate) struct Shared {
    me: Weak<Shared>,
    pub(crate) base: Base,
    pub(crate) app: Option<String>,
    pub(crate) http: Http,
    provider: Provider,
    pub(crate) clock: Arc<dyn Clock>,
    runtime: Handle,
    /// The application has settled a message.
    pub(crate) settled: Notify,
    busy: Arc<BusyCount>,
    inner: Mutex<Inner>,
    /// Tests see each effect.
    #[cfg(test)]
    pub(crate) observer: crate::tests::Observer,
}

pub(crate) struct Settings {
    pub(crate) base: Base,
    pub(crate) app: Option<String>,
    pub(crate) http: Http,
    pub(crate) provider: Provider,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Handle,
    pub(crate) saver: Option<Saver>,
    pub(crate) machine: Machine,
}

pub(crate) struct Inner {
    pub(crate) machine: Machine,
    pub(crate) links: HashMap<u64, Link>,
    pub(crate) tokens: HashMap<u64, AbortHandle>,
    requests: HashMap<u64, AbortHandle>,
    /// Calls that wait for their results.
    pub(crate) calls: HashMap<u64, oneshot::Sender<Result<Outcome, Error>>>,
    saver: Option<Saver>,
    pub(crate) events: Queue,
    /// Ended outside of the lock, because that may run code of the application.
    aborted: Vec<AbortHandle>,
    /// Messages that the application has settled.
    settled_count: u64,
    /// Inputs of the machine.
    pub(crate) input_count: u64,
}

pub(crate) struct Link {
    /// Only of a WebSocket.
    pub(crate) frames: Option<Frames>,
    abort: AbortHandle,
    pub(crate) is_open: bool,
}

/// Events that wait for the application.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    dropped: usize,
    waker: Option<Waker>,
    /// The last handle of the client is gone.
    is_ended: bool,
    /// The application has dropped its `Events`.
    is_abandoned: bool,
}

enum Waiting {
    /// At most one.
    Message(Message),
    Event(Event),
}

impl Queue {
    fn push(&mut self, one: Waiting) {
        if self.is_abandoned {
            return;
        }
        if self.waiting.len() >= EVENTS_MAX {
            let oldest = self.waiting.iter().position(|one| matches!(one, Waiting::Event(_)));
            if let Some(oldest) = oldest {
                self.waiting.remove(oldest);
                self.dropped += 1;
            }
        }
        self.waiting.push_back(one);
    }

    /// Returns false if there was none.
    fn drop_message(&mut self) -> bool {
        let message = self.waiting.iter().position(|one| matches!(one, Waiting::Message(_)));
        message.and_then(|place| self.waiting.remove(place)).is_some()
    }

    fn take_waker(&mut self) -> Option<Waker> {
        let has_news = !self.waiting.is_empty() || self.dropped > 0 || self.is_ended;
        if has_news { self.waker.take() } else { None }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0
    }
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        let Settings { base, app, http, provider, clock, runtime, saver, machine } = settings;
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            base,
            app,
            http,
            provider,
            clock,
            runtime,
            settled: Notify::new(),
            busy: Arc::default(),
            inner: Mutex::new(Inner {
                machine,
                links: HashMap::new(),
                tokens: HashMap::new(),
                requests: HashMap::new(),
                calls: HashMap::new(),
                saver,
                events: Queue::default(),
                aborted: Vec::new(),
                settled_count: 0,
                input_count: 0,
            }),
            #[cfg(test)]
            observer: crate::tests::Observer::default(),
        })
    }

    pub(crate) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.me)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code of the application runs under the lock, so a panic there is a bug of this library; its state stays usable.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes something to the machine, and carries out its effects.
    pub(crate) fn input<R>(&self, handle: impl FnOnce(&mut Machine, Moment) -> R) -> R {
        self.input_with(|machine, now, _| handle(machine, now))
    }

    /// `handle` also sees the calls.
    fn input_with<R>(
        &self,
        handle: impl FnOnce(&mut Machine, Moment, &mut HashMap<u64, oneshot::Sender<Result<Outcome, Error>>>) -> R,
    ) -> R {
        let mut inner = self.lock();
        let Inner { machine, calls, .. } = &mut *inner;
        let result = handle(machine, self.clock.now(), calls);
        inner.input_count += 1;
        self.carry_out(&mut inner);
        self.clock.arm(inner.machine.timeout());
        let aborted = std::mem::take(&mut inner.aborted);
        let waker = inner.events.take_waker();
        drop(inner);
        for task in aborted {
            task.abort();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    pub(crate) fn tick(&self) {
        self.input(Machine::advance);
    }

    fn carry_out(&self, inner: &mut Inner) {
        loop {
            let effects = inner.machine.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                #[cfg(test)]
                self.observer.see(&effect);
                self.carry_out_one(inner, effect);
            }
        }
    }

    fn carry_out_one(&self, inner: &mut Inner, effect: Effect) {
        let Some(me) = self.me.upgrade() else { return };
        match effect {
            Effect::Dial(dial) => self.dial(inner, me, dial),
            Effect::Send { attempt, frame } => {
                let frames = inner.links.get(&attempt).and_then(|link| link.frames.as_ref());
                if frames.is_some_and(|frames| !frames.send(frame)) {
                    inner.machine.ended(self.clock.now(), attempt, &Ended::default());
                }
            }
            Effect::Hangup { attempt } => {
                if let Some(Link { frames, abort, is_open }) = inner.links.remove(&attempt) {
                    // A WebSocket sends what waits, and closes.
                    if frames.is_none() || !is_open {
                        inner.aborted.push(abort);
                    }
                }
            }
            Effect::AskToken { n, reason, previous } => {
                let task = self.runtime.spawn(async move {
                    let result = (me.provider)(TokenRequest::new(reason, previous)).await;
                    me.lock().tokens.remove(&n);
                    me.input(|machine, now| machine.token_arrived(now, n, result));
                });
                inner.tokens.insert(n, task.abort_handle());
            }
            Effect::CancelToken { n } => {
                inner.aborted.extend(inner.tokens.remove(&n));
            }
            Effect::Request(request) => self.request(inner, me, request),
            Effect::Done { n, result } => {
                if let Some(call) = inner.calls.remove(&n) {
                    let _ = call.send(result); // the application may have dropped the call
                }
            }
            Effect::Keep(ids) => {
                if let Some(saver) = &mut inner.saver {
                    saver.newest = Some(ids);
                    if !std::mem::replace(&mut saver.is_running, true) {
                        self.runtime.spawn(save(me, self.busy.begin()));
                    }
                }
            }
            Effect::Pass(message) if inner.events.is_abandoned => {
                drop(message);
                let cause = "the application has dropped its events";
                inner.machine.settled(self.clock.now(), Err(cause.into()));
            }
            Effect::Pass(message) => inner.events.push(Waiting::Message(message)),
            Effect::Tell(event) => {
                let is_closed = matches!(&event, Event::State(state) if state.is_closed());
                if is_closed && inner.events.drop_message() {
                    #[cfg(test)]
                    self.observer.returned();
                    inner.machine.returned(self.clock.now()); // S4
                }
                inner.events.push(Waiting::Event(event));
            }
        }
    }

    fn dial(&self, inner: &mut Inner, me: Arc<Self>, dial: Dial) {
        let attempt = dial.attempt;
        let busy = self.busy.begin();
        let (frames, abort) = match dial.transport {
            Transport::WebSocket => {
                let (frames, outgoing) = socket::frames();
                let task = self.runtime.spawn(async move {
                    let _busy = busy;
                    socket::run(me, attempt, outgoing).await;
                });
                (Some(frames), task.abort_handle())
            }
            Transport::Sse => {
                let task = self.runtime.spawn(async move {
                    let _busy = busy;
                    stream::run(me, dial).await;
                });
                (None, task.abort_handle())
            }
        };
        inner.links.insert(attempt, Link { frames, abort, is_open: false });
    }

    fn request(&self, inner: &mut Inner, me: Arc<Self>, request: Request) {
        let n = request.n;
        let busy = (!inner.calls.contains_key(&n)).then(|| self.busy.begin());
        let task = self.runtime.spawn(async move {
            let _busy = busy;
            let unix = me.clock.now().unix;
            let result = me.http.round_trip(&me.base, me.app.as_deref(), &request, unix).await;
            me.lock().requests.remove(&n);
            me.input(|machine, now| machine.answered(now, n, result));
        });
        inner.requests.insert(n, task.abort_handle());
    }

    /// The connection is open.
    pub(crate) fn opened(&self, attempt: u64) {
        if let Some(link) = self.lock().links.get_mut(&attempt) {
            link.is_open = true;
        }
        self.input(|machine, now| machine.opened(now, attempt));
    }

    /// Messages that wait, and messages that the application has settled.
    pub(crate) fn progress(&self) -> (usize, u64) {
        let inner = self.lock();
        (inner.machine.waiting(), inner.settled_count)
    }

    pub(crate) fn settled(&self, result: Result<(), BoxError>) {
        self.lock().settled_count += 1;
        self.input(|machine, now| machine.settled(now, result));
        self.settled.notify_waiters();
    }

    /// Begins a call of the machine, and waits for its result. Dropping the future ends the request.
    pub(crate) async fn call(
        &self,
        begin: impl FnOnce(&mut Machine, Moment) -> u64,
    ) -> Result<Outcome, Error> {
        let (sender, result) = oneshot::channel();
        let n = self.input_with(|machine, now, calls| {
            let n = begin(machine, now);
            calls.insert(n, sender);
            n
        });
        let _guard = CallGuard { shared: self, n };
        result.await.unwrap_or_else(|_| Err(Error::new(Code::Network, "the client has ended")))
    }

    /// Waits until acknowledgements and reports are sent, for a limited time.
    pub(crate) async fn close(&self) {
        self.input(Machine::close);
        let rest = async {
            loop {
                let ended = self.busy.ended.notified();
                if self.busy.count.load(Ordering::SeqCst) == 0 {
                    return;
                }
                ended.await;
            }
        };
        // Messages that were not acknowledged arrive again; other frames are sent after the next `connect`.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, rest).await;
    }

    /// The last handle of the client is gone.
    pub(crate) fn end(&self) {
        self.lock().events.is_ended = true;
        self.input(Machine::close);
    }

    /// The application has dropped its `Events`.
    pub(crate) fn abandon_events(&self) {
        let waiting = {
            let mut inner = self.lock();
            inner.events.is_abandoned = true;
            inner.events.waker = None;
            std::mem::take(&mut inner.events.waiting)
        };
        let has_message = waiting.iter().any(|one| matches!(one, Waiting::Message(_)));
        self.input(|machine, now| {
            machine.listen(now, false);
            if has_message {
                machine.settled(now, Err("the application has dropped its events".into()));
            }
        });
    }

    pub(crate) fn poll_event(&self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut inner = self.lock();
        let dropped = std::mem::take(&mut inner.events.dropped);
        if dropped > 0 {
            let error = Error::new(Code::QueueFull, format!("{dropped} events were dropped"));
            return Poll::Ready(Some(Event::Error(error)));
        }
        match inner.events.waiting.pop_front() {
            Some(Waiting::Message(message)) => {
                Poll::Ready(Some(Event::Message(Delivery::new(message, self.weak()))))
            }
            Some(Waiting::Event(event)) => Poll::Ready(Some(event)),
            None if inner.events.is_ended => Poll::Ready(None),
            None => {
                inner.events.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Stores the newest reports until there are no newer ones.
async fn save(shared: Arc<Shared>, busy: Busy) {
    let _busy = busy;
    loop {
        let (ids, store) = {
            let mut inner = shared.lock();
            let Some(saver) = &mut inner.saver else { return };
            let Some(ids) = saver.newest.take() else {
                saver.is_running = false;
                return;
            };
            (ids, Arc::clone(&saver.store))
        };
        let saved = tokio::task::spawn_blocking(move || store.save(&ids)).await;
        if let Ok(Err(cause)) = saved {
            let error = Error::new(Code::StorageFailed, cause.to_string()).caused_by(cause.into());
            shared.lock().events.push(Waiting::Event(Event::Error(error)));
            shared.input(|_, _| ()); // wakes the application
        }
    }
}

struct CallGuard<'a> {
    shared: &'a Shared,
    n: u64,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        inner.machine.cancel(self.n);
        inner.calls.remove(&self.n);
        let request = inner.requests.remove(&self.n);
        drop(inner);
        if let Some(request) = request {
            request.abort();
        }
    }
}

/// Tasks that `close` waits for: connections, and requests that no call waits for.
#[derive(Default)]
struct BusyCount {
    count: AtomicUsize,
    ended: Notify,
}

impl BusyCount {
    fn begin(self: &Arc<Self>) -> Busy {
        self.count.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(self))
    }
}

struct Busy(Arc<BusyCount>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.notify_waiters();
    }
}
