//! One connection's state machine: packets in, bytes and [`Action`]s out. It uses no clock, store or socket;
//! results arrive through the methods that [`Action`] names.
//!
//! Four kinds of methods. Input from the client: [`Conversation::receive`], and [`Conversation::violate`] for
//! decoding errors. Results from the service: `logged_in`, `published`, `subscribed`, `unsubscribed`. Output:
//! `deliver`, `caught_up`. End: `close`, and [`Conversation::part`] once, whatever ended the connection.
//!
//! Invariants: everything written to `out` must be sent in order, or the connection ends, since packet ids
//! and aliases count as used. Nothing is written before CONNECT and nothing after the closing packet. An idle
//! conversation takes 64 bytes and its subscriptions; in-flight state is boxed and bounded by `Config`.

mod close;
mod connect;
mod deliver;
mod publish;
mod subscribe;

pub use deliver::{Cause, Delivery};

use noroshi_types::CloseReason;

use super::action::{Action, ConnectionEnd, Saved, Will};
use super::flight::Flight;
use super::subscription::Subscriptions;
use super::{Config, Frame, Notice, Packet, Property, ReasonCode, Version, Violation};
use connect::Opening;

/// The state of an MQTT connection.
#[derive(Debug)]
pub struct Conversation {
    /// Present until the connection is open.
    opening: Option<Box<Opening>>,
    subscriptions: Option<Box<Subscriptions>>,
    flight: Option<Box<Flight>>,
    will: Option<Box<Will>>,
    /// The device's origin, for No Local.
    origin: u64,
    session_expiry_s: u32,
    /// Limit of packets to the client (§3.1.2.11.4).
    packet_bytes_max: u32,
    keep_alive_s: u16,
    last_packet_id: u16,
    /// Limit of unfinished messages to the client: the lower of its receive maximum and ours.
    window: u16,
    /// Limit of aliases towards the client.
    send_aliases: u16,
    version: Version,
    is_mqtt31: bool,
    phase: Phase,
    /// Reason strings may be sent with any packet (§3.1.2.11.7).
    problem_information: bool,
    /// A message was rejected because the window is full.
    window_full: bool,
    /// The session continues without knowledge of its used packet ids: the client may hold some for QoS 2
    /// messages that it received.
    forgot_ids: bool,
}

// Each of a million idle connections holds one.
const _: () = assert!(size_of::<Conversation>() <= 64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitConnect,
    LoggingIn,
    Open,
    /// The closing packet was written.
    Over,
}

impl Default for Conversation {
    fn default() -> Self {
        Self::new()
    }
}

impl Conversation {
    pub const fn new() -> Self {
        Self {
            opening: None,
            subscriptions: None,
            flight: None,
            will: None,
            origin: 0,
            session_expiry_s: 0,
            packet_bytes_max: u32::MAX,
            keep_alive_s: 0,
            last_packet_id: 0,
            window: 1,
            send_aliases: 0,
            version: Version::V3,
            is_mqtt31: false,
            phase: Phase::AwaitConnect,
            problem_information: true,
            window_full: false,
            forgot_ids: false,
        }
    }

    /// Whether a session started and did not end.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Known after CONNECT.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The idle timeout after the log-in: one and a half times the keep alive ([MQTT-3.1.2-22]). `None`: no
    /// timeout.
    pub fn idle_timeout_ms(&self) -> Option<u64> {
        (self.keep_alive_s > 0).then(|| u64::from(self.keep_alive_s) * 1_500)
    }

