//! Every reason and every target, from facts to sentences.

use noroshi_store::{CampaignState, Subscribed, TraceStep, TracedCampaign, TracedDevice, TracedNotification};
use noroshi_types::{CampaignId, DeviceNum, JsonText, Topic, UserId};

use super::*;

const SENT: Timestamp = Timestamp(1_800_000_000_000);
const LATER: Timestamp = Timestamp(SENT.0 + 60_000);
const NOW: Timestamp = Timestamp(SENT.0 + 120_000);

const PRESENT: Present = Present {
    now: NOW,
    is_connected: false,
    suppressed: None,
    waits_for_quota: false,
    segment: Segment::Unknown,
};

/// A `connected` notification that named the device's user, of which nothing is recorded.
fn live() -> Trace {
    Trace {
        steps: Vec::new(),
        in_inbox: false,
        subscribed: false,
        trace: None,
        notification: TracedNotification {
            sent_at: SENT,
            expires_at: Timestamp(NOW.0 + 1_000_000),
            when: When::Connected,
            has_collapse_key: false,
            is_cancelled: false,
            is_replaced: false,
        },
        device: TracedDevice {
            num: DeviceNum(1),
            created_at: Timestamp(SENT.0 - 1),
            user: UserId::parse("u1").ok(),
            user_at: None,
        },
        target: TracedTarget::Users { named: Some(true) },
        push: None,
        attempts: Vec::new(),
    }
}

fn stored(target: TracedTarget) -> Trace {
    let notification = TracedNotification { when: When::Stored, ..live().notification };
    Trace { notification, target, ..live() }
}

fn recorded(steps: &[(Outcome, Option<&str>)], in_inbox: bool) -> Trace {
    let step = |(i, (outcome, reason)): (usize, &(Outcome, Option<&str>))| TraceStep {
        at: Timestamp(SENT.0 + i as u64),
        outcome: *outcome,
        reason: reason.map(str::to_owned),
    };
    let steps = steps.iter().enumerate().map(step).collect();
    Trace { steps, in_inbox, ..stored(TracedTarget::Users { named: Some(true) }) }
}

fn check(trace: &Trace, by: TargetedBy, reason: Option<Reason>, summary: &str) {
    check_at(trace, PRESENT, by, reason, summary);
}

fn check_at(trace: &Trace, present: Present, by: TargetedBy, reason: Option<Reason>, summary: &str) {
    let found = explain(trace, present);
    assert_eq!((found.targeted_by, found.reason, found.summary.as_str()), (by, reason, summary), "{found:?}");
    assert!(found.targeting.ends_with('.') && found.summary.ends_with('.'), "{found:?}");
}

#[test]
fn the_summary_covers_inbox_and_push() {
    use Outcome::{
        Acked, Expired, Kept, NoPushToken, Opened, PushExpired, PushRefused, PushTokenGone, Pushed,
    };
    let by_user = |steps: &[(Outcome, Option<&str>)], in_inbox, reason, summary: &str| {
        check(&recorded(steps, in_inbox), TargetedBy::User, reason, summary);
    };
    let waits = "It is in the device's inbox until the device connects.";
    by_user(&[(Kept, None)], true, Some(Reason::Offline), waits);
    let pushed = format!("{waits} A push service accepted it for the device.");
    by_user(&[(Kept, None), (Pushed, None)], true, None, &pushed);
    by_user(&[(Kept, None), (Pushed, None), (Acked, None)], false, None, "The device acknowledged it.");
    by_user(&[(Pushed, None), (Opened, None)], false, None, "Its user opened it on the device.");
    let both = "The device acknowledged it, and its user opened it.";
    by_user(&[(Kept, None), (Acked, None), (Opened, None)], false, None, both);
    by_user(
        &[(Kept, None), (PushRefused, Some("sender_ended"))],
        true,
        Some(Reason::PushRefused),
        &format!("{waits} It could not be sent to the push service after several attempts (sender_ended)."),
    );
    by_user(
        &[(Kept, None), (PushRefused, Some("BadTopic"))],
        true,
        Some(Reason::PushRefused),
        &format!("{waits} The push service rejected it permanently (BadTopic)."),
    );
    by_user(
        &[(PushRefused, Some("quota_exceeded"))],
        false,
        Some(Reason::Quota),
        "It was not published: the app's inboxes were at their quota.",
    );
    by_user(
        &[(PushTokenGone, Some("Unregistered"))],
        false,
        Some(Reason::InvalidToken),
        "The push service reported that the device's token is invalid (Unregistered); the token was removed.",
    );
    let no_token = "It was not pushed: the device has no push token.";
    by_user(&[(NoPushToken, None)], false, Some(Reason::NoToken), no_token);
    by_user(
        &[(Kept, None), (PushExpired, Some("timeout")), (Expired, None)],
        false,
        Some(Reason::Expired),
        "Its ttl ended before the device acknowledged it. Its ttl ended before a push service accepted it (timeout).",
    );
}

