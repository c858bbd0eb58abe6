//! What devices get of an activity's state: pushes for iOS over APNs and FCM, data messages for Android, and the message
//! for connected devices. Pure.
//!
//! | | |
//! |---|---|
//! | iOS, no activity yet | `event: start` to the token that starts activities, with the attributes |
//! | iOS, with the activity's token | `event: update` or `end` |
//! | iOS over FCM | the same payload in `apns`, with `live_activity_token` next to it |
//! | Android | a data message whose values are texts; the app shows the progress |
//!
//! The attributes have the id as `noroshiActivity`: an app that was started by a push finds it there, and names the
//! token of its activity with it. Sources: Apple's "Starting and updating Live Activities with ActivityKit push
//! notifications", FCM's "Live Activities", Android's `Notification.ProgressStyle`.

use std::time::Duration;

use noroshi_push::{ActivityAlert, ActivityEvent, ActivityUpdate, Fields};
use noroshi_types::{ActivityId, JsonText, OwnFields, PushService, Timestamp, TokenKind, Urgency};
use serde_json::{Map, Value, json};

use super::spec::{Spec, State};

/// The field of the attributes that has the activity's id.
pub const ID_ATTRIBUTE: &str = "noroshiActivity";

/// How long FCM keeps a quick update for a device that is offline.
const QUICK_TTL: Duration = Duration::from_secs(60);

/// A push service may deliver the end of an activity for as long as iOS shows it.
const END_TTL: Duration = Duration::from_secs(4 * 3_600);

/// One version of an activity, for devices that have at most version `has`; 0: none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version<'a> {
    pub(crate) id: &'a ActivityId,
    pub(crate) spec: &'a Spec,
    pub(crate) state: &'a State,
    pub(crate) version: u64,
    pub(crate) has: u64,
    pub(crate) expires_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
}

/// What a device gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// Starts the activity on iOS.
    Start,
    /// Updates or ends it on iOS.
    Update,
    /// Everything on Android; `true` for a device that has had nothing yet.
    Android(bool),
}

