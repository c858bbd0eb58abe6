//! Lines as readers see them, and the documented example of each event.

use noroshi_types::{CampaignId, CloseReason, PushService, SessionId, Topic};

use super::*;
use crate::event::Named;

const AT: Timestamp = Timestamp(1_795_366_800_042);

fn id() -> NotificationId {
    NotificationId::from_bytes(*b"\x01\x93\x5b\x5a\x00\x00\x7a\x00\x80\x00\x00\x00\x00\x00\x00\x01")
}

fn of() -> Subject {
    Subject::Notification(id())
}

fn devices(count: u64) -> Box<[DeviceNum]> {
    (1..=count).map(DeviceNum).collect()
}

fn writer() -> Writer {
    let names: Names = Arc::new(|app| (app == AppId(7)).then(|| "shop".to_owned()));
    Writer::new("n1", Timestamp(1_795_366_700_000), names)
}

fn lines(writer: &mut Writer, event: Event) -> Vec<serde_json::Value> {
    let (mut out, mut count) = (Vec::new(), 0);
    writer.write(&Record { at: AT, event }, &mut out, |_| count += 1);
    let text = String::from_utf8(out).expect("text");
    assert!(text.ends_with('\n'));
    let lines: Vec<_> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), count);
    lines
}

fn trace() -> Option<TraceId> {
    TraceId::from_bytes(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes())
}

/// One event of each kind.
fn all() -> Vec<Event> {
    let session = SessionId(0xabc);
    let outcome =
        |outcome| Event::Outcome { app: AppId(7), of: of(), outcome, devices: devices(2), count: 2 };
    let answered = |outcome, reason| Event::PushAnswered {
        app: AppId(7),
        of: of(),
        service: PushService::Apns,
        outcome,
        reason,
        devices: devices(1),
        trace: trace().into(),
    };
    vec![
        Event::Started { version: "0.1.0" },
        Event::Accepted(Box::new(Accepted {
            app: AppId(7),
            id: id(),
            campaign: Some(CampaignId::from_bytes([5; 16])),
            target: "users",
            targets: Some(2),
            topic: None,
            named: Some(Named::Users(Box::new([UserId::parse("ann").expect("id")]))),
            when: "stored",
            push: "fallback",
            urgency: "normal",
            kept: 2,
            trace: trace(),
        })),
        Event::Routed { app: AppId(7), id: id(), to: Routed::Here },
        outcome(Outcome::Kept),
        outcome(Outcome::Written),
        Event::Acked { app: AppId(7), acked: Box::new([(id(), DeviceNum(1)), (id(), DeviceNum(2))]) },
        Event::Outcome { app: AppId(7), of: of(), outcome: Outcome::Opened, devices: devices(1), count: 1 },
        outcome(Outcome::Slow),
        outcome(Outcome::Expired),
        outcome(Outcome::NoPushToken),
        Event::PushSent {
            app: AppId(7),
            of: of(),
            service: PushService::Apns,
            devices: devices(2),
            trace: None.into(),
        },
        answered(Outcome::Pushed, None),
        answered(Outcome::PushTokenGone, Some("Unregistered")),
        Event::Registered(Box::new(Registered {
            app: AppId(7),
            device: DeviceNum(1),
            device_id: DeviceId::parse("phone \"1\"").expect("id"),
            user: Some(UserId::parse("ann").expect("id")),
            service: Some(PushService::Apns),
        })),
        Event::Connected(Box::new(Connected {
            app: AppId(7),
            device: DeviceNum(1),
            device_id: DeviceId::parse("phone \"1\"").expect("id"),
            user: Some(UserId::parse("ann").expect("id")),
            session,
            protocol: "native",
        })),
        Event::Closed { app: AppId(7), device: DeviceNum(1), session, reason: CloseReason::Drain },
        Event::Campaign { app: AppId(9), campaign: CampaignId::from_bytes([5; 16]), step: "running" },
        Event::Configured(Box::new(Configured {
            app: Some(AppId(7)),
            what: "key",
            change: "made",
            name: Some("backend".into()),
        })),
        Event::Exposed(Box::new(Exposed {
            app: AppId(7),
            device_id: DeviceId::parse("phone \"1\"").expect("an id"),
            user: None,
            experiment: "checkout".into(),
            variant: "green".into(),
        })),
        Event::Audited(Box::new(Audited {
            app: Some(AppId(7)),
            by: "person",
            who: Some("ann@example.com".into()),
            action: "PATCH /v1/apps/{app}".into(),
            target: "/v1/apps/shop".into(),
            before: Some("{\"issuer\":null}".into()),
            after: Some("{\"issuer\":\"https://id.example.com\"}".into()),
            address: "192.0.2.7".into(),
            request: "01935b5a-0000-7a00-8000-000000000009".into(),
        })),
        Event::Lost { count: 3 },
        Event::Rejected(Box::new(Rejected {
            app: Some(AppId(7)),
            device_id: None,
            user: None,
            protocol: "mqtt",
            reason: "expired",
            detail: "the token has expired".into(),
            network: Some("192.0.2.7".into()),
            suppressed: 0,
        })),
    ]
}

