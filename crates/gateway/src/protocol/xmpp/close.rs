//! How an XMPP connection ends. A session that may be resumed is parked.

use std::time::Duration;

use noroshi_protocol::xmpp::Suspended;
use noroshi_types::CloseReason;

use super::session::Parked;
use super::{Xmpp, service};
use crate::protocol::context::Context;
use crate::wire::{Framing, Protocol};

impl Xmpp {
    /// Sends the stream error of what ended the connection.
    pub(super) fn send_close(&mut self, cx: &mut Context<'_>, reason: CloseReason) {
        self.detach_account(cx);
        let services = cx.services;
        // For a WebSocket it would be an address of another kind (RFC 7395 §3.6.1).
        let is_stream = cx.facts.framing == Framing::Stream;
        let redirect = services.config.xmpp.redirect.as_deref();
        let redirect = redirect.filter(|_| is_stream && reason == CloseReason::Drain);
        let mut suspended = None;
        self.speak(cx, |conversation, pcx, out| {
            // If a log-in waits for its answer, this is it.
            conversation.refused(pcx, reason, out);
            match reason {
                // Another connection resumes the session, or the client was silent for too long and may resume it
                // later.
                CloseReason::Replaced | CloseReason::PingTimeout => {
                    suspended = conversation.close_suspended(pcx, reason, out);
                }
                _ => conversation.close(pcx, reason, redirect, out),
            }
        });
        if let Some(suspended) = suspended {
            park(cx, suspended);
        }
    }

    /// The connection has ended. If the client did not close its stream, it may resume the session.
    pub(super) fn leave(mut self, cx: &mut Context<'_>) {
        self.detach_account(cx);
        let reason = cx.facts.close_reason;
        if matches!(reason, None | Some(CloseReason::PeerReset | CloseReason::PeerClosed))
            && let Some(suspended) = self.conversation.suspend()
        {
            park(cx, suspended);
        }
    }
}

fn park(cx: &Context<'_>, suspended: Box<Suspended>) {
    let Some(session) = cx.session else { return };
    let present = cx.services.registry.device(session.device_key);
    if present.is_some_and(|present| present.address.generation > session.address.generation) {
        return; // the device has a newer session, and one at most
    }
    let topics = cx.progress.own_topics();
    let time = Duration::from_secs(cx.config().xmpp.protocol.resume_max_s.into());
    let parked = Parked { suspended, topics, holder: session.holder() };
    let parking = &service(cx.services).parking;
    let evicted = parking.park(session.device_key, session.app, parked, cx.now.wall, time);
    cx.services.metrics.count_evicted(Protocol::Xmpp, evicted);
}