impl Version<'_> {
    /// Coalescing must not swallow an alert or a priority: a device gets those of every version that it has not had.
    fn is_urgent(&self) -> bool {
        self.state.urgent_version > self.has
    }

    fn alert(&self) -> Option<ActivityAlert> {
        let alert = self.state.alert.as_ref().filter(|_| self.state.alert_version > self.has)?;
        Some(ActivityAlert {
            title: alert.title.clone(),
            body: alert.body.clone(),
            sound: alert.sound.clone(),
        })
    }

    fn event(&self) -> &'static str {
        match (self.ended_at, self.has) {
            (Some(_), _) => "end",
            (None, 0) if self.version == 1 => "start",
            (None, _) => "update",
        }
    }

    fn priority(&self, form: Form) -> &'static str {
        if self.is_urgent() || form == Form::Start { "10" } else { "5" }
    }

    /// The payload of ActivityKit.
    fn aps(&self, form: Form) -> Value {
        let state = self.state;
        let update = ActivityUpdate {
            event: if self.ended_at.is_some() { ActivityEvent::End } else { ActivityEvent::Update },
            timestamp: state.at(),
            content_state: state.content.clone(),
            stale_at: state.stale_at().filter(|_| self.ended_at.is_none()),
            dismiss_at: state.dismiss_at(),
            relevance: state.relevance.clone(),
            alert: self.alert(),
        };
        let mut aps = update.aps();
        if form == Form::Start {
            aps.insert("event".to_owned(), "start".into());
            aps.insert("attributes-type".to_owned(), self.spec.attributes_type.clone().into());
            aps.insert("attributes".to_owned(), self.attributes());
            // The device reports the token of the activity.
            aps.insert("input-push-token".to_owned(), 1.into());
        }
        Value::Object(aps)
    }

    fn attributes(&self) -> Value {
        let text = self.spec.attributes.as_ref().map_or("{}", JsonText::as_str);
        let mut attributes: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        attributes.entry(ID_ATTRIBUTE).or_insert_with(|| self.id.as_str().into());
        Value::Object(attributes)
    }

    /// For APNs, and the data message for Android.
    pub(crate) fn fields(&self, form: Form) -> Fields {
        let expires_at = self.expires_at();
        let empty = Fields {
            notification_id: None,
            notification: None,
            data: None,
            urgency: if self.is_urgent() { Urgency::High } else { Urgency::Normal },
            // FCM delays messages with a collapse key that follow each other, and ActivityKit keeps the newest anyway.
            collapse_key: None,
            expires_at,
            kind: None,
            unread: None,
            own: OwnFields::default(),
        };
        let apns = json!({
            "headers": {"apns-priority": self.priority(form)},
            "payload": {"aps": self.aps(form)},
        });
        match form {
            Form::Start => Fields {
                kind: Some(TokenKind::LiveActivityStart),
                own: own(PushService::Apns, &apns),
                ..empty
            },
            Form::Update => {
                Fields { kind: Some(TokenKind::LiveActivity), own: own(PushService::Apns, &apns), ..empty }
            }
            Form::Android(first) => {
                let quick = self.state.quick && !self.is_urgent() && self.ended_at.is_none();
                let until = self.state.at().saturating_add(QUICK_TTL);
                Fields {
                    kind: Some(TokenKind::Fcm),
                    data: json_text(&Value::Object(self.data(first))),
                    expires_at: if quick { expires_at.min(until) } else { expires_at },
                    ..empty
                }
            }
        }
    }

    /// For iOS over FCM: the message of one device, whose token ActivityKit issued.
    pub(crate) fn fcm_fields(&self, form: Form, token: &str) -> Fields {
        let mut aps = self.aps(form);
        // Not a push that wakes the app in the background.
        aps["content-available"] = Value::Null;
        let fcm = json!({"apns": {
            "live_activity_token": token,
            "headers": {"apns-priority": self.priority(form), "apns-push-type": "liveactivity"},
            "payload": {"aps": aps},
        }});
        Fields { kind: Some(TokenKind::Fcm), own: own(PushService::Fcm, &fcm), ..self.fields(form) }
    }

    /// For Android: FCM carries texts only.
    fn data(&self, first: bool) -> Map<String, Value> {
        let mut data = Map::new();
        let mut insert = |name: &str, value: String| drop(data.insert(name.to_owned(), Value::String(value)));
        let event = if first && self.ended_at.is_none() { "start" } else { self.event() };
        insert("noroshi_activity", self.id.to_string());
        insert("noroshi_event", event.to_owned());
        insert("noroshi_version", self.version.to_string());
        insert("noroshi_timestamp", self.state.at().0.to_string());
        if let Some(content) = &self.state.content {
            insert("noroshi_state", content.as_str().to_owned());
        }
        if let Some(android) = &self.state.android {
            insert("noroshi_progress", android.as_str().to_owned());
        }
        if event == "start" {
            insert("noroshi_attributes_type", self.spec.attributes_type.clone());
            insert("noroshi_attributes", self.attributes().to_string());
        }
        if let Some(at) = self.state.stale_at() {
            insert("noroshi_stale_at", at.0.to_string());
        }
        if let Some(at) = self.state.dismiss_at() {
            insert("noroshi_dismiss_at", at.0.to_string());
        }
        if let Some(alert) = self.state.alert.as_ref().filter(|_| self.state.alert_version > self.has) {
            insert("noroshi_alert", serde_json::to_string(alert).unwrap_or_default());
        }
        data
    }

    pub(crate) fn expires_at(&self) -> Timestamp {
        self.ended_at.map_or(self.expires_at, |at| at.saturating_add(END_TTL))
    }

    /// The data of the message for connected devices.
    pub(crate) fn live(&self) -> JsonText {
        let parse = |text: &JsonText| serde_json::from_str::<Value>(text.as_str()).unwrap_or_default();
        let mut activity = Map::new();
        let mut insert = |name: &str, value: Value| drop(activity.insert(name.to_owned(), value));
        let event = if self.version == 1 { "start" } else { self.event() };
        insert("id", self.id.as_str().into());
        insert("event", event.into());
        insert("version", self.version.into());
        insert("timestamp", self.state.at().to_string().into());
        if event == "start" {
            insert("attributes_type", self.spec.attributes_type.clone().into());
            insert("attributes", self.attributes());
        }
        insert("content_state", self.state.content.as_ref().map(parse).unwrap_or_default());
        if let Some(android) = &self.state.android {
            insert("android", parse(android));
        }
        if let Some(at) = self.state.stale_at() {
            insert("stale_date", at.to_string().into());
        }
        if let Some(at) = self.state.dismiss_at() {
            insert("dismissal_date", at.to_string().into());
        }
        if let Some(relevance) = &self.state.relevance {
            insert("relevance", Value::Number(relevance.clone()));
        }
        JsonText::from_valid(json!({"activity": activity}).to_string())
    }

    /// The notification of the message for connected devices: the alert of this version.
    pub(crate) fn shown(&self) -> Option<JsonText> {
        let alert = self.state.alert.as_ref().filter(|_| self.state.alert_version == self.version)?;
        json_text(&serde_json::to_value(alert).unwrap_or_default())
    }
}

