//! The format of frames on a node's channel.
//!
//! ```text
//!   frame     version 1 · kind 1 · sender's epoch 8 · sequence number 8 · body        (big-endian)
//!   messages  (length 4 · message)*      whole messages, as many as were queued
//!   part      total length 4 · offset 4 · bytes      of a message larger than a frame
//!   heartbeat empty; its number is that of the frame before it
//!   probe     a heartbeat that asks for a receipt
//!   receipt   empty; its sender has received all frames up to this number
//! ```
//!
//! Only nodes with links (`crate::links`) send probes and receipts, to nodes that announce an address for links: others
//! do not know them.
//!
//! Pure: bytes in, bytes out. A length is validated before anything is allocated for it.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::Epoch;
use crate::bus::{FRAME_BYTES_MAX, MESSAGE_BYTES_MAX};

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 18;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) from: Epoch,
    pub(crate) number: u64,
    pub(crate) body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    Messages(Vec<Bytes>),
    Part { total: usize, offset: usize, bytes: Bytes },
    Heartbeat,
    Probe,
    Receipt,
}

/// The frames of some messages for one receiver, in order, without sender and numbers.
#[derive(Default)]
pub(crate) struct Packer {
    frames: Vec<BytesMut>,
    /// Whether the last frame accepts more messages.
    open: bool,
}

impl Packer {
    pub(crate) fn push(&mut self, message: &Bytes) {
        if message.len() + HEAD_BYTES + 8 > FRAME_BYTES_MAX {
            return self.push_parts(message);
        }
        let fits = |frame: &&mut BytesMut| frame.len() + 4 + message.len() <= FRAME_BYTES_MAX;
        let frame = match self.frames.last_mut().filter(|_| self.open).filter(fits) {
            Some(frame) => frame,
            None => {
                self.open = true;
                self.frames.push(head(1, message.len() + 4));
                self.frames.last_mut().expect("pushed in the line above")
            }
        };
        // The bus has validated it: far below 4 GiB.
        frame.put_u32(message.len() as u32);
        frame.put_slice(message);
    }

    fn push_parts(&mut self, message: &Bytes) {
        self.open = false;
        let step = FRAME_BYTES_MAX - HEAD_BYTES - 8;
        for (i, part) in message.chunks(step).enumerate() {
            let mut frame = head(2, part.len() + 8);
            frame.put_u32(message.len() as u32);
            frame.put_u32((i * step) as u32);
            frame.put_slice(part);
            self.frames.push(frame);
        }
    }

    /// Numbers the frames from `next` on.
    pub(crate) fn finish(self, from: Epoch, next: u64) -> Vec<Bytes> {
        let numbered = self.frames.into_iter().zip(next..);
        numbered.map(|(frame, number)| stamped(frame, from, number)).collect()
    }
}

fn head(kind: u8, body: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(HEAD_BYTES + body);
    frame.put_slice(&[VERSION, kind]);
    frame.put_bytes(0, HEAD_BYTES - 2);
    frame
}

fn stamped(mut frame: BytesMut, from: Epoch, number: u64) -> Bytes {
    frame[2..10].copy_from_slice(&from.0.to_be_bytes());
    frame[10..18].copy_from_slice(&number.to_be_bytes());
    frame.freeze()
}

pub(crate) fn heartbeat(from: Epoch, number: u64) -> Bytes {
    stamped(head(3, 0), from, number)
}

pub(crate) fn probe(from: Epoch, number: u64) -> Bytes {
    stamped(head(4, 0), from, number)
}

pub(crate) fn receipt(from: Epoch, number: u64) -> Bytes {
    stamped(head(5, 0), from, number)
}

/// `None`: another version, or malformed.
pub(crate) fn parse(mut bytes: Bytes) -> Option<Frame> {
    if bytes.len() < HEAD_BYTES || bytes.get_u8() != VERSION {
        return None;
    }
    let kind = bytes.get_u8();
    let from = Epoch(bytes.get_u64());
    let number = bytes.get_u64();
    let body = match kind {
        1 => Body::Messages(messages(bytes)?),
        2 => part(bytes)?,
        3 => Body::Heartbeat,
        4 => Body::Probe,
        5 => Body::Receipt,
        _ => return None,
    };
    Some(Frame { from, number, body })
}

