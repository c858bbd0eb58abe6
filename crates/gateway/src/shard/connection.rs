//! What one connection consists of. A node has a million: while idle, a connection owns no buffer, no timer and no
//! channel, and its size is asserted.

use noroshi_protocol::ws::Decoder;
use noroshi_types::{AppId, CloseReason, NotificationId};

use crate::fanout::marks::Marks;
use crate::fanout::{Received, Recipient};
use crate::io::socket::Socket;
use crate::lifecycle::Origin;
use crate::protocol::registry::AnyAdapter;
use crate::rate::Bucket;
use crate::session::attachment::Attachment;
use crate::session::login::PendingLogIn;
use crate::session::phase::{Phase, Ping};
use crate::session::registry::Session;
use crate::wire::{Framing, Protocol};

/// Exists until a connection is open.
#[derive(Default)]
pub(crate) struct Opening {
    /// An incomplete request head.
    pub(crate) head: Vec<u8>,
    /// The client's own id, for a refusal.
    pub(crate) request_id: Option<Box<str>>,
    /// The app that the request names, for app JWTs.
    pub(crate) app: Option<Box<str>>,
    pub(crate) login: Option<PendingLogIn>,
    /// The app that the log-in is for, for the event of its rejection. Not proven; set only while events are read.
    pub(crate) claimed_app: Option<AppId>,
    /// Seconds after which the client may retry a log-in that was refused for earlier failures; 0 for others.
    pub(crate) retry_after_s: u32,
    /// The client asked for an event stream under gzip.
    pub(crate) asks_gzip: bool,
    /// Text frames that arrived before the log-in's result, in order: at most [`noroshi_types::limits::EARLY_BYTES`].
    pub(crate) early: Vec<Box<str>>,
}

pub(crate) struct Connection {
    // -- io, wire, rate ----------------------------------------------------------------------------
    pub(crate) socket: Socket,
    pub(crate) decoder: Decoder,
    pub(crate) protocol: Protocol,
    pub(crate) framing: Framing,
    /// The allowance of frames.
    pub(crate) frames: Bucket,
    /// The tick of the timer wheel that counts; 0 for none.
    pub(crate) timer: u32,
    // -- session -----------------------------------------------------------------------------------
    /// Unique on the node. Each log-in draws a new one at its start, so of two log-ins of a device the later one has
    /// the greater.
    pub(crate) generation: u64,
    pub(crate) opening: Option<Box<Opening>>,
    pub(crate) attachment: Attachment,
    pub(crate) phase: Phase,
    // -- fan-out -----------------------------------------------------------------------------------
    pub(crate) marks: Marks,
    // -- protocol ----------------------------------------------------------------------------------
    /// The adapter of its protocol, if the adapter has state.
    pub(crate) adapter: Option<Box<AnyAdapter>>,
    /// When the protocol's next timeout is due.
    pub(crate) ping_tick: u32,
    pub(crate) ping: Ping,
    // -- lifecycle ---------------------------------------------------------------------------------
    pub(crate) origin: Origin,
    /// When this phase times out.
    pub(crate) deadline_tick: u32,
    /// Decided once; recorded when the connection is removed.
    pub(crate) close_reason: Option<CloseReason>,
    /// The write side has ended.
    pub(crate) ended: bool,
}

// 1.2 KiB is the whole budget of an idle WebSocket; with its session, its entries in maps and the allocator's overhead
// it stays well below.
const _: () = assert!(size_of::<Connection>() <= 216);
const _: () = assert!(size_of::<Session>() <= 112);

impl Connection {
    pub(crate) fn new(socket: Socket, generation: u64, frames: Bucket) -> Self {
        Self {
            socket,
            decoder: Decoder::new(),
            protocol: Protocol::Http,
            framing: Framing::Stream,
            frames,
            timer: 0,
            generation,
            opening: None,
            attachment: Attachment::default(),
            phase: Phase::Head,
            marks: Marks::default(),
            adapter: None,
            ping_tick: u32::MAX,
            ping: Ping::None,
            origin: Origin::Admitted,
            deadline_tick: u32::MAX,
            close_reason: None,
            ended: false,
        }
    }

    /// Neither closing nor ended.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.phase, Phase::Closing | Phase::Dead)
    }

    /// An event stream: it only receives, and begins with an answer in HTTP.
    pub(crate) fn is_event_stream(&self) -> bool {
        matches!(self.framing, Framing::Events | Framing::GzipEvents)
    }

    pub(crate) fn received(&self) -> Received {
        Received {
            watermark: self.attachment.watermark,
            as_of: self.attachment.as_of,
            generation: self.generation,
        }
    }

    /// The connection as the recipient of a message.
    pub(crate) fn recipient(&mut self, slot: u32) -> Recipient<'_> {
        let received = self.received();
        Recipient {
            slot,
            session: self.attachment.session.as_deref().filter(|_| self.phase == Phase::Open),
            catch_up: self.attachment.catch_up.as_deref_mut(),
            following: self.attachment.following.as_deref_mut(),
            has_adapter: self.adapter.is_some(),
            marks: &mut self.marks,
            received,
        }
    }

    /// The last message that was offered to the shard's sessions, or that existed when this one logged in.
    pub(crate) fn offered_to(&self, offered: NotificationId) -> NotificationId {
        self.attachment.as_of.max(offered)
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        let queued = self.adapter.as_ref().map_or(0, |adapter| adapter.queued_bytes());
        queued + self.socket.unsent_bytes()
    }

    /// Whether output has to wait for the peer.
    pub(crate) fn is_behind(&self) -> bool {
        self.socket.has_unsent() || (self.framing == Framing::Polling && self.unsent_bytes() > 0)
    }

    pub(crate) fn opening(&mut self) -> &mut Opening {
        self.opening.get_or_insert_default()
    }
}
