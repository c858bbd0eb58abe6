//! Connections of a fake: the limit, the handshake, HTTP/2 with its limits and GOAWAY. One task per
//! connection and one per request; both end with the connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authority::fingerprint;
use crate::exchange::{Decision, Ending, Fake, Orders};
use crate::plain::{self, BODY_BYTES_MAX};
use crate::record::Connections;
use crate::rules::ConnectionInfo;
use crate::seam::{Handle, Seam};

const HEADER_LIST_BYTES_MAX: u32 = 16 * 1_024;
const STREAM_WINDOW: u32 = 128 * 1_024;
const CONNECTION_WINDOW: u32 = 16 * 1_024 * 1_024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// Lifetime of a connection after GOAWAY once all requests are answered.
const GO_AWAY_GRACE: Duration = Duration::from_secs(1);

pub(crate) async fn listen(fake: Arc<Fake>, listener: TcpListener, tls: TlsAcceptor) {
    let mut number = 0;
    loop {
        let Ok((tcp, _)) = listener.accept().await else {
            // Out of file descriptors: wait for others to be closed.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        number += 1;
        let cap = u64::from(fake.behaviour.lock().connections_max);
        let is_over = {
            let connections = &mut fake.record.lock().connections;
            let is_over = connections.open >= cap;
            if is_over {
                connections.reset += 1;
            } else {
                connections.opened += 1;
                connections.open += 1;
                connections.open_max = connections.open_max.max(connections.open);
            }
            is_over
        };
        if is_over {
            let _ = tcp.set_zero_linger(); // the peer sees it closed in any case
        } else {
            tokio::spawn(serve(Counted(fake.clone()), tcp, tls.clone(), number));
        }
    }
}

/// Counts a connection as open until it is dropped.
struct Counted(Arc<Fake>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.record.lock().connections.open -= 1;
    }
}

async fn serve(counted: Counted, tcp: TcpStream, tls: TlsAcceptor, number: u64) {
    let fake = &counted.0;
    let _ = tcp.set_nodelay(true); // only affects latency
    let slow = Duration::from_millis(fake.behaviour.lock().handshake_ms);
    if !slow.is_zero() {
        tokio::time::sleep(slow).await;
    }
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(tcp)).await else {
        return count(fake, |connections| connections.failed += 1);
    };
    let session = stream.get_ref().1;
    let certificate = session.peer_certificates().and_then(|chain| chain.first());
    let info = ConnectionInfo {
        number,
        certificate: certificate.map(|der| fingerprint(der)),
        ..ConnectionInfo::default()
    };
    let result = match session.alpn_protocol() {
        Some(b"h2") => multiplexed(fake, info, stream).await,
        _ if fake.service.speaks_http1() => plain::serve(fake, info, stream).await,
        _ => Err(()),
    };
    if result.is_err() {
        count(fake, |connections| connections.failed += 1);
    }
}

pub(crate) fn count(fake: &Fake, change: impl FnOnce(&mut Connections)) {
    change(&mut fake.record.lock().connections);
}

/// State shared by the streams of a connection.
struct Shared {
    fake: Arc<Fake>,
    info: ConnectionInfo,
    seam: Arc<Handle>,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    open: u32,
    /// Maximum number of open streams.
    limit: u32,
    authorised: bool,
    /// The highest stream processed.
    highest: u32,
    /// Set by GOAWAY: streams above are not processed.
    last: Option<u32>,
    /// Whether the TCP connection is to be reset.
    abort: bool,
}

async fn multiplexed(fake: &Arc<Fake>, info: ConnectionInfo, stream: TlsStream<TcpStream>) -> Result<(), ()> {
    let mut orders = fake.orders();
    let mut current = *orders.borrow_and_update();
    let waits = fake.behaviour.lock().one_until_authorised && info.certificate.is_none();
    let waits = waits && !fake.service.speaks_http1();
    let limit = if waits { 1 } else { current.streams_max };
    let seam = Handle::new(limit);
    let mut connection = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .handshake::<_, Bytes>(Seam::new(stream, seam.clone()))
        .await
        .map_err(drop)?;
    let state = State { open: 0, limit, authorised: !waits, highest: 0, last: None, abort: false };
    let shared =
        Arc::new(Shared { fake: fake.clone(), info, seam, state: Mutex::new(state), wake: Notify::new() });
    let mut end: Option<Instant> = None;
    loop {
        let accepted = std::future::poll_fn(|cx| {
            loop {
                let polled = connection.poll_accept(cx);
                // Only one unacknowledged SETTINGS frame is possible: another one waits for the next
                // iteration.
                let limit = shared.limit(current);
                let announced = shared.seam.streams_max.load(Ordering::Relaxed) == limit;
                if polled.is_pending()
                    && !announced
                    && connection.set_initial_window_size(STREAM_WINDOW).is_ok()
                {
                    shared.seam.streams_max.store(limit, Ordering::Relaxed);
                    continue;
                }
                return polled;
            }
        });
        let farewell = async {
            match end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = accepted => match accepted {
                Some(Ok((request, respond))) => shared.clone().begin(request, respond),
                None => return Ok(()),
                Some(Err(_)) => return if shared.is_over() { Ok(()) } else { Err(()) },
            },
            changed = orders.changed() => {
                let new = *orders.borrow_and_update();
                if changed.is_err() || new.disconnect != current.disconnect {
                    shared.state.lock().abort = true;
                } else if new.go_away != current.go_away {
                    shared.go_away();
                }
                current = new;
            }
            () = shared.wake.notified() => {}
            () = farewell => return Ok(()),
        }
        let state = shared.state.lock();
        if state.abort {
            shared.seam.abort.store(true, Ordering::Relaxed);
            return Ok(());
        }
        if state.last.is_some() && state.open == 0 {
            end = end.or(Some(Instant::now() + GO_AWAY_GRACE));
        }
    }
}

