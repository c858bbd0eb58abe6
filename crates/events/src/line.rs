//! The format of events: one line of JSON each (docs/events.md). Pure: the time is in the record.
//!
//! The common fields come first and in the same order, so that a reader can tell lines apart early. Devices with the
//! same outcome share a line, at most [`DEVICES_MAX`] of them, so that a line fits every sink.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::Arc;

use noroshi_types::trace::TraceId;
use noroshi_types::{AppId, DeviceId, DeviceNum, NotificationId, Outcome, Timestamp, UserId};

use crate::event::{
    Accepted, Audited, Configured, Connected, Event, Exposed, Kind, Record, Registered, Rejected, Routed,
    Subject,
};

/// The version of the schema, `v` of each line. A version may gain fields; readers ignore unknown ones.
pub const SCHEMA: u32 = 1;

/// Devices per line: 1,000 numbers of at most 20 digits are 21 KB, far below any sink's limit.
pub const DEVICES_MAX: usize = 1_000;

/// Returns an app's name, if it is known.
pub type Names = Arc<dyn Fn(AppId) -> Option<String> + Send + Sync>;

/// Writes and numbers lines.
pub struct Writer {
    names: Names,
    /// A cache of app names.
    known: HashMap<AppId, String>,
    /// `","node":"…","run":…,"n":`, the same in every line.
    middle: Vec<u8>,
    /// The number of the next line: lines of (node, run) are numbered from 1 without a gap.
    next: u64,
    /// The second that `second_text` shows, with its `T` and without a fraction.
    second: u64,
    second_text: String,
}

impl Writer {
    /// `run` identifies the start of the node.
    pub fn new(node: &str, run: Timestamp, names: Names) -> Self {
        let mut middle = b"\",\"node\":".to_vec();
        push_text(&mut middle, node);
        middle.extend_from_slice(b",\"run\":");
        push_number(&mut middle, run.0);
        middle.extend_from_slice(b",\"n\":");
        Self { names, known: HashMap::new(), middle, next: 1, second: u64::MAX, second_text: String::new() }
    }

    /// Appends the lines of a record. Returns how many there are, by kind.
    pub fn write(&mut self, record: &Record, out: &mut Vec<u8>, mut count: impl FnMut(Kind)) {
        let at = record.at;
        match &record.event {
            Event::Outcome { of, outcome, devices, count: all, .. } => {
                let unknown = all.saturating_sub(devices.len() as u64);
                let kind = Kind::of_outcome(*outcome);
                self.each(devices, unknown, |writer, devices, all| {
                    writer.begin(at, kind, out);
                    push_subject(out, *of);
                    push_outcome(out, kind, *outcome);
                    push_devices(out, devices, all);
                    count(kind);
                });
            }
            Event::Acked { acked, .. } => {
                for acked in acked.chunk_by(|a, b| a.0 == b.0) {
                    let devices: Vec<DeviceNum> = acked.iter().map(|(_, device)| *device).collect();
                    self.each(&devices, 0, |writer, devices, all| {
                        writer.begin(at, Kind::Acked, out);
                        push_id(out, acked[0].0);
                        push_devices(out, devices, all);
                        count(Kind::Acked);
                    });
                }
            }
            Event::PushSent { of, service, devices, trace, .. } => {
                self.each(devices, 0, |writer, devices, all| {
                    writer.begin(at, Kind::PushSent, out);
                    push_subject(out, *of);
                    push_field(out, "service", service.as_str());
                    push_trace(out, trace.id());
                    push_devices(out, devices, all);
                    count(Kind::PushSent);
                })
            }
            Event::PushAnswered { of, service, outcome, reason, devices, trace, .. } => {
                let invalid = matches!(outcome, Outcome::PushTokenGone | Outcome::PushTokenSuspect);
                let kinds = [Some(Kind::of_outcome(*outcome)), invalid.then_some(Kind::TokenInvalidated)];
                for kind in kinds.into_iter().flatten() {
                    self.each(devices, 0, |writer, devices, all| {
                        writer.begin(at, kind, out);
                        push_subject(out, *of);
                        push_field(out, "service", service.as_str());
                        push_outcome(out, kind, *outcome);
                        if let Some(reason) = reason {
                            push_field(out, "reason", reason);
                        }
                        push_trace(out, trace.id());
                        push_devices(out, devices, all);
                        count(kind);
                    });
                }
            }
            other => count(self.single(at, other, out)),
        }
    }

