//! One HTTP/1.1 connection, to a Web Push service that speaks nothing newer: a request at a time. The
//! rules are those of HTTP/2 connections; what is missing is only the speed.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use noroshi_egress::Stream;
use tokio::task::JoinHandle;

use super::pending::{Pending, RETRY_AFTER};
use super::verdict::{InFlight, Next, prepare, retry_after, settle};
use super::{Pool, Take, wall_clock};
use crate::exchange::{Request, Response};
use crate::push::Reason;

const HEAD_BYTES_MAX: usize = 16 << 10;
const BODY_BYTES_MAX: usize = 16 << 10;

pub(super) struct Connection {
    pool: Arc<Pool>,
    sender: SendRequest<Full<Bytes>>,
    /// Moves the bytes; ends with the connection.
    driver: Driver,
    answered: u64,
}

struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
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
        // Its error is heard by the request that is under way.
        let moved = async { drop(connection.await) };
        let means = &pool.account.means;
        let driver = Driver(means.tasks.spawn_on(moved, &means.runtime));
        Ok(Self { pool, sender, driver, answered: 0 })
    }

    pub(super) async fn run(mut self, id: u32) {
        let guard = Member { pool: self.pool.clone(), id };
        let mut refused = None;
        let reason = loop {
            match self.turn(id).await {
                Turn::End(reason) => break reason,
                Turn::Send(pending, authorization, probe) => {
                    self.pool.count_in_flight(0, 1);
                    let end = self.exchange(pending, authorization, probe).await;
                    self.pool.count_in_flight(1, 0);
                    if let Err(reason) = end {
                        refused = (self.answered == 0).then_some(reason);
                        break reason;
                    }
                }
            }
        };
        self.pool.retire(id, refused);
        self.pool.account.counters.connection_closed(reason);
        drop(guard);
    }

    /// Waits for a push.
    async fn turn(&mut self, id: u32) -> Turn {
        let config = self.pool.account.means.config.clone();
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
                take = taken => take,
                _ = &mut self.driver.0 => return Turn::End("connection_lost"),
                () = tokio::time::sleep_until(idle_at.into()) => return Turn::End("idle"),
            };
            match (take, batch.pop()) {
                (Take::Some { probe }, Some(pending)) => {
                    return Turn::Send(pending, authorization.ok().flatten(), probe);
                }
                (Take::Close, _) => return Turn::End("closed"),
                (Take::Wait(until), _) => tokio::time::sleep_until(until.into()).await,
                (take, _) => {
                    // What was to be a probe was not one.
                    self.pool.account.unsent(0, take == Take::Some { probe: true });
                    if let Some(until) = until {
                        tokio::time::sleep_until(until.into()).await;
                    }
                }
            }
        }
    }

    /// The error is why the connection is of no more use.
    async fn exchange(
        &mut self,
        pending: Pending,
        authorization: Option<Bytes>,
        probe: bool,
    ) -> Result<(), Reason> {
        let pool = self.pool.clone();
        let account = &pool.account;
        let now = Instant::now();
        let Some((pending, request)) = prepare(&pool, pending, authorization.as_ref(), now) else {
            account.unsent(1, probe);
            return Ok(());
        };
        account.counters.sent.inc();
        let limit = account.means.config.request_timeout;
        let result = match tokio::time::timeout(limit, self.ask(request)).await {
            Ok(result) => result,
            Err(_) => Err("timeout"),
        };
        let (status, after, body) = match result {
            Ok(response) => response,
            Err(reason) => {
                pending.later(reason, RETRY_AFTER, &account.counters);
                return Err(reason);
            }
        };
        self.answered += 1;
        if self.answered == 1 {
            pool.answered_first();
        }
        let mut again = Vec::new();
        let response = Response { status, retry_after: after, body: &body, now: wall_clock() };
        let in_flight = InFlight { pending, sent_at: now, authorization };
        let next = settle(&pool, in_flight, &response, Instant::now(), &mut again);
        pool.put_back(&mut again);
        match next {
            Next::GoOn | Next::Unauthorised => Ok(()),
            Next::Retire(reason) => Err(reason),
        }
    }

    async fn ask(&mut self, request: Request) -> Result<(u16, Option<Duration>, Bytes), Reason> {
        self.sender.ready().await.map_err(|_| "connection_lost")?;
        let mut asked = http::Request::post(request.path).header(http::header::HOST, &*self.pool.authority);
        for header in &request.headers {
            asked = asked.header(header.name, &*header.value);
        }
        let asked = asked.body(Full::new(request.body)).map_err(|_| "invalid_request")?;
        let response = self.sender.send_request(asked).await.map_err(|_| "connection_lost")?;
        let status = response.status().as_u16();
        let after = response.headers().get(http::header::RETRY_AFTER);
        let after = after.and_then(|value| retry_after(value.as_bytes()));
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
        Ok((status, after, body.map_err(|_| "connection_lost")?.to_bytes()))
    }
}

/// Leaves the pool whatever becomes of the task.
struct Member {
    pool: Arc<Pool>,
    id: u32,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.pool.retire(self.id, None);
    }
}
