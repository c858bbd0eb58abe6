//! What a plan renders for a recipient, and when.

use std::time::Duration;

use noroshi_store::CampaignState;
use noroshi_types::{DeviceId, DeviceNum, PushEnvironment, PushService, PushToken, Ttl, UserId};

use super::*;
use crate::campaign::spec::tests::spec;
use crate::campaign::trial::tests::trial;
use crate::definition::experiment::tests::{experiment, label};
use crate::texts::Texts;
use noroshi_types::local_time::{LocalTime, QuietHours};

/// 2026-11-22T00:00:00Z
pub(crate) const MIDNIGHT: Timestamp = Timestamp(1_795_305_600_000);

pub(crate) fn plan(change: impl FnOnce(&mut Spec)) -> Plan {
    let mut spec = spec();
    change(&mut spec);
    Plan::new(&campaign(&spec), Timestamp(0)).expect("a campaign")
}

pub(crate) fn campaign(spec: &Spec) -> Campaign {
    let sums =
        |place: u8| VariantSums { notification: NotificationId::from_bytes([place; 16]), counts: Vec::new() };
    let places = (10..).take(spec.trial.iter().flat_map(Trial::names).count());
    Campaign {
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
        variants: places.map(sums).collect(),
        latencies: Vec::new(),
        batches_open: 0,
        batches_later: 0,
        batches_taken: 0,
        draft: Default::default(),
    }
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
        token_expires_at: None,
        suspect: false,
        preferences: None,
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
fn constant_content_is_rendered_once() {
    let plan = plan(|spec| {
        let japanese = Some(JsonText::from_valid(r#"{"title":"やあ"}"#));
        spec.locales.insert("ja".into(), Texts { notification: japanese, data: None });
    });
    let content = |locale| plan.content(&recipient(locale, None), None).expect("rendered");
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
    let expires =
        |zone| plan.content(&recipient(None, Some(zone)), None).expect("rendered").fields().expires_at;
    assert_eq!(expires("Asia/Tokyo"), MIDNIGHT.saturating_add(hour));
    assert_eq!(expires("UTC"), MIDNIGHT.saturating_add(10 * hour));
}

#[test]
fn a_recipients_line_has_precedence_and_missing_parts_have_a_reason() {
    let plan = plan(|spec| {
        spec.message.notification = Some(JsonText::from_valid(r#"{"title":"Hello {{name}}"}"#));
    });
    let with =
        |own: Option<Own>| PushRecipient { line: own.map(|own| own.to_json()), ..recipient(None, None) };
    assert_eq!(plan.content(&with(None), None).err(), Some(MISSING_VARIABLE));
    let words = Own { variables: BTreeMap::from([("name".into(), "Ana".into())]), ..Own::default() };
    let rendered = plan.content(&with(Some(words)), None).expect("rendered");
    assert_eq!(title(&rendered), r#"{"title":"Hello Ana"}"#);
    let own = Own { notification: Some(JsonText::from_valid(r#"{"title":"Mine"}"#)), ..Own::default() };
    assert_eq!(title(&plan.content(&with(Some(own)), None).expect("rendered")), r#"{"title":"Mine"}"#);
    let broken = PushRecipient { line: Some(JsonText::from_valid("1")), ..recipient(None, None) };
    assert_eq!(plan.content(&broken, None).err(), Some(BAD_LINE));
}

#[test]
fn a_device_of_another_user_is_not_in_the_upload() {
    let plan = plan(|spec| spec.audience = Audience::Upload);
    assert_eq!(plan.content(&recipient(None, None), None).err(), Some(NOT_UPLOADED));
    let of_upload = PushRecipient { line: Some(Own::default().to_json()), ..recipient(None, None) };
    assert!(plan.content(&of_upload, None).is_ok());
}

#[test]
fn quiet_hours_are_checked_at_the_time_of_sending() {
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

#[test]
fn every_variant_has_its_message_under_its_notification() {
    let words = |text: &'static str| Some(JsonText::from_valid(text));
    let plan = plan(|spec| {
        let mut trial = trial();
        let greener = Texts { notification: words(r#"{"title":"緑"}"#), data: None };
        let Some(Treatment::Own(green)) = trial.treatments.get_mut(&label("green")) else {
            panic!("its own")
        };
        green.locales.insert("ja".into(), greener);
        spec.message.data = words("1");
        spec.locales.insert("ja".into(), Texts { notification: words(r#"{"title":"やあ"}"#), data: None });
        spec.trial = Some(trial);
    });
    let check = |locale, place: u8, expected: &str| {
        let content = plan.content(&recipient(locale, None), Some(VariantNum(place))).expect("rendered");
        assert_eq!(title(&content), expected);
        let id = NotificationId::from_bytes([9 + place; 16]);
        assert_eq!((content.fields().notification_id, &content.fields().data), (Some(id), &words("1")));
    };
    check(None, 1, r#"{"title":"Hello"}"#);
    check(Some("ja-JP"), 1, r#"{"title":"やあ"}"#);
    check(None, 2, r#"{"title":"Green"}"#);
    check(Some("ja-JP"), 2, r#"{"title":"緑"}"#);
    let of_none = plan.content(&recipient(None, None), None).expect("rendered");
    assert_eq!(of_none.fields().notification_id, Some(NotificationId::from_bytes([2; 16])));
    assert!(!plan.holds_out(None) && !plan.holds_out(Some(VariantNum(2))));
}

#[test]
fn devices_get_the_variant_of_the_experiment() {
    let plan = plan(|spec| {
        let treatments = BTreeMap::from([(label("control"), Treatment::HoldOut)]);
        let mut definition = experiment();
        definition.filter.locales = vec!["ja".into()];
        definition.users.insert(UserId::parse("u0").expect("a user"), label("green"));
        spec.trial = Some(Trial { treatments, definition: Some(definition), ..trial() });
    });
    let of = |user: Option<&str>, locale| {
        let user = user.map(|user| UserId::parse(user).expect(user));
        plan.draw(&PushRecipient { user, ..recipient(locale, None) })
    };
    let group = Group::new(label("button"), experiment());
    for number in 0..20 {
        let user = format!("user-{number}");
        let id = DeviceId::parse("d").expect("an id");
        let place = group.place_of(UserId::parse(&user).ok().as_ref(), &id, &Attributes::default());
        let given = of(Some(&user), Some("ja"));
        assert_eq!(given.map(|variant| usize::from(variant.0)), place.map(|place| place + 1));
        assert_eq!(plan.holds_out(given), place == Some(0));
    }
    assert!(of(None, Some("ja")).is_some(), "a device without a user draws for itself");
    assert_eq!(of(Some("user-1"), None), Some(VariantNum::NO_VARIANT), "it is not of the audience");
    assert_eq!(of(Some("u0"), None), Some(VariantNum(2)), "it is named");
}
