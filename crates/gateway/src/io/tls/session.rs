//! The TLS state of one connection, without a buffer of its own while it is idle.
//!
//! rustls' unbuffered interface gets ciphertext in the thread's scratch. What outlives a call is allocated when it
//! exists and freed when it is done: the beginning of an incomplete record, plaintext that the caller had no room for,
//! and ciphertext that the socket did not take. Each is at most a record long, except for the server's flight of a
//! handshake.
//!
//! Invariants: plaintext is accepted only while no ciphertext is pending, so the unsent bytes reveal a slow peer.
//! Between two calls `incomplete` holds nothing that rustls could process: the same bytes, at the same place, that it
//! saw before.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{InvalidMessage, ServerConfig};

use super::scratch::{
    INCOMING_BYTES, Outgoing, RECORD_BYTES_MAX, RECORD_PLAINTEXT_MAX, Scratch, with_scratch,
};

/// The TLS state of one connection.
pub struct TlsSession {
    tls: UnbufferedServerConnection,
    /// An incomplete record, or handshake message in several. Shorter than `RECORD_BYTES_MAX`.
    incomplete: Vec<u8>,
    /// Decrypted, but more than the reader had room for.
    unread: Bytes,
    /// What the socket did not take.
    unsent: Bytes,
    input: Input,
    /// `close_notify` was sent.
    ended: bool,
    /// The last read emptied the socket.
    drained: bool,
}

// An idle TLS 1.3 connection has 5 KiB in all; rustls allocates about 2 KiB in addition.
const _: () = assert!(size_of::<TlsSession>() <= 1_280);

/// Whether more can be read.
enum Input {
    Open,
    Ended,
    Failed(Box<rustls::Error>),
}

/// The destination of plaintext: the reader's buffer while it has room.
struct Plaintext<'a> {
    into: &'a mut [u8],
    filled: usize,
    rest: Vec<u8>,
}

