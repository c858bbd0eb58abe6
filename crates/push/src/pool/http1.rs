//! One HTTP/1.1 connection: to a Web Push service that does not support HTTP/2, or to a provider behind a webhook, whose
//! requests carry several pushes. One request at a time. The rules are the same as for HTTP/2.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use noroshi_egress::Stream;
use noroshi_egress::fetch::retry_after;
use tokio::task::JoinHandle;

use super::growth::Place;
use super::pending::Pending;
use super::verdict::{BatchInFlight, InFlight, Next, prepare, prepare_batch, resend, settle, settle_batch};
use super::{Pool, Take, wall_clock};
use crate::exchange::{BatchResponse, Batches, Request, Response};
use crate::push::Reason;

const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 16 << 10;
/// A result of each of 500 pushes has some 100 bytes.
const BATCH_BODY_BYTES_MAX: usize = 1 << 20;

pub(super) struct Connection {
    pool: Arc<Pool>,
    sender: SendRequest<Full<Bytes>>,
    /// Drives the connection; ends with it.
    driver: Driver,
    answered: u64,
}

struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A response as received.
struct Received {
    status: u16,
    retry_after: Option<Duration>,
    /// As in [`Response::header`].
    header: Bytes,
    /// None: it is too large, or ended too early. No other request may follow on this connection.
    body: Option<Bytes>,
}

/// Why there is no response.
enum Failed {
    /// No byte of the request was sent.
    Unsent(Reason),
    Unknown(Reason),
}

/// What an idle connection does next.
enum Turn {
    Send(Vec<Pending>, Option<Bytes>, bool),
    End(Reason),
}

