//! A stream whose request is the gateway's, such as an event stream: the gateway's shard gets one end of a socket pair as
//! an HTTP/1.1 connection, and this copies between the other end and the stream.
//!
//! Nothing is read before the other side takes it, so what waits is in the socket pair, where the shard sees a slow client
//! as it sees any. The gateway has the deadlines of requests and bodies, and counts the connection: while it does, the pool of
//! the API does not. Whichever side ends, the other one does.

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

use super::received::{Received, ask_for_body};
use super::reply::{self, Sender, Unsent};
use super::stream::{Outcome, Streams};
use crate::arriving::{Arriving, Late, Timing};
use crate::error::{Code, Problem};
use crate::link::Link;
use crate::router::no_room;
use crate::turn;

/// The gateway's own heads are far shorter.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Read at once: an event, or a part of a long one.
const PIECE_BYTES: usize = 8 << 10;

/// A request's body.
enum Upload {
    /// Of a length that the head tells.
    Stream(Received),
    Whole(Bytes),
}

pub(super) async fn carry(
    streams: Streams<'_>,
    request: Request<Received>,
    mut respond: SendResponse<Bytes>,
) -> Outcome {
    let timing = streams.serving.timing;
    let (mut head, body) = request.into_parts();
    if body.wanted().is_some() {
        ask_for_body(&mut respond); // the gateway reads every body
        head.headers.remove(header::EXPECT);
    }
    let upload = match body.length() {
        Some(_) => Upload::Stream(body),
        // The gateway takes no body of unknown length, and HTTP/2 has no need to tell it.
        None => match collected(streams, body, &head.headers, &mut respond).await {
            Ok(bytes) => {
                head.headers.insert(header::CONTENT_LENGTH, bytes.len().into());
                Upload::Whole(bytes)
            }
            Err(outcome) => return outcome,
        },
    };
    // The gateway counts the stream and has its deadlines, so its link has no place.
    let (lent, link) = (streams.link.lend(), Link::default());
    head.headers.remove(header::TE);
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let request = Request::from_parts(head, ());
    let bridged =
        streams.http2.bridge.as_ref().and_then(|bridge| bridge(streams.peer.address, turn::head(&request)));
    let is_draining = || *streams.http2.draining.borrow();
    let Some(bridged) = bridged else {
        drop(lent);
        if is_draining() {
            return send_elsewhere(&mut respond);
        }
        return reply::send(&mut respond, no_room(request.headers()), &link, timing).await.into();
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
            return send_elsewhere(&mut respond);
        }
        let is_head = request.method() == Method::HEAD;
        let sent = send_down(read, &mut respond, head, is_head, rest, (&link, timing)).await;
        // An event stream has no other end than that either side leaves.
        sent.map_or(Outcome::Left, |()| Outcome::Done)
    });
    tokio::select! {
        outcome = &mut download => outcome,
        never = send_up(upload, write) => match never {},
    }
}

/// In place of a `503` while the gateway drains, which a browser's `EventSource` takes for final. A stream that was refused it
/// asks for again, and after GOAWAY on another connection, which may reach another node.
fn send_elsewhere(respond: &mut SendResponse<Bytes>) -> Outcome {
    respond.send_reset(Reason::REFUSED_STREAM);
    Outcome::Last
}

/// The whole body, which waits in a place of the pool's; else how the stream ended.
async fn collected(
    streams: Streams<'_>,
    body: Received,
    headers: &HeaderMap,
    respond: &mut SendResponse<Bytes>,
) -> Result<Bytes, Outcome> {
    let timing = streams.serving.timing;
    let Ok(link) = Link::of_stream(streams.link) else {
        return Err(reply::send(respond, no_room(headers), &Link::default(), timing).await.into());
    };
    link.begin_request();
    let body = Arriving::new(body, link.clone(), timing);
    let collected = tokio::select! {
        collected = collect(body, streams.http2.client_message_bytes) => collected,
        _ = poll_fn(|context| respond.poll_reset(context)) => return Err(Outcome::Cancelled),
        () = link.evicted() => {
            respond.send_reset(Reason::CANCEL);
            return Err(Outcome::Done);
        }
    };
    match collected {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(Outcome::Cancelled),
        Err(problem) => Err(reply::send(respond, problem.into_response(), &link, timing).await.into()),
    }
}

/// None: the body broke off, and its stream with it.
async fn collect(mut body: Arriving<Received>, bytes_max: usize) -> Result<Option<Bytes>, Problem> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => match error.downcast_ref::<Late>() {
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

/// Never ends by itself: what the gateway makes of a body that broke off is its answer, or the end.
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
        tracing::debug!(%error, "a body did not reach the gateway");
        // A body that broke off must not look as if more came.
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
    (link, timing): (&Link, Timing),
) -> Result<(), Unsent> {
    let mut left = head
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let is_whole = left == Some(0) || is_head; // RFC 9110 §9.3.2
    let mut sender = Sender::new(reply::send_head(respond, head, is_whole)?, link, timing);
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
        let wanted = if rest.is_empty() { PIECE_BYTES } else { rest.len() };
        let room = sender.room(wanted).await?;
        let piece = match rest.is_empty() {
            false => rest.split_to(room.min(rest.len())),
            true => match read_some(&read, room) {
                Ok(Some(piece)) => piece,
                // Nothing is there after all.
                Ok(None) => {
                    sender.give_back_room();
                    continue;
                }
                Err(_) => Bytes::new(),
            },
        };
        if piece.is_empty() {
            if left.is_none() {
                sender.stream.send_data(piece, true)?; // an event stream ends so
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

/// None: nothing is there; empty: the end.
fn read_some(read: &ReadHalf<'_>, room: usize) -> io::Result<Option<Bytes>> {
    // On the stack, and gone before anything is waited for: a stream that waits has no buffer.
    let mut piece = [0; PIECE_BYTES];
    match read.try_read(&mut piece[..room.min(PIECE_BYTES)]) {
        Ok(count) => Ok(Some(Bytes::copy_from_slice(&piece[..count]))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// The gateway's head, and what came with it of the body. None: it ended before.
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

/// What the gateway said is no head of HTTP/1.1.
#[derive(Debug)]
struct NoHead;

/// A head and its length; none while it is incomplete. What it says of the connection is left out when it is sent.
fn parse(bytes: &[u8]) -> Result<Option<(Response<()>, usize)>, NoHead> {
    let mut headers = [httparse::EMPTY_HEADER; noroshi_types::limits::HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(len) = parsed.parse(bytes).map_err(|_| NoHead)? else { return Ok(None) };
    let mut head = Response::new(());
    *head.status_mut() = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(NoHead)?;
    for header in parsed.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| NoHead)?;
        let value = HeaderValue::from_bytes(header.value).map_err(|_| NoHead)?;
        head.headers_mut().append(name, value);
    }
    Ok(Some((head, len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gateways_head_is_read_once_it_is_whole() {
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