    /// Writes a record that is one line.
    fn single(&mut self, at: Timestamp, event: &Event, out: &mut Vec<u8>) -> Kind {
        let kind = match event {
            Event::Started { .. } => Kind::Started,
            Event::Lost { .. } => Kind::Lost,
            Event::Accepted(_) => Kind::Accepted,
            Event::Routed { .. } => Kind::Routed,
            Event::Registered(_) => Kind::Registered,
            Event::Connected(_) => Kind::Connected,
            Event::Closed { .. } => Kind::Closed,
            Event::Campaign { .. } => Kind::Campaign,
            Event::Exposed(_) => Kind::Exposed,
            Event::Audited(_) => Kind::Audited,
            Event::Rejected(_) => Kind::Rejected,
            _ => Kind::Configured,
        };
        self.begin(at, kind, out);
        match event {
            Event::Started { version } => push_field(out, "version", version),
            Event::Lost { count } => push_count(out, "count", *count),
            Event::Accepted(accepted) => self.accepted(accepted, out),
            Event::Routed { id, to, .. } => {
                push_id(out, *id);
                push_field(out, "to", if *to == Routed::Here { "here" } else { "nodes" });
            }
            Event::Registered(registered) => self.registered(registered, out),
            Event::Connected(connected) => self.connected(connected, out),
            Event::Closed { device, session, reason, .. } => {
                push_count(out, "device", device.0);
                push_display(out, "session", session);
                push_field(out, "reason", reason.as_str());
            }
            Event::Campaign { app, campaign, step } => {
                self.push_app(out, *app);
                push_display(out, "campaign", campaign);
                push_field(out, "step", step);
            }
            Event::Configured(configured) => self.configured(configured, out),
            Event::Exposed(exposed) => self.exposed(exposed, out),
            Event::Audited(audited) => self.audited(audited, out),
            Event::Rejected(rejected) => self.rejected(rejected, out),
            // `write` splits them into lines by device.
            Event::Outcome { .. }
            | Event::Acked { .. }
            | Event::PushSent { .. }
            | Event::PushAnswered { .. } => {}
        }
        out.extend_from_slice(b"}\n");
        kind
    }

    fn accepted(&mut self, accepted: &Accepted, out: &mut Vec<u8>) {
        self.push_app(out, accepted.app);
        push_id(out, accepted.id);
        if let Some(campaign) = accepted.campaign {
            push_display(out, "campaign", &campaign);
        }
        push_field(out, "target", accepted.target);
        if let Some(targets) = accepted.targets {
            push_count(out, "targets", targets);
        }
        if let Some(topic) = &accepted.topic {
            push_field(out, "topic", topic.as_str());
        }
        push_field(out, "when", accepted.when);
        push_field(out, "push", accepted.push);
        push_field(out, "urgency", accepted.urgency);
        push_count(out, "kept", accepted.kept);
        push_trace(out, accepted.trace);
    }

    fn registered(&mut self, registered: &Registered, out: &mut Vec<u8>) {
        let Registered { app, device, device_id, user, service } = registered;
        self.push_device(out, *app, *device, (device_id, user.as_ref()));
        if let Some(service) = service {
            push_field(out, "service", service.as_str());
        }
    }

    fn connected(&mut self, connected: &Connected, out: &mut Vec<u8>) {
        let Connected { app, device, device_id, user, .. } = connected;
        self.push_device(out, *app, *device, (device_id, user.as_ref()));
        push_display(out, "session", &connected.session);
        push_field(out, "protocol", connected.protocol);
    }

    fn push_device(
        &mut self,
        out: &mut Vec<u8>,
        app: AppId,
        device: DeviceNum,
        (device_id, user): (&DeviceId, Option<&UserId>),
    ) {
        self.push_app(out, app);
        push_count(out, "device", device.0);
        push_field(out, "device_id", device_id.as_str());
        if let Some(user) = user {
            push_field(out, "user", user.as_str());
        }
    }

    fn configured(&mut self, configured: &Configured, out: &mut Vec<u8>) {
        if let Some(app) = configured.app {
            self.push_app(out, app);
        }
        push_field(out, "what", configured.what);
        push_field(out, "change", configured.change);
        if let Some(name) = &configured.name {
            push_field(out, "name", name);
        }
    }

    fn exposed(&mut self, exposed: &Exposed, out: &mut Vec<u8>) {
        self.push_app(out, exposed.app);
        push_field(out, "device_id", exposed.device_id.as_str());
        if let Some(user) = &exposed.user {
            push_field(out, "user", user.as_str());
        }
        push_field(out, "experiment", &exposed.experiment);
        push_field(out, "variant", &exposed.variant);
    }

    fn audited(&mut self, audited: &Audited, out: &mut Vec<u8>) {
        if let Some(app) = audited.app {
            self.push_app(out, app);
        }
        push_field(out, "by", audited.by);
        if let Some(who) = &audited.who {
            push_field(out, "who", who);
        }
        push_field(out, "action", &audited.action);
        push_field(out, "target", &audited.target);
        for (name, value) in [("before", &audited.before), ("after", &audited.after)] {
            if let Some(value) = value {
                push_name(out, name);
                out.extend_from_slice(value.as_bytes());
            }
        }
        push_field(out, "address", &audited.address);
        push_field(out, "request", &audited.request);
    }