#[test]
fn the_summary_names_the_preference() {
    use Outcome::{
        Acked, Capped, ChannelOff, Kept, Muted, PushCapped, PushChannelOff, PushExpired, PushMuted, Pushed,
        Quiet, Written,
    };
    let by_user = |steps: &[(Outcome, Option<&str>)], in_inbox, reason, summary: &str| {
        check(&recorded(steps, in_inbox), TargetedBy::User, reason, summary);
    };
    let live = |outcome, reason, because: &str| {
        let gone = format!("It was not delivered live: {because}.");
        by_user(&[(outcome, None)], false, Some(reason), &gone);
    };
    live(Muted, Reason::Muted, "the preferences mute its topic or category");
    live(ChannelOff, Reason::ChannelOff, "the preferences do not allow live messages");
    live(Quiet, Reason::Quiet, "the device was idle and in its quiet hours");
    let cap = "the device had as many notifications of the category on that day as the preferences allow";
    live(Capped, Reason::Capped, cap);
    let kept =
        "It is in the device's inbox, but is not delivered live: the preferences mute its topic or category.";
    by_user(&[(Kept, None), (Muted, None)], true, Some(Reason::Muted), kept);
    let kept = format!("It is in the device's inbox, but was not delivered live: {cap}.");
    by_user(&[(Kept, None), (Capped, None)], true, Some(Reason::Capped), &kept);
    // A log-in records nothing of what it found in the inbox.
    let now = Present { is_connected: true, suppressed: Some(ChannelOff), ..PRESENT };
    let kept =
        "It is in the device's inbox, but is not delivered live: the preferences do not allow live messages.";
    check_at(&recorded(&[(Kept, None)], true), now, TargetedBy::User, Some(Reason::ChannelOff), kept);
    // It was delivered after the preferences were changed.
    let unacknowledged = "It was written to a connection that closed before the device acknowledged it; it is still in the inbox.";
    by_user(&[(Kept, None), (Muted, None), (Written, None)], true, Some(Reason::Offline), unacknowledged);
    by_user(&[(Kept, None), (Muted, None), (Acked, None)], false, None, "The device acknowledged it.");

    let waits = "It is in the device's inbox until the device connects.";
    let pushed = |outcome, detail, reason, because: &str| {
        let summary = format!("{waits} It was not pushed: {because}.");
        by_user(&[(Kept, None), (outcome, detail)], true, Some(reason), &summary);
    };
    pushed(PushMuted, None, Reason::PushMuted, "the preferences mute its topic or category");
    pushed(PushChannelOff, None, Reason::PushChannelOff, "the preferences do not allow pushes");
    pushed(PushCapped, None, Reason::PushCapped, cap);
    let quiet = "its ttl ended in the device's quiet hours";
    pushed(PushExpired, Some("quiet_hours"), Reason::PushExpired, quiet);
    let both = format!("It was not delivered live: {cap}. A push service accepted it for the device.");
    by_user(&[(Capped, None), (Pushed, None)], false, None, &both);
}

