//! Sends an answer: never more of it than the client allows, and with the deadline that [`crate::paced`] has for a connection.

use std::future::poll_fn;
use std::time::SystemTime;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::{Instant, timeout};

use crate::arriving::Timing;
use crate::link::Link;
use crate::paced::Debt;

/// Of one frame: the least that a client has to take (RFC 9113 §4.2).
const FRAME_BYTES: usize = 16 << 10;

/// Headers of an HTTP/1.1 connection (RFC 9113 §8.2.2).
const OF_CONNECTION: [HeaderName; 5] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Why an answer was not sent to its end.
#[derive(Debug)]
pub(super) enum Unsent {
    /// The client does not want it, or is gone.
    Cancelled,
    /// The stream was reset here: the client took nothing for too long, or the answer broke off.
    Reset,
}

impl From<h2::Error> for Unsent {
    fn from(_: h2::Error) -> Self {
        Unsent::Cancelled
    }
}

/// Sends a head; the stream goes on unless `is_whole`.
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
    for name in OF_CONNECTION {
        headers.remove(name);
    }
}

/// Sends a whole answer.
pub(super) async fn send(
    respond: &mut SendResponse<Bytes>,
    answer: Response<axum::body::Body>,
    link: &Link,
    timing: Timing,
) -> Result<(), Unsent> {
    let (mut head, mut body) = answer.into_parts();
    let is_whole = body.is_end_stream();
    if !is_whole && let Some(length) = body.size_hint().exact() {
        head.headers.entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    let mut sender = Sender::new(send_head(respond, Response::from_parts(head, ()), is_whole)?, link, timing);
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
                // None of ours has trailers.
                if let Ok(data) = frame.into_data() {
                    sender.send(data, is_last).await?;
                }
                if is_last {
                    return Ok(());
                }
            }
            None => return Ok(sender.stream.send_data(Bytes::new(), true)?),
            Some(Err(error)) => {
                tracing::debug!(%error, "an answer broke off");
                sender.stream.send_reset(Reason::INTERNAL_ERROR);
                return Err(Unsent::Reset);
            }
        }
    }
}

/// The body of an answer, piece by piece.
pub(super) struct Sender<'a> {
    pub(super) stream: SendStream<Bytes>,
    link: &'a Link,
    timing: Timing,
    debt: Debt,
}

impl<'a> Sender<'a> {
    pub(super) fn new(stream: SendStream<Bytes>, link: &'a Link, timing: Timing) -> Self {
        Self { stream, link, timing, debt: Debt::default() }
    }

    async fn send(&mut self, mut data: Bytes, is_last: bool) -> Result<(), Unsent> {
        if data.is_empty() && is_last {
            self.stream.send_data(data, true)?;
            return Ok(());
        }
        while !data.is_empty() {
            let room = self.room(data.len()).await?;
            let piece = data.split_to(room.min(data.len()));
            self.send_piece(piece, is_last && data.is_empty())?;
        }
        Ok(())
    }

    /// Waits until the client takes some of so many bytes. What was waited for has to be sent before anything else
    /// is waited for, or given up: the window is the connection's too.
    pub(super) async fn room(&mut self, bytes: usize) -> Result<usize, Unsent> {
        let wanted = bytes.min(FRAME_BYTES);
        self.stream.reserve_capacity(wanted);
        let room = self.stream.capacity();
        if room > 0 {
            return Ok(room.min(wanted));
        }
        let (began, left) = (Instant::now(), self.debt.left(self.timing));
        self.link.set_write_blocked(true);
        let granted = timeout(left, granted(&mut self.stream)).await;
        self.link.set_write_blocked(false);
        self.debt.waited(began.elapsed());
        match granted {
            Ok(granted) => Ok(granted?.min(wanted)),
            Err(_) => {
                self.stream.send_reset(Reason::CANCEL);
                Err(Unsent::Reset)
            }
        }
    }

    /// A piece may be shorter than what there is room for.
    pub(super) fn send_piece(&mut self, piece: Bytes, is_last: bool) -> Result<(), Unsent> {
        self.debt.earned(piece.len(), self.timing);
        self.stream.send_data(piece, is_last)?;
        if !is_last {
            self.give_back_room();
        }
        Ok(())
    }

    /// What [`Sender::room`] found and is not used. `h2` would keep it for this stream, out of the connection's window.
    pub(super) fn give_back_room(&mut self) {
        self.stream.reserve_capacity(0);
    }
}

async fn granted(stream: &mut SendStream<Bytes>) -> Result<usize, Unsent> {
    poll_fn(|context| {
        if stream.poll_reset(context).is_ready() {
            return std::task::Poll::Ready(Err(Unsent::Cancelled));
        }
        stream.poll_capacity(context).map(|granted| match granted {
            Some(Ok(room)) => Ok(room),
            Some(Err(_)) | None => Err(Unsent::Cancelled),
        })
    })
    .await
}