    fn rejected(&mut self, rejected: &Rejected, out: &mut Vec<u8>) {
        if let Some(app) = rejected.app {
            self.push_app(out, app);
        }
        if let Some(device) = &rejected.device_id {
            push_field(out, "device_id", device.as_str());
        }
        if let Some(user) = &rejected.user {
            push_field(out, "user", user.as_str());
        }
        push_field(out, "protocol", rejected.protocol);
        push_field(out, "reason", rejected.reason);
        push_field(out, "detail", &rejected.detail);
        if let Some(network) = &rejected.network {
            push_field(out, "network", network);
        }
        if rejected.suppressed > 0 {
            push_count(out, "suppressed", rejected.suppressed);
        }
    }

    /// Calls `line` for each line: its devices, and its count. Unknown devices count in the first line.
    fn each(
        &mut self,
        devices: &[DeviceNum],
        mut unknown: u64,
        mut line: impl FnMut(&mut Self, &[DeviceNum], u64),
    ) {
        if devices.is_empty() {
            return line(self, devices, unknown);
        }
        for devices in devices.chunks(DEVICES_MAX) {
            line(self, devices, devices.len() as u64 + std::mem::take(&mut unknown));
        }
    }

    fn begin(&mut self, at: Timestamp, kind: Kind, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"v\":1,\"at\":\"");
        self.push_time(out, at);
        out.extend_from_slice(&self.middle);
        push_number(out, self.next);
        self.next += 1;
        out.extend_from_slice(b",\"event\":\"");
        out.extend_from_slice(kind.as_str().as_bytes());
        out.push(b'"');
    }

    /// RFC 3339 in UTC with milliseconds; the calendar is computed once a second.
    fn push_time(&mut self, out: &mut Vec<u8>, at: Timestamp) {
        if at.0 / 1_000 != self.second {
            self.second = at.0 / 1_000;
            self.second_text = at.to_string();
            // "2026-11-22T17:00:00.123Z" without ".123Z".
            self.second_text.truncate(self.second_text.len().saturating_sub(5));
        }
        out.extend_from_slice(self.second_text.as_bytes());
        let ms = at.0 % 1_000;
        let digit = |value: u64| b'0' + u8::try_from(value % 10).unwrap_or(0);
        out.extend_from_slice(&[b'.', digit(ms / 100), digit(ms / 10), digit(ms), b'Z']);
    }

    fn push_app(&mut self, out: &mut Vec<u8>, app: AppId) {
        if !self.known.contains_key(&app)
            && let Some(name) = (self.names)(app)
        {
            self.known.insert(app, name);
        }
        match self.known.get(&app) {
            Some(name) => push_field(out, "app", name),
            None => push_count(out, "app_number", u64::from(app.0)),
        }
    }
}

fn push_subject(out: &mut Vec<u8>, of: Subject) {
    match of {
        Subject::Notification(id) => push_id(out, id),
        Subject::Campaign(campaign) => push_display(out, "campaign", &campaign),
        Subject::Several => {}
    }
}

fn push_outcome(out: &mut Vec<u8>, kind: Kind, outcome: Outcome) {
    match kind {
        Kind::Dropped | Kind::PushSkipped => push_field(out, "why", outcome.as_str()),
        Kind::Expired => push_field(out, "of", if outcome == Outcome::Expired { "inbox" } else { "push" }),
        Kind::PushAnswered | Kind::TokenInvalidated => push_field(out, "result", outcome.as_str()),
        _ => {}
    }
}

fn push_devices(out: &mut Vec<u8>, devices: &[DeviceNum], count: u64) {
    push_count(out, "count", count);
    out.extend_from_slice(b",\"devices\":[");
    for (index, device) in devices.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_number(out, device.0);
    }
    out.extend_from_slice(b"]}\n");
}

fn push_id(out: &mut Vec<u8>, id: NotificationId) {
    let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
    let text = id.0.hyphenated().encode_lower(&mut text);
    out.extend_from_slice(b",\"id\":\"");
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

fn push_trace(out: &mut Vec<u8>, trace: Option<TraceId>) {
    if let Some(trace) = trace {
        push_display(out, "trace", &trace);
    }
}

fn push_field(out: &mut Vec<u8>, name: &str, value: &str) {
    push_name(out, name);
    push_text(out, value);
}

fn push_count(out: &mut Vec<u8>, name: &str, value: u64) {
    push_name(out, name);
    push_number(out, value);
}

/// A value whose text needs no escapes in JSON.
fn push_display(out: &mut Vec<u8>, name: &str, value: &dyn std::fmt::Display) {
    push_name(out, name);
    // Writing to a vector cannot fail.
    let _ = write!(out, "\"{value}\"");
}

fn push_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn push_number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    // Writing to a vector cannot fail, and a string is always JSON.
    let _ = serde_json::to_writer(out, text);
}

#[cfg(test)]
mod tests;
