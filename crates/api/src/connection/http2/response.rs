//! Sends a response within the client's flow-control window, with the same deadline as a connection
//! ([`crate::connection::send_deadline`]).

use std::future::poll_fn;
use std::time::SystemTime;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::{Instant, timeout};

use crate::connection::handle::Handle;
use crate::connection::send_deadline::BlockedTime;
use crate::connection::timing::Timing;

/// The frame size that every client must accept (RFC 9113 §4.2).
const FRAME_BYTES: usize = 16 << 10;

/// Connection-specific headers, which HTTP/2 forbids (RFC 9113 §8.2.2).
const CONNECTION_HEADERS: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Why a response was not sent completely.
#[derive(Debug)]
pub(super) enum Unsent {
    /// The client cancelled the stream or disconnected.
    Cancelled,
    /// The node reset the stream: the client read nothing for too long, or the response failed.
    Reset,
}

impl From<h2::Error> for Unsent {
    fn from(_: h2::Error) -> Self {
        Unsent::Cancelled
    }
}

/// Sends a head. `is_whole`: no body follows.
pub(super) fn send_head(
    respond: &mut SendResponse<Bytes>,
    mut head: Response<()>,
    is_whole: bool,
) -> Result<SendStream<Bytes>, h2::Error> {
    let headers = head.headers_mut();
    strip(headers);
    if !headers.contains_key(header::DATE) {
        let now = httpdate::fmt_http_date(SystemTime::now());
        headers.extend(HeaderValue::try_from(now).ok().map(|now| (header::DATE, now)));
    }
    respond.send_response(head, is_whole)
}

fn strip(headers: &mut HeaderMap) {
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
}

/// Sends a whole response.
pub(super) async fn send(
    respond: &mut SendResponse<Bytes>,
    answer: Response<axum::body::Body>,
    handle: &Handle,
    timing: Timing,
) -> Result<(), Unsent> {
    let (mut head, mut body) = answer.into_parts();
    let is_whole = body.is_end_stream();
    if !is_whole && let Some(length) = body.size_hint().exact() {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    let mut sender =
        Sender::new(send_head(respond, Response::from_parts(head, ()), is_whole)?, handle, timing);
    if is_whole {
        return Ok(());
    }
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = poll_fn(|context| sender.stream.poll_reset(context)) => return Err(Unsent::Cancelled),
        };
        match frame {
            Some(Ok(frame)) => {
                let is_last = body.is_end_stream();
                // No response has trailers.
                if let Ok(data) = frame.into_data() {
                    sender.send(data, is_last).await?;
                }
                if is_last {
                    return Ok(());
                }
            }
            None => return Ok(sender.stream.send_data(Bytes::new(), true)?),
            Some(Err(error)) => {
                tracing::debug!(%error, "a response failed");
                sender.stream.send_reset(Reason::INTERNAL_ERROR);
                return Err(Unsent::Reset);
            }
        }
    }
}

/// The body of a response, piece by piece.
pub(super) struct Sender<'a> {
    pub(super) stream: SendStream<Bytes>,
    handle: &'a Handle,
    timing: Timing,
    blocked_time: BlockedTime,
}

impl<'a> Sender<'a> {
    pub(super) fn new(stream: SendStream<Bytes>, handle: &'a Handle, timing: Timing) -> Self {
        Self { stream, handle, timing, blocked_time: BlockedTime::default() }
    }

    async fn send(&mut self, mut data: Bytes, is_last: bool) -> Result<(), Unsent> {
        if data.is_empty() && is_last {
            self.stream.send_data(data, true)?;
            return Ok(());
        }
        while !data.is_empty() {
            let window = self.reserve(data.len()).await?;
            let piece = data.split_to(window.min(data.len()));
            self.send_piece(piece, is_last && data.is_empty())?;
        }
        Ok(())
    }

    /// Waits until the client's window allows some of these bytes. The caller must use or release the reserved window before
    /// it waits for anything else, since streams share the connection's window.
    pub(super) async fn reserve(&mut self, bytes: usize) -> Result<usize, Unsent> {
        let requested = bytes.min(FRAME_BYTES);
        self.stream.reserve_capacity(requested);
        let window = self.stream.capacity();
        if window > 0 {
            return Ok(window.min(requested));
        }
        let (started_at, remaining) = (Instant::now(), self.blocked_time.remaining(self.timing));
        self.handle.set_write_blocked(true);
        let granted = timeout(remaining, granted(&mut self.stream)).await;
        self.handle.set_write_blocked(false);
        self.blocked_time.add_blocked(started_at.elapsed());
        match granted {
            Ok(granted) => Ok(granted?.min(requested)),
            Err(_) => {
                self.stream.send_reset(Reason::CANCEL);
                Err(Unsent::Reset)
            }
        }
    }

    /// A piece may be shorter than the reserved window.
    pub(super) fn send_piece(&mut self, piece: Bytes, is_last: bool) -> Result<(), Unsent> {
        self.blocked_time.add_sent(piece.len(), self.timing);
        self.stream.send_data(piece, is_last)?;
        if !is_last {
            self.release();
        }
        Ok(())
    }

    /// Releases the unused part of [`Sender::reserve`]. `h2` would hold it for this stream, out of the connection's window.
    pub(super) fn release(&mut self) {
        self.stream.reserve_capacity(0);
    }
}

async fn granted(stream: &mut SendStream<Bytes>) -> Result<usize, Unsent> {
    poll_fn(|context| {
        if stream.poll_reset(context).is_ready() {
            return std::task::Poll::Ready(Err(Unsent::Cancelled));
        }
        stream.poll_capacity(context).map(|granted| match granted {
            Some(Ok(window)) => Ok(window),
            Some(Err(_)) | None => Err(Unsent::Cancelled),
        })
    })
    .await
}