#[test]
fn the_recipients_of_a_request_are_in_no_line() {
    let named = Some(Named::Devices(Box::new([DeviceId::parse("hidden").expect("id")])));
    let accepted = all().into_iter().find_map(|event| match event {
        Event::Accepted(accepted) => {
            Some(Accepted { named: named.clone(), topic: Topic::parse("news").ok(), ..*accepted })
        }
        _ => None,
    });
    let lines = lines(&mut writer(), Event::Accepted(Box::new(accepted.expect("one of each kind"))));
    assert_eq!(lines[0]["topic"], "news");
    assert!(!lines[0].to_string().contains("hidden"));
}

#[test]
fn every_line_has_the_common_fields_and_the_next_number() {
    let mut writer = writer();
    let lines: Vec<_> = all().into_iter().flat_map(|event| lines(&mut writer, event)).collect();
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line["v"], SCHEMA);
        assert_eq!(line["at"], AT.to_string());
        assert_eq!((&line["node"], &line["run"]), (&"n1".into(), &1_795_366_700_000_u64.into()));
        assert_eq!(line["n"], index + 1);
    }
    let names: std::collections::BTreeSet<_> =
        lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(names.len(), Kind::ALL.len(), "all kinds are covered");
}

#[test]
fn a_gone_token_is_an_answer_and_invalidates() {
    let answered = Event::PushAnswered {
        app: AppId(7),
        of: of(),
        service: PushService::Apns,
        outcome: Outcome::PushTokenGone,
        reason: Some("Unregistered"),
        devices: devices(1),
        trace: trace().into(),
    };
    let lines = lines(&mut writer(), answered);
    assert_eq!(lines[0]["event"], "push_answered");
    assert_eq!(lines[1]["event"], "token_invalidated");
    assert_eq!(lines[1]["reason"], "Unregistered");
    assert_eq!(lines[1]["trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(lines[1]["devices"][0], 1);
}

#[test]
fn confirmations_of_one_notification_share_a_line() {
    let other = NotificationId::from_bytes([9; 16]);
    let acked = [(id(), DeviceNum(1)), (id(), DeviceNum(2)), (other, DeviceNum(1))];
    let lines = lines(&mut writer(), Event::Acked { app: AppId(7), acked: Box::new(acked) });
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["count"], &lines[0]["devices"][1]), (&2.into(), &2.into()));
    assert_eq!(lines[1]["id"], other.to_string());
}

#[test]
fn many_devices_are_several_lines_and_counted_once() {
    let (app, outcome, devices) = (AppId(7), Outcome::Written, devices(2_500));
    let event = Event::Outcome { app, of: of(), outcome, devices, count: 2_503 };
    let lines = lines(&mut writer(), event);
    let counts: Vec<_> = lines.iter().map(|line| line["count"].as_u64().expect("count")).collect();
    assert_eq!(counts, [1_003, 1_000, 500]);
    let devices: usize = lines.iter().map(|line| line["devices"].as_array().expect("list").len()).sum();
    assert_eq!(devices, 2_500);
}

#[test]
fn an_app_without_a_known_name_is_shown_by_number() {
    let event = Event::Campaign { app: AppId(9), campaign: CampaignId::from_bytes([5; 16]), step: "done" };
    assert_eq!(lines(&mut writer(), event)[0]["app_number"], 9);
}

#[test]
fn the_time_has_the_format_of_timestamps() {
    for ms in [0, 999, 1_000, 1_795_366_800_042, 1_795_366_859_999] {
        let (mut out, at) = (Vec::new(), Timestamp(ms));
        writer().push_time(&mut out, at);
        assert_eq!(String::from_utf8(out).expect("text"), at.to_string());
    }
}

/// docs/events.md shows one current line of each event.
#[test]
fn the_documented_lines_are_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/events.md");
    let page = std::fs::read_to_string(path).expect("docs/events.md");
    let (mut writer, mut out) = (writer(), Vec::new());
    for event in all() {
        writer.write(&Record { at: AT, event }, &mut out, |_| {});
    }
    let block = format!("```json\n{}```", String::from_utf8(out).expect("text"));
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        let begin = page.find("```json\n").expect("the block of lines");
        let end = begin + 8 + page[begin + 8..].find("```").expect("its end") + 3;
        return std::fs::write(path, format!("{}{block}{}", &page[..begin], &page[end..])).expect("written");
    }
    assert!(
        page.contains(&block),
        "docs/events.md is outdated: UPDATE_DOCUMENTS=1 cargo test -p noroshi-events"
    );
}
