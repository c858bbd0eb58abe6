//! A message for this node's connections, encoded once for each protocol.
//!
//! Owns the message and its encodings; it does not know its recipients. All shards share it: the first that needs an
//! encoding makes it.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_protocol::mqtt::Outgoing;
use noroshi_protocol::socket_io::{Notification, Variant};
use noroshi_protocol::ws::deflate::{STORED_BYTES_MAX, STORED_HEAD_BYTES, push_stored};
use noroshi_protocol::{native, sse, ws, xmpp};
use noroshi_types::{Message, NotificationId, When};

use crate::wire::Framing;
use crate::wire::deflate::{self, Compressed, DeflateTotals};
use crate::wire::gzip::Packed;

/// Frames and parts of frames that are kept compressed: one native, two of XMPP, four each of Socket.IO and MQTT, and a
/// spare one.
const COMPRESSED_MAX: usize = 12;

/// Shared by all shards; the first that needs an encoding makes it.
pub(crate) struct Dispatch {
    pub(crate) message: Arc<Message>,
    /// A topic's message that may have been lost before: pages of a backlog that reach further may not contain it.
    pub(crate) is_reoffered: bool,
    /// When this node queued it for its shards.
    since: Instant,
    websocket: OnceLock<Bytes>,
    sse: OnceLock<Bytes>,
    /// Those under gzip and of other protocols are boxed: most messages go to few of them.
    gzip: OnceLock<Box<Packed>>,
    mqtt: OnceLock<Box<Outgoing>>,
    socket_io: OnceLock<Box<SocketIo>>,
    /// By framing, and by whether it waited for the device.
    xmpp: OnceLock<Box<[[OnceLock<Bytes>; 2]; 2]>>,
    /// Compressed forms of the above for WebSockets, in the order of first use.
    deflated: OnceLock<Box<[OnceLock<Compressed>; COMPRESSED_MAX]>>,
}

/// With ack ids, and with offsets.
#[derive(Default)]
struct SocketIo {
    acks: OnceLock<Notification>,
    offsets: OnceLock<Notification>,
}

impl Dispatch {
    pub(crate) fn new(message: Arc<Message>) -> Arc<Self> {
        Self::offered(message, false)
    }

    pub(crate) fn offered(message: Arc<Message>, is_reoffered: bool) -> Arc<Self> {
        Arc::new(Self {
            message,
            is_reoffered,
            since: Instant::now(),
            websocket: OnceLock::new(),
            sse: OnceLock::new(),
            gzip: OnceLock::new(),
            mqtt: OnceLock::new(),
            socket_io: OnceLock::new(),
            xmpp: OnceLock::new(),
            deflated: OnceLock::new(),
        })
    }

    /// Whether it is only for connected devices, and has waited for its shard for longer than `age_max`.
    pub(crate) fn is_late(&self, age_max: Duration) -> bool {
        !self.is_stored() && self.since.elapsed() > age_max
    }

    /// Whether pages of a backlog that reach up to `watermark` contain it.
    pub(crate) fn is_paged(&self, watermark: NotificationId) -> bool {
        !self.is_reoffered && self.is_ordered() && self.message.id <= watermark
    }

    /// The bytes for a native connection.
    pub(crate) fn encoded(&self, framing: Framing) -> &Bytes {
        match framing {
            Framing::Events => self.sse.get_or_init(|| sse::event(&self.message).into()),
            Framing::GzipEvents => &self.gzip().bytes,
            Framing::WebSocket | Framing::Stream | Framing::Polling => {
                self.websocket.get_or_init(|| ws::text_frame(&native::message_json(&self.message)))
            }
            Framing::Deflated(window_bits) => {
                let frame = self.encoded(Framing::WebSocket);
                let packed = deflate::pays(frame.len(), window_bits).then(|| self.deflated(frame, true));
                packed.flatten().unwrap_or(frame)
            }
        }
    }

    /// The compressed form of a whole frame of a WebSocket, or of the rest behind heads. `None` if it is not shorter.
    pub(crate) fn deflated(&self, shared: &Bytes, is_frame: bool) -> Option<&Bytes> {
        let compressed = self.deflated.get_or_init(Box::default);
        let mut compressed =
            compressed.iter().map(|one| one.get_or_init(|| Compressed::of(shared, is_frame)));
        compressed.find(|one| one.is_of(shared))?.packed()
    }

