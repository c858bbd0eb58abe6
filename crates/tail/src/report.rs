//! What nodes tell each other about tails, as JSON: the filter of a tail, and its events of another node.
//!
//! A newer version may add fields and kinds, which this one ignores. Everything is bounded by
//! [`noroshi_delivery::tails::BYTES_MAX`].

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use noroshi_delivery::tails::BYTES_MAX;
use noroshi_events::Kind;
use noroshi_types::{AppId, CampaignId, DeviceId, DeviceNum, NotificationId, Timestamp, Topic, UserId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::entry::Shown;
use crate::filter::{DEVICES_MAX, Filter, Selector};
use crate::kinds;
use crate::queue::{Gaps, Queue};

/// A tail of another node asks for events.
#[derive(Debug, PartialEq)]
pub(crate) struct Ask {
    /// The asking node's number of the tail.
    pub(crate) number: u64,
    /// `None`: the tail has ended.
    pub(crate) selector: Option<Selector>,
}

#[derive(Debug, Serialize, Deserialize)]
struct AskBody {
    number: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<FilterBody>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FilterBody {
    app: u32,
    kinds: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notification: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    campaign: Option<String>,
    #[serde(default)]
    shows_networks: bool,
    devices: Vec<u64>,
}

impl Ask {
    pub(crate) fn encode(&self) -> Bytes {
        let filter = self.selector.as_ref().map(|Selector { filter, devices }| FilterBody {
            app: filter.app.0,
            kinds: filter.kinds.iter().map(|kind| kind.as_str().to_owned()).collect(),
            user: filter.user.as_ref().map(|id| id.as_str().to_owned()),
            device: filter.device.as_ref().map(|id| id.as_str().to_owned()),
            topic: filter.topic.as_ref().map(|topic| topic.as_str().to_owned()),
            notification: filter.notification.map(|id| id.to_string()),
            campaign: filter.campaign.map(|id| id.to_string()),
            shows_networks: filter.shows_networks,
            // 1,000 numbers of at most 20 digits are 21 KB.
            devices: devices.iter().map(|device| device.0).collect(),
        });
        let body = AskBody { number: self.number, filter };
        serde_json::to_vec(&body).expect("texts and numbers have a JSON text").into()
    }

    /// `None`: unreadable, or no kind that this version knows.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let AskBody { number, filter } = serde_json::from_slice(bytes).ok()?;
        let Some(body) = filter else { return Some(Self { number, selector: None }) };
        let filter = Filter {
            app: AppId(body.app),
            kinds: body.kinds.iter().filter_map(|name| kinds::named(name)).collect(),
            user: optional(body.user.as_ref(), |text| UserId::parse(text).ok()).ok()?,
            device: optional(body.device.as_ref(), |text| DeviceId::parse(text).ok()).ok()?,
            topic: optional(body.topic.as_ref(), |text| Topic::parse(text).ok()).ok()?,
            notification: optional(body.notification.as_ref(), |text| NotificationId::parse(text).ok())
                .ok()?,
            campaign: optional(body.campaign.as_ref(), |text| CampaignId::parse(text).ok()).ok()?,
            shows_networks: body.shows_networks,
        };
        let devices: HashSet<_> = body.devices.into_iter().take(DEVICES_MAX).map(DeviceNum).collect();
        (!filter.kinds.is_empty()).then_some(Self { number, selector: Some(Selector { filter, devices }) })
    }
}

/// A condition that cannot be read must not be dropped: the tail would show too much.
fn optional<T>(text: Option<&String>, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Unreadable> {
    text.map(|text| parse(text).ok_or(Unreadable)).transpose()
}

struct Unreadable;

/// Events of a node for a tail of another.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) number: u64,
    /// From 0, for each tail: a report that was lost leaves a gap.
    pub(crate) sequence: u64,
    pub(crate) queue: Queue<Shown>,
}

#[derive(Serialize, Deserialize)]
struct ReportBody {
    number: u64,
    sequence: u64,
    omitted: BTreeMap<String, u64>,
    gaps: Vec<String>,
    events: Vec<(u64, String, Box<RawValue>)>,
}

impl Report {
    /// Leaves out events that would make it too long, and counts them.
    pub(crate) fn encode(mut self) -> Bytes {
        let mut omitted = std::mem::take(&mut self.queue.omitted);
        let gaps = self.queue.gaps.names().map(str::to_owned).collect();
        let mut events = Vec::new();
        // The names and counts of all kinds, and the rest of the body.
        let mut bytes = 2_048;
        for (kind, Shown { at, json }) in self.queue.into_events() {
            let more = json.len() + 64;
            match RawValue::from_string(json.into()).ok().filter(|_| bytes + more <= BYTES_MAX) {
                Some(json) => {
                    bytes += more;
                    events.push((at.0, kind.as_str().to_owned(), json));
                }
                None => omitted.add(kind, 1),
            }
        }
        let omitted = omitted.named().map(|(name, count)| (name.to_owned(), count)).collect();
        let Self { number, sequence, .. } = self;
        let body = ReportBody { number, sequence, omitted, gaps, events };
        serde_json::to_vec(&body).expect("texts and numbers have a JSON text").into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let ReportBody { number, sequence, omitted, gaps, events } = serde_json::from_slice(bytes).ok()?;
        let mut queue = Queue::default();
        for (at, name, json) in events {
            let Some(kind) = kinds::named(&name).filter(|_| is_event(json.get())) else { continue };
            queue.push(kind, || Shown { at: Timestamp(at), json: json.get().into() });
        }
        let counts = omitted.iter().filter_map(|(name, count)| Some((kinds::named(name)?, *count)));
        counts.for_each(|(kind, count): (Kind, u64)| queue.omitted.add(kind, count));
        queue.gaps = Gaps::of_names(gaps.iter().map(String::as_str));
        Some(Self { number, sequence, queue })
    }
}

/// Whether a viewer can be sent the JSON value: a line of an event stream that holds an object with a field.
fn is_event(json: &str) -> bool {
    json.starts_with("{\"") && !json.contains(['\n', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_survives_the_way_to_another_node() {
        let filter = Filter {
            kinds: [Kind::Written, Kind::Rejected].into_iter().collect(),
            user: UserId::parse("ann \"1\"").ok(),
            device: DeviceId::parse("phone").ok(),
            topic: Topic::parse("news/€").ok(),
            notification: Some(NotificationId::from_bytes([1; 16])),
            campaign: Some(CampaignId::from_bytes([2; 16])),
            shows_networks: true,
            ..Filter::of(AppId(7))
        };
        let devices = (0..DEVICES_MAX as u64).map(|number| DeviceNum(u64::MAX - number)).collect();
        let ask = Ask { number: 5, selector: Some(Selector { filter, devices }) };
        let bytes = ask.encode();
        assert!(bytes.len() <= BYTES_MAX, "{}", bytes.len());
        assert_eq!(Ask::decode(&bytes), Some(ask));
        let end = Ask { number: 5, selector: None };
        assert_eq!(Ask::decode(&end.encode()), Some(end));
    }

    #[test]
    fn a_filter_that_cannot_be_read_shows_nothing() {
        for body in [
            r#"{"number":1,"filter":{"app":1,"kinds":["newer"],"devices":[]}}"#,
            r#"{"number":1,"filter":{"app":1,"kinds":["written"],"user":"","devices":[]}}"#,
            r#"{"number":1,"filter":{"app":1,"kinds":["written"],"topic":"a/#","devices":[]}}"#,
            "[]",
        ] {
            assert_eq!(Ask::decode(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn a_report_is_bounded_and_states_what_it_leaves_out() {
        let mut queue = Queue::default();
        let json: Box<str> = format!("{{\"text\":\"{}\"}}", "x".repeat(4_000)).into();
        for number in 0..25 {
            queue.push(Kind::Written, || Shown { at: Timestamp(number), json: json.clone() });
        }
        queue.omitted.add(Kind::Acked, 9);
        queue.gaps.add(Gaps::LOST);
        let bytes = Report { number: 3, sequence: 1, queue }.encode();
        assert!(bytes.len() <= BYTES_MAX, "{}", bytes.len());
        let report = Report::decode(&bytes).expect("a report");
        assert_eq!((report.number, report.sequence), (3, 1));
        let shown = report.queue.events().len() as u64;
        assert!(shown > 5);
        assert!(report.queue.omitted.named().eq([("written", 25 - shown), ("acked", 9)]));
        assert_eq!(report.queue.gaps, Gaps::LOST);
    }

    #[test]
    fn a_report_cannot_break_the_stream_of_a_viewer() {
        let event = |json: &str| format!("[1,\"written\",{json}]");
        let events = ["{}", "{\n\"a\":1}", "[1]", "\"{\"", "{\"a\":1}"].map(event).join(",");
        let body = format!(
            "{{\"number\":1,\"sequence\":0,\"omitted\":{{\"acked\":18446744073709551615,\"newer\":1}},\"gaps\":[],\"events\":[{events}]}}"
        );
        let mut report = Report::decode(body.as_bytes()).expect("a report");
        let shown: Vec<&str> = report.queue.events().iter().map(|(_, shown)| &*shown.json).collect();
        assert_eq!(shown, ["{\"a\":1}"]);
        report.queue.omitted.add(Kind::Acked, 1);
        assert_eq!(report.queue.omitted.sum(), u64::MAX);
    }
}
