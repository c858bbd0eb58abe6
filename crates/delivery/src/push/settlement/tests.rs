//! Every answer and its results.

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
        variant: None,
        token: None,
        leased_until: NOW,
        recipients: (0..recipients).map(DeviceNum).collect(),
    }
}

fn sent(device: u64, expires_at: Timestamp) -> Sent {
    let realm = (AppId(1), PushService::Apns, PushEnvironment::Production);
    Sent { device: DeviceNum(device), token_at: Timestamp(50), realm, expires_at }
}

fn settle(attempt: u32, expires_at: Timestamp, answers: Vec<Answer>) -> (Finished, Vec<RateChange>) {
    let batch = batch(attempt, answers.len() as u64);
    let sent: Vec<Sent> = (0..answers.len() as u64).map(|device| sent(device, expires_at)).collect();
    let mut settle = Settlement::new(&batch);
    let with = (&TokenHealth::default(), Backoff::default(), NOW);
    let written = vec![false; answers.len()];
    let changes = settle.answers(&batch, &sent, (answers, &written), with);
    (settle.finish(Vec::new()), changes)
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
    // Registered after the time that the service names: no proof.
    assert_eq!(check(gone(Some(Timestamp(50))), Outcome::PushRefused, Some("Unregistered")), (0, 0));
    let suspect = Answer::Suspect { reason: "BadDeviceToken" };
    assert_eq!(check(suspect, Outcome::PushTokenSuspect, Some("BadDeviceToken")), (0, 1));
}

#[test]
fn retries_of_the_same_time_are_one_row() {
    let later = Answer::Later { reason: "timeout", after: Duration::from_millis(500) };
    let expires_at = NOW.saturating_add(Duration::from_secs(60));
    let (finished, _) = settle(0, expires_at, vec![later.clone(), Answer::Accepted, later.clone()]);
    let [again] = &finished.again[..] else { panic!("{finished:?}") };
    assert_eq!((again.attempt, &again.recipients[..]), (1, &[DeviceNum(0), DeviceNum(2)][..]));
    assert!(again.due_at >= NOW.saturating_add(Duration::from_secs(5)));
    // Too late for a retry.
    let (finished, _) = settle(9, NOW.saturating_add(Duration::from_secs(30)), vec![later]);
    assert!(finished.again.is_empty());
    assert_eq!(finished.parts[0].outcome, Outcome::PushExpired);
    assert_eq!(finished.parts[0].reason, Some("timeout"));
}

#[test]
fn what_a_part_has_is_not_in_the_end() {
    let batch = batch(0, 3);
    let sent: Vec<Sent> = (0..3).map(|device| sent(device, NOW)).collect();
    let mut settle = Settlement::new(&batch);
    settle.variant(DeviceNum(0), || Some(VariantNum(2)));
    let rest = Rest { leased_until: NOW, recipients: vec![DeviceNum(2)] };
    let part = settle.accepted(&[DeviceNum(0), DeviceNum(1)], rest.clone());
    let pushed = |variant, device| PushPart {
        outcome: Outcome::Pushed,
        reason: None,
        variant,
        devices: vec![DeviceNum(device)],
    };
    assert_eq!(part.parts, [pushed(None, 1), pushed(Some(VariantNum(2)), 0)]);
    assert_eq!((part.batch, part.rest), (batch.id, Some(rest)));
    let (answers, written) = (vec![Answer::Accepted; 3], [true, true, false]);
    let with = (&TokenHealth::default(), Backoff::default(), NOW);
    settle.answers(&batch, &sent, (answers, &written), with);
    let finished = settle.finish(Vec::new());
    assert_eq!((finished.parts, finished.rest), (vec![pushed(None, 2)], None));
}

#[test]
fn a_retry_keeps_its_variant() {
    let mut settle = Settlement::new(&batch(0, 4));
    for (device, place) in [(0, 1), (2, 2), (3, 1)] {
        let given = settle.variant(DeviceNum(device), || Some(VariantNum(place)));
        assert_eq!(given, Some(VariantNum(place)));
    }
    (0..4).for_each(|device| settle.again(NOW, 1, DeviceNum(device)));
    let again = settle.finish(Vec::new()).again;
    let rows: Vec<_> = again.into_iter().map(|again| (again.variant, again.recipients)).collect();
    let row = |place: Option<u8>, devices: &[u64]| {
        (place.map(VariantNum), devices.iter().copied().map(DeviceNum).collect::<Vec<_>>())
    };
    assert_eq!(rows, [row(None, &[1]), row(Some(1), &[0, 3]), row(Some(2), &[2])]);
}

#[test]
fn a_drawn_variant_is_not_drawn_again() {
    let drawn = Some(VariantNum(2));
    let mut settle = Settlement::new(&Batch { variant: drawn, ..batch(1, 3) });
    assert_eq!(settle.variant(DeviceNum(0), || Some(VariantNum(1))), drawn);
    settle.part(Outcome::Pushed, None, DeviceNum(0));
    // Deleted in the meantime, so no variant is drawn.
    settle.part(Outcome::Unknown, None, DeviceNum(1));
    settle.again(NOW, 2, DeviceNum(2));
    let finished = settle.finish(Vec::new());
    assert!(finished.parts.iter().all(|part| part.variant == drawn), "{finished:?}");
    assert_eq!(finished.again[0].variant, drawn);
}

#[test]
fn a_recipient_without_a_variant_keeps_none() {
    let of_none = Some(VariantNum::NO_VARIANT);
    let mut settle = Settlement::new(&batch(0, 2));
    assert_eq!(settle.variant(DeviceNum(0), || of_none), None);
    settle.again(NOW, 1, DeviceNum(0));
    // A campaign that sends no variants.
    assert_eq!(settle.variant(DeviceNum(1), || None), None);
    settle.again(NOW, 1, DeviceNum(1));
    let again = settle.finish(Vec::new()).again;
    assert_eq!(again.iter().map(|again| again.variant).collect::<Vec<_>>(), [None, of_none]);
    let mut settle = Settlement::new(&Batch { variant: of_none, ..batch(1, 2) });
    assert_eq!(settle.variant(DeviceNum(0), || Some(VariantNum(1))), None, "its audience since");
    settle.part(Outcome::Pushed, None, DeviceNum(0));
    settle.again(NOW, 2, DeviceNum(1));
    let finished = settle.finish(Vec::new());
    assert_eq!((finished.parts[0].variant, finished.again[0].variant), (None, of_none));
}

#[test]
fn when_most_tokens_are_suspect_none_is_set_aside() {
    let suspect = Answer::Suspect { reason: "BadDeviceToken" };
    let (finished, changes) = settle(0, NOW, vec![suspect; 100]);
    assert!(finished.suspects.is_empty());
    assert_eq!(finished.parts[0].outcome, Outcome::PushRefused);
    assert!(matches!(changes[..], [(_, Rate::Alarm { suspects: 100, answers: 100 })]));
    let (finished, changes) =
        settle(0, NOW, vec![Answer::Suspect { reason: "BadDeviceToken" }, Answer::Accepted]);
    assert_eq!((finished.suspects.len(), changes.len()), (1, 0));
}
