//! Campaigns: states, uploads, sums and how they end.

use noroshi_store::{
    Accept, Again, Audience, Campaign, CampaignFilter, CampaignState, Error, Finished, Idempotency, NewBatch,
    NewCampaign, NewVariant, OfCampaign, OutcomePart, PushPart, RemovedMessages, Store, Take, UploadLine,
    Uploader, VariantNum, Waiting, WaitingStep, Work,
};
use noroshi_types::{AppId, CampaignId, DeviceNum, JsonText, Lane, Outcome, PushService, Request, When};

use super::fixture::*;
use super::maintenance::RETENTION_SECONDS;
use super::push_fixture::*;

async fn campaign(store: &dyn Store, app: AppId, id: CampaignId) -> Campaign {
    store.campaign(app, id, at(1)).await.expect("read").expect("found")
}

async fn go(
    store: &dyn Store,
    app: AppId,
    id: CampaignId,
    from: &[CampaignState],
    to: CampaignState,
    seconds: u64,
) -> Result<CampaignState, Error> {
    store.set_campaign_state(app, id, from, to, at(seconds)).await.map(|(state, _)| state)
}

fn line(of: &str, text: &str) -> UploadLine {
    UploadLine { user: user(of), line: JsonText::from_valid(format!(r#"{{"user":"{of}","text":"{text}"}}"#)) }
}

fn part(outcome: Outcome, reason: Option<&'static str>, devices: &[DeviceNum]) -> PushPart {
    PushPart { outcome, reason, variant: None, devices: devices.to_vec() }
}

async fn members(store: &dyn Store, app: AppId, count: usize) -> Vec<DeviceNum> {
    let mut nums = Vec::new();
    for i in 0..count {
        nums.push(pushable(store, app, &format!("d{i}"), &format!("u{i}"), &[], PushService::Apns).await);
    }
    nums
}

pub(crate) async fn a_campaign_is_kept_and_listed(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let new = new_campaign(app, CampaignState::Draft);
    let made = store.create_campaign(new.clone(), NOW).await.expect("created").campaign;
    assert_eq!((made.app, &made.spec, made.state), (app, &new.spec, CampaignState::Draft));
    assert_eq!((made.created_at, made.started_at, made.finished_at), (NOW, None, None));
    assert_eq!((made.cursor, made.walked, made.recipients, made.uploaded), (0, false, 0, 0));
    assert_eq!(campaign(store, app, made.id).await, made);
    assert!(store.campaign(other, made.id, NOW).await.expect("read").is_none(), "another app's campaign");
    let state = store.notification(app, made.notification, NOW).await.expect("read").expect("found");
    assert_eq!((state.request.target, &state.message.notification), ("campaign", &new.notification));
    let nobodys = NewCampaign { app: AppId(99), ..new.clone() };
    assert!(matches!(store.create_campaign(nobodys, NOW).await, Err(Error::NotFound)));

    let mut all = vec![made.id];
    for seconds in 1..4 {
        let new = new_campaign(app, CampaignState::Running);
        let made = store.create_campaign(new, at(seconds)).await.expect("created").campaign;
        assert_eq!(made.started_at, Some(at(seconds)));
        all.insert(0, made.id);
    }
    let theirs = store
        .create_campaign(new_campaign(other, CampaignState::Scheduled), at(9))
        .await
        .expect("created")
        .campaign;
    let ids = |found: Vec<Campaign>| -> Vec<_> { found.iter().map(|campaign| campaign.id).collect() };
    let list = async |before, limit| {
        let filter = CampaignFilter { before, ..CampaignFilter::first(limit) };
        ids(store.list_campaigns(app, filter, NOW).await.expect("read").campaigns)
    };
    assert_eq!(list(None, 9).await, all);
    assert_eq!(list(None, 2).await, all[..2]);
    assert_eq!(list(Some(all[1]), 9).await, all[2..]);
    go(store, app, all[0], &[CampaignState::Running], CampaignState::Aborted, 5).await.expect("aborted");
    let active = ids(store.active_campaigns(NOW).await.expect("read"));
    assert_eq!(active, [all[3], all[2], all[1], theirs.id], "oldest first, of all apps, without ended ones");
}

pub(crate) async fn campaign_states_change_in_order(store: &dyn Store) {
    use CampaignState::{Aborted, Done, Draft, Paused, Running, Scheduled};
    let app = app(store, "shop").await;
    let id = store.create_campaign(new_campaign(app, Draft), NOW).await.expect("created").campaign.id;
    assert!(matches!(go(store, app, id, &[Running], Paused, 1).await, Err(Error::Conflict)));
    assert_eq!(go(store, app, id, &[Draft], Scheduled, 1).await.expect("planned"), Scheduled);
    assert_eq!(go(store, app, id, &[Draft, Scheduled], Running, 2).await.expect("started"), Running);
    assert_eq!(go(store, app, id, &[Running], Paused, 3).await.expect("paused"), Paused);
    assert_eq!(go(store, app, id, &[Paused], Running, 4).await.expect("resumed"), Running);
    assert_eq!(campaign(store, app, id).await.started_at, Some(at(2)), "when it first ran");
    assert_eq!(go(store, app, id, &[Running, Paused], Aborted, 5).await.expect("aborted"), Aborted);
    assert_eq!(campaign(store, app, id).await.finished_at, Some(at(5)));
    assert!(matches!(go(store, app, id, &[Running, Paused], Aborted, 6).await, Err(Error::Conflict)));
    let unknown = CampaignId::from_bytes([9; 16]);
    assert!(matches!(go(store, app, unknown, &[Draft], Done, 6).await, Err(Error::NotFound)));
    assert!(matches!(go(store, AppId(99), id, &[Aborted], Draft, 6).await, Err(Error::NotFound)));
}

pub(crate) async fn an_idempotency_key_creates_one_campaign(store: &dyn Store) {
    use CampaignState::{Aborted, Draft, Paused, Running};
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let make = async |app, key: &str, body: u8, seconds| {
        let idempotency = Idempotency { key: key.into(), body_hash: [body; 32] };
        let before = store.created_campaign(app, idempotency.clone(), at(seconds)).await;
        let new = NewCampaign { idempotency: Some(idempotency), ..new_campaign(app, Draft) };
        let made = store.create_campaign(new, at(seconds)).await;
        match (&before, &made) {
            (Ok(before), Ok(made)) => {
                assert_eq!(before.as_ref(), made.replayed.then_some(&made.campaign), "{key} {body}");
            }
            (Err(Error::IdempotencyConflict), Err(Error::IdempotencyConflict)) => {}
            both => panic!("{both:?}"),
        }
        made
    };
    let conflicts = |made: Result<_, Error>| matches!(made, Err(Error::IdempotencyConflict));
    let first = make(app, "k", 1, 0).await.expect("created");
    assert!(!first.replayed);
    let id = first.campaign.id;
    go(store, app, id, &[Draft], Paused, 1).await.expect("paused");
    let again = make(app, "k", 1, 86_399).await.expect("answered");
    assert_eq!(
        (again.replayed, again.campaign.id, again.campaign.state),
        (true, id, Paused),
        "the campaign's current state"
    );
    assert!(conflicts(make(app, "k", 2, 1).await.map(drop)), "another body");
    assert!(!make(other, "k", 1, 1).await.expect("created").replayed, "a key is the app's own");

    let request = || stored(to_topic("news"));
    assert!(conflicts(send_once(store, app, request(), "k", 1, NOW).await.map(drop)), "a campaign's");
    send_once(store, app, request(), "n", 1, NOW).await.expect("accepted");
    assert!(conflicts(make(app, "n", 1, 1).await.map(drop)), "a notification's");
    let made = store.list_campaigns(app, CampaignFilter::first(9), NOW).await.expect("read").campaigns;
    assert_eq!(made.len(), 1, "a failed call changes nothing");

    go(store, app, id, &[Paused], Running, 2).await.expect("resumed");
    go(store, app, id, &[Running], Aborted, 3).await.expect("aborted");
    store.delete_campaign(app, id).await.expect("deleted");
    assert!(!make(app, "k", 1, 4).await.expect("created").replayed, "forgotten with its campaign");
    assert!(!make(app, "k", 2, 86_404).await.expect("created").replayed, "a key is remembered for a day");
}

pub(crate) async fn a_campaign_runs_to_its_end(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 4).await;
    let id = running(store, app).await;
    let state = store
        .enqueue(
            id,
            0,
            vec![batch(Lane::Campaign, 0, &[nums[1], nums[0]]), batch(Lane::Campaign, 60, &nums[2..3])],
            nums[2].0,
            false,
            Vec::new(),
            NOW,
        )
        .await
        .expect("enqueued");
    assert_eq!(state, CampaignState::Running);
    let rest = vec![part(Outcome::NoPushToken, None, &nums[3..])];
    let twice = store.enqueue(id, 0, Vec::new(), nums[3].0, true, Vec::new(), at(1)).await;
    assert!(matches!(twice, Err(Error::Conflict)), "another collector continued it");
    store.enqueue(id, nums[2].0, Vec::new(), nums[3].0, true, rest, at(1)).await.expect("collected");
    let found = campaign(store, app, id).await;
    assert_eq!((found.cursor, found.walked, found.recipients), (nums[3].0, true, 3));
    assert_eq!((found.batches_open, found.batches_later, found.batches_taken), (2, 1, 0));

    let first = take(store, 1).await.batches.remove(0);
    assert_eq!(
        (first.work, first.campaign, first.service),
        (Work::Campaign(id), Some(id), Some(PushService::Apns))
    );
    assert_eq!(first.recipients, nums[..2]);
    let finished = Finished {
        parts: vec![part(Outcome::PushRefused, Some("BadTopic"), &nums[..1])],
        again: vec![again(30, 1, &nums[1..2])],
        latencies: vec![(7, 1), (3, 1), (9, 0)],
        ..ended(first.id)
    };
    let counts = store.finish(vec![finished], at(2)).await.expect("finished");
    assert_eq!(counts.done, []);
    let later = take(store, 60).await.batches;
    assert_eq!(
        later.iter().map(|batch| (batch.due_at, batch.attempt)).collect::<Vec<_>>(),
        [(at(30), 1), (at(60), 0)]
    );
    for (i, batch) in later.into_iter().enumerate() {
        let finished = Finished {
            parts: vec![part(Outcome::Pushed, None, &batch.recipients)],
            latencies: vec![(7, 2)],
            ..ended(batch.id)
        };
        let counts = store.finish(vec![finished], at(70)).await.expect("finished");
        assert_eq!(counts.done, if i == 1 { vec![(app, id)] } else { vec![] });
    }
    let found = campaign(store, app, id).await;
    assert_eq!((found.state, found.finished_at, found.batches_open), (CampaignState::Done, Some(at(70)), 0));
    let none = String::new;
    assert_eq!(
        found.counts,
        [
            (Outcome::Pushed, none(), 2),
            (Outcome::PushRefused, "BadTopic".to_owned(), 1),
            (Outcome::NoPushToken, none(), 1)
        ]
    );
    assert_eq!(found.latencies, [(3, 1), (7, 5)]);
    let trace = store.trace(app, found.notification, &device("d0")).await.expect("read").expect("found");
    assert_eq!(trace.steps[0].reason.as_deref(), Some("BadTopic"), "its outcomes belong to one notification");
    // The retention starts when the campaign ends.
    let known = async || store.notification(app, found.notification, NOW).await.expect("read").is_some();
    store.prune(at(69 + RETENTION_SECONDS), 100).await.expect("pruned");
    assert!(known().await);
    store.prune(at(70 + RETENTION_SECONDS), 100).await.expect("pruned");
    assert!(!known().await);
    assert_eq!(campaign(store, app, id).await.counts.len(), 3, "its sums remain");
}

pub(crate) async fn an_empty_audience_ends_the_campaign(store: &dyn Store) {
    let app = app(store, "shop").await;
    let id = running(store, app).await;
    let state = store.enqueue(id, 0, Vec::new(), 0, true, Vec::new(), at(3)).await.expect("collected");
    assert_eq!(state, CampaignState::Done);
    assert!(matches!(
        store.enqueue(id, 0, Vec::new(), 0, true, Vec::new(), at(4)).await,
        Err(Error::Conflict)
    ));
    let unknown = CampaignId::from_bytes([9; 16]);
    assert!(matches!(
        store.enqueue(unknown, 0, Vec::new(), 0, true, Vec::new(), NOW).await,
        Err(Error::NotFound)
    ));
}

pub(crate) async fn a_paused_campaign_sends_nothing(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 2).await;
    let id = running(store, app).await;
    let batches = vec![batch(Lane::Campaign, 0, &nums[..1]), batch(Lane::Campaign, 1, &nums[1..])];
    store.enqueue(id, 0, batches, 1, true, Vec::new(), NOW).await.expect("enqueued");
    let sent = take(store, 0).await.batches;
    go(store, app, id, &[CampaignState::Running], CampaignState::Paused, 1).await.expect("paused");
    let taken = take(store, 5).await;
    assert_eq!((taken.batches.len(), taken.next_due), (0, Some(at(LEASE_SECONDS))));
    assert!(matches!(store.enqueue(id, 1, Vec::new(), 2, true, Vec::new(), NOW).await, Err(Error::Conflict)));
    end_all(store, sent, Outcome::Pushed).await;
    assert_eq!(campaign(store, app, id).await.state, CampaignState::Paused);
    go(store, app, id, &[CampaignState::Paused], CampaignState::Running, 6).await.expect("resumed");
    let sent = take(store, 6).await.batches;
    assert_eq!(sent.concat_recipients(), nums[1..]);
    // The last answer arrives while the campaign is paused again.
    go(store, app, id, &[CampaignState::Running], CampaignState::Paused, 7).await.expect("paused");
    end_all(store, sent, Outcome::Pushed).await;
    assert_eq!(campaign(store, app, id).await.state, CampaignState::Done);
}

pub(crate) async fn a_campaign_that_started_does_not_wait_for_its_clock(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 4).await;
    let (id, other) = (running(store, app).await, running(store, app).await);
    let batches = nums[..3].iter().zip([10, 10, 20]).map(|(num, due)| batch(Lane::Campaign, due, &[*num]));
    store.enqueue(id, 0, batches.collect(), 1, true, Vec::new(), NOW).await.expect("enqueued");
    let others = vec![batch(Lane::Campaign, 10, &nums[3..])];
    store.enqueue(other, 0, others, 1, true, Vec::new(), NOW).await.expect("enqueued");
    assert!(take(store, 5).await.batches.is_empty());
    assert_eq!(store.make_due(id, at(10), at(5)).await.expect("changed"), 2);
    assert_eq!(store.make_due(id, at(10), at(5)).await.expect("changed"), 0);
    let taken = take(store, 5).await.batches;
    assert_eq!(taken.concat_recipients(), nums[..2]);
    assert_eq!(taken[0].due_at, at(5));
}

