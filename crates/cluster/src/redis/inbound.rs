//! Frames that arrive on the node's channel: reassembles large messages and detects losses.
//!
//! Every sender numbers its frames to this epoch from 1, so a number that skips reveals a loss; repeated numbers are
//! dropped. No clock: the time of arrival is an argument.

use std::collections::HashMap;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::frame::{Body, Frame};
use crate::Epoch;

/// Senders remembered: many times the nodes of a cell. Further ones are rejected and reported as a loss.
const SENDERS_MAX: usize = 4_096;
/// Bytes of unfinished large messages, of all senders.
const PARTIAL_BYTES_MAX: usize = 64 << 20;

pub(crate) struct Inbound {
    senders: HashMap<Epoch, Sender>,
    /// When this epoch began; nothing arrives before.
    began: Instant,
    partial_bytes: usize,
}

struct Sender {
    /// The number of the last frame.
    last: u64,
    /// When it arrived.
    in_order_at: Instant,
    /// The received part of a large message.
    partial: BytesMut,
}

/// The result of a frame.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Arrived {
    pub(crate) messages: Vec<Bytes>,
    /// Messages of this sender were lost after this moment.
    pub(crate) lost: Option<Instant>,
}

impl Inbound {
    pub(crate) fn new(began: Instant) -> Self {
        Self { senders: HashMap::new(), began, partial_bytes: 0 }
    }

    /// Forgets senders that no longer exist.
    pub(crate) fn retain(&mut self, is_live: impl Fn(Epoch) -> bool) {
        if self.senders.len() > SENDERS_MAX / 4 {
            self.senders.retain(|epoch, _| is_live(*epoch));
            self.partial_bytes = self.senders.values().map(|sender| sender.partial.len()).sum();
        }
    }

    /// The number of the last frame of a sender: everything before it arrived or was reported as lost.
    pub(crate) fn last(&self, from: Epoch) -> u64 {
        self.senders.get(&from).map_or(0, |sender| sender.last)
    }

    pub(crate) fn receive(&mut self, frame: Frame, now: Instant) -> Arrived {
        if self.senders.len() >= SENDERS_MAX && !self.senders.contains_key(&frame.from) {
            return Arrived { messages: Vec::new(), lost: Some(self.began) };
        }
        let began = self.began;
        let sender = self.senders.entry(frame.from).or_insert_with(|| Sender {
            last: 0,
            in_order_at: began,
            partial: BytesMut::new(),
        });
        let is_heartbeat = matches!(frame.body, Body::Heartbeat | Body::Probe | Body::Receipt);
        // A heartbeat has the number of the frame before it.
        let expected = if is_heartbeat { sender.last } else { sender.last + 1 };
        if frame.number < expected {
            return Arrived::default();
        }
        let lost = (frame.number > expected).then_some(sender.in_order_at);
        if lost.is_some() {
            self.partial_bytes -= std::mem::take(&mut sender.partial).len();
        }
        sender.last = frame.number;
        sender.in_order_at = now;
        match frame.body {
            Body::Messages(messages) => Arrived { messages, lost },
            // The node's task takes receipts before.
            Body::Heartbeat | Body::Probe | Body::Receipt => Arrived { messages: Vec::new(), lost },
            Body::Part { total, offset, bytes } => {
                let whole = sender.add(total, offset, &bytes, &mut self.partial_bytes);
                let lost = lost.or(whole.is_err().then_some(sender.in_order_at));
                Arrived { messages: whole.unwrap_or_default().into_iter().collect(), lost }
            }
        }
    }
}

/// Parts that do not fit together, or too many of them.
struct Malformed;

impl Sender {
    fn add(
        &mut self,
        total: usize,
        offset: usize,
        bytes: &Bytes,
        partial_bytes: &mut usize,
    ) -> Result<Option<Bytes>, Malformed> {
        let full = *partial_bytes + bytes.len() > PARTIAL_BYTES_MAX;
        if offset != self.partial.len() || full {
            *partial_bytes -= std::mem::take(&mut self.partial).len();
            // Later parts of a message whose beginning was lost: the gap has been reported.
            return if full { Err(Malformed) } else { Ok(None) };
        }
        self.partial.extend_from_slice(bytes);
        *partial_bytes += bytes.len();
        if self.partial.len() < total {
            return Ok(None);
        }
        let whole = std::mem::take(&mut self.partial).freeze();
        *partial_bytes -= whole.len();
        Ok(Some(whole))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bus::FRAME_BYTES_MAX;
    use crate::redis::frame::{Packer, heartbeat, parse};

    const FROM: Epoch = Epoch(3);

    fn message(number: u64, text: &'static str) -> Frame {
        Frame { from: FROM, number, body: Body::Messages(vec![Bytes::from_static(text.as_bytes())]) }
    }

    #[test]
    fn a_gap_is_reported_once_since_the_last_frame_in_order() {
        let t0 = Instant::now();
        let at = |seconds| t0 + Duration::from_secs(seconds);
        let mut inbound = Inbound::new(t0);
        assert_eq!(inbound.receive(message(1, "a"), at(1)).lost, None);
        let after_gap = inbound.receive(message(3, "c"), at(5));
        assert_eq!(after_gap, Arrived { messages: vec![Bytes::from_static(b"c")], lost: Some(at(1)) });
        assert_eq!(inbound.receive(message(4, "d"), at(6)).lost, None);
        assert_eq!(inbound.receive(message(2, "late"), at(7)), Arrived::default());
    }

    #[test]
    fn the_first_frame_of_a_sender_has_number_one() {
        let t0 = Instant::now();
        let mut inbound = Inbound::new(t0);
        assert_eq!(inbound.receive(message(2, "b"), t0).lost, Some(t0));
    }

    #[test]
    fn a_heartbeat_reveals_a_lost_tail() {
        let t0 = Instant::now();
        let mut inbound = Inbound::new(t0);
        inbound.receive(message(1, "a"), t0);
        let beat = |number| parse(heartbeat(FROM, number)).expect("frame");
        assert_eq!(inbound.receive(beat(1), t0).lost, None);
        assert_eq!(inbound.receive(beat(2), t0).lost, Some(t0));
        assert_eq!(inbound.receive(beat(2), t0).lost, None);
        assert_eq!(inbound.receive(message(3, "c"), t0).lost, None);
    }

    #[test]
    fn a_large_message_arrives_whole_or_is_reported_lost() {
        let large = Bytes::from((0..3 * FRAME_BYTES_MAX).map(|i| i as u8).collect::<Vec<_>>());
        let mut packer = Packer::default();
        packer.push(&large);
        packer.push(&Bytes::from_static(b"next"));
        let frames: Vec<Frame> =
            packer.finish(FROM, 1).into_iter().map(|frame| parse(frame).expect("frame")).collect();
        for missing in 0..=frames.len() {
            let mut inbound = Inbound::new(Instant::now());
            let mut got = Vec::new();
            let mut lost = 0;
            for frame in frames.iter().enumerate().filter(|(i, _)| *i != missing).map(|(_, frame)| frame) {
                let arrived = inbound.receive(frame.clone(), Instant::now());
                got.extend(arrived.messages);
                lost += usize::from(arrived.lost.is_some());
            }
            let whole = missing >= frames.len() - 1;
            assert_eq!(got.contains(&large), whole, "{missing}");
            assert_eq!(lost, usize::from(missing < frames.len() - 1), "{missing}");
            assert_eq!(inbound.partial_bytes, 0);
        }
    }
}
