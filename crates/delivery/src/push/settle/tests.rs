//! Every answer and what it leads to.

use noroshi_store::Work;
use noroshi_types::{AppId, BatchId, Lane, NotificationId, PushEnvironment, PushService};

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn batch(attempt: u32, recipients: u64) -> Batch {
    Batch {
        id: BatchId(7),
        app: AppId(1),
        service: Some(PushService::Apns),
        lane: Lane::Direct,
        due_at: NOW,
        attempt,
        work: Work::Notification(NotificationId::from_bytes([0; 16])),
        campaign: None,
        leased_until: NOW,
        recipients: (0..recipients).map(DeviceNum).collect(),
    }
}

fn sent(device: u64, expires_at: Timestamp) -> Sent {
    let realm = (AppId(1), PushService::Apns, PushEnvironment::Production);
    Sent { device: DeviceNum(device), token_at: Timestamp(50), realm, expires_at }
}

fn settle(attempt: u32, expires_at: Timestamp, answers: Vec<Answer>) -> (Finished, Vec<Told>) {
    let batch = batch(attempt, answers.len() as u64);
    let sent: Vec<Sent> = (0..answers.len() as u64).map(|device| sent(device, expires_at)).collect();
    let mut settle = Settle::new(&batch);
    let with = (&Hygiene::default(), Backoff::default(), NOW);
    let told = settle.answers(&batch, &sent, answers, with);
    (settle.finish(Vec::new()), told)
}

#[test]
fn each_answer_has_its_outcome() {
    let later = NOW.saturating_add(Duration::from_secs(86_400));
    let check = |answer: Answer, outcome: Outcome, reason: Option<&'static str>| {
        let (finished, _) = settle(0, later, vec![answer.clone()]);
        let parts = [PushPart { outcome, reason, variant: None, devices: vec![DeviceNum(0)] }];
        assert_eq!(finished.parts, parts, "{answer:?}");
        assert!(finished.again.is_empty());
        (finished.gone.len(), finished.suspects.len())
    };
    assert_eq!(check(Answer::Accepted, Outcome::Pushed, None), (0, 0));
    assert_eq!(check(Answer::Unconfigured, Outcome::PushUnconfigured, None), (0, 0));
    assert_eq!(check(Answer::Expired, Outcome::PushExpired, None), (0, 0));
    let refused = Answer::Refused { reason: "PayloadTooLarge" };
    assert_eq!(check(refused, Outcome::PushRefused, Some("PayloadTooLarge")), (0, 0));
    let gone = |since| Answer::Gone { reason: "Unregistered", since };
    assert_eq!(check(gone(None), Outcome::PushTokenGone, Some("Unregistered")), (1, 0));
    assert_eq!(check(gone(Some(Timestamp(51))), Outcome::PushTokenGone, Some("Unregistered")), (1, 0));
    // Registered after the service knew it dead: no proof.
    assert_eq!(check(gone(Some(Timestamp(50))), Outcome::PushRefused, Some("Unregistered")), (0, 0));
    let suspect = Answer::Suspect { reason: "BadDeviceToken" };
    assert_eq!(check(suspect, Outcome::PushTokenSuspect, Some("BadDeviceToken")), (0, 1));
}

#[test]
fn what_may_succeed_later_is_one_row_due_later() {
    let later = Answer::Later { reason: "timeout", after: Duration::from_millis(500) };
    let expires_at = NOW.saturating_add(Duration::from_secs(60));
    let (finished, _) = settle(0, expires_at, vec![later.clone(), Answer::Accepted, later.clone()]);
    let [again] = &finished.again[..] else { panic!("{finished:?}") };
    assert_eq!((again.attempt, &again.recipients[..]), (1, &[DeviceNum(0), DeviceNum(2)][..]));
    assert!(again.due_at >= NOW.saturating_add(Duration::from_secs(5)));
    // Too late for another attempt.
    let (finished, _) = settle(9, expires_at, vec![later]);
    assert!(finished.again.is_empty());
    assert_eq!(finished.parts[0].outcome, Outcome::PushExpired);
    assert_eq!(finished.parts[0].reason, Some("timeout"));
}

#[test]
fn who_waits_for_another_attempt_keeps_its_variant_and_its_place_in_the_row() {
    let batch = batch(0, 3);
    let mut settle = Settle::new(&batch);
    let given = [(DeviceNum(0), VariantNum(1)), (DeviceNum(2), VariantNum(2))];
    for (device, variant) in given {
        settle.given(device, Some(variant));
    }
    (0..3).for_each(|device| settle.again(NOW, 1, DeviceNum(device)));
    let finished = settle.finish(Vec::new());
    let [again] = &finished.again[..] else { panic!("{finished:?}") };
    assert_eq!((&again.recipients, &again.variants), (&batch.recipients, &given.into_iter().collect()));
}

#[test]
fn when_most_tokens_are_doubted_none_is_set_aside() {
    let doubted = Answer::Suspect { reason: "BadDeviceToken" };
    let (finished, told) = settle(0, NOW, vec![doubted; 100]);
    assert!(finished.suspects.is_empty());
    assert_eq!(finished.parts[0].outcome, Outcome::PushRefused);
    assert!(matches!(told[..], [(_, Rate::Alarm { suspects: 100, answers: 100 })]));
    let (finished, told) =
        settle(0, NOW, vec![Answer::Suspect { reason: "BadDeviceToken" }, Answer::Accepted]);
    assert_eq!((finished.suspects.len(), told.len()), (1, 0));
}
