#![doc = include_str!("../README.md")]

mod activities;
mod app;
mod batch;
mod campaigns;
mod client;
mod devices;
mod error;
mod http;
mod jwt;
mod notifications;
mod open_enum;
mod pages;
mod request;
mod retry;
mod retry_after;
pub mod types;
pub mod webhook;
mod wire;

#[cfg(test)]
mod tests;

pub use rustls;

pub use app::App;
pub use batch::{Batch, Line, UploadedRecipient};
pub use client::{Builder, Client};
pub use error::{Error, NoAnswer, Refused};
pub use jwt::{DeviceClaims, SignError, Signer};
pub use pages::Pages;
pub use request::Request;
pub use types::{
    Code, DeviceRegistration, NewCampaign, NewItem, Notification, Push, Receipt, Registered, Shown, To,
};
pub use webhook::Webhook;
