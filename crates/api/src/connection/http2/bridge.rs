//! Bridges a stream to the gateway, such as an event stream: a gateway shard gets one end of a socket pair as an HTTP/1.1
//! connection, and the bridge copies between the other end and the stream.
//!
//! The bridge reads only what the other side can accept, so pending bytes stay in the socket pair, where the shard sees a slow
//! client like any other. The gateway enforces the deadlines of requests and bodies and counts the connection; meanwhile the
//! API's pool does not. When one side ends, so does the other.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::pin;

use axum::response::IntoResponse;
use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{ReadHalf, WriteHalf};

use super::context::{Outcome, StreamContext};
use super::request_body::{RequestBody, send_continue};
use super::response::{self, Sender, Unsent};
use crate::connection::body_deadline::{BodyTimeout, TimedBody};
use crate::connection::capacity::no_capacity;
use crate::connection::handle::Handle;
use crate::connection::handoff::head_bytes;
use crate::connection::timing::Timing;
use crate::error::{Code, Problem};

/// The gateway's response heads are much shorter.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes per read: an event, or part of a long one.
const PIECE_BYTES: usize = 8 << 10;

/// A request body on its way to the gateway.
enum Upload {
    /// With `Content-Length`.
    Stream(RequestBody),
    Whole(Bytes),
}

pub(super) async fn run(
    streams: StreamContext<'_>,
    request: Request<RequestBody>,
    mut respond: SendResponse<Bytes>,
) -> Outcome {
    let timing = streams.serving.timing;
    let (mut head, body) = request.into_parts();
    if body.continue_request().is_some() {
        send_continue(&mut respond); // the gateway reads every body
        head.headers.remove(header::EXPECT);
    }
    let upload = match body.length() {
        Some(_) => Upload::Stream(body),
        // The gateway accepts no body of unknown length; in HTTP/2, `Content-Length` is optional.
        None => match collect_within_pool(streams, body, &head.headers, &mut respond).await {
            Ok(bytes) => {
                head.headers.insert(header::CONTENT_LENGTH, bytes.len().into());
                Upload::Whole(bytes)
            }
            Err(outcome) => return outcome,
        },
    };
    // The gateway counts the stream and enforces its deadlines, so its handle has no place.
    let (lent, handle) = (streams.handle.lend(), Handle::default());
    head.headers.remove(header::TE);
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let request = Request::from_parts(head, ());
    let bridged =
        streams.http2.bridge.as_ref().and_then(|bridge| bridge(streams.peer.address, head_bytes(&request)));
    let is_draining = || *streams.http2.draining.borrow();
    let Some(bridged) = bridged else {
        drop(lent);
        if is_draining() {
            return refuse_stream(&mut respond);
        }
        return response::send(&mut respond, no_capacity(request.headers()), &handle, timing).await.into();
    };
    let _held = bridged.held;
    let mut socket = match UnixStream::from_std(bridged.stream) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "cannot register a bridged stream's socket");
            respond.send_reset(Reason::INTERNAL_ERROR);
            return Outcome::Done;
        }
    };
    let (read, write) = socket.split();
    let mut download = pin!(async {
        let head = tokio::select! {
            head = read_head(&read) => head,
            _ = poll_fn(|context| respond.poll_reset(context)) => return Outcome::Cancelled,
        };
        let Some((head, rest)) = head else {
            respond.send_reset(Reason::INTERNAL_ERROR);
            return Outcome::Done;
        };
        if head.status() == StatusCode::SERVICE_UNAVAILABLE && is_draining() {
            return refuse_stream(&mut respond);
        }
        let is_head = request.method() == Method::HEAD;
        let sent = send_down(read, &mut respond, head, is_head, rest, (&handle, timing)).await;
        // An event stream ends only when either side closes it.
        sent.map_or(Outcome::Left, |()| Outcome::Done)
    });
    tokio::select! {
        outcome = &mut download => outcome,
        never = send_up(upload, write) => match never {},
    }
}

/// Replaces a `503` while the gateway drains. A browser's `EventSource` treats `503` as final, but retries a refused stream:
/// after GOAWAY on another connection, which may reach another node.
fn refuse_stream(respond: &mut SendResponse<Bytes>) -> Outcome {
    respond.send_reset(Reason::REFUSED_STREAM);
    Outcome::Last
}

/// Reads the whole body, while the stream holds a place in the pool. Err: how the stream ended.
async fn collect_within_pool(
    streams: StreamContext<'_>,
    body: RequestBody,
    headers: &HeaderMap,
    respond: &mut SendResponse<Bytes>,
) -> Result<Bytes, Outcome> {
    let timing = streams.serving.timing;
    let Ok(handle) = Handle::of_stream(streams.handle) else {
        return Err(response::send(respond, no_capacity(headers), &Handle::default(), timing).await.into());
    };
    handle.begin_request();
    let body = TimedBody::new(body, handle.clone(), timing);
    let collected = tokio::select! {
        collected = collect(body, streams.http2.client_message_bytes) => collected,
        _ = poll_fn(|context| respond.poll_reset(context)) => return Err(Outcome::Cancelled),
        () = handle.evicted() => {
            respond.send_reset(Reason::CANCEL);
            return Err(Outcome::Done);
        }
    };
    match collected {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(Outcome::Cancelled),
        Err(problem) => Err(response::send(respond, problem.into_response(), &handle, timing).await.into()),
    }
}