    /// Handles one packet of the client.
    pub fn receive<'a>(&mut self, config: &Config, frame: Frame<'a>, out: &mut Vec<u8>) -> Action<'a> {
        let result = match self.phase {
            Phase::AwaitConnect => return self.receive_first(config, frame, out),
            Phase::LoggingIn => self.buffer_early(config, frame),
            Phase::Open => {
                let frame = if self.is_mqtt31 { frame.without_dup() } else { frame };
                Packet::parse(self.version, frame).and_then(|packet| self.handle_packet(config, packet, out))
            }
            Phase::Over => Ok(Action::None),
        };
        result.unwrap_or_else(|violation| self.violate(violation, out))
    }

    fn handle_packet<'a>(
        &mut self,
        config: &Config,
        packet: Packet<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Action<'a>, Violation> {
        match packet {
            Packet::Publish(publish) => self.handle_publish(config, publish, out),
            Packet::PubAck(ack) => self.handle_puback(ack),
            Packet::PubRec(ack) => self.handle_pubrec(ack, out),
            Packet::PubRel(ack) => self.handle_pubrel(ack, out),
            Packet::PubComp(ack) => self.handle_pubcomp(ack),
            Packet::Subscribe(subscribe) => self.handle_subscribe(config, subscribe),
            Packet::Unsubscribe(unsubscribe) => self.handle_unsubscribe(config, unsubscribe),
            Packet::PingReq => Ok(self.push_or_close(Packet::PingResp, out)),
            Packet::Disconnect(disconnect) => self.handle_disconnect(config, disconnect),
            Packet::Auth(_) => Err(Violation::AuthUnexpected), // [MQTT-4.12.0-7]
            Packet::Connect(_) => Err(Violation::SecondConnect), // [MQTT-3.1.0-2]
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
                Err(Violation::ServersPacket)
            }
        }
    }

    fn handle_disconnect<'a>(
        &mut self,
        config: &Config,
        disconnect: Notice<'_>,
    ) -> Result<Action<'a>, Violation> {
        if disconnect.properties.text(Property::ServerReference).is_some() {
            return Err(Violation::ServersProperty);
        }
        if let Some(expiry_s) = disconnect.properties.number(Property::SessionExpiryInterval) {
            if self.session_expiry_s == 0 && expiry_s != 0 {
                return Err(Violation::SessionExpiryRaised);
            }
            self.session_expiry_s = expiry_s.min(config.session_expiry_max_s);
        }
        // [MQTT-3.14.4-3]; any other reason code keeps the will.
        if disconnect.reason == ReasonCode::Success {
            self.will = None;
        }
        self.phase = Phase::Over;
        Ok(Action::Close { reason: CloseReason::PeerClosed, violation: None })
    }

    /// Returns the state that remains after the connection. Without a previous `close` or DISCONNECT, the
    /// peer disconnected abnormally.
    pub fn part(self) -> ConnectionEnd {
        // Without a log-in there is no session.
        if self.opening.is_some() {
            return ConnectionEnd::default();
        }
        let session_expiry_s = self.session_expiry_s;
        let subscriptions =
            self.subscriptions.map(|subscriptions| subscriptions.into_list()).unwrap_or_default();
        let flight = self.flight.map(|flight| *flight).unwrap_or_default();
        let saved = (session_expiry_s > 0).then(|| {
            Box::new(Saved {
                sent: flight.sent,
                unreleased: flight.unreleased,
                last_packet_id: self.last_packet_id,
                forgot_ids: self.forgot_ids,
            })
        });
        ConnectionEnd { will: self.will, session_expiry_s, subscriptions, saved }
    }

    /// Writes a packet, without its optional properties if it exceeds the client's maximum. A packet that is
    /// still too large ends the connection, since the client waits for it.
    fn push_or_close<'a>(&mut self, packet: Packet<'_>, out: &mut Vec<u8>) -> Action<'a> {
        match self.push(&packet, out) || self.push(&packet.bare(), out) {
            true => Action::None,
            false => self.end_silently(CloseReason::TooBig),
        }
    }

    /// [MQTT-3.1.2-24]
    fn push(&self, packet: &Packet<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        packet.encode(self.version, out);
        let fits = out.len() - start <= self.packet_bytes_max as usize;
        if !fits {
            out.truncate(start);
        }
        fits
    }

    /// Ends the conversation without a closing packet.
    fn end_silently<'a>(&mut self, reason: CloseReason) -> Action<'a> {
        self.phase = Phase::Over;
        Action::Close { reason, violation: None }
    }

    fn flight(&mut self) -> &mut Flight {
        self.flight.get_or_insert_default()
    }

    /// Frees the in-flight state if it is empty.
    fn free_flight(&mut self) {
        if self.flight.as_ref().is_some_and(|flight| flight.is_empty()) {
            self.flight = None;
        }
    }

    /// Approximate heap bytes of in-flight state and subscriptions.
    pub fn held_bytes(&self) -> usize {
        let flight = self.flight.as_ref().map_or(0, |flight| flight.held_bytes());
        let opening = self.opening.as_ref().map_or(0, |opening| opening.held_bytes());
        flight + opening + self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.held_bytes())
    }
}
