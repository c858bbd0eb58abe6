//! The protocols of the gateway: the one place that lists them.
//!
//! `protocols!` makes an enum of all adapters, so that a call costs a branch and no virtual dispatch, and a connection
//! holds one pointer. Adapters without state of their own (`stateless`) are made for each call and never stored.

use std::any::Any;
use std::collections::HashSet;

use bytes::Bytes;
use noroshi_protocol::mqtt::{TopicFilter, UnconfirmedMessage};
use noroshi_protocol::ws::Input;
use noroshi_store::Place;
use noroshi_types::{CloseReason, NotificationId, Timestamp, Topic};

use super::adapter::{Adapter, Cause, Matched, Offered, Opening};
use super::context::{Context, Encoding};
use super::effect::{Refusal, Reply, TopicNotice};
use super::requests::Turn;
use super::services::Services;
use crate::config::Config;
use crate::rate::Rate;
use crate::session::login::OpenedSession;
use crate::session::operation::Operation;
use crate::session::parking::Capacity;
use crate::session::registry::Session;
use crate::wire::dispatch::Dispatch;
use crate::wire::{Framing, Protocol};

macro_rules! protocols {
    ($d:tt $($(#[$attribute:meta])* $name:ident: $adapter:ty;)*) => {
        /// A protocol on one connection.
        pub(crate) enum Conversation {
            $($(#[$attribute])* $name($adapter),)*
        }

        macro_rules! each {
            ($d value:expr, $d it:ident => $d body:expr) => {
                match $d value {
                    $($(#[$attribute])* Conversation::$name($d it) => $d body,)*
                }
            };
        }

        impl Conversation {
            /// See [`Adapter::handle_reply`]. A request of another protocol is dropped: the slot has another
            /// connection.
            pub(crate) fn handle_reply(&mut self, cx: &mut Context<'_>, request: Box<dyn Operation>, reply: Reply) {
                let request = request.into_any();
                match self {
                    $($(#[$attribute])*
                    Self::$name(it) => {
                        if let Ok(request) = request.downcast::<<$adapter as Adapter>::Request>() {
                            it.handle_reply(cx, *request, reply);
                        }
                    })*
                }
            }

            /// See [`Adapter::handle_done`].
            pub(crate) fn handle_done(&mut self, cx: &mut Context<'_>, done: Box<dyn Any>) {
                match self {
                    $($(#[$attribute])*
                    Self::$name(it) => {
                        if let Ok(done) = done.downcast::<<$adapter as Adapter>::Done>() {
                            it.handle_done(cx, *done);
                        }
                    })*
                }
            }

            /// See [`Adapter::WRITES_MARKED_FIRST`].
            pub(crate) fn writes_marked_first(&self) -> bool {
                match self {
                    $($(#[$attribute])* Self::$name(_) => <$adapter>::WRITES_MARKED_FIRST,)*
                }
            }

            /// The adapter of a new connection, if connections of the protocol store one.
            pub(crate) fn open(protocol: Protocol, opening: &Opening<'_>) -> Option<Self> {
                $($(#[$attribute])*
                if <$adapter>::PROTOCOL == Some(protocol) {
                    return <$adapter>::open(opening).map(Self::$name);
                })*
                None
            }

            /// See [`Adapter::ANNOUNCES_END`].
            pub(crate) fn announces_end(&self) -> bool {
                match self {
                    $($(#[$attribute])* Self::$name(_) => <$adapter>::ANNOUNCES_END,)*
                }
            }

            /// See [`Adapter::STREAMS_IN_MESSAGES`].
            pub(crate) fn streams_in_messages(&self) -> bool {
                match self {
                    $($(#[$attribute])* Self::$name(_) => <$adapter>::STREAMS_IN_MESSAGES,)*
                }
            }

            /// See [`Adapter::end`].
            pub(crate) fn end(self, cx: &mut Context<'_>) -> Option<Self> {
                match self {
                    $($(#[$attribute])* Self::$name(it) => it.end(cx).map(Self::$name),)*
                }
            }
        }
    };
}

// A new protocol: see the header of `crate::protocol`.
protocols! { $
    Native: super::native::Native;
    Events: super::sse::Events;
    Mqtt: super::mqtt::Mqtt;
    SocketIo: super::socket_io::SocketIo;
    PollingRequest: super::polling::PollingRequest;
    Xmpp: super::xmpp::Xmpp;
    Echo: super::echo::Echo;
    #[cfg(test)]
    Line: super::line::Line;
}

/// What the connections of single protocols share.
pub(crate) fn services(
    config: &mut Config,
    now: Timestamp,
    capacity: Capacity,
) -> Vec<Box<dyn Any + Send + Sync>> {
    vec![
        Box::new(super::mqtt::Service::new(now, capacity)),
        Box::new(super::xmpp::Service::new(&mut config.xmpp, capacity)),
    ]
}

impl Conversation {
    /// The adapter of a connection that stores none, since the adapter is stateless.
    pub(crate) fn stateless(protocol: Protocol, framing: Framing) -> Option<Self> {
        match (protocol, framing) {
            (Protocol::Native, Framing::Events | Framing::GzipEvents) => {
                Some(Self::Events(super::sse::Events))
            }
            (Protocol::Native, framing) if framing.is_websocket() => {
                Some(Self::Native(super::native::Native))
            }
            (Protocol::Echo, framing) if framing.is_websocket() => Some(Self::Echo(super::echo::Echo)),
            _ => None,
        }
    }
}

/// See [`Adapter`] for each method.
impl Conversation {
    pub(crate) fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> usize {
        each!(self, it => it.handle_bytes(cx, bytes))
    }

    pub(crate) fn handle_message(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        each!(self, it => it.handle_message(cx, input))
    }

    pub(crate) fn handle_login(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) -> Vec<u8> {
        each!(self, it => it.handle_login(cx, begun))
    }

    pub(crate) fn handle_refusal(&mut self, cx: &mut Context<'_>, refusal: &Refusal) {
        each!(self, it => it.handle_refusal(cx, refusal))
    }

    pub(crate) fn handle_open(&mut self, cx: &mut Context<'_>) {
        each!(self, it => it.handle_open(cx))
    }

    pub(crate) fn handle_tls(&mut self, cx: &mut Context<'_>) {
        each!(self, it => it.handle_tls(cx))
    }

    pub(crate) fn start_job(&mut self, cx: &mut Context<'_>, turn: Turn) -> bool {
        each!(self, it => it.start_job(cx, turn))
    }

    pub(crate) fn handle_stanza(&mut self, cx: &mut Context<'_>, stanza: &Bytes) {
        each!(self, it => it.handle_stanza(cx, stanza))
    }

    pub(crate) fn handle_predecessor_gone(&mut self, cx: &mut Context<'_>) {
        each!(self, it => it.handle_predecessor_gone(cx))
    }

    pub(crate) fn client_filters(&self) -> Vec<&TopicFilter> {
        each!(self, it => it.client_filters())
    }

    pub(crate) fn stored_filters(&self, stored: Option<&[u8]>) -> Vec<TopicFilter> {
        each!(self, it => it.stored_filters(stored))
    }

    pub(crate) fn may_resume(&self, services: &Services, session: &Session) -> bool {
        each!(self, it => it.may_resume(services, session))
    }

    pub(crate) fn is_resumable_as(&self, id: &str) -> bool {
        each!(self, it => it.is_resumable_as(id))
    }

    pub(crate) fn frame_rate(&self, services: &Services, has_session: bool) -> Option<Rate> {
        each!(self, it => it.frame_rate(services, has_session))
    }

    pub(crate) fn late_confirmations(&self, input: &Input<'_>) -> Vec<NotificationId> {
        each!(self, it => it.late_confirmations(input))
    }

    pub(crate) fn misses_close_frames(&self) -> bool {
        each!(self, it => it.misses_close_frames())
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        each!(self, it => it.handle_timeout(cx))
    }

    pub(crate) fn handle_deadline(&mut self, cx: &mut Context<'_>) {
        each!(self, it => it.handle_deadline(cx))
    }

    pub(crate) fn handle_recovered(&mut self, cx: &mut Context<'_>, topic: &Topic, complete: bool) {
        each!(self, it => it.handle_recovered(cx, topic, complete))
    }

    pub(crate) fn handle_topic_notice(&mut self, cx: &mut Context<'_>, notice: &TopicNotice<'_>) {
        each!(self, it => it.handle_topic_notice(cx, notice))
    }

    pub(crate) fn offer(
        &mut self,
        encoding: &Encoding<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        each!(self, it => it.offer(encoding, dispatch, cause, head))
    }

    pub(crate) fn finish_offers(&mut self, config: &Config, out: &mut Vec<u8>) {
        each!(self, it => it.finish_offers(config, out))
    }

    pub(crate) fn handle_caught_up(&mut self) -> Vec<NotificationId> {
        each!(self, it => it.handle_caught_up())
    }

    pub(crate) fn handle_outstanding(&mut self, found: &HashSet<UnconfirmedMessage>) {
        each!(self, it => it.handle_outstanding(found))
    }

    pub(crate) fn matched(&self, topic: &Topic, at: Place) -> Matched {
        each!(self, it => it.matched(topic, at))
    }

    pub(crate) fn wildcards_since(&self) -> Option<Place> {
        each!(self, it => it.wildcards_since())
    }

    pub(crate) fn wants_retained(&self) -> bool {
        each!(self, it => it.wants_retained())
    }

    pub(crate) fn frames_granted(&self) -> u32 {
        each!(self, it => it.frames_granted())
    }

    pub(crate) fn message_bytes_max(&self, config: &Config) -> usize {
        each!(self, it => it.message_bytes_max(config))
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        each!(self, it => it.queued_bytes())
    }

    pub(crate) fn queue(&mut self, packet: Bytes) {
        each!(self, it => it.queue(packet))
    }

    pub(crate) fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, reconnect_after_ms: u64) {
        each!(self, it => it.close(cx, reason, reconnect_after_ms))
    }
}
