//! Sits between HTTP/2 framing and TLS, for what the HTTP/2 library cannot do: changing
//! SETTINGS_MAX_CONCURRENT_STREAMS during the connection, and GOAWAY with a chosen last stream and debug
//! data, as APNs sends it.
//!
//! Invariant: frames are inserted only between other frames.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// RFC 9113 §4.1
const FRAME_HEAD_BYTES: usize = 9;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
/// RFC 9113 §6.5.2: SETTINGS_MAX_CONCURRENT_STREAMS
const MAX_CONCURRENT_STREAMS: u16 = 3;

/// Controls a seam from its connection.
#[derive(Debug)]
pub(crate) struct Handle {
    /// Sent in every SETTINGS frame.
    pub(crate) streams_max: AtomicU32,
    /// Close the socket with RST.
    pub(crate) abort: AtomicBool,
    frames: Mutex<BytesMut>,
}

impl Handle {
    pub(crate) fn new(streams_max: u32) -> Arc<Self> {
        let streams_max = AtomicU32::new(streams_max);
        Arc::new(Self { streams_max, abort: AtomicBool::new(false), frames: Mutex::default() })
    }

    /// Sent with the next flush.
    pub(crate) fn go_away(&self, last_stream: u32, code: u32, debug: &[u8]) {
        let mut frames = self.frames.lock();
        frames.put_uint((8 + debug.len()) as u64, 3);
        frames.put_slice(&[GOAWAY, 0, 0, 0, 0, 0]);
        frames.put_u32(last_stream);
        frames.put_u32(code);
        frames.put_slice(debug);
    }
}

pub(crate) struct Seam {
    io: TlsStream<TcpStream>,
    handle: Arc<Handle>,
    out: BytesMut,
    frames: Frames,
}

impl Seam {
    pub(crate) fn new(io: TlsStream<TcpStream>, handle: Arc<Handle>) -> Self {
        Self { io, handle, out: BytesMut::new(), frames: Frames::default() }
    }

    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            match Pin::new(&mut self.io).poll_write(cx, &self.out) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => self.out.advance(written),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Inserts pending frames at a frame boundary.
    fn inject(&mut self) {
        if self.frames.is_between() {
            let mut frames = self.handle.frames.lock();
            if !frames.is_empty() {
                self.out.put_slice(&frames);
                frames.clear();
            }
        }
    }
}

impl AsyncRead for Seam {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Seam {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.poll_drain(cx)?.is_pending() {
            return Poll::Pending;
        }
        this.inject();
        this.frames.pass(buf, &mut this.out, this.handle.streams_max.load(Ordering::Relaxed));
        this.inject();
        // Keeps bytes that the socket does not accept now, and writes them first next time.
        let _ = this.poll_drain(cx)?;
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.inject();
        if this.poll_drain(cx)?.is_pending() {
            return Poll::Pending;
        }
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.poll_drain(cx)?.is_pending() {
            return Poll::Pending;
        }
        Pin::new(&mut this.io).poll_shutdown(cx)
    }
}

impl Drop for Seam {
    fn drop(&mut self) {
        if self.handle.abort.load(Ordering::Relaxed) {
            let _ = self.io.get_ref().0.set_zero_linger(); // on failure it is closed normally
        }
    }
}

/// Position in the stream of outgoing frames.
#[derive(Debug, Default)]
struct Frames {
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    payload_left: usize,
    is_settings: bool,
}

impl Frames {
    fn is_between(&self) -> bool {
        self.head_bytes == 0 && self.payload_left == 0
    }

    /// Copies to `out`, adding a parameter to SETTINGS frames.
    fn pass(&mut self, mut bytes: &[u8], out: &mut BytesMut, streams_max: u32) {
        while !bytes.is_empty() {
            if self.payload_left == 0 {
                let taken = bytes.len().min(FRAME_HEAD_BYTES - self.head_bytes);
                self.head[self.head_bytes..self.head_bytes + taken].copy_from_slice(&bytes[..taken]);
                self.head_bytes += taken;
                bytes.advance(taken);
                if self.head_bytes < FRAME_HEAD_BYTES {
                    return;
                }
                self.begin(out);
            } else {
                let taken = bytes.len().min(self.payload_left);
                out.put_slice(&bytes[..taken]);
                bytes.advance(taken);
                self.payload_left -= taken;
            }
            if self.payload_left == 0 {
                if std::mem::take(&mut self.is_settings) {
                    out.put_u16(MAX_CONCURRENT_STREAMS);
                    out.put_u32(streams_max);
                }
                self.head_bytes = 0;
            }
        }
    }

    fn begin(&mut self, out: &mut BytesMut) {
        let head = &self.head;
        self.payload_left = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        self.is_settings = head[3] == SETTINGS && head[4] & ACK == 0;
        let length = self.payload_left + if self.is_settings { 6 } else { 0 };
        out.put_uint(length as u64, 3);
        out.put_slice(&head[3..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_frames_get_the_parameter_for_every_split_and_others_are_unchanged() {
        let data: &[u8] = &[0, 0, 3, 0, 1, 0, 0, 0, 1, 7, 8, 9];
        let ack: &[u8] = &[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0];
        let settings: &[u8] = &[0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0];
        let empty: &[u8] = &[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
        let all = [settings, data, ack, empty, data].concat();
        let parameter: &[u8] = &[0, 3, 0, 0, 0, 5];
        let mut longer = settings.to_vec();
        longer[2] = 12;
        let mut one = empty.to_vec();
        one[2] = 6;
        let expected = [&longer, parameter, data, ack, &one, parameter, data].concat();
        for size in 1..all.len() {
            let (mut frames, mut out) = (Frames::default(), BytesMut::new());
            all.chunks(size).for_each(|chunk| frames.pass(chunk, &mut out, 5));
            assert_eq!(out, expected, "{size} bytes at a time");
            assert!(frames.is_between());
        }
    }
}
