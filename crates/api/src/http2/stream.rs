//! One stream: whose request it is, and how it ends.

use std::future::{pending, poll_fn};
use std::pin::pin;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use noroshi_protocol::device_path::DevicePath;

use super::received::{Received, Wanted, ask_for_body};
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
    /// Answered, or reset by the node.
    Done,
    /// The client gave it up.
    Cancelled,
    /// The client left an event stream, which has no end by itself.
    Left,
    /// The client has to use another connection.
    Last,
}

impl From<Result<(), Unsent>> for Outcome {
    fn from(sent: Result<(), Unsent>) -> Self {
        match sent {
            Ok(()) | Err(Unsent::Reset) => Outcome::Done,
            Err(Unsent::Cancelled) => Outcome::Cancelled,
        }
    }
}

/// Who answers.
enum Owner {
    Api,
    Gateway,
    /// A WebSocket: browsers and others open an HTTP/1.1 connection for it where Extended CONNECT (RFC 8441) is not offered.
    Upgrade,
}

impl Streams<'_> {
    pub(super) async fn serve(
        self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> Outcome {
        let _open = self.link.place().map(|place| place.count_stream());
        let request = match checked(request, self.serving.head.headers) {
            Ok(request) => request,
            Err(Refused::Malformed) => {
                respond.send_reset(Reason::PROTOCOL_ERROR); // RFC 9113 §8.1.1
                return Outcome::Done;
            }
            Err(Refused::Status(status)) => {
                let mut answer = Response::new(());
                *answer.status_mut() = status;
                return reply::send_head(&mut respond, answer, true).map(drop).map_err(Unsent::from).into();
            }
        };
        match self.owner(&request) {
            Owner::Api => self.answer(request, respond).await,
            Owner::Gateway => bridge::carry(self, request, respond).await,
            Owner::Upgrade => {
                respond.send_reset(Reason::HTTP_1_1_REQUIRED); // RFC 9113 §8.1.1, §7
                Outcome::Done
            }
        }
    }

    fn owner<B>(&self, request: &Request<B>) -> Owner {
        if !self.serving.turns || self.http2.bridge.is_none() {
            return Owner::Api;
        }
        let (method, uri) = (request.method(), request.uri());
        match DevicePath::of(method.as_str(), uri.path()) {
            None => Owner::Api,
            Some(DevicePath::Native | DevicePath::Mqtt | DevicePath::Xmpp) => Owner::Upgrade,
            Some(DevicePath::EngineIo) if method == Method::GET && asks_for_websocket(uri) => Owner::Upgrade,
            Some(DevicePath::Events | DevicePath::EngineIo) => Owner::Gateway,
        }
    }

    async fn answer(self, request: Request<Received>, mut respond: SendResponse<Bytes>) -> Outcome {
        let Streams { serving, peer, .. } = self;
        let Ok(link) = Link::of_stream(self.link) else {
            return reply::send(&mut respond, no_room(request.headers()), &Link::default(), serving.timing)
                .await
                .into();
        };
        let (is_safe, wanted) = (request.method().is_safe(), request.body().wanted());
        let mut answer = pin!(serve::answer(serving, peer, link.clone(), request));
        let answer = tokio::select! {
            answer = &mut answer => answer,
            () = gone(&mut respond, &link, wanted) => {
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

/// Resolves when the client gave the stream up, or the stream has to make room for others, which resets it. Meanwhile asks for
/// the body once it is wanted.
async fn gone(respond: &mut SendResponse<Bytes>, link: &Link, mut wanted: Option<Wanted>) {
    loop {
        tokio::select! {
            _ = poll_fn(|context| respond.poll_reset(context)) => return,
            () = link.evicted() => return respond.send_reset(Reason::CANCEL),
            () = is_set(wanted.as_deref()) => {
                ask_for_body(respond);
                wanted = None;
            }
        }
    }
}

async fn is_set(wanted: Option<&tokio::sync::SetOnce<()>>) {
    match wanted {
        Some(wanted) => *wanted.wait().await,
        None => pending().await,
    }
}

fn asks_for_websocket(uri: &Uri) -> bool {
    uri.query().unwrap_or_default().split('&').any(|pair| pair == "transport=websocket")
}

enum Refused {
    Malformed,
    Status(StatusCode),
}

/// The request as one of HTTP/1.1 would be: its target a path, its authority the header `Host`, its cookies in one header.
fn checked(request: Request<RecvStream>, headers_max: usize) -> Result<Request<Received>, Refused> {
    let (mut head, stream) = request.into_parts();
    let target = head.uri.path_and_query().cloned().filter(|_| head.method != Method::CONNECT);
    // No proxy is here (RFC 9110 §9.3.6).
    let Some(target) = target else { return Err(Refused::Status(StatusCode::NOT_IMPLEMENTED)) };
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return Err(Refused::Malformed); // RFC 9112 §3.2
    }
    if let Some(authority) = head.uri.authority() {
        // RFC 9113 §8.3.1
        let same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
        if !host.is_none_or(same) {
            return Err(Refused::Malformed);
        }
        let host = HeaderValue::try_from(authority.as_str()).map_err(|_| Refused::Malformed)?;
        head.headers.insert(header::HOST, host);
    }
    join_cookies(&mut head.headers);
    if head.headers.len() > headers_max {
        return Err(Refused::Status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    }
    head.uri = Uri::from(target);
    let body = Received::new(stream, &head.headers);
    Ok(Request::from_parts(head, body))
}

/// Clients of HTTP/2 may send each cookie in a header of its own (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<_> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() < 2 {
        return;
    }
    let joined = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])).expect("of valid values");
    headers.insert(header::COOKIE, joined);
}
