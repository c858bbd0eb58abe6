//! The format of a link, inside TLS.
//!
//! ```text
//!   unit     length 4 · kind 1 · body          (big-endian; the length counts kind and body)
//!   hello    version 1 · sender's lease 8 · receiver's lease 8        first, from the node that dials
//!   welcome  version 1                          its answer; only then frames follow
//!   refused  empty                              its other answer: the receiver does not hold this lease
//!   frame    a frame of the bus (`redis::frame`)
//!   receipt  number 8: all frames up to it were received
//!   ping, pong   empty
//! ```
//!
//! Pure: bytes in, bytes out. A length is checked before anything is allocated for it.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::Epoch;
use crate::bus::FRAME_BYTES_MAX;

pub(super) const VERSION: u8 = 1;
const LENGTH_BYTES: usize = 4;
/// The largest unit that is not a frame: a newer version may append to a hello.
const SMALL_BYTES_MAX: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unit {
    Hello {
        version: u8,
        from: Epoch,
        to: Epoch,
    },
    Welcome {
        version: u8,
    },
    Refused,
    Frame(Bytes),
    Receipt(u64),
    Ping,
    Pong,
    /// Of a newer version.
    Unknown,
}

/// The peer does not keep to the format, or to the limits: the link ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REFUSED: u8 = 3;
const FRAME: u8 = 4;
const RECEIPT: u8 = 5;
const PING: u8 = 6;
const PONG: u8 = 7;

impl Unit {
    pub(super) fn write(&self, out: &mut BytesMut) {
        let mut head = |kind: u8, body: usize| {
            out.reserve(LENGTH_BYTES + 1 + body);
            out.put_u32((1 + body) as u32);
            out.put_u8(kind);
        };
        match self {
            Unit::Hello { version, from, to } => {
                head(HELLO, 17);
                out.put_u8(*version);
                out.put_u64(from.0);
                out.put_u64(to.0);
            }
            Unit::Welcome { version } => {
                head(WELCOME, 1);
                out.put_u8(*version);
            }
            Unit::Refused | Unit::Unknown => head(REFUSED, 0),
            // The bus bounds its frames.
            Unit::Frame(frame) => {
                head(FRAME, frame.len());
                out.put_slice(frame);
            }
            Unit::Receipt(number) => {
                head(RECEIPT, 8);
                out.put_u64(*number);
            }
            Unit::Ping => head(PING, 0),
            Unit::Pong => head(PONG, 0),
        }
    }

    /// Takes the first unit from `bytes`. `None`: it is incomplete.
    pub(super) fn take(bytes: &mut BytesMut) -> Result<Option<Unit>, Malformed> {
        let Some((head, rest)) = bytes.split_at_checked(LENGTH_BYTES + 1) else { return Ok(None) };
        let (mut length, kind) = (&head[..LENGTH_BYTES], head[LENGTH_BYTES]);
        let length = usize::try_from(length.get_u32()).map_err(|_| Malformed)?;
        let body = length.checked_sub(1).ok_or(Malformed)?;
        let limit = if kind == FRAME { FRAME_BYTES_MAX } else { SMALL_BYTES_MAX };
        if body > limit {
            return Err(Malformed);
        }
        if rest.len() < body {
            return Ok(None);
        }
        bytes.advance(LENGTH_BYTES + 1);
        let mut body = bytes.split_to(body);
        let mut number = || body.try_get_u64().map_err(|_| Malformed);
        Ok(Some(match kind {
            HELLO => {
                let version = body.try_get_u8().map_err(|_| Malformed)?;
                let mut epoch = || body.try_get_u64().map(Epoch).map_err(|_| Malformed);
                Unit::Hello { version, from: epoch()?, to: epoch()? }
            }
            WELCOME => Unit::Welcome { version: body.try_get_u8().map_err(|_| Malformed)? },
            REFUSED => Unit::Refused,
            FRAME => Unit::Frame(body.freeze()),
            RECEIPT => Unit::Receipt(number()?),
            PING => Unit::Ping,
            PONG => Unit::Pong,
            _ => Unit::Unknown,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Unit> {
        vec![
            Unit::Hello { version: 1, from: Epoch(1), to: Epoch(u64::MAX) },
            Unit::Welcome { version: 7 },
            Unit::Refused,
            Unit::Frame(Bytes::new()),
            Unit::Frame(Bytes::from(vec![7; FRAME_BYTES_MAX])),
            Unit::Receipt(u64::MAX - 1),
            Unit::Ping,
            Unit::Pong,
        ]
    }

    #[test]
    fn units_are_read_as_written_whatever_the_portions() {
        let mut written = BytesMut::new();
        all().iter().for_each(|unit| unit.write(&mut written));
        for step in [1, 7, 1 << 16, written.len()] {
            let (mut bytes, mut read) = (BytesMut::new(), Vec::new());
            for portion in written.chunks(step) {
                bytes.extend_from_slice(portion);
                while let Some(unit) = Unit::take(&mut bytes).expect("well-formed") {
                    read.push(unit);
                }
            }
            assert!(read == all() && bytes.is_empty(), "{step}");
        }
    }

    #[test]
    fn limits_apply_before_the_body_arrives() {
        let take = |bytes: &[u8]| Unit::take(&mut BytesMut::from(bytes));
        assert_eq!(take(&[0, 0, 0, 0, FRAME]), Err(Malformed));
        assert_eq!(take(&[255, 255, 255, 255, FRAME]), Err(Malformed));
        assert_eq!(take(&[0, 0, 2, 0, PING]), Err(Malformed));
        assert_eq!(take(&((FRAME_BYTES_MAX + 2) as u32).to_be_bytes()), Ok(None), "the kind decides");
        assert_eq!(take(&[0, 0x10, 0, 1, FRAME]), Ok(None));
        assert_eq!(take(&[0, 0x10, 0, 2, FRAME]), Err(Malformed));
        assert_eq!(take(&[0, 0, 0, 4, RECEIPT, 0, 0, 0]), Err(Malformed));
        assert_eq!(take(&[0, 0, 0, 1, 99]), Ok(Some(Unit::Unknown)));
    }
}