/// The fields of one push service.
fn own(service: PushService, fields: &Value) -> OwnFields {
    json_text(fields).into_iter().map(|fields| (service, fields)).collect()
}

fn json_text(value: &Value) -> Option<JsonText> {
    Some(JsonText::from_valid(value.to_string()))
}

#[cfg(test)]
mod tests {
    use noroshi_push::check_content;
    use noroshi_types::When;

    use super::super::spec::{Alert, Update};
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(1_800_000_000_000 + seconds * 1_000)
    }

    fn text(json: &str) -> Option<JsonText> {
        Some(JsonText::from_valid(json))
    }

    fn spec() -> Spec {
        Spec {
            attributes_type: "MatchAttributes".to_owned(),
            attributes: text(r#"{"home":"A"}"#),
            when: When::Connected,
            ios_via: None,
            frequent_updates: false,
            named: false,
        }
    }

    fn first() -> State {
        State::new(
            Update {
                content: text(r#"{"score":"0:0"}"#),
                stale_at: Some(Some(at(60))),
                android: text(r#"{"progress":{"value":1,"max":90}}"#),
                alert: Some(Alert { title: Some("Kick-off".to_owned()), ..Alert::default() }),
                ..Update::default()
            },
            at(0),
        )
    }

    fn version<'a>(
        id: &'a ActivityId,
        spec: &'a Spec,
        state: &'a State,
        (version, has): (u64, u64),
    ) -> Version<'a> {
        Version { id, spec, state, version, has, expires_at: at(3_600), ended_at: None }
    }

    fn json_of(text: Option<&JsonText>) -> Value {
        serde_json::from_str(text.expect("present").as_str()).expect("JSON")
    }

    #[test]
    fn a_start_has_the_attributes_with_the_id() {
        let (id, spec, state) = (ActivityId::parse("m1").expect("an id"), spec(), first());
        let fields = version(&id, &spec, &state, (1, 0)).fields(Form::Start);
        assert_eq!(check_content(&fields, &[PushService::Apns]).map(drop), Ok(()));
        let apns = json_of(fields.own.get(PushService::Apns));
        assert_eq!(apns["headers"]["apns-priority"], "10");
        let expected = json!({
            "timestamp": 1_800_000_000, "event": "start", "content-state": {"score": "0:0"},
            "stale-date": 1_800_000_060, "attributes-type": "MatchAttributes",
            "attributes": {"home": "A", "noroshiActivity": "m1"}, "input-push-token": 1,
            "alert": {"title": "Kick-off"},
        });
        assert_eq!(apns["payload"]["aps"], expected);
    }

    #[test]
    fn coalescing_swallows_no_alert_and_no_priority() {
        let (id, spec) = (ActivityId::parse("m1").expect("an id"), spec());
        let alert = Some(Alert { title: Some("Goal".to_owned()), ..Alert::default() });
        let (second, _) = first().next(Update { alert, high: true, ..Update::default() }, 2, false, at(1));
        let (third, _) = second.next(Update::default(), 3, false, at(2));
        let of = |has| {
            json_of(version(&id, &spec, &third, (3, has)).fields(Form::Update).own.get(PushService::Apns))
        };
        assert_eq!(of(1)["payload"]["aps"]["alert"]["title"], "Goal");
        assert_eq!(of(1)["headers"]["apns-priority"], "10");
        assert_eq!(of(2)["payload"]["aps"]["alert"], Value::Null);
        assert_eq!(of(2)["headers"]["apns-priority"], "5");
        assert_eq!(of(2)["payload"]["aps"]["event"], "update");
    }

    #[test]
    fn fcm_gets_the_token_of_the_activity_and_the_same_payload() {
        let (id, spec, state) = (ActivityId::parse("m1").expect("an id"), spec(), first());
        let fields = version(&id, &spec, &state, (2, 1)).fcm_fields(Form::Update, "00fc");
        assert_eq!(check_content(&fields, &[PushService::Fcm]).map(drop), Ok(()));
        let fcm = json_of(fields.own.get(PushService::Fcm));
        assert_eq!(fcm["apns"]["live_activity_token"], "00fc");
        assert_eq!(fcm["apns"]["payload"]["aps"]["event"], "update");
    }

    #[test]
    fn android_gets_texts_and_only_slow_updates_wait_for_it() {
        let (id, spec) = (ActivityId::parse("m1").expect("an id"), spec());
        let (quick, _) = first().next(Update::default(), 2, false, at(1));
        let (slow, _) = first().next(Update::default(), 2, false, at(600));
        let of = |state: &State, first| version(&id, &spec, state, (2, 1)).fields(Form::Android(first));
        assert_eq!(of(&quick, false).expires_at, at(61));
        assert_eq!(of(&slow, false).expires_at, at(3_600));
        let fields = of(&slow, true);
        assert_eq!(check_content(&fields, &[PushService::Fcm]).map(drop), Ok(()));
        let data = json_of(fields.data.as_ref());
        assert!(data.as_object().is_some_and(|data| data.values().all(Value::is_string)));
        assert_eq!((&data["noroshi_event"], &data["noroshi_version"]), (&json!("start"), &json!("2")));
        assert_eq!(data["noroshi_progress"], r#"{"progress":{"value":1,"max":90}}"#);
        assert_eq!(json_of(of(&slow, false).data.as_ref())["noroshi_event"], "update");
    }

    #[test]
    fn an_end_keeps_its_dismissal_and_has_no_stale_date() {
        let (id, spec) = (ActivityId::parse("m1").expect("an id"), spec());
        let end = first().end(Update::default(), 2, Some(at(900)), (false, at(300)));
        let ended = Version { ended_at: Some(at(300)), ..version(&id, &spec, &end, (2, 1)) };
        let fields = ended.fields(Form::Update);
        let aps = json_of(fields.own.get(PushService::Apns))["payload"]["aps"].clone();
        assert_eq!((&aps["event"], &aps["dismissal-date"]), (&json!("end"), &json!(1_800_000_900)));
        assert_eq!(aps["stale-date"], Value::Null);
        assert_eq!(fields.expires_at, at(300 + 4 * 3_600));
        let live = json_of(Some(&ended.live()));
        assert_eq!((&live["activity"]["event"], &live["activity"]["version"]), (&json!("end"), &json!(2)));
        assert_eq!(ended.shown(), None);
    }
}
