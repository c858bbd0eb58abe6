//! Every body that the API parses: no panic, and accepted values respect their limits.

#![no_main]

use libfuzzer_sys::fuzz_target;
use noroshi_api::{Limits, body};
use noroshi_types::{ActivityId, Timestamp, limits};
use serde_json::value::RawValue;

fuzz_target!(|bytes: &[u8]| {
    let bounds = Limits::default();
    if let Ok(request) = body::notification(bytes, &bounds, Timestamp(0)) {
        assert!(
            request
                .target
                .named_count()
                .is_none_or(|count| (1..=limits::TARGETS_MAX as u64).contains(&count))
        );
        assert!(request.data.is_some() || request.notification.is_some());
        for carried in [&request.data, &request.notification, &request.push.apns].into_iter().flatten() {
            assert!(serde_json::from_str::<&RawValue>(carried.as_str()).is_ok(), "carried text is JSON");
            assert!(carried.len() <= bounds.data_bytes.max(limits::NOTIFICATION_BYTES_MAX));
        }
    }
    if let Ok(device) = body::device(bytes) {
        assert!(device.registration.topics.len() <= limits::TOPICS_PER_DEVICE_MAX);
        assert!(device.registration.attributes.tags.len() <= limits::TAGS_MAX);
    }
    if let Ok(token) = body::push_token(bytes) {
        assert!(token.json.len() <= limits::PUSH_TOKEN_BYTES_MAX);
    }
    let _ = body::device_change(bytes);
    let _ = body::presence_query(bytes);
    let _ = body::quotas(bytes);
    let _ = body::quota_changes(bytes);
    let _ = body::presence(bytes);
    let _ = body::ids(bytes);
    let _ = body::app(bytes);
    let _ = body::app_change(bytes, Default::default(), body::Author::Tenant);
    let _ = body::key(bytes);
    let _ = body::drain(bytes);
    let _ = body::push_test(bytes);
    let _ = body::push_credential(bytes);
    if let Ok(spec) = body::campaign(bytes, &bounds) {
        assert!((1..=1_000).contains(&spec.batch_size));
        assert!(spec.rate_per_second.is_none_or(|rate| rate > 0));
    }
    let (now, drawn) = (Timestamp(0), || ActivityId::parse("drawn").expect("an id"));
    if let Ok(start) = body::activity(bytes, drawn, now) {
        assert!(!start.ttl.is_zero() && start.ttl <= limits::ACTIVITY_TTL_MAX);
        assert!(start.first.content.is_some_and(|content| content.len() <= limits::ACTIVITY_STATE_BYTES_MAX));
    }
    let _ = body::activity_update(bytes, now);
    let _ = body::activity_end(bytes, now);
    let _ = body::recipient(bytes, &bounds);
    if let Ok(experiment) = body::experiment(bytes) {
        assert!((1..=limits::VARIANTS_MAX).contains(&experiment.variants.len()));
        assert!(experiment.users.len() + experiment.devices.len() <= limits::OVERRIDES_MAX);
    }
    if let Ok(notice) = body::notice(bytes) {
        assert!(notice.starts_at < notice.ends_at);
    }
    let _ = body::channel(bytes);
    let _ = body::channel_change(bytes);
    if let Ok((broadcast, _)) = body::broadcast(bytes, Timestamp(0)) {
        assert!(broadcast.payload.len() <= 5_120);
        assert!(serde_json::from_str::<&RawValue>(broadcast.payload.as_str()).is_ok());
    }
    let _ = body::killing(bytes);
    let _ = body::exposures(bytes);
    let _ = body::item_change(bytes);
    let _ = body::preferences(bytes);
});
