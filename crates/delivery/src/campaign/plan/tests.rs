//! What a plan renders for whom, and when it lets it go.

use std::time::Duration;

use noroshi_store::CampaignState;
use noroshi_types::{DeviceId, DeviceNum, PushEnvironment, PushService, PushToken, Ttl};

use super::*;
use crate::campaign::spec::tests::spec;
use crate::campaign::{LocalTime, QuietHours, Variant};

/// 2026-11-22T00:00:00Z
pub(crate) const MIDNIGHT: Timestamp = Timestamp(1_795_305_600_000);

pub(crate) fn plan(change: impl FnOnce(&mut Spec)) -> Plan {
    let mut spec = spec();
    change(&mut spec);
    let campaign = Campaign {
        id: CampaignId::from_bytes([1; 16]),
        app: AppId(1),
        spec: spec.to_json(),
        state: CampaignState::Running,
        created_at: MIDNIGHT,
        started_at: Some(MIDNIGHT),
        finished_at: None,
        notification: NotificationId::from_bytes([2; 16]),
        cursor: 0,
        walked: false,
        recipients: 0,
        uploaded: 0,
        counts: Vec::new(),
        latencies: Vec::new(),
        batches_open: 0,
        batches_later: 0,
        batches_taken: 0,
    };
    Plan::new(&campaign, Timestamp(0)).expect("a campaign")
}

pub(crate) fn recipient(locale: Option<&str>, timezone: Option<&str>) -> PushRecipient {
    let attributes = Attributes {
        locale: locale.map(Into::into),
        timezone: timezone.map(Into::into),
        ..Attributes::default()
    };
    PushRecipient {
        num: DeviceNum(1),
        id: DeviceId::parse("d").expect("an id"),
        user: None,
        attributes,
        token: Some(PushToken {
            service: PushService::Fcm,
            environment: PushEnvironment::Production,
            json: JsonText::from_valid("{}"),
        }),
        token_at: Timestamp(1),
        suspect: false,
        line: None,
    }
}

fn quiet() -> Option<QuietHours> {
    let clock = |text| LocalTime::parse(text).expect("a time");
    QuietHours::new(clock("22:00"), clock("07:00")).ok()
}

fn title(content: &Content) -> &str {
    content.fields().notification.as_ref().map_or("", JsonText::as_str)
}

#[test]
fn what_is_the_same_for_many_is_rendered_once() {
    let plan = plan(|spec| {
        let japanese = Some(JsonText::from_valid(r#"{"title":"やあ"}"#));
        spec.locales.insert("ja".into(), Variant { notification: japanese, data: None });
    });
    let content = |locale| plan.content(&recipient(locale, None)).expect("rendered");
    let (a, b, c) = (content(Some("en-US")), content(None), content(Some("ja-JP")));
    assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &c));
    assert_eq!((title(&a), title(&c)), (r#"{"title":"Hello"}"#, r#"{"title":"やあ"}"#));
    assert_eq!(a.fields().notification_id, Some(NotificationId::from_bytes([2; 16])));
}

#[test]
fn a_ttl_begins_when_the_device_is_due() {
    let hour = Duration::from_secs(3_600);
    let plan = plan(|spec| {
        spec.message.ttl = Ttl::new(hour).expect("a ttl");
        spec.local_time = LocalTime::parse("09:00").ok();
    });
    let expires = |zone| plan.content(&recipient(None, Some(zone))).expect("rendered").fields().expires_at;
    assert_eq!(expires("Asia/Tokyo"), MIDNIGHT.saturating_add(hour));
    assert_eq!(expires("UTC"), MIDNIGHT.saturating_add(10 * hour));
}

#[test]
fn a_recipients_line_comes_first_and_what_is_missing_has_a_reason() {
    let plan = plan(|spec| {
        spec.message.notification = Some(JsonText::from_valid(r#"{"title":"Hello {{name}}"}"#));
    });
    let with =
        |own: Option<Own>| PushRecipient { line: own.map(|own| own.to_json()), ..recipient(None, None) };
    assert_eq!(plan.content(&with(None)).err(), Some(MISSING_VARIABLE));
    let words = Own { variables: BTreeMap::from([("name".into(), "Ana".into())]), ..Own::default() };
    let rendered = plan.content(&with(Some(words))).expect("rendered");
    assert_eq!(title(&rendered), r#"{"title":"Hello Ana"}"#);
    let own = Own { notification: Some(JsonText::from_valid(r#"{"title":"Mine"}"#)), ..Own::default() };
    assert_eq!(title(&plan.content(&with(Some(own))).expect("rendered")), r#"{"title":"Mine"}"#);
    let broken = PushRecipient { line: Some(JsonText::from_valid("1")), ..recipient(None, None) };
    assert_eq!(plan.content(&broken).err(), Some(BAD_LINE));
}

#[test]
fn a_device_that_is_another_users_now_is_not_of_the_upload() {
    let plan = plan(|spec| spec.audience = Audience::Upload);
    assert_eq!(plan.content(&recipient(None, None)).err(), Some(NOT_UPLOADED));
    let of_upload = PushRecipient { line: Some(Own::default().to_json()), ..recipient(None, None) };
    assert!(plan.content(&of_upload).is_ok());
}

#[test]
fn quiet_hours_are_looked_at_when_it_is_sent() {
    let calm = plan(|spec| spec.quiet_hours = quiet());
    let seven = MIDNIGHT.saturating_add(Duration::from_secs(7 * 3_600));
    let attributes = recipient(None, Some("UTC")).attributes;
    assert_eq!(calm.quiet_until(&attributes, MIDNIGHT), Some(seven));
    assert_eq!(calm.quiet_until(&attributes, seven), None);
    assert_eq!(calm.due_at(&attributes), seven);
    let urgent = plan(|spec| {
        spec.quiet_hours = quiet();
        spec.message.urgency = noroshi_types::Urgency::High;
    });
    assert_eq!(urgent.quiet_until(&attributes, MIDNIGHT), None);
    assert_eq!(urgent.due_at(&attributes), MIDNIGHT);
}
