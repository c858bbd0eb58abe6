//! Handles: the client, its builder, and its events.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::runtime::Handle;

use crate::clock::{Clock, SystemClock};
use crate::error::{BoxError, Error};
use crate::event::Event;
use crate::http::{Base, Http};
use crate::presence::PresenceMode;
use crate::protocol::{Acknowledge, Config, Machine, Outcome};
use crate::reports::{ReportStore, Saver};
use crate::shared::{Provider, Settings, Shared};
use crate::state::{State, Transport};
use crate::token::{TokenError, TokenRequest};

const PING_INTERVAL: Duration = Duration::from_secs(60);

/// Configures a client. [`Client::builder`] returns one.
#[must_use]
pub struct Builder {
    url: String,
    provider: Provider,
    app: Option<String>,
    acknowledge: Acknowledge,
    ping_interval: Duration,
    transports: Vec<Transport>,
    store: Option<Arc<dyn ReportStore>>,
    tls: Option<rustls::ClientConfig>,
    passes_messages: bool,
}

impl Builder {
    /// The name of the app, if its JWTs do not name it.
    pub fn app(mut self, name: impl Into<String>) -> Self {
        self.app = Some(name.into());
        self
    }

    /// When stored messages are acknowledged. Default: after they have been handled.
    pub fn acknowledge(mut self, when: Acknowledge) -> Self {
        self.acknowledge = when;
        self
    }

    /// The silence after which the client checks the connection. Default: a minute. Never more than the service's own interval.
    pub fn ping_interval(mut self, interval: Duration) -> Self {
        self.ping_interval = interval;
        self
    }

    /// Transports to use, in this order. Default: a WebSocket, and server-sent events where a network blocks it.
    pub fn transports(mut self, transports: impl IntoIterator<Item = Transport>) -> Self {
        self.transports = transports.into_iter().collect();
        self
    }

    /// Keeps reports of opened messages until the service has them. Default: memory.
    pub fn reports(mut self, store: impl ReportStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// Settings of TLS, for instance with the certificate of a private authority. Default: the root certificates that the crate's
    /// features name.
    pub fn tls(mut self, config: rustls::ClientConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Without messages: the client passes on no [`Event::Message`] and acknowledges nothing. For a program that only shows, for
    /// instance, the number of unread items.
    pub fn without_messages(mut self) -> Self {
        self.passes_messages = false;
        self
    }

    /// A client that is not connected yet, and its events. Reads the stored reports.
    ///
    /// Fails if the address or the transports are wrong, if the stored reports cannot be read, or outside of a Tokio runtime.
    pub fn build(self) -> Result<(Client, Events), BoxError> {
        let clock = Arc::new(SystemClock::new());
        let shared = self.shared(Arc::<SystemClock>::clone(&clock))?;
        Handle::try_current()?.spawn(clock.drive(shared.weak()));
        Ok(handles(shared))
    }

    pub(crate) fn shared(self, clock: Arc<dyn Clock>) -> Result<Arc<Shared>, BoxError> {
        let runtime = Handle::try_current()?;
        let base = Base::parse(&self.url)?;
        match self.transports[..] {
            [_] => {}
            [first, second] if first != second => {}
            _ => return Err("transports: one, or two different ones".into()),
        }
        let kept = match &self.store {
            Some(store) => store.load()?,
            None => Vec::new(),
        };
        let of_machine = Arc::clone(&clock);
        let machine = Machine::new(Config {
            acknowledge: self.acknowledge,
            ping_interval: self.ping_interval,
            transports: self.transports,
            keeps: self.store.is_some(),
            kept,
            listens: self.passes_messages,
            random: Box::new(move || of_machine.random()),
        });
        Ok(Shared::new(Settings {
            base,
            app: self.app,
            http: Http::new(self.tls)?,
            provider: self.provider,
            clock,
            runtime,
            saver: self.store.map(|store| Saver { store, newest: None, is_running: false }),
            machine,
        }))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("url", &self.url)
            .field("transports", &self.transports)
            .finish_non_exhaustive()
    }
}

pub(crate) fn handles(shared: Arc<Shared>) -> (Client, Events) {
    let handle = Arc::new(ClientHandle { shared: Arc::clone(&shared) });
    (Client { handle }, Events { shared })
}

/// The connection of a device, and its requests.
///
/// Clones are handles of the same client. When the last one is dropped, the client closes, and its [`Events`] end.
#[derive(Clone)]
pub struct Client {
    handle: Arc<ClientHandle>,
}

struct ClientHandle {
    shared: Arc<Shared>,
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.shared.end();
    }
}

/// Options of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Subscribe {
    /// Whether to get what was missed while the connection was lost.
    pub recover: bool,
}