#[test]
fn every_outcome_but_two_determines_the_state() {
    for outcome in Outcome::ALL {
        let found = explain(&recorded(&[(outcome, None)], false), PRESENT);
        // `Kept` and `Unknown` do not.
        let is_undetermined = matches!(outcome, Outcome::Kept | Outcome::Unknown);
        assert_eq!(found.reason == Some(Reason::NotRecorded), is_undetermined, "{outcome:?}: {found:?}");
    }
}

#[test]
fn an_absent_device_and_a_stranger_differ() {
    let offline = "No write to the device is recorded: it was not connected, and the policy stores nothing for offline devices.";
    check(&live(), TargetedBy::User, Some(Reason::Offline), offline);
    let at_once = TracedNotification { when: When::Stored, expires_at: SENT, ..live().notification };
    check(&Trace { notification: at_once, ..live() }, TargetedBy::User, Some(Reason::Offline), offline);
    let named = |named| Trace { target: TracedTarget::Devices { named }, ..live() };
    check(&named(Some(true)), TargetedBy::Device, Some(Reason::Offline), offline);
    let stranger = "The request did not name the device.";
    check(&named(Some(false)), TargetedBy::Nothing, Some(Reason::NotTargeted), stranger);
    let unknown = "An older version accepted it and did not record which devices it named.";
    check(&named(None), TargetedBy::Unknown, Some(Reason::NotRecorded), unknown);
    let other = Trace { target: TracedTarget::Users { named: Some(false) }, ..live() };
    let sentence = "The request did not name the device's user \"u1\".";
    check(&other, TargetedBy::Nothing, Some(Reason::NotTargeted), sentence);
    let bare = Trace { device: TracedDevice { user: None, ..live().device }, ..other };
    let sentence = "It was for users, and the device has none.";
    check(&bare, TargetedBy::Nothing, Some(Reason::NotTargeted), sentence);
}

#[test]
fn a_device_that_came_later_is_told_so() {
    let late = TracedDevice { created_at: LATER, ..live().device };
    let sentence = format!(
        "The request named the device's user \"u1\", but the device was registered at {LATER}, after the notification was \
         sent."
    );
    check(
        &Trace { device: late.clone(), ..live() },
        TargetedBy::User,
        Some(Reason::RegisteredLater),
        &sentence,
    );
    let unnamed = Trace { device: late, target: TracedTarget::Devices { named: None }, ..live() };
    let sentence = format!("The device was registered at {LATER}, after the notification was sent.");
    check(&unnamed, TargetedBy::Nothing, Some(Reason::RegisteredLater), &sentence);

    let moved = TracedDevice { user_at: Some(LATER), ..live().device };
    let sentence = format!(
        "The request named the device's user \"u1\", but the device has had this user only since {LATER}."
    );
    check(
        &Trace { device: moved.clone(), ..live() },
        TargetedBy::User,
        Some(Reason::UserChangedLater),
        &sentence,
    );
    let sentence = format!(
        "The request did not name the device's user, which has been the user since {LATER}; the user before is not \
         recorded."
    );
    let other = Trace { device: moved, target: TracedTarget::Users { named: Some(false) }, ..live() };
    check(&other, TargetedBy::Unknown, Some(Reason::NotRecorded), &sentence);
}

