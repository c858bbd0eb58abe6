//! One connection's conversation: packets in, bytes and [`Action`]s out. It knows no clock, no store and no
//! socket; what it waits for comes back by the methods that [`Action`] names.
//!
//! Four kinds of methods. Input from the client: [`Conversation::receive`] (and [`Conversation::violate`] for
//! what was no packet). Answers of the service: `logged_in`, `published`, `subscribed`, `unsubscribed`.
//! Output: `deliver`, `caught_up`. The end: `close`, and [`Conversation::part`] once, whatever ended it.
//!
//! Invariants: what is written into `out` is sent, in that order, or the connection ends (packet ids and
//! aliases are counted as told). Nothing is written before CONNECT and nothing after the last word. An idle
//! conversation is 64 bytes and its subscriptions; what is under way is boxed and bounded by `Config`.

mod close;
mod connect;
mod deliver;
mod publish;
mod subscribe;

pub use deliver::{Cause, Delivery};

use noroshi_types::CloseReason;

use super::action::{Action, Parting, Saved, Will};
use super::flight::Flight;
use super::subscription::Subscriptions;
use super::{Config, Disconnect, Frame, Packet, Property, ReasonCode, Version, Violation};
use connect::Opening;

/// What a connection of MQTT is made of.
#[derive(Debug)]
pub struct Conversation {
    /// Until it is open.
    opening: Option<Box<Opening>>,
    subscriptions: Option<Box<Subscriptions>>,
    flight: Option<Box<Flight>>,
    will: Option<Box<Will>>,
    /// The device's, for No Local.
    origin: u64,
    session_expiry_s: u32,
    /// Of packets to the client (§3.1.2.11.4).
    packet_bytes_max: u32,
    keep_alive_s: u16,
    last_packet_id: u16,
    /// Messages to the client that may be unfinished: its receive maximum and ours.
    window: u16,
    /// Aliases towards the client.
    send_aliases: u16,
    version: Version,
    is_mqtt31: bool,
    phase: Phase,
    /// Reason strings may be sent with any packet (§3.1.2.11.7).
    problem_information: bool,
    /// A message was refused for want of room.
    window_full: bool,
    /// The session goes on, and which packet ids were given out in it is not known: the client may hold some for
    /// messages with QoS 2 that it received.
    forgot_ids: bool,
}

// A million idle connections carry one each.
const _: () = assert!(size_of::<Conversation>() <= 64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitConnect,
    LoggingIn,
    Open,
    /// The last word was said.
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

    /// Whether a session began and did not end.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Known from CONNECT on.
    pub fn version(&self) -> Version {
        self.version
    }

    /// How long nothing may be heard, from the log-in on: one and a half times the keep alive
    /// ([MQTT-3.1.2-22]). `None`: as long as the client likes.
    pub fn silence_max_ms(&self) -> Option<u64> {
        (self.keep_alive_s > 0).then(|| u64::from(self.keep_alive_s) * 1_500)
    }

    /// One packet of the client.
    pub fn receive<'a>(&mut self, config: &Config, frame: Frame<'a>, out: &mut Vec<u8>) -> Action<'a> {
        let result = match self.phase {
            Phase::AwaitConnect => return self.receive_first(config, frame, out),
            Phase::LoggingIn => self.keep_early(config, frame),
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
            Packet::PingReq => Ok(self.say(Packet::PingResp, out)),
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
        disconnect: Disconnect<'_>,
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
        // [MQTT-3.14.4-3]; any other reason code leaves the will in force.
        if disconnect.reason == ReasonCode::Success {
            self.will = None;
        }
        self.phase = Phase::Over;
        Ok(Action::Close { reason: CloseReason::PeerClosed, violation: None })
    }

    /// What is left when the connection is over. Without `close` or a DISCONNECT before, the peer vanished.
    pub fn part(self) -> Parting {
        // Without a log-in there was no session.
        if self.opening.is_some() {
            return Parting::default();
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
        Parting { will: self.will, session_expiry_s, subscriptions, saved }
    }

    /// Writes a packet, with what it may leave out left out if it is over the client's maximum. One that is
    /// too large even so ends the connection, since the client waits for it.
    fn say<'a>(&mut self, packet: Packet<'_>, out: &mut Vec<u8>) -> Action<'a> {
        match self.push(&packet, out) || self.push(&packet.bare(), out) {
            true => Action::None,
            false => self.fall_silent(CloseReason::TooBig),
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

    /// Ends without a word.
    fn fall_silent<'a>(&mut self, reason: CloseReason) -> Action<'a> {
        self.phase = Phase::Over;
        Action::Close { reason, violation: None }
    }

    fn flight(&mut self) -> &mut Flight {
        self.flight.get_or_insert_default()
    }

    /// Frees what nothing is left of.
    fn settle(&mut self) {
        if self.flight.as_ref().is_some_and(|flight| flight.is_empty()) {
            self.flight = None;
        }
    }

    /// Heap bytes of what is under way and of the subscriptions, about.
    pub fn held_bytes(&self) -> usize {
        let flight = self.flight.as_ref().map_or(0, |flight| flight.held_bytes());
        let opening = self.opening.as_ref().map_or(0, |opening| opening.held_bytes());
        flight + opening + self.subscriptions.as_ref().map_or(0, |subscriptions| subscriptions.held_bytes())
    }
}