pub(crate) async fn an_aborted_campaign_sends_nothing(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 4).await;
    let id = running(store, app).await;
    let batches = nums.iter().zip(0..).map(|(num, seconds)| batch(Lane::Campaign, seconds, &[*num]));
    store.enqueue(id, 0, batches.collect(), 1, false, Vec::new(), NOW).await.expect("enqueued");
    let sent = take(store, 1).await.batches;
    assert_eq!(sent.len(), 2);
    let (from, to) = ([CampaignState::Running], CampaignState::Aborted);
    let (_, departed) = store.set_campaign_state(app, id, &from, to, at(2)).await.expect("aborted");
    let cancelled = |num| removed_part(app, Work::Campaign(id), Outcome::Cancelled, at(2), &[num]);
    assert_eq!(departed.parts, [cancelled(nums[2]), cancelled(nums[3])]);
    let found = campaign(store, app, id).await;
    assert_eq!(found.counts, [(Outcome::Cancelled, String::new(), 2)]);
    assert_eq!((found.batches_open, found.batches_taken), (2, 2), "the active ones");
    let taken = take(store, 9).await;
    assert_eq!(taken.batches, []);
    assert_eq!(taken.departed, RemovedMessages::default(), "once");
    let retry = vec![again(3, 1, &sent[0].recipients)];
    let retried = Finished { again: retry, ..ended(sent[0].id) };
    let pushed =
        Finished { parts: vec![part(Outcome::Pushed, None, &sent[1].recipients)], ..ended(sent[1].id) };
    let counts = store.finish(vec![retried, pushed], at(4)).await.expect("finished");
    let cancelled = removed_part(app, Work::Campaign(id), Outcome::Cancelled, at(4), &sent[0].recipients);
    assert_eq!((counts.cancelled.parts, counts.done), (vec![cancelled], vec![]));
    let found = campaign(store, app, id).await;
    assert_eq!(found.counts, [(Outcome::Cancelled, String::new(), 3), (Outcome::Pushed, String::new(), 1)]);
    assert_eq!((found.state, found.batches_open), (CampaignState::Aborted, 0));
    let trace = store.trace(app, found.notification, &device("d3")).await.expect("read").expect("found");
    assert_eq!(trace.steps, [step(at(2), Outcome::Cancelled)]);
}