#[test]
fn a_topic_reaches_subscribers() {
    let topic = || Topic::parse("news").expect("a topic");
    let of = |subscription| TracedTarget::Topic { topic: topic(), subscription };
    let since = |since, is_past| of(Some(Subscribed { since, is_past }));
    let waits = "It is in the topic's log until the device connects.";
    let early = Some(Timestamp(SENT.0 - 1));
    check(&stored(since(early, false)), TargetedBy::Subscription, Some(Reason::Offline), waits);
    let sentence = format!(
        "The device subscribes durably to the topic \"news\", but it subscribed at {LATER}, after the notification was sent."
    );
    let reason = Some(Reason::SubscribedLater);
    check(&stored(since(Some(LATER), true)), TargetedBy::Subscription, reason, &sentence);
    let past = "The device's position in the topic is past it: the device acknowledged it or a later message of the topic";
    check(&stored(since(early, true)), TargetedBy::Subscription, None, &format!("{past}."));
    check(
        &stored(since(None, true)),
        TargetedBy::Subscription,
        None,
        &format!("{past}, or subscribed later."),
    );

    let with = |change: fn(&mut TracedNotification)| {
        let mut trace = stored(since(early, false));
        change(&mut trace.notification);
        trace
    };
    let ended = |trace: &Trace, reason, sentence: &str| {
        check(trace, TargetedBy::Subscription, Some(reason), sentence);
    };
    let evicted = with(|notification| notification.is_replaced = true);
    ended(&evicted, Reason::Evicted, "Newer messages pushed it out of the topic's full log.");
    let collapsed = with(|notification| {
        (notification.is_replaced, notification.has_collapse_key) = (true, true);
    });
    let sentence =
        "A newer notification with the same collapse key replaced it before the device acknowledged it.";
    ended(&collapsed, Reason::Collapsed, sentence);
    let expired = with(|notification| notification.expires_at = NOW);
    ended(&expired, Reason::Expired, "Its ttl ended before the device acknowledged it.");
    let cancelled = with(|notification| notification.is_cancelled = true);
    ended(&cancelled, Reason::Cancelled, "It was cancelled before the device received it.");
    let connected = Present { is_connected: true, ..PRESENT };
    let sentence = "It is in the topic's log; the device is connected, but no write to it is recorded yet.";
    let fresh = stored(since(early, false));
    check_at(&fresh, connected, TargetedBy::Subscription, Some(Reason::Pending), sentence);
    let muted = Present { suppressed: Some(Outcome::Muted), ..connected };
    let sentence = "It was not delivered live: the preferences mute its topic or category.";
    check_at(&fresh, muted, TargetedBy::Subscription, Some(Reason::Muted), sentence);

    let without = Trace { target: of(None), ..live() };
    let sentence = "The device does not subscribe to the topic \"news\"; whether it had a subscription that has ended since \
                    is not recorded.";
    check(&without, TargetedBy::Nothing, Some(Reason::NotTargeted), sentence);
    let steps = vec![TraceStep { at: SENT, outcome: Outcome::Written, reason: None }];
    let sentence =
        "It was written to the device's connection; no acknowledgement was requested or has arrived.";
    check(&Trace { steps, ..without }, TargetedBy::Session, None, sentence);
}

#[test]
fn a_condition_and_everyone_select_devices() {
    let condition = |matches, matched| {
        let text = "'a' in topics".to_owned();
        Trace { target: TracedTarget::Condition { text, matches, matched }, ..live() }
    };
    assert_eq!(explain(&condition(false, true), PRESENT).reason, Some(Reason::Offline), "it matched then");
    let later = explain(&condition(true, false), PRESENT);
    assert_eq!((later.targeted_by, later.reason), (TargetedBy::Condition, Some(Reason::SubscribedLater)));
    let never = explain(&condition(false, false), PRESENT);
    assert_eq!((never.targeted_by, never.reason), (TargetedBy::Nothing, Some(Reason::NotTargeted)));
    let everyone = Trace { target: TracedTarget::Everyone { subscription: None }, ..live() };
    assert_eq!(explain(&everyone, PRESENT).targeting, "It was for all devices.");
    let late = TracedDevice { created_at: LATER, ..live().device };
    let late = explain(&Trace { device: late, ..everyone }, PRESENT);
    assert_eq!((late.targeted_by, late.reason), (TargetedBy::Everyone, Some(Reason::RegisteredLater)));
}

