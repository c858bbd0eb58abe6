#![doc = include_str!("../README.md")]

mod client;
mod clock;
mod delivery;
mod device;
mod error;
mod event;
mod http;
mod items;
mod message;
mod open_enum;
mod pages;
mod presence;
mod protocol;
mod reports;
mod retry_after;
mod shared;
mod socket;
mod state;
mod stream;
mod throttle;
mod token;
pub mod types;
mod wire;

#[cfg(test)]
mod tests;

pub use rustls;

pub use client::{Builder, Client, Events, Subscribe};
pub use delivery::Delivery;
pub use error::{BoxError, Code, Error};
pub use event::{Denied, Event, ItemsEvent, Recovered};
pub use items::{ItemsQuery, Which};
pub use message::{Message, Position};
pub use pages::Pages;
pub use presence::PresenceMode;
pub use protocol::Acknowledge;
pub use reports::{FileReports, ReportStore};
pub use state::{Reason, State, Transport};
pub use token::{TokenError, TokenReason, TokenRequest};
