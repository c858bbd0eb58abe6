//! The closing packet: DISCONNECT (§3.14), or CONNACK if there is no session yet. Clients of MQTT 3.1.1 have
//! no DISCONNECT from the server; their connection is just closed.

use noroshi_types::CloseReason;

use super::{Conversation, Phase};
use crate::mqtt::action::{Action, ServerReference};
use crate::mqtt::close::close_codes;
use crate::mqtt::{
    ConnAck, Notice, Packet, PacketType, Property, PropertyList, ReasonCode, Value, Version, Violation,
};

impl Conversation {
    /// Ends or rejects the connection on behalf of the service. `elsewhere` is sent if the client may
    /// reconnect for this reason.
    pub fn close(&mut self, reason: CloseReason, elsewhere: Option<&ServerReference<'_>>, out: &mut Vec<u8>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let Some(word) = close_codes(reason) else { return };
        let elsewhere = elsewhere.filter(|_| matches!(reason, CloseReason::Drain | CloseReason::Overloaded));
        let redirect = elsewhere.map(|elsewhere| match elsewhere.moved {
            true => ReasonCode::ServerMoved,
            false => ReasonCode::UseAnotherServer,
        });
        let servers = elsewhere.map(|elsewhere| elsewhere.servers);
        let text = Some(reason.explain());
        match phase {
            Phase::LoggingIn => self.push_connack(redirect.unwrap_or(word.connack), text, servers, out),
            Phase::Open => self.push_disconnect(redirect.unwrap_or(word.disconnect), text, servers, out),
            Phase::AwaitConnect | Phase::Over => {}
        }
    }

    /// Handles a protocol violation, including those that the decoder found.
    pub fn violate<'a>(&mut self, violation: Violation, out: &mut Vec<u8>) -> Action<'a> {
        let (code, text) = (violation.reason_code(), Some(violation.text()));
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::LoggingIn if code.is_allowed_in(PacketType::ConnAck) => {
                self.push_connack(code, text, None, out);
            }
            Phase::Open if code.is_allowed_in(PacketType::Disconnect) => {
                self.push_disconnect(code, text, None, out);
            }
            Phase::AwaitConnect | Phase::LoggingIn | Phase::Open | Phase::Over => {}
        }
        Action::Close { reason: violation.close_reason(), violation: Some(violation) }
    }

    pub(super) fn push_connack(
        &self,
        code: ReasonCode,
        text: Option<&str>,
        servers: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        let code = if code.is_allowed_in(PacketType::ConnAck) { code } else { ReasonCode::UnspecifiedError };
        let text = self.wanted(text);
        for list in [reason_properties(text, servers), reason_properties(None, servers), PropertyList::new()]
        {
            let properties = list.properties();
            let connack = ConnAck { session_present: false, reason: code, properties };
            if self.push(&Packet::ConnAck(connack), out) {
                return;
            }
        }
    }

    /// §3.1.2.11.7 lets the server explain CONNACK and DISCONNECT even to a client that disabled problem
    /// information. We respect the client's choice.
    fn wanted<'t>(&self, text: Option<&'t str>) -> Option<&'t str> {
        text.filter(|_| self.problem_information)
    }

    fn push_disconnect(
        &self,
        reason: ReasonCode,
        text: Option<&str>,
        servers: Option<&str>,
        out: &mut Vec<u8>,
    ) {
        if self.version == Version::V3 {
            return; // MQTT 3.1.1 §3.14: only clients send it
        }
        let text = self.wanted(text);
        for list in [reason_properties(text, servers), reason_properties(None, servers), PropertyList::new()]
        {
            let disconnect = Notice { reason, properties: list.properties() };
            if self.push(&Packet::Disconnect(disconnect), out) {
                return;
            }
        }
    }
}

fn reason_properties(text: Option<&str>, servers: Option<&str>) -> PropertyList {
    let mut list = PropertyList::new();
    if let Some(servers) = servers {
        list.push(Property::ServerReference, Value::Text(servers));
    }
    if let Some(text) = text {
        list.push(Property::ReasonString, Value::Text(text));
    }
    list
}