fn messages(mut bytes: Bytes) -> Option<Vec<Bytes>> {
    let mut messages = Vec::new();
    while bytes.has_remaining() {
        let len = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
        if len > bytes.len() {
            return None;
        }
        messages.push(bytes.split_to(len));
    }
    Some(messages)
}

fn part(mut bytes: Bytes) -> Option<Body> {
    let total = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    let offset = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    let fits = total <= MESSAGE_BYTES_MAX && offset.checked_add(bytes.len())? <= total;
    fits.then_some(Body::Part { total, offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(messages: &[Bytes]) -> Vec<Frame> {
        let mut packer = Packer::default();
        messages.iter().for_each(|message| packer.push(message));
        let frames = packer.finish(Epoch(7), 5);
        assert!(frames.iter().all(|frame| frame.len() <= FRAME_BYTES_MAX));
        frames.into_iter().map(|frame| parse(frame).expect("frame")).collect()
    }

    #[test]
    fn small_messages_share_a_frame() {
        let messages = [Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"ccc")];
        let frames = packed(&messages);
        assert_eq!(frames, [Frame { from: Epoch(7), number: 5, body: Body::Messages(messages.to_vec()) }]);
    }

    #[test]
    fn frames_are_bounded_and_in_order() {
        let large = Bytes::from(vec![3; 2 * FRAME_BYTES_MAX]);
        let half = Bytes::from(vec![4; FRAME_BYTES_MAX / 2 + 1]);
        let frames = packed(&[half.clone(), half.clone(), large.clone(), half.clone()]);
        assert_eq!(frames.iter().map(|frame| frame.number).collect::<Vec<_>>(), [5, 6, 7, 8, 9, 10]);
        assert_eq!(frames[1].body, Body::Messages(vec![half.clone()]));
        let parts = frames[2..5].iter().map(|frame| match &frame.body {
            Body::Part { total, offset, bytes } => (*total, *offset, bytes.len()),
            other => panic!("{other:?}"),
        });
        let mut at = 0;
        for (total, offset, len) in parts {
            assert_eq!((total, offset), (large.len(), at));
            at += len;
        }
        assert_eq!(at, large.len());
        assert_eq!(frames[5].body, Body::Messages(vec![half]));
    }

    #[test]
    fn malformed_frames_are_rejected() {
        let good = heartbeat(Epoch(1), 2);
        assert_eq!(parse(good.clone()), Some(Frame { from: Epoch(1), number: 2, body: Body::Heartbeat }));
        let with = |kind: u8, body: &[u8]| {
            let mut bytes = good.to_vec();
            bytes[1] = kind;
            bytes.extend_from_slice(body);
            parse(Bytes::from(bytes))
        };
        assert_eq!(parse(probe(Epoch(1), 2)), Some(Frame { from: Epoch(1), number: 2, body: Body::Probe }));
        assert_eq!(
            parse(receipt(Epoch(1), 2)),
            Some(Frame { from: Epoch(1), number: 2, body: Body::Receipt })
        );
        assert_eq!(parse(Bytes::new()), None);
        assert_eq!(with(9, b""), None);
        assert_eq!(with(1, &[0, 0, 0]), None);
        assert_eq!(with(1, &[0, 0, 0, 2, 1]), None);
        assert_eq!(with(1, &[255, 255, 255, 255, 1]), None);
        assert_eq!(with(2, &[255, 255, 255, 255, 0, 0, 0, 0]), None);
        assert_eq!(with(2, &[0, 0, 0, 1, 0, 0, 0, 1, 9]), None);
        assert_eq!(with(2, &[0, 0, 0, 1, 255, 255, 255, 255, 9]), None);
    }
}
