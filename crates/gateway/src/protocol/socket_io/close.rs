//! How a Socket.IO connection ends.

use noroshi_protocol::socket_io::Action;
use noroshi_types::CloseReason;

use super::adapter::push_outputs;
use super::{App, SocketIo};
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;
use crate::session::phase::Phase;
use crate::wire::Framing;

impl SocketIo {
    /// Sends `close` and DISCONNECT, or CONNECT_ERROR to a client that is not let in. A poll receives them too.
    pub(super) fn send_close(&mut self, cx: &mut Context<'_>, reason: CloseReason, reconnect_after_ms: u64) {
        let (mut actions, mut outputs) = (Vec::new(), Vec::new());
        if let App::Device(conversation) = &mut self.app {
            conversation.last_words(reason, reconnect_after_ms, &mut actions);
        }
        let config = &cx.services.config.socket_io.engine;
        for action in actions {
            let Action::Send(packet) = action else { continue };
            match cx.facts.framing {
                // At once: the engine takes nothing more once it is closed.
                Framing::Polling => self.engine.push(packet, config, &mut outputs),
                _ => self.send(cx, packet),
            }
        }
        self.engine.close(reason, cx.now.ms, config, &mut outputs);
        if cx.facts.framing == Framing::Polling {
            cx.push(Effect::PollReady);
        }
        push_outputs(cx, outputs);
    }

    /// Returns itself if polls have more to receive: the slot stays until then, or until its deadline.
    pub(super) fn leave(mut self, cx: &mut Context<'_>) -> Option<Self> {
        let lingers = cx.facts.phase == Phase::Closing
            && cx.facts.framing == Framing::Polling
            && !self.engine.is_gone();
        if lingers {
            return Some(self);
        }
        if let Some(legs) = self.legs.take() {
            cx.push(Effect::EndLegs(legs));
        }
        None
    }
}
