//! The server side of MQTT 3.1.1 and 5.0, and the parts of the client side that tests and load generators
//! need.
//!
//! ```text
//!   bytes ── Decoder ── Frame ── Conversation::receive ──┬── bytes
//!                                 (Packet::parse)         └── Action, answered by logged_in, published, …
//!   Message ── Outgoing ── Conversation::deliver ── head, and the rest that all connections share
//! ```
//!
//! Reading order: [`Decoder`], [`Packet`], [`Properties`], [`TopicFilter`]; [`Conversation`], [`Action`],
//! [`Outgoing`], [`Publication`]; [`close_codes`]. Only this module knows the reason codes, return codes and
//! topic rules of MQTT. Section numbers refer to MQTT 5 unless another version is named.

mod action;
mod close;
mod config;
mod conversation;
mod flight;
mod frame;
mod outgoing;
mod packet;
mod packet_type;
mod property;
mod publication;
mod reader;
mod reason;
mod subscription;
mod topic;
mod violation;
mod writer;

pub use action::{
    Action, Answer, ConnectionEnd, LogIn, LogInRefused, LoggedIn, OfferedWill, PublishRefused, Saved,
    ServerReference, SubscribeRefused, SubscribeRequest, Subscribed, UnacknowledgedMessage,
    UnsubscribeRequest, Will,
};
pub use close::{CloseCodes, close_codes};
pub use config::{Config, WILDCARDS_MAX};
pub use conversation::{Cause, Conversation, Delivery};
pub use frame::{Decoder, Frame};
pub use outgoing::Outgoing;
pub use packet::{
    Ack, ConnAck, Connect, Filters, LastWill, Notice, Packet, Publish, Qos, RetainHandling, SubAck,
    Subscribe, SubscribeOptions, Version,
};
pub use packet_type::PacketType;
pub use property::{Properties, Property, PropertyList, Value};
pub use publication::{Publication, ShareCopy};
pub use reason::ReasonCode;
pub use subscription::Subscription;
pub use topic::{
    FilterError, INBOX_TOPIC, PRESENCE_TOPIC, TOKEN_TOPIC, TopicFilter, filter_matches, is_topic_name,
    share_filter,
};
pub use violation::Violation;
pub use writer::VAR_INT_MAX;

#[cfg(test)]
mod tests;
