//! Limits and options of a node's MQTT connections. Clients of MQTT 5 learn them from CONNACK; clients of
//! 3.1.1 are closed when they exceed one.

use noroshi_types::limits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Accepts clients without a token, as the device that the client identifier names. For conformance
    /// suites only.
    pub anonymous: bool,
    /// Limit of a packet from a client, including its header; also the decoder's limit.
    pub packet_bytes_max: u32,
    /// Limit of unfinished QoS 1 and 2 messages from a client (§3.2.2.3.3); at least 1.
    pub receive_maximum: u16,
    /// Limit of aliases that a client may set (§3.2.2.3.8).
    pub topic_alias_maximum: u16,
    /// Limit of aliases that the server sets for clients that allow them. They save bytes on the wire but
    /// prevent sharing of whole packets.
    pub send_aliases_max: u16,
    /// Limit of unfinished QoS 1 and 2 messages to a client, whatever the client allows; at least 1.
    pub in_flight_max: u16,
    /// A longer keep alive, or none, is reduced to this (§3.2.2.3.14); 0 disables the limit.
    pub keep_alive_max_s: u16,
    /// Limit of the time that a session outlives its connection.
    pub session_expiry_max_s: u32,
    pub subscriptions_max: usize,
    /// Limit of bytes received between CONNECT and its answer.
    pub early_bytes_max: usize,
}

/// Limit of filters with wildcards per connection: each is compared with every message.
pub const WILDCARDS_MAX: usize = 100;

/// Limit of unfinished messages from a client of MQTT 3.1.1, which has no receive maximum: common clients
/// stop at 20 or send without limit. At 4 bytes each, 4 KiB.
pub(super) const V3_RECEIVE_MAXIMUM: usize = 1_024;

impl Default for Config {
    fn default() -> Self {
        Self {
            anonymous: false,
            packet_bytes_max: 64 << 10,
            // Client libraries keep 10 to 20 messages in flight by default.
            receive_maximum: 64,
            topic_alias_maximum: 16,
            // Common clients that allow aliases lose the topic of a QoS 2 message, or leave aliases to their
            // user.
            send_aliases_max: 0,
            // At 20 bytes each, 1.3 KiB per busy connection.
            in_flight_max: 64,
            // When multiplied by 1.5, below the 5 minutes after which common NAT tables drop idle TCP
            // connections.
            keep_alive_max_s: 240,
            // Nothing is kept for longer than a message can live.
            session_expiry_max_s: 28 * 86_400,
            subscriptions_max: limits::TOPICS_PER_DEVICE_MAX,
            early_bytes_max: limits::EARLY_BYTES,
        }
    }
}

impl Config {
    /// The configuration that the conformance suites expect of a server.
    pub fn conformance() -> Self {
        Self {
            anonymous: true,
            receive_maximum: 20,
            topic_alias_maximum: 10,
            send_aliases_max: 10,
            // Paho's suite requests 120 and expects 60 (§3.2.2.3.14).
            keep_alive_max_s: 60,
            ..Self::default()
        }
    }
}

const _: () = assert!(limits::TTL_MAX.as_secs() == 28 * 86_400);
