//! One file per resource of the API. A handler extracts its request, calls delivery or the store, and encodes the response.
//! Rules about bodies are in [`crate::body`], errors in [`crate::error`].
//!
//! A handler names the components that it uses in its arguments; it does not know the router's state.

pub(crate) mod activity;
pub(crate) mod app;
mod attempt;
pub(crate) mod audit;
pub(crate) mod batch;
pub(crate) mod campaign;
pub(crate) mod cell;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod console;
pub(crate) mod credential;
pub(crate) mod definition;
pub(crate) mod device;
pub(crate) mod drain;
pub(crate) mod endpoint;
pub(crate) mod experiment;
mod explanation;
pub(crate) mod health;
pub(crate) mod inspection;
pub(crate) mod invalidation;
pub(crate) mod item;
pub(crate) mod listing;
pub(crate) mod me;
pub(crate) mod nodes;
pub(crate) mod notice;
pub(crate) mod notification;
pub(crate) mod openid;
pub(crate) mod page;
pub(crate) mod person;
pub(crate) mod preferences;
pub(crate) mod presence;
pub(crate) mod profile;
pub(crate) mod push_token;
pub(crate) mod queues;
pub(crate) mod quota;
pub(crate) mod relay;
pub(crate) mod series;
pub(crate) mod session;
pub(crate) mod tail;
pub(crate) mod topic;
pub(crate) mod topic_rules;
pub(crate) mod user;
pub(crate) mod web_push;
