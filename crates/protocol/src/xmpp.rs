//! XMPP between a device and the service (RFC 6120, RFC 6121), as a document over TCP or framed on a
//! WebSocket (RFC 7395). An account is a device: `device@domain` with its token as password. Notifications
//! are messages, topics are nodes of a PubSub service.
//!
//! ```text
//!   bytes ── xml::Framer ── Input ── Conversation ── Output { bytes, actions }
//!                                      ▲    ▲
//!            answers to the actions ───┘    └── deliver, ping, close
//!   Message ── encode::message ── bytes for every connection of a framing
//! ```
//!
//! Reading order: [`xml`], [`config`], [`action`], [`conversation`]; then [`sasl`] and [`scram`], [`presence`],
//! [`jid`], [`encode`], [`close`].
//!
//! Out of scope: token storage and topic contents. A device has an empty roster and no contacts; [`accounts`]
//! implements more for conformance suites.

pub mod accounts;
pub mod action;
pub mod answer;
pub mod archive;
pub mod close;
pub mod config;
pub mod conversation;
pub mod encode;
pub mod error;
pub mod jid;
mod management;
pub mod namespace;
pub mod presence;
pub mod sasl;
pub mod scram;
pub mod xml;

pub use accounts::Accounts;
pub use action::{Action, Credentials, Delivery, Output, Request, Resumed};
pub use answer::Answer;
pub use archive::{ArchivePage, ArchivePlace, ArchiveQuery, Archived};
pub use config::{Config, Context, Framing, Security};
pub use conversation::{Conversation, resource_of};
pub use error::Refusal;
pub use management::Suspended;
pub use xml::{Framer, Input};