/// Leased batches of a crashed process are not sent again if their campaign was aborted.
pub(crate) async fn an_expired_lease_of_an_aborted_campaign_drops_the_batch(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 2).await;
    let id = running(store, app).await;
    enqueue(store, id, Lane::Campaign, 0, &nums).await;
    assert_eq!(take(store, 0).await.batches.len(), 1);
    go(store, app, id, &[CampaignState::Running], CampaignState::Aborted, 1).await.expect("aborted");
    let taken = take(store, LEASE_SECONDS).await;
    assert_eq!((taken.batches.len(), taken.next_due), (0, None));
    let cancelled = removed_part(app, Work::Campaign(id), Outcome::Cancelled, at(LEASE_SECONDS), &nums);
    assert_eq!(taken.departed.parts, [cancelled]);
    assert_eq!(campaign(store, app, id).await.counts, [(Outcome::Cancelled, String::new(), 2)]);
}

pub(crate) async fn batches_that_wait_make_steps(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let nums = members(store, app, 5).await;
    let id = running(store, app).await;
    let due = [10, 3_600, 3_601, 7_200].map(|seconds| batch(Lane::Campaign, seconds, &nums[..1]));
    store.enqueue(id, 0, due.to_vec(), 1, false, Vec::new(), NOW).await.expect("enqueued");
    let waiting = async |limit| store.waiting_batches(app, id, at(10), limit).await.expect("read");
    let step = |seconds, batches| WaitingStep { due_at: at(seconds), batches };
    let last_due_at = Some(at(7_200));
    assert_eq!(waiting(9).await, Waiting { steps: vec![step(3_600, 2), step(7_200, 1)], last_due_at });
    assert_eq!(waiting(1).await, Waiting { steps: vec![step(3_600, 2)], last_due_at });
    let none = running(store, app).await;
    assert_eq!(store.waiting_batches(app, none, NOW, 9).await.expect("read"), Waiting::default());
    assert!(matches!(store.waiting_batches(other, id, NOW, 9).await, Err(Error::NotFound)));
}

