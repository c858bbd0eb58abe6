//! The JSON of a first call: the device as in other responses, and what its app needs to start.

use std::collections::BTreeMap;

use noroshi_delivery::first_call::{Current, ShownNotice};
use noroshi_store::FirstCall;
use serde::Serialize;
use serde_json::value::RawValue;

use super::cache::Inputs;
use crate::address::{Addresses, ConnectBody};
use crate::error::Problem;
use crate::respond::preferences::PreferencesBody;
use crate::respond::{self, device, raw};

#[derive(Serialize)]
struct MeBody<'a> {
    #[serde(flatten)]
    device: device::DeviceBody,
    /// Number of unacknowledged messages.
    inbox: u64,
    /// Number of unread items of the user.
    unread_items: u64,
    preferences: OwnPreferencesBody,
    /// The newest messages, newest first.
    messages: Vec<Box<RawValue>>,
    /// The variants of the device, by experiment.
    experiments: BTreeMap<&'a str, VariantBody<'a>>,
    maintenance: Vec<NoticeBody<'a>>,
    connect: ConnectBody<'a>,
}

/// `null`: there are none.
#[derive(Serialize)]
struct OwnPreferencesBody {
    user: Option<PreferencesBody>,
    device: Option<PreferencesBody>,
}

#[derive(Serialize)]
struct VariantBody<'a> {
    variant: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct NoticeBody<'a> {
    name: &'a str,
    state: &'static str,
    starts_at: String,
    ends_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    notification: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

pub(super) fn encode(
    call: &FirstCall,
    current: &Current,
    inputs: &Inputs,
    addresses: &Addresses,
) -> Result<Vec<u8>, Problem> {
    let device = &call.device;
    let mut experiments = BTreeMap::new();
    for (name, variant) in current.variants_of(device) {
        let body = VariantBody { variant: variant.name.as_str(), data: raw(variant.data.as_ref())? };
        experiments.insert(name.as_str(), body);
    }
    let locale = device.attributes.locale.as_deref();
    let notices = current.notices.iter().map(|notice| notice_body(notice, locale));
    let body = MeBody {
        device: device::with_presence(device.clone(), inputs.presence)?,
        inbox: call.unread,
        unread_items: call.unread_items,
        preferences: OwnPreferencesBody {
            user: call.preferences.user.as_ref().map(PreferencesBody::from),
            device: call.preferences.device.as_ref().map(PreferencesBody::from),
        },
        messages: call.newest.iter().map(|message| respond::message(message)).collect::<Result<_, _>>()?,
        experiments,
        maintenance: notices.collect::<Result<_, _>>()?,
        connect: addresses.connect(&inputs.base),
    };
    serde_json::to_vec(&body).map_err(Problem::internal)
}

fn notice_body<'a>(shown: &'a ShownNotice, locale: Option<&str>) -> Result<NoticeBody<'a>, Problem> {
    let text = shown.notice.text(locale);
    Ok(NoticeBody {
        name: shown.name.as_str(),
        state: shown.state.as_str(),
        starts_at: shown.notice.starts_at.to_string(),
        ends_at: shown.notice.ends_at.to_string(),
        notification: raw(text.notification.as_ref())?,
        data: raw(text.data.as_ref())?,
    })
}