impl Subscribe {
    /// After a reconnection the client gets what it missed, and then [`Event::Recovered`].
    pub fn with_recovery() -> Self {
        Self { recover: true }
    }
}

impl Client {
    /// Begins a client for the public address of the service, such as `https://push.example.com`.
    ///
    /// `tokens` returns a token of the device: a device token, or a JWT of the app. The client calls it for the first connection,
    /// before a JWT expires, and after a rejection, once at a time. An answer takes at most 30 seconds. If it fails, the client
    /// calls it again, except after [`TokenError::SignedOut`].
    pub fn builder<F, R>(url: impl Into<String>, tokens: F) -> Builder
    where
        F: Fn(TokenRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, TokenError>> + Send + 'static,
    {
        Builder {
            url: url.into(),
            provider: Box::new(move |request| Box::pin(tokens(request))),
            app: None,
            acknowledge: Acknowledge::default(),
            ping_interval: PING_INTERVAL,
            transports: vec![Transport::WebSocket, Transport::Sse],
            store: None,
            tls: None,
            passes_messages: true,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// Connects in the background, and stays connected until [`close`](Self::close). No effect while the client is connected.
    pub fn connect(&self) {
        self.shared().input(Machine::connect);
    }

    /// Ends the connection. Sends pending acknowledgements and reports first, and waits up to 5 seconds for that. Messages that the
    /// application has not received are dropped; stored ones arrive again in the next session.
    pub async fn close(&self) {
        self.shared().close().await;
    }

    /// The present state.
    pub fn state(&self) -> State {
        self.shared().lock().machine.state().clone()
    }

    /// Subscribes to a topic, for as long as the client is used, across connections. A second call changes the options. A topic whose
    /// name has a comma needs a WebSocket; meanwhile it is reported as [`Code::BadTopic`](crate::Code::BadTopic).
    pub fn subscribe(&self, topic: &str, options: Subscribe) {
        self.shared().input(|machine, now| machine.subscribe(now, topic, options.recover));
    }

    /// Ends a subscription.
    pub fn unsubscribe(&self, topic: &str) {
        self.shared().input(|machine, now| machine.unsubscribe(now, topic));
    }

    /// Acknowledges messages ([`Acknowledge::Manual`]).
    pub fn ack<I: AsRef<str>>(&self, ids: impl IntoIterator<Item = I>) {
        let ids: Vec<I> = ids.into_iter().collect();
        let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
        self.shared().input(|machine, now| machine.ack(now, &ids));
    }

    /// Reports that the user opened messages. Reports wait for the network, at most 1,000.
    pub fn opened<I: Into<String>>(&self, ids: impl IntoIterator<Item = I>) {
        let ids: Vec<String> = ids.into_iter().map(Into::into).collect();
        self.shared().input(|machine, now| machine.report_opened(now, &ids));
    }

    /// Whether the user sees the application. A device whose application is hidden for 10 seconds is idle.
    pub fn set_hidden(&self, is_hidden: bool) {
        self.shared().input(|machine, now| machine.set_hidden(now, is_hidden));
    }

    /// States the presence of the device.
    pub fn set_presence(&self, mode: PresenceMode) {
        self.shared().input(|machine, now| machine.set_presence(now, mode));
    }

    /// The network works again, or the machine has woken up: the client checks its connection, or tries again at once.
    pub fn network_returned(&self) {
        self.shared().input(Machine::network_returned);
    }

    /// Whether to read the numbers of unread items after each log-in. Changes are [`Event::Unread`].
    pub fn observe_unread(&self, is_observed: bool) {
        self.shared().input(|machine, now| machine.want_unread(now, is_observed));
    }

    pub(crate) async fn outcome(
        &self,
        begin: impl FnOnce(&mut Machine, crate::protocol::Moment) -> u64,
    ) -> Result<Outcome, Error> {
        self.shared().call(begin).await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("state", &self.state()).finish_non_exhaustive()
    }
}

/// The events of a client, in order: a [`Stream`] that ends after the last handle of the client has been dropped.
///
/// Messages arrive one at a time: the next one follows when the last [`Delivery`](crate::Delivery) has been handled. At most 1,000
/// messages wait; then the client disconnects until the application has caught up. At most 1,000 other events wait; then the oldest
/// are dropped and reported as [`Code::QueueFull`](crate::Code::QueueFull). The stream continues after
/// [`State::Closed`], because the client may connect again. After `Events` has been dropped, the client acknowledges
/// no message.
pub struct Events {
    shared: Arc<Shared>,
}

impl Events {
    /// The next event. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.shared.poll_event(context)).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.shared.poll_event(context)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.shared.abandon_events();
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
