//! One stream: validates the request, decides who answers it, and sends the response.

use std::future::{pending, poll_fn};
use std::pin::pin;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use noroshi_protocol::device_path::DevicePath;

use super::bridge;
use super::context::{Outcome, StreamContext};
use super::request_body::{ContinueRequest, RequestBody, send_continue};
use super::response::{self, Unsent};
use crate::connection::answer;
use crate::connection::capacity::no_capacity;
use crate::connection::handle::Handle;

/// Who answers a request.
enum Owner {
    Api,
    Gateway,
    /// No HTTP handler: the client wants a WebSocket. Without Extended CONNECT (RFC 8441), it must open an HTTP/1.1
    /// connection for that.
    Upgrade,
}

impl StreamContext<'_> {
    pub(super) async fn serve(
        self,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> Outcome {
        let _open = self.handle.place().map(|place| place.count_stream());
        let request = match validate(request, self.serving.head.headers) {
            Ok(request) => request,
            Err(Invalid::Malformed) => {
                respond.send_reset(Reason::PROTOCOL_ERROR); // RFC 9113 §8.1.1
                return Outcome::Done;
            }
            Err(Invalid::Status(status)) => {
                let mut answer = Response::new(());
                *answer.status_mut() = status;
                return response::send_head(&mut respond, answer, true)
                    .map(drop)
                    .map_err(Unsent::from)
                    .into();
            }
        };
        match self.owner(&request) {
            Owner::Api => self.answer(request, respond).await,
            Owner::Gateway => bridge::run(self, request, respond).await,
            Owner::Upgrade => {
                respond.send_reset(Reason::HTTP_1_1_REQUIRED); // RFC 9113 §8.1.1, §7
                Outcome::Done
            }
        }
    }

    fn owner<B>(&self, request: &Request<B>) -> Owner {
        if !self.serving.hands_off || self.http2.bridge.is_none() {
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

    async fn answer(self, request: Request<RequestBody>, mut respond: SendResponse<Bytes>) -> Outcome {
        let StreamContext { serving, peer, .. } = self;
        let Ok(handle) = Handle::of_stream(self.handle) else {
            return response::send(
                &mut respond,
                no_capacity(request.headers()),
                &Handle::default(),
                serving.timing,
            )
            .await
            .into();
        };
        let (is_safe, continue_request) = (request.method().is_safe(), request.body().continue_request());
        let mut answer = pin!(answer::answer(serving, peer, handle.clone(), request));
        let answer = tokio::select! {
            answer = &mut answer => answer,
            () = cancelled(&mut respond, &handle, continue_request) => {
                if !is_safe {
                    answer.await;
                }
                return Outcome::Cancelled;
            }
        };
        let is_last = answer.headers().get(header::CONNECTION).is_some_and(|value| value == "close");
        let sent = tokio::select! {
            sent = response::send(&mut respond, answer, &handle, serving.timing) => sent,
            () = handle.evicted() => {
                respond.send_reset(Reason::CANCEL);
                Err(Unsent::Reset)
            }
        };
        if is_last { Outcome::Last } else { sent.into() }
    }
}

/// Resolves when the client cancels the stream, or the pool evicts it, which resets it. Meanwhile sends `100 Continue` once a
/// handler reads the body.
async fn cancelled(
    respond: &mut SendResponse<Bytes>,
    handle: &Handle,
    mut continue_request: Option<ContinueRequest>,
) {
    loop {
        tokio::select! {
            _ = poll_fn(|context| respond.poll_reset(context)) => return,
            () = handle.evicted() => return respond.send_reset(Reason::CANCEL),
            () = is_set(continue_request.as_deref()) => {
                send_continue(respond);
                continue_request = None;
            }
        }
    }
}

async fn is_set(continue_request: Option<&tokio::sync::SetOnce<()>>) {
    match continue_request {
        Some(continue_request) => *continue_request.wait().await,
        None => pending().await,
    }
}

fn asks_for_websocket(uri: &Uri) -> bool {
    uri.query().unwrap_or_default().split('&').any(|pair| pair == "transport=websocket")
}

enum Invalid {
    Malformed,
    Status(StatusCode),
}

/// Converts the request to the form of HTTP/1.1: target is a path, authority is the header `Host`, cookies are in one header.
fn validate(request: Request<RecvStream>, headers_max: usize) -> Result<Request<RequestBody>, Invalid> {
    let (mut head, stream) = request.into_parts();
    let target = head.uri.path_and_query().cloned().filter(|_| head.method != Method::CONNECT);
    // This is not a proxy (RFC 9110 §9.3.6).
    let Some(target) = target else { return Err(Invalid::Status(StatusCode::NOT_IMPLEMENTED)) };
    let mut hosts = head.headers.get_all(header::HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    if more.is_some() {
        return Err(Invalid::Malformed); // RFC 9112 §3.2
    }
    if let Some(authority) = head.uri.authority() {
        // RFC 9113 §8.3.1
        let same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
        if !host.is_none_or(same) {
            return Err(Invalid::Malformed);
        }
        let host = HeaderValue::try_from(authority.as_str()).map_err(|_| Invalid::Malformed)?;
        head.headers.insert(header::HOST, host);
    }
    join_cookies(&mut head.headers);
    if head.headers.len() > headers_max {
        return Err(Invalid::Status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    }
    head.uri = Uri::from(target);
    let body = RequestBody::new(stream, &head.headers);
    Ok(Request::from_parts(head, body))
}

/// HTTP/2 clients may send each cookie in a separate header (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let crumbs: Vec<_> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() < 2 {
        return;
    }
    let joined =
        HeaderValue::from_bytes(&crumbs.join(&b"; "[..])).expect("valid values joined by \"; \" are valid");
    headers.insert(header::COOKIE, joined);
}
