//! Which campaigns are accepted, and that the stored form reads back.

use std::time::Duration;

use noroshi_types::{Condition, Label, OwnFields, PushMode, PushService, TokenKey, Topic};

use super::*;
use crate::campaign::trial::tests::trial;
use crate::campaign::trial::{OwnMessage, Treatment};
use crate::filter::VersionRange;

pub(crate) fn spec() -> Spec {
    let message = CampaignMessage {
        notification: Some(JsonText::from_valid(r#"{"title":"Hello"}"#)),
        data: None,
        urgency: Urgency::Normal,
        ttl: Ttl::default(),
        collapse_key: None,
        category: None,
        when: None,
        push: Push::default(),
    };
    Spec {
        name: None,
        audience: Audience::Everyone,
        filter: Filter::default(),
        message,
        locales: BTreeMap::new(),
        trial: None,
        variables: BTreeMap::new(),
        start_at: None,
        local_time: None,
        quiet_hours: None,
        rate_per_second: None,
        lane: Lane::Campaign,
        batch_size: limits::CAMPAIGN_BATCH,
        start: true,
        trace: None,
    }
}

fn full() -> Spec {
    let clock = |text| LocalTime::parse(text).expect("a time");
    Spec {
        name: Some("spring".into()),
        audience: Audience::Condition(Condition::parse("'a' in topics").expect("a condition")),
        filter: Filter {
            platforms: vec!["ios".into()],
            tags: BTreeMap::from([("plan".into(), vec!["paid".into()])]),
            ..Filter::default()
        },
        message: CampaignMessage {
            data: Some(JsonText::from_valid(r#"{"n": 1.50, "who": "{{name}}"}"#)),
            urgency: Urgency::High,
            collapse_key: Some("k".into()),
            when: Some(When::Stored),
            push: Push {
                mode: PushMode::Fallback,
                after: Duration::from_millis(1_500),
                token: None,
                own: OwnFields::from_iter([
                    (PushService::Apns, JsonText::from_valid("{}")),
                    (PushService::WebPush, JsonText::from_valid("null")),
                ]),
                broadcast: None,
            },
            ..spec().message
        },
        locales: BTreeMap::from([(
            "ja".into(),
            Texts { notification: Some(JsonText::from_valid(r#"{"title":"やあ"}"#)), data: None },
        )]),
        trial: Some(trial()),
        variables: BTreeMap::from([("name".into(), "you".into())]),
        start_at: Some(Timestamp(1_800_000_000_000)),
        local_time: Some(clock("09:00")),
        quiet_hours: QuietHours::new(clock("22:00"), clock("07:00")).ok(),
        rate_per_second: Some(250),
        lane: Lane::Extra,
        batch_size: 100,
        start: false,
        trace: TraceContext::parse(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    }
}

/// Every later version reads it.
#[test]
fn the_stored_form_never_changes() {
    let stored = concat!(
        r#"{"name":"spring","audience":{"condition":"'a' in topics"},"filter":{"platforms":["ios"],"locales":[],"#,
        r#""version_min":"1.2","version_max":null,"tags":{"plan":["paid"]},"timezones":[]},"#,
        r#""message":{"notification":{"title":"Hello"},"data":{"n": 1.50, "who": "{{name}}"},"urgency":4,"#,
        r#""ttl_ms":604800000,"collapse_key":"k","when":3,"push_mode":1,"push_after_ms":1500,"apns":{},"webpush":null},"#,
        r#""locales":{"ja":{"notification":{"title":"やあ"}}},"experiment":{"name":"button","#,
        r#""variants":{"green":{"notification":{"title":"Green"}}},"definition":{"description":null,"#,
        r#""variants":[{"name":"control","weight":1},{"name":"green","weight":1}],"starts_at_ms":null,"#,
        r#""ends_at_ms":null,"condition":null,"filter":{"platforms":[],"locales":[],"version_min":null,"#,
        r#""version_max":null,"tags":{},"timezones":[]},"users":{},"devices":{},"killed":false}},"#,
        r#""variables":{"name":"you"},"start_at_ms":1800000000000,"local_time":"09:00","#,
        r#""quiet_hours":["22:00","07:00"],"rate_per_second":250,"lane":1,"batch_size":100,"start":false,"#,
        r#""trace":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#,
    );
    let app_version = VersionRange { min: Some("1.2".into()), max: None };
    let filter = Filter { app_version, ..full().filter };
    assert_eq!(Spec { filter, ..full() }.to_json().as_str(), stored);
}

#[test]
fn a_stored_campaign_reads_back() {
    let mut trial = trial();
    let locales = BTreeMap::from([("ja".into(), full().locales["ja"].clone())]);
    let own = OwnMessage { content: Texts::default(), locales };
    trial.treatments.insert(trial.experiment.clone(), Treatment::HoldOut);
    trial.treatments.insert(Label::parse("other").expect("a label"), Treatment::Own(own));
    trial.control = Some(trial.experiment.clone());
    let token = TokenKey::parse("controls/lamp").ok();
    let message = CampaignMessage { push: Push { token, ..full().message.push }, ..full().message };
    let named = Spec { message, ..full() };
    assert!(named.to_json().as_str().contains(r#""push_after_ms":1500,"push_token":"controls/lamp","#));
    for spec in [spec(), full(), named, Spec { trial: Some(trial), ..spec() }] {
        assert_eq!(Spec::from_json(&spec.to_json()), Ok(spec));
    }
    for audience in
        [Audience::Upload, Audience::Devices, Audience::Topic(Topic::parse("news").expect("a topic"))]
    {
        let spec = Spec { audience, ..full() };
        assert_eq!(Spec::from_json(&spec.to_json()), Ok(spec));
    }
    assert!(Spec::from_json(&JsonText::from_valid("{}")).is_err());
}

#[test]
fn a_contradictory_request_is_refused_with_the_field_name() {
    let refused = |spec: Spec, part: &str| {
        let invalid = spec.check().expect_err(part);
        assert!(invalid.0.contains(part), "{invalid}");
    };
    assert!(spec().check().is_ok());
    assert!(full().check().is_ok());
    refused(Spec { name: Some(String::new()), ..spec() }, "name");
    refused(Spec { audience: Audience::Upload, ..spec() }, "start");
    refused(Spec { audience: Audience::Upload, start: false, ..full() }, "audience.devices");
    refused(Spec { lane: Lane::Direct, ..spec() }, "lane");
    refused(Spec { batch_size: 0, ..spec() }, "batch_size");
    refused(Spec { batch_size: 1_001, ..spec() }, "batch_size");
    refused(Spec { rate_per_second: Some(0), ..spec() }, "rate_per_second");
    refused(Spec { variables: BTreeMap::new(), ..full() }, "{{name}}");
    let empty = CampaignMessage { notification: None, ..spec().message };
    refused(Spec { message: empty.clone(), ..spec() }, "message");
    let upload = Spec { audience: Audience::Upload, start: false, ..spec() };
    assert!(Spec { message: empty, ..upload.clone() }.check().is_ok(), "each line may bring its own");
    let words = CampaignMessage { notification: full().message.data, ..spec().message };
    assert!(Spec { message: words, ..upload }.check().is_ok(), "each line may bring its own");
    let content = Texts { data: full().message.data, notification: None };
    let own = |locales| Treatment::Own(OwnMessage { content: content.clone(), locales });
    let with = |treatment| {
        let treatments = BTreeMap::from([(trial().experiment, treatment)]);
        Spec { trial: Some(Trial { treatments, ..trial() }), ..spec() }
    };
    refused(with(own(BTreeMap::new())), "{{name}}");
    refused(with(own(BTreeMap::from([(String::new(), Texts::default())]))), "locales");
    let broken = CampaignMessage { data: Some(JsonText::from_valid("\"{{\"")), ..spec().message };
    refused(Spec { message: broken, ..spec() }, "placeholder");
}

#[test]
fn small_batches_make_a_rate_even() {
    let of =
        |rate_per_second, batch_size| Spec { rate_per_second, batch_size, ..spec() }.recipients_per_batch();
    assert_eq!(of(None, 500), 500);
    assert_eq!(of(Some(100_000), 500), 500);
    assert_eq!(of(Some(1_000), 500), 100);
    assert_eq!(of(Some(3), 500), 1);
}

#[test]
fn urgent_campaigns_ignore_quiet_hours() {
    let now = Timestamp(1_700_000_000_000);
    assert_eq!(full().schedule(now).quiet_hours, None);
    let calm = CampaignMessage { urgency: Urgency::Low, ..full().message };
    let schedule = Spec { message: calm, ..full() }.schedule(now);
    assert!(schedule.quiet_hours.is_some());
    assert_eq!(schedule.start, Timestamp(1_800_000_000_000));
    assert_eq!(spec().schedule(now).start, now);
}
