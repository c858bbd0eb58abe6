//! What a node allows on its MQTT connections. Told to clients of MQTT 5 in CONNACK; clients of 3.1.1 find
//! out by being closed.

use noroshi_types::limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Lets in who shows no token, as the device that the client identifier names. For the conformance
    /// suites; never in service.
    pub anonymous: bool,
    /// Of a packet from a client, header included; the decoder's limit too.
    pub packet_bytes_max: u32,
    /// QoS 1 and 2 messages of a client that are not finished (§3.2.2.3.3); 1 or more.
    pub receive_maximum: u16,
    /// Aliases a client may set (§3.2.2.3.8).
    pub topic_alias_maximum: u16,
    /// Aliases set here towards a client that allows them. They save bytes on the wire and cost the sharing of
    /// whole packets.
    pub send_aliases_max: u16,
    /// QoS 1 and 2 messages towards a client that are not finished, whatever it allows; 1 or more.
    pub in_flight_max: u16,
    /// A longer keep alive, or none, is shortened to this (§3.2.2.3.14); 0 leaves it to the client.
    pub keep_alive_max_s: u16,
    /// How long a session outlives its connection at most.
    pub session_expiry_max_s: u32,
    pub subscriptions_max: usize,
    /// What may come between CONNECT and its answer.
    pub early_bytes_max: usize,
}

/// Filters with wildcards of one connection: each is compared with every message that comes its way.
pub const WILDCARDS_MAX: usize = 100;

/// Messages of a client of MQTT 3.1.1 that are not finished: it cannot be told a receive maximum, and
/// common clients stop at 20 or, without a limit, at what they have to say. At 4 bytes each, 4 KiB.
pub(super) const V3_RECEIVE_MAXIMUM: usize = 1_024;

impl Default for Config {
    fn default() -> Self {
        Self {
            anonymous: false,
            packet_bytes_max: 64 << 10,
            // What a client library keeps in flight by itself is 10 to 20.
            receive_maximum: 64,
            topic_alias_maximum: 16,
            // Common clients that allow them lose the topic of a QoS 2 message, or leave aliases to their user.
            send_aliases_max: 0,
            // At 20 bytes each, 1.3 KiB of a busy connection.
            in_flight_max: 64,
            // Below the 5 minutes after which common NAT tables forget TCP, once it is multiplied by 1.5.
            keep_alive_max_s: 240,
            // Nothing is kept for longer than a message can live.
            session_expiry_max_s: 28 * 86_400,
            subscriptions_max: limits::TOPICS_PER_DEVICE_MAX,
            early_bytes_max: limits::EARLY_BYTES,
        }
    }
}

impl Config {
    /// What the conformance suites expect of a server that they may not configure.
    pub fn conformance() -> Self {
        Self {
            anonymous: true,
            receive_maximum: 20,
            topic_alias_maximum: 10,
            send_aliases_max: 10,
            // Paho's suite asks for 120 and expects to be told 60 (§3.2.2.3.14).
            keep_alive_max_s: 60,
            ..Self::default()
        }
    }
}

const _: () = assert!(limits::TTL_MAX.as_secs() == 28 * 86_400);