pub(crate) async fn lines_are_uploaded_for_users(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let d1 = pushable(store, app, "d1", "u1", &[], PushService::Apns).await;
    let d2 = pushable(store, app, "d2", "u2", &[], PushService::Apns).await;
    let also = pushable(store, app, "also", "u1", &[], PushService::Fcm).await;
    pushable(store, other, "theirs", "u1", &[], PushService::Apns).await;
    let id = store
        .create_campaign(new_campaign(app, CampaignState::Draft), NOW)
        .await
        .expect("created")
        .campaign
        .id;
    let first = vec![line("u2", "first"), line("nobody", "x"), line("u1", "old")];
    assert_eq!(store.upload(app, id, first, Uploader::default(), NOW).await.expect("uploaded"), 3);
    assert_eq!(
        store
            .upload(app, id, vec![line("u1", "new"), line("u1", "newest")], Uploader::default(), NOW)
            .await
            .expect("uploaded"),
        3
    );
    assert_eq!(campaign(store, app, id).await.uploaded, 3);
    assert!(matches!(
        store.upload(other, id, vec![line("u1", "x")], Uploader::default(), NOW).await,
        Err(Error::NotFound)
    ));
    let audience = Audience::Upload(id);
    for limit in [1, 2, 3, 100] {
        let (mut nums, mut unknown, mut after) = (Vec::new(), 0, 0);
        loop {
            let page = store.audience(app, &audience, after, limit, None).await.expect("read");
            nums.extend(page.members.iter().map(|member| member.num));
            unknown += page.unknown;
            let Some(next) = page.next else { break };
            assert!(next > after);
            after = next;
        }
        assert_eq!((nums, unknown), (vec![d2, d1, also], 1), "by {limit}");
    }
    assert_eq!(store.audience(other, &audience, 0, 9, None).await.expect("read").members, []);
    let asked = vec![d1, d2];
    let found =
        store.push_recipients(app, Work::Campaign(id), Some(id), None, asked.clone()).await.expect("read");
    let lines: Vec<_> = found.into_iter().map(|found| found.line).collect();
    assert_eq!(lines, [Some(line("u1", "newest").line), Some(line("u2", "first").line)]);
    let found = store.push_recipients(app, Work::Campaign(id), None, None, asked).await.expect("read");
    assert!(found.iter().all(|found| found.line.is_none()));
    go(store, app, id, &[CampaignState::Draft], CampaignState::Running, 1).await.expect("started");
    assert!(matches!(
        store.upload(app, id, vec![line("u3", "late")], Uploader::default(), NOW).await,
        Err(Error::Conflict)
    ));
    // Lines are kept for the retention after the end.
    go(store, app, id, &[CampaignState::Running], CampaignState::Aborted, 5).await.expect("aborted");
    let prune = async |seconds| store.prune(at(seconds), 2).await.expect("pruned");
    assert_eq!(prune(RETENTION_SECONDS + 4).await.campaign_lines, 0);
    let first = prune(RETENTION_SECONDS + 5).await;
    assert_eq!((first.campaign_lines, first.more), (2, true));
    assert_eq!(prune(RETENTION_SECONDS + 5).await.campaign_lines, 1);
    assert_eq!(prune(RETENTION_SECONDS + 5).await, noroshi_store::Pruned::default());
}

