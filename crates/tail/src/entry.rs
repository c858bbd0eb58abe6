//! One event of a tail, and its JSON: the fields of the event log (docs/events.md) without those of a line, and with devices
//! by their ids instead of their numbers.

use std::sync::Arc;

use noroshi_events::event::{Named, Routed};
use noroshi_events::{Event, Kind, Record, Subject};
use noroshi_types::trace::TraceId;
use noroshi_types::{DeviceNum, Outcome, Timestamp};
use serde::Serialize;

use crate::filter::LISTED_MAX;
use crate::known::Name;

/// An event that a tail shows.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) at: Timestamp,
    /// Without lists of devices.
    event: Event,
    /// The first ones.
    pub(crate) devices: Vec<DeviceNum>,
    count: u64,
}

/// An event as JSON, an object.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    pub(crate) at: Timestamp,
    pub(crate) json: Box<str>,
}

impl Entry {
    pub(crate) fn new(record: &Record, devices: Vec<DeviceNum>, count: u64) -> Self {
        Self { at: record.at, event: light(&record.event), devices, count }
    }

    /// `names`: those of `devices`, as far as they are known and of the same app.
    pub(crate) fn shown(&self, kind: Kind, names: &[Arc<Name>], shows_networks: bool) -> Shown {
        let mut fields = Fields(format!("{{\"at\":\"{}\",\"event\":\"{}\"", self.at, kind.as_str()));
        self.fields(kind, names, shows_networks, &mut fields);
        Shown { at: self.at, json: (fields.0 + "}").into() }
    }

    fn fields(&self, kind: Kind, names: &[Arc<Name>], shows_networks: bool, fields: &mut Fields) {
        match &self.event {
            Event::Accepted(accepted) => {
                fields.push("id", &accepted.id.to_string());
                fields.some("campaign", accepted.campaign.map(|id| id.to_string()));
                fields.push("target", accepted.target);
                fields.some("targets", accepted.targets);
                fields.some("topic", accepted.topic.as_ref().map(|topic| topic.as_str()));
                match &accepted.named {
                    Some(Named::Users(users)) => fields.list("users", users.iter().map(|id| id.as_str())),
                    Some(Named::Devices(devices)) => {
                        fields.list(
                            "devices",
                            devices.iter().map(|id| DeviceBody { id: id.as_str(), user: None }),
                        );
                    }
                    None => {}
                }
                fields.push("when", accepted.when);
                fields.push("push", accepted.push);
                fields.push("urgency", accepted.urgency);
                fields.push("kept", &accepted.kept);
                fields.trace(accepted.trace);
            }
            Event::Routed { id, to, .. } => {
                fields.push("id", &id.to_string());
                fields.push("to", if *to == Routed::Here { "here" } else { "nodes" });
            }
            Event::Outcome { of, outcome, .. } => {
                fields.subject(*of);
                fields.outcome(kind, *outcome);
                self.devices(names, fields);
            }
            Event::PushSent { of, service, trace, .. } => {
                fields.subject(*of);
                fields.push("service", service.as_str());
                fields.trace(trace.id());
                self.devices(names, fields);
            }
            Event::PushAnswered { of, service, outcome, reason, trace, .. } => {
                fields.subject(*of);
                fields.push("service", service.as_str());
                fields.outcome(kind, *outcome);
                fields.some("reason", *reason);
                fields.trace(trace.id());
                self.devices(names, fields);
            }
            Event::Registered(it) => {
                fields.push("device", it.device_id.as_str());
                fields.some("user", it.user.as_ref().map(|user| user.as_str()));
                fields.some("service", it.service.map(|service| service.as_str()));
            }
            Event::Connected(it) => {
                fields.push("device", it.device_id.as_str());
                fields.some("user", it.user.as_ref().map(|user| user.as_str()));
                fields.push("session", &it.session.to_string());
                fields.push("protocol", it.protocol);
            }
            Event::Closed { session, reason, .. } => {
                let name = names.first();
                fields.some("device", name.map(|name| name.id.as_str()));
                fields.some("user", name.and_then(|name| name.user.as_ref()).map(|user| user.as_str()));
                fields.push("session", &session.to_string());
                fields.push("reason", reason.as_str());
            }
            Event::Campaign { campaign, step, .. } => {
                fields.push("campaign", &campaign.to_string());
                fields.push("step", step);
            }
            Event::Exposed(it) => {
                fields.push("device", it.device_id.as_str());
                fields.some("user", it.user.as_ref().map(|user| user.as_str()));
                fields.push("experiment", &it.experiment);
                fields.push("variant", &it.variant);
            }
            Event::Rejected(it) => {
                fields.some("device", it.device_id.as_ref().map(|device| device.as_str()));
                fields.some("user", it.user.as_ref().map(|user| user.as_str()));
                fields.push("protocol", it.protocol);
                fields.push("reason", it.reason);
                fields.push("detail", &it.detail);
                fields.some("network", it.network.as_deref().filter(|_| shows_networks));
                fields.some("suppressed", Some(it.suppressed).filter(|count| *count > 0));
            }
            // No tail shows them (`kinds`); acknowledgements are outcomes here (`state`).
            Event::Started { .. }
            | Event::Lost { .. }
            | Event::Acked { .. }
            | Event::Configured(_)
            | Event::Audited(_) => {}
        }
    }

