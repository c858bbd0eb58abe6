//! One HTTP/1.1 connection to a Web Push service that does not support HTTP/2: one request at a time. The rules are the
//! same as for HTTP/2.

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
use super::pending::{Pending, RETRY_AFTER};
use super::verdict::{InFlight, Next, prepare, resend, settle};
use super::{Pool, Take, wall_clock};
use crate::exchange::{Request, Response};
use crate::push::Reason;

const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 16 << 10;

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
    body: Bytes,
    /// Whether another request may follow on this connection.
    whole: bool,
}

/// Why there is no response.
enum Failed {
    /// No byte of the request was sent.
    Unsent(Reason),
    Unknown(Reason),
}

/// What an idle connection does next.
enum Turn {
    Send(Pending, Option<Bytes>, bool),
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
                    let counted = Counted::new(self.pool.clone());
                    let end = self.exchange(pending, authorization, probe).await;
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
        let mut batch = Vec::with_capacity(1);
        loop {
            let authorization = self.pool.account.authorization(self.pool.origin());
            let (room, until) = match &authorization {
                Ok(_) => (1, None),
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
            match (take, batch.pop()) {
                (Take::Some { probe }, Some(pending)) => {
                    return Turn::Send(pending, authorization.ok().flatten(), probe);
                }
                (Take::Close, _) => return Turn::End("closed"),
                (Take::Wait(until), _) => tokio::time::sleep_until(until.into()).await,
                (take, _) => {
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
        pending: Pending,
        authorization: Option<Bytes>,
        probe: bool,
    ) -> Result<(), Reason> {
        let pool = self.pool.clone();
        let account = &pool.account;
        let sent_at = Instant::now();
        let Some((pending, request)) = prepare(&pool, pending, authorization.as_ref(), sent_at) else {
            account.unsent(1, probe);
            return Ok(());
        };
        let mut again = Vec::new();
        let received = match self.received(request).await {
            Ok(received) => received,
            Err(Failed::Unsent(reason)) => {
                account.unsent(1, probe);
                resend(&pool, pending, reason, &mut again);
                pool.put_back(&mut again);
                return Err(reason);
            }
            Err(Failed::Unknown(reason)) => {
                account.counters.sent.inc();
                pending.later(reason, RETRY_AFTER, &account.counters);
                return Err(reason);
            }
        };
        account.counters.sent.inc();
        self.answered += 1;
        if self.answered == 1 {
            pool.answered_first();
        }
        let now = wall_clock();
        let response = Response {
            status: received.status,
            retry_after: received.retry_after,
            body: &received.body,
            now,
        };
        let in_flight = InFlight { pending, sent_at, authorization };
        let next = settle(&pool, in_flight, &response, Instant::now(), &mut again);
        pool.put_back(&mut again);
        pool.answer_overdue(Instant::now());
        match next {
            Next::Continue | Next::Unauthorized if received.whole => Ok(()),
            Next::Continue | Next::Unauthorized => Err("connection_lost"),
            Next::Retire(reason) => Err(reason),
        }
    }

    /// The response, within the timeout, unless the pool aborts.
    async fn received(&mut self, request: Request) -> Result<Received, Failed> {
        let pool = self.pool.clone();
        let config = &pool.account.context.config;
        let aborted = async {
            while !pool.is_aborted() {
                tokio::time::sleep(config.tick()).await;
            }
        };
        tokio::select! {
            result = self.ask(request) => result,
            () = tokio::time::sleep(config.request_timeout) => Err(Failed::Unknown("timeout")),
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
        // The status decides; a truncated or oversized body changes nothing.
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
        let (body, whole) = body.map_or((Bytes::new(), false), |body| (body.to_bytes(), true));
        Ok(Received { status, retry_after, body, whole })
    }
}

/// Counts the one push in flight while it exists.
struct Counted(Arc<Pool>);

impl Counted {
    fn new(pool: Arc<Pool>) -> Self {
        pool.count_in_flight(0, 1);
        Self(pool)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count_in_flight(1, 0);
    }
}