    /// Compresses the frame of `heads[begin..]` and `shared` if that saves something: changes the head in place and
    /// returns what follows it.
    pub(crate) fn pack(&self, window_bits: u8, heads: &mut Vec<u8>, begin: usize, shared: Bytes) -> Bytes {
        let frame_bytes = heads.len() - begin + shared.len();
        if !deflate::pays(frame_bytes, window_bits) {
            return shared;
        }
        let is_frame = heads.len() == begin;
        let Some(packed) = self.deflated(&shared, is_frame).cloned() else { return shared };
        if is_frame {
            return packed;
        }
        let Some((opcode, head_bytes)) = ws::frame_head(&heads[begin..]) else { return shared };
        let own = heads[begin + head_bytes..].to_vec();
        let stored_bytes = if own.is_empty() { 0 } else { STORED_HEAD_BYTES + own.len() };
        let payload_bytes = stored_bytes + packed.len();
        if own.len() > STORED_BYTES_MAX || payload_bytes + head_bytes >= frame_bytes {
            return shared;
        }
        heads.truncate(begin);
        ws::push_deflated_head(heads, opcode, payload_bytes);
        if !own.is_empty() {
            push_stored(heads, &own);
        }
        packed
    }

    /// The piece for all event streams under gzip.
    pub(crate) fn gzip(&self) -> &Packed {
        self.gzip.get_or_init(|| Box::new(Packed::of(self.encoded(Framing::Events))))
    }

    /// The part that all connections of MQTT share.
    pub(crate) fn mqtt(&self) -> &Outgoing {
        self.mqtt.get_or_init(|| Box::new(Outgoing::new(&self.message)))
    }

    /// The part that all connections of Socket.IO share with this way of acknowledgement.
    pub(crate) fn socket_io(&self, variant: Variant) -> &Notification {
        let variants = self.socket_io.get_or_init(Box::default);
        let place = match variant {
            Variant::Acks => &variants.acks,
            Variant::Offsets => &variants.offsets,
        };
        place.get_or_init(|| Notification::new(&self.message, variant))
    }

    /// The bytes for an XMPP connection.
    pub(crate) fn xmpp(&self, config: &xmpp::Config, framing: xmpp::Framing, delayed: bool) -> &Bytes {
        let by_framing =
            &self.xmpp.get_or_init(Box::default)[usize::from(framing == xmpp::Framing::WebSocket)];
        by_framing[usize::from(delayed)]
            .get_or_init(|| xmpp::encode::message(config, framing, &self.message, delayed))
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Self> {
        Self::new(Arc::new(Message {
            id: NotificationId::from_bytes([1; 16]),
            app: noroshi_types::AppId(1),
            when: When::Connected,
            urgency: noroshi_types::Urgency::Normal,
            topic: None,
            notification: None,
            data: None,
            sent_at: noroshi_types::Timestamp(0),
            expires_at: noroshi_types::Timestamp(9),
            push_waits: false,
            waits_for_use: false,
            category: None,
        }))
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.message.when == When::Stored
    }

    /// Whether its id is its place in the order of commits. Only a message that names users or devices and is not kept
    /// has another id.
    pub(crate) fn is_ordered(&self) -> bool {
        self.is_stored() || self.message.topic.is_some()
    }
}

/// Appends a message of a page, which is encoded for one native connection. `retained`: its topic retains it, so it is not at its place in the order.
pub(crate) fn encode_paged(
    framing: Framing,
    message: &Message,
    retained: bool,
    out: &mut Vec<u8>,
    totals: &mut DeflateTotals,
) {
    match framing {
        // Without `id:`: a client that resumed behind a retained message would miss those before it.
        Framing::Events | Framing::GzipEvents if retained => {
            sse::named("msg", &native::message_json(message), out);
        }
        Framing::Events | Framing::GzipEvents => out.extend_from_slice(&sse::event(message)),
        Framing::WebSocket | Framing::Stream | Framing::Polling => {
            ws::push_frame(out, ws::Opcode::Text, &native::message_json(message));
        }
        Framing::Deflated(_) => {
            let frame = ws::text_frame(&native::message_json(message));
            let plain_bytes = frame.len();
            let packed = deflate::packed(framing, frame);
            totals.add(plain_bytes, packed.len());
            out.extend_from_slice(&packed);
        }
    }
}