    fn devices(&self, names: &[Arc<Name>], fields: &mut Fields) {
        fields.push("count", &self.count);
        let body = |name: &'_ Arc<Name>| {
            (name.id.as_str().to_owned(), name.user.as_ref().map(|user| user.as_str().to_owned()))
        };
        let named: Vec<_> = names.iter().map(body).collect();
        let bodies = named.iter().map(|(id, user)| DeviceBody { id, user: user.as_deref() });
        fields.list("devices", bodies);
    }
}

#[derive(Serialize)]
struct DeviceBody<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
}

/// The event without its lists of devices, and with the first named recipients.
fn light(event: &Event) -> Event {
    match event {
        &Event::Outcome { app, of, outcome, .. } => {
            Event::Outcome { app, of, outcome, devices: Box::default(), count: 0 }
        }
        &Event::PushSent { app, of, service, trace, .. } => {
            Event::PushSent { app, of, service, devices: Box::default(), trace }
        }
        &Event::PushAnswered { app, of, service, outcome, reason, trace, .. } => {
            Event::PushAnswered { app, of, service, outcome, reason, devices: Box::default(), trace }
        }
        Event::Accepted(accepted) => {
            let named = match &accepted.named {
                Some(Named::Users(users)) => {
                    Some(Named::Users(users.iter().take(LISTED_MAX).cloned().collect()))
                }
                Some(Named::Devices(devices)) => {
                    Some(Named::Devices(devices.iter().take(LISTED_MAX).cloned().collect()))
                }
                None => None,
            };
            let topic = accepted.topic.clone();
            Event::Accepted(Box::new(noroshi_events::event::Accepted { named, topic, ..**accepted }))
        }
        other => other.clone(),
    }
}

/// An object that is being written.
struct Fields(String);

impl Fields {
    fn push<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        let value = serde_json::to_string(value).expect("texts, numbers and lists of them have a JSON text");
        self.0.push_str(&format!(",\"{name}\":{value}"));
    }

    fn some<T: Serialize>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.push(name, &value);
        }
    }

    fn list<T: Serialize>(&mut self, name: &str, values: impl Iterator<Item = T>) {
        self.push(name, &values.collect::<Vec<_>>());
    }

    fn trace(&mut self, trace: Option<TraceId>) {
        self.some("trace", trace.map(|trace| trace.to_string()));
    }

    fn subject(&mut self, of: Subject) {
        match of {
            Subject::Notification(id) => self.push("id", &id.to_string()),
            Subject::Campaign(campaign) => self.push("campaign", &campaign.to_string()),
            Subject::Several => {}
        }
    }

    fn outcome(&mut self, kind: Kind, outcome: Outcome) {
        match kind {
            Kind::Dropped | Kind::PushSkipped => self.push("why", outcome.as_str()),
            Kind::Expired => self.push("of", if outcome == Outcome::Expired { "inbox" } else { "push" }),
            Kind::PushAnswered | Kind::TokenInvalidated => self.push("result", outcome.as_str()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