impl Connection {
    pub(super) async fn open(pool: Arc<Pool>, stream: Stream) -> Result<Self, Reason> {
        let (sender, connection) = Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| "connection_lost")?;
        // The request in flight reports its error.
        let moved = async { drop(connection.await) };
        let context = &pool.account.context;
        let driver = Driver(context.tasks.spawn_on(moved, &context.runtime));
        Ok(Self { pool, sender, driver, answered: 0 })
    }

    pub(super) async fn run(mut self, id: u32) {
        let _place = Place { pool: self.pool.clone(), id };
        let mut refused = None;
        let reason = loop {
            match self.turn(id).await {
                Turn::End(reason) => break reason,
                Turn::Send(pending, authorization, probe) => {
                    let counted = Counted::new(self.pool.clone(), pending.len());
                    let end = match self.pool.account.client.clone().batches() {
                        Some(batches) => {
                            // Other connections may send what waits meanwhile.
                            self.pool.grow();
                            self.exchange_batch(batches, pending, probe).await
                        }
                        None => self.exchange(pending, authorization, probe).await,
                    };
                    drop(counted);
                    if let Err(reason) = end {
                        refused = (self.answered == 0).then_some(reason);
                        break reason;
                    }
                }
            }
        };
        self.pool.retire(id, refused);
        self.pool.account.counters.connection_closed(reason);
    }

    /// Waits for a push.
    async fn turn(&mut self, id: u32) -> Turn {
        let config = self.pool.account.context.config.clone();
        let idle_at = Instant::now() + config.idle_close;
        let most = self.pool.account.client.batches().map_or(1, |batches| batches.limits().pushes_max);
        let mut batch = Vec::new();
        loop {
            let authorization = self.pool.account.authorization(self.pool.origin());
            let (room, until) = match &authorization {
                Ok(_) => (most, None),
                Err(until) => (0, Some(*until)),
            };
            let pool = self.pool.clone();
            let mut woken = false;
            let taken = poll_fn(|cx| match pool.take(id, room, cx.waker(), &mut batch) {
                Take::Parked if !std::mem::replace(&mut woken, true) => Poll::Pending,
                take => Poll::Ready(take),
            });
            let take = tokio::select! {
                // Checks first that the connection is alive: a push taken for a dead one would have to go back.
                biased;
                _ = &mut self.driver.0 => return Turn::End("connection_lost"),
                take = taken => take,
                () = tokio::time::sleep_until(idle_at.into()) => return Turn::End("idle"),
            };
            match take {
                Take::Some { probe } if !batch.is_empty() => {
                    return Turn::Send(batch, authorization.ok().flatten(), probe);
                }
                Take::Close => return Turn::End("closed"),
                Take::Wait(until) => tokio::time::sleep_until(until.into()).await,
                take => {
                    // The probe was not sent.
                    self.pool.account.unsent(0, take == Take::Some { probe: true });
                    if let Some(until) = until {
                        tokio::time::sleep_until(until.into()).await;
                    }
                }
            }
        }
    }

    /// The error is why the connection is unusable.
    async fn exchange(
        &mut self,
        mut pending: Vec<Pending>,
        authorization: Option<Bytes>,
        probe: bool,
    ) -> Result<(), Reason> {
        let pool = self.pool.clone();
        let account = &pool.account;
        let sent_at = Instant::now();
        let Some(pending) = pending.pop() else { return Ok(()) };
        let Some(prepared) = prepare(&pool, pending, authorization.as_ref(), sent_at) else {
            account.unsent(1, probe);
            return Ok(());
        };
        let request = prepared.request.clone();
        let in_flight = InFlight::new(prepared, sent_at, authorization.as_ref());
        let mut again = Vec::new();
        let received = match self.received(request).await {
            Ok(received) => received,
            Err(Failed::Unsent(reason)) => {
                account.unsent(1, probe);
                resend(&pool, in_flight.pending, reason, &mut again);
                pool.put_back(&mut again);
                return Err(reason);
            }
            Err(Failed::Unknown(reason)) => {
                account.counters.sent.inc();
                in_flight.unanswered(&pool, reason);
                return Err(reason);
            }
        };
        account.counters.sent.inc();
        self.answered();
        let now = wall_clock();
        // The status decides; a truncated or oversized body changes nothing.
        let (body, whole) = (received.body.as_deref().unwrap_or_default(), received.body.is_some());
        let (status, retry_after) = (received.status, received.retry_after);
        let header = &*received.header;
        let response = Response { status, retry_after, header, body, now };
        let next = settle(&pool, in_flight, &response, Instant::now(), &mut again);
        pool.put_back(&mut again);
        pool.answer_overdue(Instant::now());
        match next {
            Next::Continue | Next::Unauthorized if whole => Ok(()),
            Next::Continue | Next::Unauthorized => Err("connection_lost"),
            Next::Retire(reason) => Err(reason),
        }
    }

    /// As [`Self::exchange`], for a service whose requests carry several pushes.
    async fn exchange_batch(
        &mut self,
        batches: &dyn Batches,
        pending: Vec<Pending>,
        probe: bool,
    ) -> Result<(), Reason> {
        let pool = self.pool.clone();
        let account = &pool.account;
        let (taken, sent_at, mut again) = (pending.len(), Instant::now(), Vec::new());
        let Some((pending, request)) = prepare_batch(&pool, batches, pending, sent_at, &mut again) else {
            account.unsent(taken, probe);
            return Ok(());
        };
        let count = pending.len();
        account.unsent(taken - count, false);
        pool.put_back(&mut again);
        let in_flight = BatchInFlight { pending, sent_at, request: request.clone() };
        let end = match self.received(request).await {
            Ok(Received { status, retry_after, body, .. }) => {
                account.counters.sent.inc_by(count as u64);
                self.answered();
                let response = BatchResponse { status, retry_after, body: body.as_deref() };
                settle_batch(&pool, batches, in_flight, &response);
                if body.is_some() { Ok(()) } else { Err("connection_lost") }
            }
            Err(Failed::Unsent(reason)) => {
                account.unsent(count, probe);
                in_flight.pending.into_iter().for_each(|one| resend(&pool, one, reason, &mut again));
                pool.put_back(&mut again);
                Err(reason)
            }
            Err(Failed::Unknown(reason)) => {
                account.counters.sent.inc_by(count as u64);
                in_flight.unanswered(&pool, reason);
                Err(reason)
            }
        };
        pool.answer_overdue(Instant::now());
        end
    }

    fn answered(&mut self) {
        self.answered += 1;
        if self.answered == 1 {
            self.pool.answered_first();
        }
    }

    /// The response, within the timeout, unless the pool aborts.
    async fn received(&mut self, request: Request) -> Result<Received, Failed> {
        let pool = self.pool.clone();
        let config = &pool.account.context.config;
        let own = pool.account.client.batches().map(|batches| batches.limits().timeout);
        let timeout = own.map_or(config.request_timeout, |own| own.min(config.request_timeout));
        let aborted = async {
            while !pool.is_aborted() {
                tokio::time::sleep(config.tick()).await;
            }
        };
        tokio::select! {
            result = self.ask(request) => result,
            () = tokio::time::sleep(timeout) => Err(Failed::Unknown("timeout")),
            () = aborted => Err(Failed::Unknown("drain")),
        }
    }

    async fn ask(&mut self, request: Request) -> Result<Received, Failed> {
        self.sender.ready().await.map_err(|_| Failed::Unsent("connection_lost"))?;
        let mut asked = http::Request::post(request.path).header(http::header::HOST, &*self.pool.authority);
        for header in &request.headers {
            asked = asked.header(header.name, &*header.value);
        }
        let asked = asked.body(Full::new(request.body)).map_err(|_| Failed::Unknown("invalid_request"))?;
        let response = self.sender.try_send_request(asked).await;
        // hyper returns a request that it did not start to write.
        let response = response.map_err(|mut error| match error.take_message() {
            Some(_) => Failed::Unsent("connection_lost"),
            None => Failed::Unknown("connection_lost"),
        })?;
        let status = response.status().as_u16();
        let after = response.headers().get(http::header::RETRY_AFTER);
        let retry_after = after.and_then(|value| retry_after(value.as_bytes()));
        let named = self.pool.account.client.answer_header().and_then(|name| response.headers().get(name));
        let header = named.map(|value| Bytes::copy_from_slice(value.as_bytes())).unwrap_or_default();
        let bytes_max = match self.pool.account.client.batches() {
            Some(_) => BATCH_BODY_BYTES_MAX,
            None => BODY_BYTES_MAX,
        };
        let body = Limited::new(response.into_body(), bytes_max).collect().await;
        Ok(Received { status, retry_after, header, body: body.ok().map(|body| body.to_bytes()) })
    }
}

/// Counts the pushes in flight while it exists.
struct Counted(Arc<Pool>, usize);

impl Counted {
    fn new(pool: Arc<Pool>, count: usize) -> Self {
        pool.count_in_flight(0, count);
        Self(pool, count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count_in_flight(self.1, 0);
    }
}
