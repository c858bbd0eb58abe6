//! The protocols of the gateway: the one place that lists them.
//!
//! `protocols!` makes an enum of all adapters, so that a call costs a branch and no virtual dispatch, and a connection
//! holds one pointer. Adapters without state of their own (`stateless`) are made for each call and never stored.

use std::any::Any;
use std::collections::HashSet;

use bytes::Bytes;
use noroshi_protocol::mqtt::{TopicFilter, UnacknowledgedMessage};
use noroshi_protocol::ws::Input;
use noroshi_store::Place;
use noroshi_types::{CloseReason, ItemsNotice, NotificationId, Recovered, Timestamp, Topic};

use super::adapter::{Adapter, Cause, Matched, Offered};
use super::context::{Context, Encoding};
use super::effect::{Refusal, Reply, TopicNotice};
use super::jobs::Turn;
use super::services::Services;
use crate::config::Config;
use crate::rate::Rate;
use crate::session::login::OpenedSession;
use crate::session::parking::Capacity;
use crate::session::registry::Session;
use crate::session::request::BoxedRequest;
use crate::wire::dispatch::Dispatch;
use crate::wire::{Framing, Protocol};

macro_rules! protocols {
    ($d:tt $($(#[$attribute:meta])* $name:ident: $adapter:ty;)*) => {
        /// A protocol on one connection.
        pub(crate) enum AnyAdapter {
            $($(#[$attribute])* $name($adapter),)*
        }

        macro_rules! each {
            ($d value:expr, $d it:ident => $d body:expr) => {
                match $d value {
                    $($(#[$attribute])* AnyAdapter::$name($d it) => $d body,)*
                }
            };
        }

        impl AnyAdapter {
            /// See [`Adapter::handle_reply`]. A request of another protocol is dropped: the slot has another
            /// connection.
            pub(crate) fn handle_reply(&mut self, cx: &mut Context<'_>, request: BoxedRequest, reply: Reply) {
                let request: Box<dyn Any> = request;
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
    Line: super::tests::line::Line;
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

impl AnyAdapter {
    /// The adapter of a new connection, if connections of the protocol store one.
    pub(crate) fn open(
        protocol: Protocol,
        framing: Framing,
        is_tls: bool,
        config: &Config,
        now_tick: u32,
    ) -> Option<Self> {
        let has_starttls = config.xmpp.starttls.is_some();
        match protocol {
            Protocol::Mqtt => Some(Self::Mqtt(super::mqtt::Mqtt::new(now_tick))),
            Protocol::Xmpp => Some(Self::Xmpp(super::xmpp::Xmpp::new(framing, is_tls, has_starttls))),
            #[cfg(test)]
            Protocol::Line => Some(Self::Line(super::tests::line::Line::default())),
            _ => None,
        }
    }

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

/// Passes calls on to the adapter.
macro_rules! forward {
    ($(fn $name:ident(&mut self $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        $(pub(crate) fn $name(&mut self $(, $arg: $type)*) $(-> $result)? {
            each!(self, it => it.$name($($arg),*))
        })*
    };
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        $(pub(crate) fn $name(&self $(, $arg: $type)*) $(-> $result)? {
            each!(self, it => it.$name($($arg),*))
        })*
    };
}

/// See [`Adapter`] for each method.
impl AnyAdapter {
    forward! {
        fn handle_open(&mut self, cx: &mut Context<'_>);
        fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> usize;
        fn handle_message(&mut self, cx: &mut Context<'_>, input: Input<'_>);
        fn handle_tls(&mut self, cx: &mut Context<'_>);
        fn handle_login(&mut self, cx: &mut Context<'_>, begun: &OpenedSession) -> Vec<u8>;
        fn handle_refusal(&mut self, cx: &mut Context<'_>, refusal: &Refusal);
        fn start_job(&mut self, cx: &mut Context<'_>, turn: Turn) -> bool;
        fn handle_timeout(&mut self, cx: &mut Context<'_>);
        fn handle_deadline(&mut self, cx: &mut Context<'_>);
        fn handle_stanza(&mut self, cx: &mut Context<'_>, stanza: &Bytes);
        fn handle_predecessor_gone(&mut self, cx: &mut Context<'_>);
        fn handle_recovered(&mut self, cx: &mut Context<'_>, recovered: &Recovered);
        fn handle_items(&mut self, cx: &mut Context<'_>, notice: &ItemsNotice);
        fn handle_topic_notice(&mut self, cx: &mut Context<'_>, notice: &TopicNotice<'_>);
        fn offer(&mut self, encoding: &Encoding<'_>, dispatch: &Dispatch, cause: Cause, head: &mut Vec<u8>) -> Offered;
        fn finish_offers(&mut self, config: &Config, out: &mut Vec<u8>);
        fn handle_caught_up(&mut self) -> Vec<NotificationId>;
        fn handle_outstanding(&mut self, found: &HashSet<UnacknowledgedMessage>);
        fn queue(&mut self, packet: Bytes);
        fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, reconnect_after_ms: u64);
    }

    forward! {
        fn matched(&self, topic: &Topic, at: Place) -> Matched;
        fn wildcards_since(&self) -> Option<Place>;
        fn client_filters(&self) -> Vec<&TopicFilter>;
        fn stored_filters(&self, stored: Option<&[u8]>) -> Vec<TopicFilter>;
        fn may_resume(&self, services: &Services, session: &Session) -> bool;
        fn is_resumable_as(&self, id: &str) -> bool;
        fn frame_rate(&self, services: &Services, has_session: bool) -> Option<Rate>;
        fn late_acknowledgements(&self, input: &Input<'_>) -> Vec<NotificationId>;
        fn misses_close_frames(&self) -> bool;
        fn wants_retained(&self) -> bool;
        fn pauses_reading(&self) -> bool;
        fn frames_granted(&self) -> u32;
        fn message_bytes_max(&self, config: &Config) -> usize;
        fn queued_bytes(&self) -> usize;
    }
}