#[test]
fn a_waiting_push_has_its_time() {
    let waits = |due_at, stage| Trace { push: Some(PendingPush { due_at, stage }), ..live() };
    let check = |due_at, stage, quota: bool, reason: Option<Reason>, sentence: &str| {
        let found = explain(&waits(due_at, stage), Present { waits_for_quota: quota, ..PRESENT });
        assert!(found.summary.ends_with(sentence), "{found:?}");
        assert_eq!((found.reason, found.push.is_some()), (reason, true));
    };
    let (later, offline) = (Timestamp(NOW.0 + 1), Some(Reason::Offline));
    let due = format!("A push is due at {later}.");
    check(later, PushStage::Queued, true, offline, &due);
    check(later, PushStage::Collected, false, offline, &due);
    let sentence = format!("A push has been due since {LATER}; it waits for a sender.");
    check(LATER, PushStage::Queued, false, offline, &sentence);
    let sentence = format!(
        "A push has been due since {LATER}; it waits because the app has used up its quota of pushes."
    );
    check(LATER, PushStage::Queued, true, Some(Reason::Quota), &sentence);
    let sentence = format!("A sender took its push at {LATER}; the push service has not answered yet.");
    check(LATER, PushStage::Taken { since: Some(LATER) }, true, offline, &sentence);
    let acked =
        Trace { push: waits(later, PushStage::Queued).push, ..recorded(&[(Outcome::Acked, None)], false) };
    assert_eq!(explain(&acked, PRESENT).push, None, "no push is needed any more");
}

#[test]
fn a_campaign_selects_devices() {
    let campaign = || TracedCampaign {
        id: CampaignId::from_bytes([1; 16]),
        spec: JsonText::from_valid("{}"),
        state: CampaignState::Running,
        started_at: Some(SENT),
        is_past: false,
        uploaded: Some(false),
        is_published: false,
    };
    let check = |campaign: TracedCampaign, segment, by, reason| {
        let trace = Trace { target: TracedTarget::Campaign(Box::new(campaign)), ..live() };
        let found = explain(&trace, Present { segment, ..PRESENT });
        assert_eq!((found.targeted_by, found.reason), (by, Some(reason)), "{found:?}");
    };
    use {Reason as Why, TargetedBy as By};
    check(campaign(), Segment::Inside, By::Campaign, Why::NotReached);
    let state = |state| TracedCampaign { state, ..campaign() };
    check(state(CampaignState::Scheduled), Segment::Inside, By::Campaign, Why::NotReached);
    check(state(CampaignState::Aborted), Segment::Inside, By::Campaign, Why::Cancelled);
    check(campaign(), Segment::Outside, By::Nothing, Why::NotTargeted);
    check(campaign(), Segment::Unknown, By::Unknown, Why::NotRecorded);
    let past = || TracedCampaign { is_past: true, ..campaign() };
    check(past(), Segment::Inside, By::Unknown, Why::NotRecorded);
    check(campaign(), Segment::Upload, By::Nothing, Why::NotTargeted);
    let uploaded = |uploaded| TracedCampaign { uploaded, ..campaign() };
    check(uploaded(Some(true)), Segment::Upload, By::Upload, Why::NotReached);
    check(uploaded(None), Segment::Upload, By::Unknown, Why::NotRecorded);
    let waits = |campaign, due_at, sentence: &str| {
        let target = TracedTarget::Campaign(Box::new(campaign));
        let push = Some(PendingPush { due_at, stage: PushStage::Queued });
        let found =
            explain(&Trace { target, push, ..live() }, Present { segment: Segment::Outside, ..PRESENT });
        assert_eq!((found.targeted_by, found.reason), (By::Campaign, Some(Why::PushPending)));
        assert_eq!(found.summary, sentence);
    };
    let since = format!("The campaign has been due to send it since {LATER}; it waits for a sender.");
    waits(campaign(), LATER, &since);
    let later = Timestamp(NOW.0 + 1);
    waits(campaign(), later, &format!("The campaign sends it at {later}."));
    waits(state(CampaignState::Paused), LATER, "The campaign is paused and has not sent it yet.");
}
