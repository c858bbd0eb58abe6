//! The protocols of the gateway: the one place that lists them.
//!
//! [`protocols!`] makes an enum of all adapters, so that a call costs a branch and no virtual dispatch, and a connection
//! holds one pointer. Adapters without state of their own (`stateless`) are made for each call and never stored.

use std::collections::HashSet;

use bytes::Bytes;
use noroshi_protocol::mqtt::Owed;
use noroshi_protocol::ws::Input;
use noroshi_store::Place;
use noroshi_types::rule::Action;
use noroshi_types::{CloseReason, NotificationId, Topic};

use super::adapter::{Adapter, Cause, Job as _, Matched, Offered, Operation, Outside};
use super::context::{Context, Encoding};
use super::effect::{Refusal, Reply, TopicNotice};
use crate::config::Config;
use crate::fanout::dispatch::Dispatch;
use crate::session::login::Begun;

macro_rules! protocols {
    ($d:tt $($(#[$attribute:meta])* $name:ident: $adapter:ty;)*) => {
        /// A protocol on one connection.
        pub(crate) enum Conversation {
            $($(#[$attribute])* $name($adapter),)*
        }

        /// A request of a client that waits for an outcome.
        pub(crate) enum Request {
            $($(#[$attribute])* $name(<$adapter as Adapter>::Request),)*
        }

        /// Work outside the shard.
        pub(crate) enum Job {
            $($(#[$attribute])* $name(<$adapter as Adapter>::Job),)*
        }

        /// The result of a [`Job`].
        pub(crate) enum Done {
            $($(#[$attribute])* $name(<<$adapter as Adapter>::Job as super::adapter::Job>::Done),)*
        }

        macro_rules! each {
            ($d value:expr, $d of:ident, $d it:ident => $d body:expr) => {
                match $d value {
                    $($(#[$attribute])* $d of::$name($d it) => $d body,)*
                }
            };
        }

        impl Conversation {
            /// See [`Adapter::handle_reply`].
            pub(crate) fn handle_reply(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
                match (self, request) {
                    $($(#[$attribute])*
                    (Self::$name(it), Request::$name(request)) => it.handle_reply(cx, request, reply),)*
                    // The slot has another connection by now.
                    #[allow(unreachable_patterns)]
                    _ => {}
                }
            }

            /// See [`Adapter::handle_done`].
            pub(crate) fn handle_done(&mut self, cx: &mut Context<'_>, done: Done) {
                match (self, done) {
                    $($(#[$attribute])*
                    (Self::$name(it), Done::$name(done)) => it.handle_done(cx, done),)*
                    #[allow(unreachable_patterns)]
                    _ => {}
                }
            }

            /// See [`Adapter::WRITES_MARKED_FIRST`].
            pub(crate) fn writes_marked_first(&self) -> bool {
                match self {
                    $($(#[$attribute])* Self::$name(_) => <$adapter>::WRITES_MARKED_FIRST,)*
                }
            }

            /// See [`Adapter::end`].
            pub(crate) fn end(self, cx: &mut Context<'_>) -> Option<Self> {
                match self {
                    $($(#[$attribute])* Self::$name(it) => it.end(cx).map(Self::$name),)*
                }
            }
        }

        impl Job {
            pub(crate) async fn run(self) -> Done {
                match self {
                    $($(#[$attribute])* Self::$name(job) => Done::$name(job.run().await),)*
                }
            }
        }

        impl Done {
            /// See [`super::adapter::Job::settle`].
            pub(crate) fn settle(self, outside: &mut Outside<'_>) -> Option<Self> {
                match self {
                    $($(#[$attribute])* Self::$name(done) => {
                        <<$adapter as Adapter>::Job as super::adapter::Job>::settle(done, outside).map(Self::$name)
                    })*
                }
            }
        }
    };
}

// A new protocol: its folder, its name in `Protocol`, and a line here.
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

/// See [`Adapter`] for each method.
impl Conversation {
    pub(crate) fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> usize {
        each!(self, Self, it => it.handle_bytes(cx, bytes))
    }

    pub(crate) fn handle_message(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        each!(self, Self, it => it.handle_message(cx, input))
    }

    pub(crate) fn handle_login(&mut self, cx: &mut Context<'_>, begun: &Begun) -> Vec<u8> {
        each!(self, Self, it => it.handle_login(cx, begun))
    }

    pub(crate) fn handle_refusal(&mut self, cx: &mut Context<'_>, refusal: &Refusal) {
        each!(self, Self, it => it.handle_refusal(cx, refusal))
    }

    pub(crate) fn start_job(&mut self, cx: &mut Context<'_>) {
        each!(self, Self, it => it.start_job(cx))
    }

    pub(crate) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        each!(self, Self, it => it.handle_timeout(cx))
    }

    pub(crate) fn handle_deadline(&mut self, cx: &mut Context<'_>) {
        each!(self, Self, it => it.handle_deadline(cx))
    }

    pub(crate) fn handle_recovered(&mut self, cx: &mut Context<'_>, topic: &Topic, complete: bool) {
        each!(self, Self, it => it.handle_recovered(cx, topic, complete))
    }

    pub(crate) fn handle_topic_notice(&mut self, cx: &mut Context<'_>, notice: &TopicNotice<'_>) {
        each!(self, Self, it => it.handle_topic_notice(cx, notice))
    }

    pub(crate) fn offer(
        &mut self,
        encoding: &Encoding<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        each!(self, Self, it => it.offer(encoding, dispatch, cause, head))
    }

    pub(crate) fn finish_offers(&mut self, config: &Config, out: &mut Vec<u8>) {
        each!(self, Self, it => it.finish_offers(config, out))
    }

    pub(crate) fn handle_caught_up(&mut self) -> Vec<NotificationId> {
        each!(self, Self, it => it.handle_caught_up())
    }

    pub(crate) fn handle_outstanding(&mut self, found: &HashSet<Owed>) {
        each!(self, Self, it => it.handle_outstanding(found))
    }

    pub(crate) fn matched(&self, topic: &Topic, at: Place) -> Matched {
        each!(self, Self, it => it.matched(topic, at))
    }

    pub(crate) fn wildcards_since(&self) -> Option<Place> {
        each!(self, Self, it => it.wildcards_since())
    }

    pub(crate) fn wants_retained(&self) -> bool {
        each!(self, Self, it => it.wants_retained())
    }

    pub(crate) fn frames_granted(&self) -> u32 {
        each!(self, Self, it => it.frames_granted())
    }

    pub(crate) fn message_bytes_max(&self, config: &Config) -> usize {
        each!(self, Self, it => it.message_bytes_max(config))
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        each!(self, Self, it => it.queued_bytes())
    }

    pub(crate) fn queue(&mut self, packet: Bytes) {
        each!(self, Self, it => it.queue(packet))
    }

    pub(crate) fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, reconnect_after_ms: u64) {
        each!(self, Self, it => it.close(cx, reason, reconnect_after_ms))
    }
}

impl Operation for Request {
    fn action(&self) -> Action {
        each!(self, Self, it => it.action())
    }

    fn names(&self) -> Vec<Box<str>> {
        each!(self, Self, it => it.names())
    }

    fn held_bytes(&self) -> usize {
        each!(self, Self, it => it.held_bytes())
    }

    fn may_need_rule(&self) -> bool {
        each!(self, Self, it => it.may_need_rule())
    }
}
