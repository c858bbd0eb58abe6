//! One stream: whose request it is, and how it ends.

use std::future::poll_fn;
use std::pin::pin;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use noroshi_types::limits;

use super::received::Received;
use super::reply::{self, Unsent};
use super::{Http2, bridge};
use crate::link::Link;
use crate::router::no_room;
use crate::serve::{self, Serving};
use crate::state::Peer;

/// What the streams of a connection share.
#[derive(Clone, Copy)]
pub(super) struct Streams<'a> {
    pub(super) serving: &'a Serving,
    pub(super) http2: &'a Http2,
    pub(super) peer: Peer,
    pub(super) link: &'a Link,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The client took the answer, or had the time to.
    Answered,
    /// The client gave it up.
    Cancelled,
    /// The client left what has no end by itself.
    Left,
    /// Nothing more is served on the connection.
    Last,
}

impl From<Result<(), Unsent>> for Outcome {
    fn from(sent: Result<(), Unsent>) -> Self {
        match sent {
            Ok(()) | Err(Unsent::Reset) => Outcome::Answered,
            Err(Unsent::Cancelled) => Outcome::Cancelled,
        }
    }
}

/// Who answers.
enum Who {
    Api,
    Gateway,
    /// A WebSocket: browsers and others open a connection of HTTP/1.1 for it where Extended CONNECT (RFC 8441) is not offered.
    Upgrade,
}

impl Streams<'_> {
    pub(super) async fn serve(
        self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> Outcome {
        let _open = self.link.place().map(|place| place.count_stream());
        let request = match checked(request) {
            Ok(request) => request,
            Err(Refused::Malformed) => {
                respond.send_reset(Reason::PROTOCOL_ERROR); // RFC 9113 §8.1.1
                return Outcome::Answered;
            }
            Err(Refused::Status(status)) => {
                let mut answer = http::Response::new(());
                *answer.status_mut() = status;
                return reply::send_head(&mut respond, answer, true).map(drop).map_err(Unsent::from).into();
            }
        };
        match self.who(&request) {
            Who::Api => self.answer(request, respond).await,
            Who::Gateway => bridge::carry(self, request, respond).await,
            Who::Upgrade => {
                respond.send_reset(Reason::HTTP_1_1_REQUIRED); // RFC 9113 §8.1.1, §7
                Outcome::Answered
            }
        }
    }

    fn who<B>(&self, request: &Request<B>) -> Who {
        if !self.serving.turns || self.http2.bridge.is_none() {
            return Who::Api;
        }
        let uri = request.uri();
        match (request.method(), uri.path()) {
            (&Method::GET, "/v1/connect" | "/mqtt" | "/xmpp") => Who::Upgrade,
            (&Method::GET, "/socket.io/" | "/socket.io") if asks_for_websocket(uri) => Who::Upgrade,
            (&Method::GET, "/v1/events") | (_, "/socket.io/" | "/socket.io") => Who::Gateway,
            _ => Who::Api,
        }
    }

    async fn answer(self, request: Request<Received>, mut respond: SendResponse<Bytes>) -> Outcome {
        let Streams { serving, peer, .. } = self;
        let Ok(link) = Link::of_stream(self.link) else {
            return reply::send(&mut respond, no_room(request.headers()), &Link::default(), serving.timing)
                .await
                .into();
        };
        let is_safe = request.method().is_safe();
        let mut answer = pin!(serve::answer(serving, peer, link.clone(), request));
        let answer = tokio::select! {
            answer = &mut answer => answer,
            () = gone(&mut respond, &link) => {
                if !is_safe {
                    answer.await;
                }
                return Outcome::Cancelled;
            }
        };
        let is_last = answer.headers().get(header::CONNECTION).is_some_and(|value| value == "close");
        let sent = tokio::select! {
            sent = reply::send(&mut respond, answer, &link, serving.timing) => sent,
            () = link.evicted() => {
                respond.send_reset(Reason::CANCEL);
                Err(Unsent::Reset)
            }
        };
        if is_last { Outcome::Last } else { sent.into() }
    }
}

/// Resolves when the client gave the stream up, or the stream has to make room for others, which resets it.
async fn gone(respond: &mut SendResponse<Bytes>, link: &Link) {
    tokio::select! {
        _ = poll_fn(|context| respond.poll_reset(context)) => {}
        () = link.evicted() => respond.send_reset(Reason::CANCEL),
    }
}

fn asks_for_websocket(uri: &Uri) -> bool {
    uri.query().unwrap_or_default().split('&').any(|pair| pair == "transport=websocket")
}

enum Refused {
    Malformed,
    Status(StatusCode),
}

/// The request as one of HTTP/1.1 would be: its target a path, its authority the header `Host`.
fn checked(request: Request<RecvStream>) -> Result<Request<Received>, Refused> {
    let (mut head, stream) = request.into_parts();
    if head.headers.len() > limits::HEADERS {
        return Err(Refused::Status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    }
    let target = head.uri.path_and_query().cloned().filter(|_| head.method != Method::CONNECT);
    // No proxy is here (RFC 9110 §9.3.6).
    let Some(target) = target else { return Err(Refused::Status(StatusCode::NOT_IMPLEMENTED)) };
    if let Some(authority) = head.uri.authority() {
        // RFC 9113 §8.3.1
        let same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
        if !head.headers.get_all(header::HOST).iter().all(same) {
            return Err(Refused::Malformed);
        }
        let host = HeaderValue::try_from(authority.as_str()).map_err(|_| Refused::Malformed)?;
        head.headers.insert(header::HOST, host);
    }
    head.uri = Uri::from(target);
    let body = Received::new(stream, &head.headers);
    Ok(Request::from_parts(head, body))
}
