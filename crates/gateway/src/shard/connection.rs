//! What one connection consists of. A node has a million: while idle, a connection owns no buffer, no timer and no
//! channel, and its size is asserted.

use crate::fanout::marks::Marks;
use crate::fanout::{Received, Recipient};
use crate::lifecycle::origin::Origin;
use crate::session::phase::{Phase, Ping};
use crate::session::topic_index::Subscription;
use crate::wire::{Framing, Protocol};
use std::sync::Arc;

use noroshi_delivery::quota::Permit;
use noroshi_protocol::ws::Decoder;
use noroshi_store::Login;
use noroshi_types::rule::Claims;
use noroshi_types::{CloseReason, DeviceNum, NotificationId, Timestamp, Topic};
use smallvec::SmallVec;

use crate::io::socket::Socket;
use crate::protocol::registry::Conversation;
use crate::protocol::services::Services;
use crate::rate::Bucket;
use crate::session::catch_up::CatchUp;
use crate::session::permission::Permissions;
use crate::session::registry::Session;

/// Exists until a connection is open.
#[derive(Default)]
pub(crate) struct Opening {
    /// An incomplete request head.
    pub(crate) head: Vec<u8>,
    /// The client's own id, for a refusal.
    pub(crate) request_id: Option<Box<str>>,
    /// The app that the request names, for app JWTs.
    pub(crate) app: Option<Box<str>>,
    /// The log-in under way.
    pub(crate) login: Option<Login>,
    /// Claims of the token that topic rules need.
    pub(crate) claims: Option<Arc<Claims>>,
    /// Topics that rules denied to the log-in, with the code and the text of the reason.
    pub(crate) denied: Vec<(Topic, &'static str, &'static str)>,
    /// Topics and filters that a webhook allowed for this log-in.
    pub(crate) permitted: Permissions,
    /// How often the log-in was read again because rules denied something.
    pub(crate) passes: u8,
    /// Seconds after which the client may retry a log-in that was refused for earlier failures; 0 for others.
    pub(crate) retry_after_s: u32,
    /// The client asked for an event stream under gzip.
    pub(crate) asks_gzip: bool,
    /// Text frames that arrived before the log-in's result, in order: at most [`noroshi_types::limits::EARLY_BYTES`].
    pub(crate) early: Vec<Box<str>>,
}

pub(crate) struct Connection {
    pub(crate) socket: Socket,
    /// Unique on the node. Drawn anew when a log-in begins, so of two log-ins of a device the later one has the
    /// greater.
    pub(crate) generation: u64,
    pub(crate) opening: Option<Box<Opening>>,
    pub(crate) session: Option<Arc<Session>>,
    /// Counts for the app's quota of connections, from the log-in on.
    pub(crate) permit: Option<Permit>,
    pub(crate) decoder: Decoder,
    /// The adapter of its protocol, if that has state of its own.
    pub(crate) conversation: Option<Box<Conversation>>,
    pub(crate) catch_up: Option<Box<CatchUp>>,
    /// Most devices have `$everyone` and few more: those fit inside.
    pub(crate) topics: SmallVec<[Subscription; 4]>,
    /// Pages brought every message up to here; the same ones may still arrive live.
    pub(crate) watermark: NotificationId,
    /// Messages accepted up to here existed when the log-in was read: a page brought them, or they had been confirmed.
    pub(crate) as_of: NotificationId,
    /// The device of the session that ended, while its confirmations still count.
    pub(crate) leaving: Option<DeviceNum>,
    pub(crate) expires_at: Timestamp,
    pub(crate) frames: Bucket,
    /// The tick of the timer wheel that counts; 0 for none.
    pub(crate) timer: u32,
    /// When this phase times out.
    pub(crate) deadline_tick: u32,
    /// When the protocol's next timeout is due.
    pub(crate) ping_tick: u32,
    pub(crate) phase: Phase,
    pub(crate) protocol: Protocol,
    pub(crate) framing: Framing,
    /// Decided once; recorded when the connection is removed.
    pub(crate) close_reason: Option<CloseReason>,
    pub(crate) ping: Ping,
    pub(crate) marks: Marks,
    /// The write side has ended.
    pub(crate) ended: bool,
    pub(crate) origin: Origin,
}

// 1.2 KiB is the whole budget of an idle WebSocket; with its session, its entries in maps and the allocator's overhead
// it stays well below.
const _: () = assert!(size_of::<Connection>() <= 208);
const _: () = assert!(size_of::<Session>() <= 112);

impl Connection {
    pub(crate) fn new(socket: Socket, generation: u64, frames: Bucket) -> Self {
        Self {
            socket,
            generation,
            opening: None,
            session: None,
            permit: None,
            decoder: Decoder::new(),
            conversation: None,
            catch_up: None,
            topics: SmallVec::new(),
            watermark: NotificationId::from_bytes([0; 16]),
            as_of: NotificationId::from_bytes([0; 16]),
            leaving: None,
            expires_at: Timestamp(u64::MAX),
            frames,
            timer: 0,
            deadline_tick: u32::MAX,
            ping_tick: u32::MAX,
            phase: Phase::Head,
            protocol: Protocol::Http,
            framing: Framing::Stream,
            close_reason: None,
            ping: Ping::None,
            marks: Marks::default(),
            ended: false,
            origin: Origin::Admitted,
        }
    }

    /// Whether the session that logged in may have the topics of the one that the client asked to resume.
    pub(crate) fn may_resume(&self, services: &Services, session: &Session) -> bool {
        self.conversation.as_ref().is_none_or(|conversation| conversation.may_resume(services, session))
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
        Received { watermark: self.watermark, as_of: self.as_of, generation: self.generation }
    }

    /// The connection as the recipient of a message.
    pub(crate) fn recipient(&mut self, slot: u32) -> Recipient<'_> {
        let received = self.received();
        Recipient {
            slot,
            session: self.session.as_deref().filter(|_| self.phase == Phase::Open),
            catch_up: self.catch_up.as_deref_mut(),
            marks: &mut self.marks,
            received,
        }
    }

    /// The last message that was offered to the shard's sessions, or that existed when this one logged in.
    pub(crate) fn offered_to(&self, offered: NotificationId) -> NotificationId {
        self.as_of.max(offered)
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        let queued = self.conversation.as_ref().map_or(0, |conversation| conversation.queued_bytes());
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