pub(crate) async fn a_published_batch_counts_for_its_campaign(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 2).await;
    join(store, app, "bare", "u9", &[]).await;
    let new = NewCampaign { when: Some(When::Stored), ..new_campaign(app, CampaignState::Running) };
    let id = store.create_campaign(new, NOW).await.expect("created").campaign.id;
    let published = NewBatch { service: None, ..batch(Lane::Extra, 0, &nums) };
    store.enqueue(id, 0, vec![published], 1, true, Vec::new(), NOW).await.expect("enqueued");
    let busy = PushService::ALL.into_iter().map(|service| (app, service)).collect();
    let taken = take_with(store, Take { busy, ..asked(0) }).await.batches.remove(0);
    assert_eq!((taken.service, taken.work, taken.campaign), (None, Work::Campaign(id), Some(id)));
    let request = Request { push: fallback(30), ..stored(devices(&["d0", "d1", "bare", "unknown"])) };
    let request = Accept {
        app,
        request: request.into(),
        now: NOW,
        idempotency: None,
        campaign: Some(OfCampaign { id, lane: Lane::Extra, variant: None }),
        gate: None,
    };
    let sent = accept(store, request).await.expect("accepted").message.id;
    let counts = store.finish(vec![ended(taken.id)], at(1)).await.expect("finished");
    assert_eq!(counts.done, [], "its pushes are outstanding");
    let found = campaign(store, app, id).await;
    let none = String::new;
    assert_eq!(
        found.counts,
        [(Outcome::Kept, none(), 3), (Outcome::Unknown, none(), 1), (Outcome::NoPushToken, none(), 1)]
    );
    let written_at = at(1);
    let live = OutcomePart {
        app,
        id: sent,
        outcome: Outcome::Written,
        at: written_at,
        count: 2,
        devices: nums.clone(),
    };
    store.record(vec![live]);
    written_behind(store, app, sent, Some(Outcome::Written)).await;
    ack(store, nums[0], &[sent]).await;
    let taken = take(store, 30).await;
    assert_eq!((taken.batches.len(), not_needed(&taken)), (1, 1));
    let push = &taken.batches[0];
    assert_eq!((push.work, push.campaign, push.lane), (Work::Notification(sent), Some(id), Lane::Extra));
    end_all(store, taken.batches.clone(), Outcome::Pushed).await;
    let found = campaign(store, app, id).await;
    assert_eq!(found.state, CampaignState::Done);
    let live = (Outcome::Written, none(), 2);
    for counted in [(Outcome::Pushed, none(), 1), (Outcome::PushNotNeeded, none(), 1), live] {
        assert!(found.counts.contains(&counted), "{counted:?} in {:?}", found.counts);
    }
}