/// None: the body ended early, and the stream with it.
async fn collect(mut body: TimedBody<RequestBody>, bytes_max: usize) -> Result<Option<Bytes>, Problem> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => match error.downcast_ref::<BodyTimeout>() {
                Some(late) => return Err(Problem::new(Code::BodyTimeout, late.to_string())),
                None => return Ok(None),
            },
        };
        let data = frame.into_data().unwrap_or_default();
        if bytes.len() + data.len() > bytes_max {
            return Err(Problem::new(Code::BodyTooLarge, "the body is larger than limits.client_message"));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Some(bytes.into()))
}

/// Never returns: after a body that ended early, the gateway responds or closes.
async fn send_up(upload: Upload, mut write: WriteHalf<'_>) -> std::convert::Infallible {
    let sent: io::Result<()> = async {
        match upload {
            Upload::Whole(bytes) => write.write_all(&bytes).await?,
            Upload::Stream(mut body) => {
                while let Some(frame) = body.frame().await {
                    let data = frame.map_err(io::Error::other)?.into_data().unwrap_or_default();
                    write.write_all(&data).await?;
                }
            }
        }
        Ok(())
    }
    .await;
    if let Err(error) = sent {
        tracing::debug!(%error, "a request body did not reach the gateway");
        // The gateway must not wait for more of a body that ended early.
        let _ = write.shutdown().await;
    }
    pending().await
}

async fn send_down(
    read: ReadHalf<'_>,
    respond: &mut SendResponse<Bytes>,
    head: Response<()>,
    is_head: bool,
    mut rest: Bytes,
    (handle, timing): (&Handle, Timing),
) -> Result<(), Unsent> {
    let mut left = head
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let is_whole = left == Some(0) || is_head; // RFC 9110 §9.3.2
    let mut sender = Sender::new(response::send_head(respond, head, is_whole)?, handle, timing);
    if is_whole {
        return Ok(());
    }
    loop {
        if rest.is_empty() {
            tokio::select! {
                ready = read.readable() => ready.map_err(|_| Unsent::Reset)?,
                _ = poll_fn(|context| sender.stream.poll_reset(context)) => return Err(Unsent::Cancelled),
            }
        }
        let requested = if rest.is_empty() { PIECE_BYTES } else { rest.len() };
        let window = sender.reserve(requested).await?;
        let piece = match rest.is_empty() {
            false => rest.split_to(window.min(rest.len())),
            true => match read_some(&read, window) {
                Ok(Some(piece)) => piece,
                // Spurious readiness.
                Ok(None) => {
                    sender.release();
                    continue;
                }
                Err(_) => Bytes::new(),
            },
        };
        if piece.is_empty() {
            if left.is_none() {
                sender.stream.send_data(piece, true)?; // the end of an event stream
                return Ok(());
            }
            sender.stream.send_reset(Reason::INTERNAL_ERROR);
            return Err(Unsent::Reset);
        }
        left = left.map(|left| left.saturating_sub(piece.len() as u64));
        sender.send_piece(piece, left == Some(0))?;
        if left == Some(0) {
            return Ok(());
        }
    }
}

/// None: no bytes are available. Empty: end of stream.
fn read_some(read: &ReadHalf<'_>, window: usize) -> io::Result<Option<Bytes>> {
    // On the stack, so a waiting stream holds no buffer.
    let mut piece = [0; PIECE_BYTES];
    match read.try_read(&mut piece[..window.min(PIECE_BYTES)]) {
        Ok(count) => Ok(Some(Bytes::copy_from_slice(&piece[..count]))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// The gateway's response head, and the bytes of the body read with it. None: the gateway closed before.
async fn read_head(read: &ReadHalf<'_>) -> Option<(Response<()>, Bytes)> {
    let mut bytes = Vec::new();
    loop {
        read.readable().await.ok()?;
        match read_some(read, PIECE_BYTES) {
            Ok(None) => continue,
            Ok(Some(piece)) if !piece.is_empty() && bytes.len() < HEAD_BYTES_MAX => {
                bytes.extend_from_slice(&piece)
            }
            Ok(Some(_)) | Err(_) => return None,
        }
        if let Some((head, len)) = parse(&bytes).ok()? {
            return Some((head, Bytes::from(bytes).slice(len..)));
        }
    }
}

/// The bytes are not an HTTP/1.1 response head.
#[derive(Debug)]
struct InvalidHead;

/// A head and its length; none while it is incomplete. Sending it strips connection-specific headers.
fn parse(bytes: &[u8]) -> Result<Option<(Response<()>, usize)>, InvalidHead> {
    let mut headers = [httparse::EMPTY_HEADER; noroshi_types::limits::HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(len) = parsed.parse(bytes).map_err(|_| InvalidHead)? else {
        return Ok(None);
    };
    let mut head = Response::new(());
    *head.status_mut() = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(InvalidHead)?;
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| InvalidHead)?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| InvalidHead)?;
        head.headers_mut().append(name, value);
    }
    Ok(Some((head, len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_head_is_parsed_once_complete() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nVary: A\r\nVary: B\r\n\r\nretry";
        for cut in 0..text.len() - 5 {
            assert!(matches!(parse(&text[..cut]), Ok(None)), "{cut}");
        }
        let Ok(Some((head, len))) = parse(text) else { panic!("a head") };
        assert_eq!((head.status(), &text[len..]), (StatusCode::OK, &b"retry"[..]));
        assert_eq!(head.headers().get_all("vary").iter().count(), 2);
        assert!(parse(b"MQTT").is_err());
    }
}