impl TlsSession {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self {
            tls: UnbufferedServerConnection::new(config)?,
            incomplete: Vec::new(),
            unread: Bytes::new(),
            unsent: Bytes::new(),
            input: Input::Open,
            ended: false,
            drained: false,
        })
    }

    /// Whether the handshake agreed on HTTP/2 (RFC 9113 §3.2).
    pub(crate) fn speaks_http2(&self) -> bool {
        self.tls.alpn_protocol() == Some(b"h2")
    }

    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Whether the last read left nothing, neither in the socket nor here.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained && self.unread.is_empty() && matches!(self.input, Input::Open)
    }

    /// Reads plaintext into `into`; 0 is the end. Sends handshake messages on the way.
    ///
    /// `Interrupted` if the bytes read contained no plaintext: records may be empty, and a peer that sends them
    /// endlessly must not keep the caller, which continues when it likes.
    pub fn read(&mut self, io: &mut (impl Read + Write), into: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_empty() {
            return match self.input {
                Input::Open => with_scratch(|scratch| self.read_records(io, into, scratch)),
                _ => self.end_of_input(),
            };
        }
        let count = self.unread.len().min(into.len());
        self.unread.copy_to_slice(&mut into[..count]);
        if self.unread.is_empty() {
            self.unread = Bytes::new(); // an empty rest would keep the whole allocation
        }
        Ok(count)
    }

    /// Takes plaintext as far as the socket takes ciphertext, a record at a time.
    pub fn write_vectored(&mut self, io: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.flush(io)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.ended || matches!(self.input, Input::Failed(_)) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        with_scratch(|Scratch { gathered, outgoing, .. }| {
            let plaintext = first_record(slices, gathered);
            if plaintext.is_empty() {
                return Ok(0);
            }
            self.with_traffic(outgoing, |outgoing, traffic| outgoing.encrypt(traffic, plaintext))?;
            self.send(io, outgoing.filled())?;
            Ok(plaintext.len())
        })
    }

    /// True when no ciphertext is pending.
    pub fn flush(&mut self, io: &mut impl Write) -> io::Result<bool> {
        let count = write_some(io, &self.unsent)?;
        self.unsent.advance(count);
        if !self.unsent.is_empty() {
            return Ok(false);
        }
        self.unsent = Bytes::new(); // as above
        Ok(true)
    }

    /// Sends `close_notify` (RFC 8446 §6.1). What the socket does not take is left for [`TlsSession::flush`].
    pub fn close(&mut self, io: &mut impl Write) {
        // There is nothing to send in a handshake, and after an alert.
        let can_say = !self.ended && !self.is_handshaking() && !matches!(self.input, Input::Failed(_));
        self.ended = true;
        if can_say {
            with_scratch(|Scratch { outgoing, .. }| {
                // The transport's own end follows and means the same.
                let _ = self.with_traffic(outgoing, Outgoing::close_notify);
                let _ = self.send(io, outgoing.filled());
            });
        }
    }

    fn read_records(
        &mut self,
        io: &mut (impl Read + Write),
        into: &mut [u8],
        Scratch { incoming, outgoing, .. }: &mut Scratch,
    ) -> io::Result<usize> {
        let held = self.incomplete.len();
        incoming[..held].copy_from_slice(&self.incomplete);
        // Plaintext is shorter than its record, so into a large buffer all of it fits.
        let room = into.len().clamp(RECORD_BYTES_MAX, INCOMING_BYTES);
        let count = io.read(&mut incoming[held..room])?;
        if count == 0 {
            // A transport that ends without close_notify has ended too: every message inside has its own length.
            self.input = Input::Ended;
            return Ok(0);
        }
        let filled = held + count;
        self.drained = filled < room;
        outgoing.clear();
        let mut plaintext = Plaintext { into, filled: 0, rest: Vec::new() };
        let done = self.process(&mut incoming[..filled], &mut plaintext, outgoing);
        self.keep(&incoming[done..filled]);
        let Plaintext { filled: delivered, rest, .. } = plaintext;
        self.unread = rest.into();
        // An alert, if it was an error: attempted, not awaited.
        let sent = self.send(io, outgoing.filled());
        // A socket that cannot be written to any more may still have had input.
        if delivered > 0 {
            return Ok(delivered);
        }
        if !matches!(self.input, Input::Open) {
            return self.end_of_input();
        }
        sent?;
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Passes `incoming` to rustls. Returns the length of what was processed.
    fn process(
        &mut self,
        incoming: &mut [u8],
        plaintext: &mut Plaintext<'_>,
        outgoing: &mut Outgoing,
    ) -> usize {
        let mut done = 0;
        loop {
            let UnbufferedStatus { discard, state } = self.tls.process_tls_records(&mut incoming[done..]);
            done += discard;
            let failure = match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => loop {
                    match records.next_record() {
                        Some(Ok(record)) => {
                            plaintext.push(record.payload);
                            done += record.discard;
                        }
                        Some(Err(error)) => break Some(error),
                        None => break None,
                    }
                },
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    outgoing.encode(&mut data).err().map(|error| rustls::Error::General(error.to_string()))
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done(); // it is in `outgoing`, which is sent in order
                    None
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => return done,
                // What follows is ignored (RFC 8446 §6.1).
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                    self.input = Input::Ended;
                    return incoming.len();
                }
                // Early data is not offered, and there are no other states.
                Ok(_) => Some(rustls::Error::General("an unexpected state".to_owned())),
                Err(error) => Some(error),
            };
            if let Some(error) = failure {
                self.encode_alert(outgoing);
                self.input = Input::Failed(Box::new(error));
                return incoming.len();
            }
        }
    }

    /// Encodes the alert of an error, if there is one. rustls processes no input before that.
    fn encode_alert(&mut self, outgoing: &mut Outgoing) {
        while self.tls.wants_write() {
            let status = self.tls.process_tls_records(&mut []);
            let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state else { return };
            if outgoing.encode(&mut data).is_err() {
                return;
            }
        }
    }

    /// Encrypts something, when application data can be written.
    fn with_traffic(
        &mut self,
        outgoing: &mut Outgoing,
        encrypt: impl FnOnce(
            &mut Outgoing,
            &mut WriteTraffic<'_, ServerConnectionData>,
        ) -> Result<(), EncryptError>,
    ) -> io::Result<()> {
        loop {
            let status = self.tls.process_tls_records(&mut self.incomplete);
            debug_assert_eq!(status.discard, 0, "what is incomplete cannot be done with");
            match status.state.map_err(invalid)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    return encrypt(outgoing, &mut traffic).map_err(io::Error::other);
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    outgoing.encode(&mut data).map_err(io::Error::other)?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                // Nothing is sent before the handshake is complete.
                ConnectionState::BlockedHandshake => return Err(io::ErrorKind::NotConnected.into()),
                _ => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    fn keep(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            self.incomplete = Vec::new();
        } else if rest.len() >= RECORD_BYTES_MAX {
            // No record is that long: a handshake message in several. Ours all fit into one.
            self.incomplete = Vec::new();
            let error = InvalidMessage::HandshakePayloadTooLarge.into();
            self.input = Input::Failed(Box::new(error));
        } else {
            self.incomplete.clear();
            self.incomplete.extend_from_slice(rest);
        }
    }

    fn end_of_input(&self) -> io::Result<usize> {
        match &self.input {
            Input::Open | Input::Ended => Ok(0),
            Input::Failed(error) => Err(invalid(rustls::Error::clone(error))),
        }
    }

    /// Writes ciphertext behind pending ciphertext; keeps what the socket does not take.
    fn send(&mut self, io: &mut impl Write, ciphertext: &[u8]) -> io::Result<()> {
        if self.unsent.is_empty() {
            let count = write_some(io, ciphertext)?;
            self.unsent = Bytes::copy_from_slice(&ciphertext[count..]);
        } else if !ciphertext.is_empty() {
            self.unsent = [&self.unsent, ciphertext].concat().into();
            self.flush(io)?;
        }
        Ok(())
    }
}

impl Plaintext<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.into.len() - self.filled);
        self.into[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        self.rest.extend_from_slice(&bytes[count..]);
    }
}

/// As much as fits into one record; copied together only if it is several slices.
fn first_record<'a>(slices: &'a [IoSlice<'_>], gathered: &'a mut Vec<u8>) -> &'a [u8] {
    let mut slices = slices.iter().skip_while(|slice| slice.is_empty()).peekable();
    let Some(first) = slices.next() else { return &[] };
    if first.len() >= RECORD_PLAINTEXT_MAX || slices.peek().is_none() {
        return &first[..first.len().min(RECORD_PLAINTEXT_MAX)];
    }
    gathered.clear();
    gathered.extend_from_slice(first);
    for slice in slices {
        let room = RECORD_PLAINTEXT_MAX - gathered.len();
        gathered.extend_from_slice(&slice[..slice.len().min(room)]);
    }
    gathered
}

/// Writes as far as the socket takes it. Returns how far.
fn write_some(io: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match io.write(&bytes[written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
