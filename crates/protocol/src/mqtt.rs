//! MQTT 3.1.1 and 5.0, the server's side (and what tests and load generators need of a client's).
//!
//! ```text
//!   bytes ── Decoder ── Frame ── Conversation::receive ──┬── bytes
//!                                 (Packet::parse)         └── Action, answered by logged_in, published, …
//!   Message ── Outgoing ── Conversation::deliver ── head, and the rest that all connections share
//! ```
//!
//! Reading order: [`Decoder`], [`Packet`], [`Properties`], [`TopicFilter`]; [`Conversation`], [`Action`],
//! [`Outgoing`], [`Publication`]; [`last_word`]. Reason codes, return codes and topic rules of MQTT are known
//! here and nowhere else. Section numbers are those of MQTT 5 where no other version is named.

mod action;
mod close;
mod config;
mod conversation;
mod flight;
mod frame;
mod outgoing;
mod packet;
mod property;
mod publication;
mod reader;
mod reason;
mod subscription;
mod topic;
mod violation;
mod writer;

pub use action::{
    Action, Answer, LogIn, LogInRefused, LoggedIn, OfferedWill, Owed, Parting, PublishRefused, Saved,
    ServerReference, SubscribeRefused, SubscribeRequest, Subscribed, UnsubscribeRequest, Will,
};
pub use close::{LastWord, last_word};
pub use config::{Config, WILDCARDS_MAX};
pub use conversation::{Cause, Conversation, Delivery};
pub use frame::{Decoder, Frame, PacketType, VAR_INT_MAX};
pub use outgoing::Outgoing;
pub use packet::{
    Ack, Auth, ConnAck, Connect, Disconnect, Filters, LastWill, Packet, Publish, Qos, RetainHandling, SubAck,
    Subscribe, SubscribeOptions, Unsubscribe, Version,
};
pub use property::{Properties, Property, PropertyList, Value};
pub use publication::{Publication, ShareCopy};
pub use reason::ReasonCode;
pub use subscription::Subscription;
pub use topic::{
    FilterError, INBOX_TOPIC, PRESENCE_TOPIC, TOKEN_TOPIC, TopicFilter, filter_matches, is_topic_name,
    share_filter,
};
pub use violation::Violation;

#[cfg(test)]
mod tests;