pub(crate) async fn openings_count_for_their_campaign(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 2).await;
    let new = NewCampaign { when: Some(When::Stored), ..new_campaign(app, CampaignState::Running) };
    let made = store.create_campaign(new, NOW).await.expect("created").campaign;
    let request = Accept {
        app,
        request: stored(devices(&["d0", "d1"])).into(),
        now: NOW,
        idempotency: None,
        campaign: Some(OfCampaign { id: made.id, lane: Lane::Campaign, variant: None }),
        gate: None,
    };
    let published = accept(store, request).await.expect("accepted").message.id;
    let ids = vec![published, made.notification];
    for _ in 0..2 {
        store.open(nums[0], ids.clone(), at(1)).await.expect("written");
    }
    store.open(nums[1], vec![published], at(1)).await.expect("written");
    let found = campaign(store, app, made.id).await.counts;
    assert_eq!(found, [(Outcome::Kept, String::new(), 2), (Outcome::Opened, String::new(), 3)]);
}

fn variants(count: usize) -> Vec<NewVariant> {
    let variant = |i| NewVariant {
        notification: Some(JsonText::from_valid(format!(r#"{{"title":"{i}"}}"#))),
        data: None,
    };
    (1..=count).map(variant).collect()
}

/// The counts of a variant, without reasons.
fn sums(campaign: &Campaign, place: usize) -> Vec<(Outcome, u64)> {
    campaign.variants[place].counts.iter().map(|(outcome, _, count)| (*outcome, *count)).collect()
}

pub(crate) async fn pushes_count_for_their_variant(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 5).await;
    let new = NewCampaign { variants: variants(2), ..new_campaign(app, CampaignState::Running) };
    let made = store.create_campaign(new, NOW).await.expect("created").campaign;
    let [one, two] = [0, 1].map(|place: usize| made.variants[place].notification);
    assert!(one != two && one != made.notification && two != made.notification);
    let shown = store.notification(app, two, NOW).await.expect("read").expect("found");
    assert_eq!(shown.message.notification, Some(JsonText::from_valid(r#"{"title":"2"}"#)));
    let other = store
        .create_campaign(new_campaign(app, CampaignState::Running), at(1))
        .await
        .expect("created")
        .campaign;
    assert_eq!(other.variants, []);

    store
        .enqueue(made.id, 0, vec![batch(Lane::Campaign, 0, &nums)], 1, true, Vec::new(), NOW)
        .await
        .expect("enqueued");
    let taken = take(store, 1).await.batches.remove(0);
    let of = |variant, outcome, reason, devices: &[DeviceNum]| PushPart {
        variant,
        ..part(outcome, reason, devices)
    };
    let [first, second] = [1, 2].map(|place| Some(VariantNum(place)));
    let parts = vec![
        of(first, Outcome::Pushed, None, &nums[..2]),
        of(second, Outcome::Pushed, None, &nums[2..3]),
        of(second, Outcome::PushRefused, Some("BadTopic"), &nums[3..4]),
        of(None, Outcome::Pushed, None, &nums[4..]),
    ];
    store.finish(vec![Finished { parts, ..ended(taken.id) }], at(1)).await.expect("finished");
    assert_eq!(store.open(nums[0], vec![one], at(2)).await.expect("written"), [one]);
    // The device itself reports what became of its notification.
    assert_eq!(store.open(nums[3], vec![two, made.notification], at(2)).await.expect("written").len(), 2);

    let found = campaign(store, app, made.id).await;
    assert_eq!(found.state, CampaignState::Done);
    let none = String::new;
    let refused = (Outcome::PushRefused, "BadTopic".to_owned(), 1);
    assert_eq!(found.counts, [(Outcome::Pushed, none(), 4), refused.clone(), (Outcome::Opened, none(), 3)]);
    assert_eq!(sums(&found, 0), [(Outcome::Pushed, 2), (Outcome::Opened, 1)]);
    assert_eq!(
        found.variants[1].counts,
        [(Outcome::Pushed, none(), 1), refused, (Outcome::Opened, none(), 1)]
    );
    assert_eq!(
        store.list_campaigns(app, CampaignFilter::first(9), at(1)).await.expect("read").campaigns[1],
        found
    );
    let trace = store.trace(app, two, &device("d3")).await.expect("read").expect("found").steps;
    assert_eq!((trace[0].outcome, trace[1].outcome), (Outcome::PushRefused, Outcome::Opened));
    assert!(store.trace(app, one, &device("d3")).await.expect("read").expect("found").steps.is_empty());

    let known = async |id| store.notification(app, id, NOW).await.expect("read").is_some();
    assert!(known(one).await && known(two).await);
    let retained = RETENTION_SECONDS + 10;
    while store.prune(at(retained), 100).await.expect("pruned").more {}
    assert!(!known(one).await && !known(two).await, "they are deleted with the campaign's own");
    assert_eq!(sums(&campaign(store, app, made.id).await, 0).len(), 2, "the sums remain");
    store.delete_campaign(app, made.id).await.expect("deleted");
    assert_eq!(campaign(store, app, other.id).await.variants, []);
}

pub(crate) async fn cancelled_retries_count_for_their_variant(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 5).await;
    let new = NewCampaign { variants: variants(2), ..new_campaign(app, CampaignState::Running) };
    let made = store.create_campaign(new, NOW).await.expect("created").campaign;
    enqueue(store, made.id, Lane::Campaign, 0, &nums).await;
    let sent = take(store, 0).await.batches.remove(0);
    go(store, app, made.id, &[CampaignState::Running], CampaignState::Aborted, 1).await.expect("aborted");
    let of_none = (Some(VariantNum::NO_VARIANT.0), vec![nums[4]]);
    let drawn = [(None, vec![nums[2]]), (Some(1), vec![nums[0]]), (Some(2), vec![nums[1], nums[3]]), of_none];
    let again = drawn.clone().map(|(place, of)| drawn_again(place, &of)).to_vec();
    let counts = store.finish(vec![Finished { again, ..ended(sent.id) }], at(2)).await;
    let cancelled =
        drawn.map(|(_, of)| removed_part(app, Work::Campaign(made.id), Outcome::Cancelled, at(2), &of));
    assert_eq!(counts.expect("finished").cancelled.parts, cancelled);
    let found = campaign(store, app, made.id).await;
    assert_eq!(found.counts, [(Outcome::Cancelled, String::new(), 5)]);
    assert_eq!(sums(&found, 0), [(Outcome::Cancelled, 1)]);
    assert_eq!(sums(&found, 1), [(Outcome::Cancelled, 2)]);
    // Outcomes are recorded under the variant's notification, those without a variant under the campaign's own.
    let own = made.notification;
    for (id, of) in [("d1", made.variants[1].notification), ("d2", own), ("d4", own)] {
        let trace = store.trace(app, of, &device(id)).await.expect("read").expect("found");
        assert_eq!(trace.steps, [step(at(2), Outcome::Cancelled)]);
    }
}

pub(crate) async fn retries_keep_their_variant(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 7).await;
    let new = NewCampaign { variants: variants(2), ..new_campaign(app, CampaignState::Running) };
    let made = store.create_campaign(new, NOW).await.expect("created").campaign;
    enqueue(store, made.id, Lane::Campaign, 0, &nums).await;
    let sent = take(store, 0).await.batches.remove(0);
    assert_eq!(sent.variant, None, "no device was drawn for");
    let of_none = (Some(VariantNum::NO_VARIANT.0), vec![nums[6]]);
    let drawn =
        [(None, vec![nums[5]]), (Some(1), nums[..2].to_vec()), (Some(2), nums[2..5].to_vec()), of_none];
    let again = drawn.clone().map(|(place, of)| drawn_again(place, &of)).to_vec();
    store.finish(vec![Finished { again, ..ended(sent.id) }], at(2)).await.expect("finished");
    let taken = take(store, 3).await.batches;
    let found: Vec<_> =
        taken.iter().map(|batch| (batch.variant.map(|of| of.0), batch.recipients.clone())).collect();
    assert_eq!(found, drawn);
    assert!(taken.iter().all(|batch| batch.work == Work::Campaign(made.id)));
    // When the campaign is aborted, the first variant waits for a retry and the second is leased to a crashed sender.
    let once_more = vec![Again { due_at: at(9), ..drawn_again(Some(1), &nums[..2]) }];
    store.finish(vec![Finished { again: once_more, ..ended(taken[1].id) }], at(4)).await.expect("finished");
    go(store, app, made.id, &[CampaignState::Running], CampaignState::Aborted, 5).await.expect("aborted");
    let found = campaign(store, app, made.id).await;
    assert_eq!((sums(&found, 0), sums(&found, 1)), (vec![(Outcome::Cancelled, 2)], vec![]));
    assert_eq!(take(store, 3 + LEASE_SECONDS).await.departed.count(Outcome::Cancelled), 5);
    let found = campaign(store, app, made.id).await;
    assert_eq!(found.counts, [(Outcome::Cancelled, String::new(), 7)]);
    assert_eq!(
        (sums(&found, 0), sums(&found, 1)),
        (vec![(Outcome::Cancelled, 2)], vec![(Outcome::Cancelled, 3)])
    );
    let [first, second] = [0, 1].map(|place: usize| made.variants[place].notification);
    for (id, of) in [("d0", first), ("d4", second), ("d5", made.notification), ("d6", made.notification)] {
        let trace = store.trace(app, of, &device(id)).await.expect("read").expect("found");
        assert_eq!(trace.steps.len(), 1, "{id} is recorded under its variant, or the campaign's own");
    }
}

/// Retries at 3 seconds with the drawn variant.
fn drawn_again(place: Option<u8>, of: &[DeviceNum]) -> Again {
    Again { variant: place.map(VariantNum), ..again(3, 1, of) }
}

pub(crate) async fn published_batches_count_for_their_variant(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 3).await;
    let when = Some(When::Stored);
    let new = NewCampaign { when, variants: variants(2), ..new_campaign(app, CampaignState::Running) };
    let made = store.create_campaign(new, NOW).await.expect("created").campaign;
    let publish = async |place: Option<u8>, to: &[&str]| {
        let of = OfCampaign { id: made.id, lane: Lane::Campaign, variant: place.map(VariantNum) };
        let request = Request { push: fallback(30), ..stored(devices(to)) };
        let request = Accept {
            app,
            request: request.into(),
            now: NOW,
            idempotency: None,
            campaign: Some(of),
            gate: None,
        };
        accept(store, request).await.expect("accepted").message.id
    };
    let (second, plain) = (publish(Some(2), &["d0", "d1"]).await, publish(None, &["d2"]).await);
    let first = publish(Some(1), &["d2"]).await;
    assert_eq!(store.cancel(app, first, at(1)).await.expect("cancelled").not_pushed, 1);
    let live = OutcomePart {
        app,
        id: second,
        outcome: Outcome::Written,
        at: at(1),
        count: 1,
        devices: nums[..1].to_vec(),
    };
    store.record(vec![live]);
    written_behind(store, app, second, Some(Outcome::Written)).await;
    assert_eq!(ack(store, nums[0], &[second]).await, 1);
    ack(store, nums[2], &[plain]).await;
    store.open(nums[0], vec![second], at(2)).await.expect("written");
    end_all(store, take(store, 31).await.batches, Outcome::Pushed).await;
    let found = campaign(store, app, made.id).await;
    assert_eq!(sums(&found, 0), [(Outcome::Kept, 1), (Outcome::Cancelled, 1)]);
    let [kept, written, acked] = [Outcome::Kept, Outcome::Written, Outcome::Acked];
    let mut second = sums(&found, 1);
    // Acknowledgements are checked in one of two steps, which decides that no push is needed.
    second.retain(|(outcome, _)| *outcome != Outcome::PushNotNeeded);
    let expected = [(kept, 2), (written, 1), (acked, 1), (Outcome::Pushed, 1), (Outcome::Opened, 1)];
    assert_eq!(second, expected);
}

pub(crate) async fn dropped_batches_can_end_a_campaign(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 1).await;
    let publish = async || {
        let id = running(store, app).await;
        store.enqueue(id, 0, Vec::new(), 1, false, Vec::new(), NOW).await.expect("enqueued");
        let request = Request { push: fallback(30), ..stored(devices(&["d0"])) };
        let request = Accept {
            app,
            request: request.into(),
            now: NOW,
            idempotency: None,
            campaign: Some(OfCampaign { id, lane: Lane::Campaign, variant: None }),
            gate: None,
        };
        let sent = accept(store, request).await.expect("accepted").message.id;
        store.enqueue(id, 1, Vec::new(), 2, true, Vec::new(), NOW).await.expect("collected");
        (id, sent)
    };
    let (acknowledged, sent) = publish().await;
    ack(store, nums[0], &[sent]).await;
    let taken = take(store, 30).await;
    assert_eq!((not_needed(&taken), taken.done), (1, vec![(app, acknowledged)]));
    assert_eq!(campaign(store, app, acknowledged).await.state, CampaignState::Done);
    let (cancelled, sent) = publish().await;
    let done = store.cancel(app, sent, at(31)).await.expect("cancelled").done;
    assert_eq!(done, [(app, cancelled)]);
    assert_eq!(store.cancel(app, sent, at(32)).await.expect("repeated").done, [], "it ends once");
    assert_eq!(take(store, 60).await.done, []);
    let found = campaign(store, app, cancelled).await;
    assert_eq!(found.state, CampaignState::Done);
    assert!(found.counts.contains(&(Outcome::Cancelled, String::new(), 1)), "{:?}", found.counts);
}

pub(crate) async fn an_ended_campaign_is_deleted(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = members(store, app, 1).await;
    let id = store
        .create_campaign(new_campaign(app, CampaignState::Draft), NOW)
        .await
        .expect("created")
        .campaign
        .id;
    store.upload(app, id, vec![line("u0", "x")], Uploader::default(), NOW).await.expect("uploaded");
    go(store, app, id, &[CampaignState::Draft], CampaignState::Running, 1).await.expect("started");
    enqueue(store, id, Lane::Campaign, 0, &nums).await;
    let sent = take(store, 0).await.batches;
    assert!(matches!(store.delete_campaign(app, id).await, Err(Error::Conflict)));
    go(store, app, id, &[CampaignState::Running], CampaignState::Aborted, 1).await.expect("aborted");
    assert!(matches!(store.delete_campaign(AppId(99), id).await, Err(Error::NotFound)));
    store.delete_campaign(app, id).await.expect("deleted");
    assert!(store.campaign(app, id, NOW).await.expect("read").is_none());
    assert!(matches!(store.delete_campaign(app, id).await, Err(Error::NotFound)));
    assert_eq!(store.audience(app, &Audience::Upload(id), 0, 9, None).await.expect("read").members, []);
    let late = store.finish(vec![ended(sent[0].id)], at(2)).await.expect("ignored");
    assert_eq!((late.unknown, late.done), (1, vec![]));
    let again = running(store, app).await;
    store.delete_app(app).await.expect("deleted");
    assert!(store.active_campaigns(NOW).await.expect("read").is_empty(), "{again} was deleted with its app");
}
