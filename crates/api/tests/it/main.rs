//! The API as seen by clients: routers, a real store, a recording edge.

mod app;
mod batch;
mod campaign;
mod coding;
mod connection;
mod consumer;
mod device;
mod document;
mod drain;
mod experiment;
mod first_call;
mod http2;
mod http2_frames;
mod nodes;
mod notification;
mod profile;
mod push;
mod quota;
mod refusal;
mod relay;
mod service;
mod tenant;
mod topic;
mod topic_rules;
mod trace;
mod web_push;
