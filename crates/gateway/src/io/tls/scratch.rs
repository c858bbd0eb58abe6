//! Buffers that all TLS sessions of a thread share. Each session uses them for the length of one call and leaves
//! nothing in them, so it owns no buffer while it is idle.

use std::cell::Cell;

use rustls::server::ServerConnectionData;
use rustls::unbuffered::{EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, WriteTraffic};

/// What one record can carry (RFC 8446 §5.1).
pub(super) const RECORD_PLAINTEXT_MAX: usize = 16 << 10;
/// The longest record that is read: its header, and what TLS 1.2 may add to the plaintext (RFC 5246 §6.2.3; TLS 1.3
/// adds 256 at most).
pub(super) const RECORD_BYTES_MAX: usize = 5 + RECORD_PLAINTEXT_MAX + 2_048;
/// As much as a shard reads at once.
pub(super) const INCOMING_BYTES: usize = 64 << 10;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

pub(super) struct Scratch {
    /// Ciphertext that was read; decrypted where it lies.
    pub(super) incoming: Vec<u8>,
    /// Plaintext of several slices, for one record.
    pub(super) gathered: Vec<u8>,
    pub(super) outgoing: Outgoing,
}

/// Ciphertext for the socket.
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// `0 <= filled <= bytes.len()`
    filled: usize,
}

/// Lends the thread's buffers. A panic inside loses them; the next call makes new ones.
pub(super) fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = SCRATCH.take().unwrap_or_else(|| {
        Box::new(Scratch {
            incoming: vec![0; INCOMING_BYTES],
            gathered: Vec::with_capacity(RECORD_PLAINTEXT_MAX),
            outgoing: Outgoing { bytes: vec![0; RECORD_BYTES_MAX], filled: 0 },
        })
    });
    scratch.outgoing.filled = 0;
    let result = work(&mut scratch);
    SCRATCH.set(Some(scratch));
    result
}

impl Outgoing {
    pub(super) fn filled(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    pub(super) fn clear(&mut self) {
        self.filled = 0;
    }

    /// Adds handshake messages, or an alert.
    pub(super) fn encode(
        &mut self,
        data: &mut EncodeTlsData<'_, ServerConnectionData>,
    ) -> Result<(), EncodeError> {
        self.fill(|room| match data.encode(room) {
            Err(EncodeError::InsufficientSize(needed)) => Ok(Err(needed)),
            done => done.map(Ok),
        })
    }

    pub(super) fn encrypt(
        &mut self,
        traffic: &mut WriteTraffic<'_, ServerConnectionData>,
        plaintext: &[u8],
    ) -> Result<(), EncryptError> {
        self.fill(|room| fitting(traffic.encrypt(plaintext, room)))
    }

    pub(super) fn close_notify(
        &mut self,
        traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    ) -> Result<(), EncryptError> {
        self.fill(|room| fitting(traffic.queue_close_notify(room)))
    }

    /// Writes into the free room, and into more if that is not enough: only a certificate chain longer than a record
    /// needs that.
    fn fill<E>(
        &mut self,
        mut write: impl FnMut(&mut [u8]) -> Result<Result<usize, InsufficientSizeError>, E>,
    ) -> Result<(), E> {
        loop {
            match write(&mut self.bytes[self.filled..])? {
                Ok(count) => {
                    self.filled += count;
                    return Ok(());
                }
                Err(needed) => self.bytes.resize(self.filled + needed.required_size, 0),
            }
        }
    }
}

fn fitting(
    result: Result<usize, EncryptError>,
) -> Result<Result<usize, InsufficientSizeError>, EncryptError> {
    match result {
        Err(EncryptError::InsufficientSize(needed)) => Ok(Err(needed)),
        done => done.map(Ok),
    }
}