impl Shared {
    /// How many streams may currently be open.
    fn limit(&self, orders: Orders) -> u32 {
        let mut state = self.state.lock();
        state.limit = if state.authorised { orders.streams_max } else { 1 };
        state.limit
    }

    fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.last.is_some() || state.abort
    }

    /// No further stream is processed.
    fn go_away(&self) {
        let mut state = self.state.lock();
        self.send_go_away(&mut state);
    }

    fn send_go_away(&self, state: &mut State) {
        if state.last.is_none() {
            state.last = Some(state.highest);
            // NO_ERROR, with Apple's reason.
            self.seam.go_away(state.highest, 0, br#"{"reason":"Shutdown"}"#);
            self.wake.notify_one();
        }
    }

    fn begin(self: Arc<Self>, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let stream = respond.stream_id().as_u32();
        let refused = {
            let mut state = self.state.lock();
            let refused = state.open >= state.limit && state.last.is_none();
            state.open += u32::from(!refused);
            let open = u64::from(state.open);
            count(&self.fake, |connections| {
                connections.streams_refused += u64::from(refused);
                connections.streams_max = connections.streams_max.max(open);
            });
            refused
        };
        if refused {
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        tokio::spawn(async move {
            self.exchange(request, &mut respond, stream).await;
            self.state.lock().open -= 1;
            self.wake_if_last();
        });
    }

    fn wake_if_last(&self) {
        let state = self.state.lock();
        if state.open == 0 && state.last.is_some() {
            self.wake.notify_one();
        }
    }

    async fn exchange(&self, request: Request<RecvStream>, respond: &mut SendResponse<Bytes>, stream: u32) {
        let (head, mut body) = request.into_parts();
        let Some(body) = read_body(&mut body).await else { return };
        let Some(Decision { after, ending }) = self.decide(&head, &body, stream) else {
            return count(&self.fake, |connections| connections.streams_dropped += 1);
        };
        if !after.is_zero() {
            tokio::time::sleep(after).await;
        }
        match ending {
            Ending::Reply(reply) => {
                let mut response = Response::builder().status(reply.status);
                for (name, value) in reply.headers {
                    response = response.header(name, value);
                }
                let Ok(response) = response.body(()) else {
                    return respond.send_reset(Reason::INTERNAL_ERROR);
                };
                let is_empty = reply.body.is_empty();
                // The peer may have reset the stream in the meantime.
                if let Ok(mut sender) = respond.send_response(response, is_empty)
                    && !is_empty
                {
                    let _ = sender.send_data(reply.body.into(), true);
                }
            }
            Ending::Refuse => {
                count(&self.fake, |connections| connections.streams_refused += 1);
                respond.send_reset(Reason::REFUSED_STREAM);
            }
            Ending::Reset => respond.send_reset(Reason::INTERNAL_ERROR),
            Ending::GoAway | Ending::Silence => {
                // Until the peer resets the stream or the connection ends.
                let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            }
            Ending::Disconnect => {
                self.state.lock().abort = true;
                self.wake.notify_one();
            }
        }
    }

    /// `None`: the stream came after GOAWAY and is not processed.
    fn decide(&self, head: &http::request::Parts, body: &[u8], stream: u32) -> Option<Decision> {
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| stream > last) || state.abort {
            return None;
        }
        let decision =
            self.fake.decide(&self.info, head, body, state.highest < stream && state.last.is_none());
        match &decision.ending {
            Ending::Refuse => {}
            Ending::GoAway => {
                self.send_go_away(&mut state);
                return None;
            }
            ending => {
                state.highest = state.highest.max(stream);
                if !state.authorised && !matches!(ending, Ending::Reply(reply) if reply.status == 403) {
                    state.authorised = true;
                    self.wake.notify_one();
                }
            }
        }
        Some(decision)
    }
}

/// The body; `None` if it is too long or the stream ended early.
async fn read_body(body: &mut RecvStream) -> Option<Bytes> {
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.ok()?;
        let _ = body.flow_control().release_capacity(chunk.len()); // fails only for an ended stream
        if rest.len() + chunk.len() > BODY_BYTES_MAX {
            return None;
        }
        match &first {
            None if rest.is_empty() => first = Some(chunk),
            _ => {
                if let Some(first) = first.take() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&chunk);
            }
        }
    }
    Some(first.unwrap_or_else(|| rest.freeze()))
}
