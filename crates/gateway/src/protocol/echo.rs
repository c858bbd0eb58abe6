//! Sends each message of a WebSocket back: for the WebSocket conformance suite, never in service.

use std::convert::Infallible;

use noroshi_protocol::ws::{self, Input, Opcode};
use noroshi_types::CloseReason;

use super::adapter::Adapter;
use super::context::Context;
use super::effect::Reply;
use crate::config::Config;
use crate::wire::deflate;

/// Messages of the conformance suite's case 9.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

pub(crate) struct Echo;

impl Adapter for Echo {
    type Request = Infallible;
    type Done = Infallible;

    fn handle_message(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        let frame = match input {
            Input::Text(text) => ws::frame(Opcode::Text, text.as_bytes()),
            Input::Binary(bytes) => ws::frame(Opcode::Binary, bytes),
            _ => return,
        };
        cx.send(deflate::packed(cx.facts.framing, frame));
    }

    fn handle_reply(&mut self, _: &mut Context<'_>, request: Infallible, _: Reply) {
        match request {}
    }

    /// The close frame is all that the suite expects.
    fn close(&mut self, _: &mut Context<'_>, _: CloseReason, _: u64) {}

    fn message_bytes_max(&self, _: &Config) -> usize {
        MESSAGE_BYTES_MAX
    }
}
