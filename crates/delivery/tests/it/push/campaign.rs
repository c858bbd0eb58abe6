//! Campaigns from request to progress.

use std::collections::BTreeMap;
use std::time::Duration;

use noroshi_delivery::Texts;
use noroshi_delivery::campaign::{Audience, CampaignMessage, CampaignProgress, Filter, Line, Own, Spec};
use noroshi_push::Answer;
use noroshi_store::{Attributes, CampaignState, Devices, Sessions};
use noroshi_types::local_time::LocalTime;
use noroshi_types::{
    CampaignId, DeviceId, JsonText, Lane, NotificationId, Outcome, Push, PushMode, Topic, Ttl, Urgency,
    UserId, When,
};

use super::{Bench, DEADLINE, config, eventually, open, registration};
use crate::{event_log, written_events};

pub(crate) fn spec(audience: Audience) -> Spec {
    Spec {
        name: None,
        audience,
        filter: Filter::default(),
        message: CampaignMessage {
            notification: Some(JsonText::from_valid(r#"{"title":"Hello {{name}}"}"#)),
            data: None,
            urgency: Urgency::Normal,
            ttl: Ttl::default(),
            collapse_key: None,
            category: None,
            when: None,
            push: Push::default(),
        },
        locales: BTreeMap::new(),
        trial: None,
        variables: BTreeMap::from([("name".into(), "you".into())]),
        start_at: None,
        local_time: None,
        quiet_hours: None,
        rate_per_second: None,
        lane: Lane::Campaign,
        batch_size: 50,
        start: true,
        trace: None,
    }
}

impl Bench {
    pub(crate) async fn create(&self, spec: Spec) -> CampaignId {
        let spec = spec.check().expect("a campaign");
        self.delivery.campaigns.create(self.app, spec, None).await.expect("made").0.campaign.id
    }

    async fn progress(&self, id: CampaignId) -> CampaignProgress {
        self.delivery.campaigns.get(self.app, id).await.expect("known")
    }

    pub(crate) async fn ended(&self, id: CampaignId) -> CampaignProgress {
        let ended = async {
            loop {
                let progress = self.progress(id).await;
                if progress.campaign.state.ended() {
                    return progress;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, ended).await {
            Ok(progress) => progress,
            Err(_) => panic!("still {:?}", self.progress(id).await),
        }
    }
}

impl Bench {
    /// A campaign that was published to the only device, which has a pending push; with the notification.
    async fn published(&self, device: &DeviceId, after: Duration) -> (CampaignId, NotificationId) {
        let push = Push { mode: PushMode::Fallback, after, ..Push::default() };
        let spec = spec(Audience::Everyone);
        let message = CampaignMessage { when: Some(When::Stored), push, ..spec.message.clone() };
        let id = self.create(Spec { message, ..spec }).await;
        let published = async {
            loop {
                let now = self.delivery.clock().now();
                let inbox = Sessions::inbox(&*self.store, self.app, device, 1, now).await.expect("read").0;
                // The batch that published it is finished as well.
                if let [message] = &*inbox
                    && self.progress(id).await.campaign.batches_open == 1
                {
                    return (id, message.id);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, published).await.expect("published")
    }
}

pub(crate) fn counted(progress: &CampaignProgress, outcome: Outcome) -> u64 {
    let counts = progress.campaign.counts.iter();
    counts.filter(|(other, ..)| *other == outcome).map(|(_, _, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_reaches_everyone_once_and_is_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.many(1_000).await;
    let id = bench.create(spec(Audience::Everyone)).await;
    let progress = bench.ended(id).await;
    assert_eq!(progress.campaign.state, CampaignState::Done);
    assert_eq!((progress.recipients, progress.done, progress.total), (1_000, 1_000, Some(1_000)));
    assert_eq!(counted(&progress, Outcome::Pushed), 1_000);
    assert!(progress.p50.is_some() && progress.p99 >= progress.p50);
    assert_eq!(bench.outlet.count(), 1_000);
    let title = bench.outlet.received()[0].notification.clone().expect("shown");
    assert_eq!(title.as_str(), r#"{"title":"Hello you"}"#);
    assert_eq!(bench.count(progress.campaign.notification, Outcome::Pushed).await, 1_000);
    bench.delivery.campaigns.delete(bench.app, id).await.expect("it has ended");
    assert!(bench.delivery.campaigns.get(bench.app, id).await.is_err());
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_uploaded_user_gets_its_own_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.devices(&["a", "b", "c", "other"]).await;
    let missing = Spec { variables: BTreeMap::new(), start: false, ..spec(Audience::Upload) };
    let id = bench.create(missing).await;
    let line = |user: &str, own: Own| Line { user: UserId::parse(user).expect("an id"), own };
    let words = |name: &str| Own {
        variables: BTreeMap::from([("name".to_owned(), name.to_owned())]),
        ..Own::default()
    };
    let own = Own { notification: Some(JsonText::from_valid(r#"{"title":"Only {{b}}"}"#)), ..Own::default() };
    let lines = vec![line("a", words("A \"quoted\"")), line("b", own), line("c", Own::default())];
    assert_eq!(
        bench.delivery.campaigns.upload(bench.app, id, lines, Default::default()).await.expect("taken"),
        3
    );
    bench.delivery.campaigns.start(bench.app, id, Default::default()).await.expect("known").expect("started");
    let progress = bench.ended(id).await;
    let mut received: Vec<(String, String)> = bench
        .outlet
        .received()
        .into_iter()
        .map(|push| (push.token, push.notification.expect("shown").as_str().to_owned()))
        .collect();
    received.sort();
    let expected = [("t-a", r#"{"title":"Hello A \"quoted\""}"#), ("t-b", r#"{"title":"Only {{b}}"}"#)];
    assert_eq!(received, expected.map(|(token, text)| (token.to_owned(), text.to_owned())));
    let refused = (Outcome::PushRefused, "missing_variable".to_owned(), 1);
    assert!(progress.campaign.counts.contains(&refused), "{:?}", progress.campaign.counts);
    assert_eq!(progress.done, 3);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_selects_devices_and_a_locale_the_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let of = |name: &str, platform: &str, locale: &str| {
        let attributes = Attributes {
            platform: Some(platform.into()),
            locale: Some(locale.into()),
            ..Attributes::default()
        };
        noroshi_store::Registration { attributes, ..registration(name, &[]) }
    };
    let devices = vec![of("a", "ios", "ja-JP"), of("b", "ios", "en-US"), of("c", "android", "ja-JP")];
    bench.store.register(bench.app, devices, bench.delivery.clock().now()).await.expect("registered");
    let japanese =
        Texts { notification: Some(JsonText::from_valid(r#"{"title":"やあ {{name}}"}"#)), data: None };
    let ios = Spec {
        filter: Filter { platforms: vec!["ios".into()], ..Filter::default() },
        locales: BTreeMap::from([("ja".into(), japanese)]),
        ..spec(Audience::Devices)
    };
    let count = bench.delivery.campaigns.dry_run(bench.app, &ios).await.expect("counted");
    assert_eq!((count.devices, count.users, count.filtered), (2, Some(2), 1));
    assert_eq!(bench.outlet.count(), 0, "a dry run sends nothing");
    let id = bench.create(ios).await;
    bench.ended(id).await;
    let mut titles: Vec<String> = bench
        .outlet
        .received()
        .into_iter()
        .map(|push| push.notification.expect("shown").as_str().to_owned())
        .collect();
    titles.sort();
    assert_eq!(titles, [r#"{"title":"Hello you"}"#, r#"{"title":"やあ you"}"#]);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_pauses_resumes_and_aborts() {
    let folder = tempfile::tempdir().expect("a folder");
    // Four batches of 50 at a time.
    let small = noroshi_delivery::push::Config {
        recipients_max: 200,
        recipients_per_service_max: 200,
        reserved_percent: 0,
        batches_max: 4,
        ..config()
    };
    let bench = open(folder.path(), small).await;
    bench.many(1_000).await;
    bench.outlet.hold_all(true);
    let id = bench.create(spec(Audience::Topic(Topic::parse("all").expect("a topic")))).await;
    eventually("it runs", || bench.outlet.count() >= 100).await;
    let paused = bench.delivery.campaigns.pause(bench.app, id).await.expect("paused");
    assert_eq!(paused.campaign.state, CampaignState::Paused);
    // Taken batches are finished, and no further ones are taken.
    bench.outlet.release();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let rested = bench.outlet.count();
    assert!(rested <= 300, "{rested}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.outlet.count(), rested);
    assert_eq!(bench.progress(id).await.done as usize, rested);

    bench.outlet.hold_all(true);
    bench.delivery.campaigns.resume(bench.app, id).await.expect("resumed");
    eventually("it goes on", || bench.outlet.count() > rested).await;
    bench.delivery.campaigns.abort(bench.app, id).await.expect("aborted");
    bench.outlet.release();
    let settled = async {
        loop {
            let progress = bench.progress(id).await;
            if progress.campaign.batches_open == 0 {
                return progress;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let progress = tokio::time::timeout(DEADLINE, settled).await.expect("batches under way end");
    assert_eq!(progress.campaign.state, CampaignState::Aborted);
    let (pushed, cancelled) = (counted(&progress, Outcome::Pushed), counted(&progress, Outcome::Cancelled));
    assert!(
        cancelled > 0 && pushed as usize == bench.outlet.count(),
        "{pushed} pushed, {cancelled} cancelled"
    );
    assert_eq!(pushed + cancelled, progress.recipients);
    let again = bench.delivery.campaigns.resume(bench.app, id).await;
    assert!(again.is_err(), "it has ended");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_urgent_message_overtakes_a_running_campaign() {
    let folder = tempfile::tempdir().expect("a folder");
    let small = noroshi_delivery::push::Config {
        recipients_max: 1_000,
        recipients_per_service_max: 1_000,
        reserved_percent: 20,
        ..config()
    };
    let bench = open(folder.path(), small).await;
    bench.many(3_000).await;
    bench.outlet.hold_all(true);
    let ordinary = bench.create(spec(Audience::Everyone)).await;
    eventually("the campaign has what it may", || bench.outlet.count() >= 800).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = bench.outlet.count();
    let message = CampaignMessage {
        notification: Some(JsonText::from_valid(r#"{"title":"Breaking"}"#)),
        ..spec(Audience::Everyone).message
    };
    let extra = Spec { lane: Lane::Extra, message, ..spec(Audience::Everyone) };
    let extra = bench.create(extra).await;
    eventually("it starts though the campaign waits for answers", || bench.outlet.count() > before).await;
    let next = bench.outlet.received()[before].notification.clone().expect("shown");
    assert_eq!(next.as_str(), r#"{"title":"Breaking"}"#);
    bench.outlet.release();
    assert_eq!(bench.ended(extra).await.done, 3_000);
    assert_eq!(bench.ended(ordinary).await.done, 3_000);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.many(300).await;
    let began = std::time::Instant::now();
    let id = bench.create(Spec { rate_per_second: Some(200), ..spec(Audience::Everyone) }).await;
    let progress = bench.ended(id).await;
    assert_eq!(progress.done, 300);
    // The last of 15 batches of 20 has its turn after 14 tenths of a second.
    assert!(began.elapsed() >= Duration::from_millis(1_400), "{:?}", began.elapsed());
    bench.stop().await;
}

/// Takes minutes if the sender or the collector sleeps too long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_its_rate_nor_its_own_pushes_delay_a_campaign() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.many(400).await;
    let with_rate = || Spec { rate_per_second: Some(200), ..spec(Audience::Everyone) };
    let resting = bench.create(with_rate()).await;
    bench.delivery.campaigns.pause(bench.app, resting).await.expect("paused");
    let id = bench.create(with_rate()).await;
    assert_eq!(bench.ended(id).await.done, 400);

    // The pushes that its batches publish are on the queue as its own.
    let push = Push { mode: PushMode::Always, ..Push::default() };
    let message = CampaignMessage { when: Some(When::Stored), push, ..spec(Audience::Everyone).message };
    let id = bench.create(Spec { message, batch_size: 1, ..spec(Audience::Everyone) }).await;
    let progress = bench.ended(id).await;
    assert_eq!((progress.done, counted(&progress, Outcome::Pushed)), (400, 400));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_waits_for_its_start_and_for_local_times() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.many(10).await;
    let now = bench.delivery.clock().now();
    let start_at = Some(now.saturating_add(Duration::from_millis(400)));
    let id = bench.create(Spec { start_at, ..spec(Audience::Everyone) }).await;
    assert_eq!(bench.progress(id).await.campaign.state, CampaignState::Scheduled);
    assert_eq!(bench.ended(id).await.done, 10);
    assert!(bench.delivery.clock().now() >= now.saturating_add(Duration::from_millis(400)));

    // Devices without a zone use UTC: some hours from now, whenever this runs.
    let hour = now.0 / 3_600_000 % 24;
    let local_time = LocalTime::parse(&format!("{:02}:00", (hour + 5) % 24)).ok();
    let id = bench.create(Spec { local_time, ..spec(Audience::Everyone) }).await;
    let waiting = async {
        while bench.progress(id).await.campaign.batches_later == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.expect("packed for later");
    tokio::time::sleep(Duration::from_millis(100)).await;
    let progress = bench.progress(id).await;
    assert_eq!((progress.campaign.state, progress.done), (CampaignState::Running, 0));
    assert_eq!((bench.outlet.count(), progress.recipients), (10, 10));
    let aborted = bench.delivery.campaigns.abort(bench.app, id).await.expect("aborted");
    assert_eq!(counted(&aborted, Outcome::Cancelled), 10);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_campaign_is_published_to_its_devices() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let devices = bench.devices(&["a", "b"]).await;
    let message = CampaignMessage { when: Some(When::Stored), ..spec(Audience::Everyone).message };
    let id = bench.create(Spec { message, ..spec(Audience::Everyone) }).await;
    let progress = bench.ended(id).await;
    assert_eq!((progress.recipients, progress.done), (2, 2));
    let now = bench.delivery.clock().now();
    for (device, _) in devices {
        let (messages, total) =
            noroshi_store::Sessions::inbox(&*bench.store, bench.app, &device, 10, now).await.expect("read");
        assert_eq!((messages.len(), total), (1, 1));
    }
    assert_eq!(bench.outlet.count(), 0, "push services were not asked for");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_during_a_campaign_loses_no_recipient() {
    let folder = tempfile::tempdir().expect("a folder");
    let small = noroshi_delivery::push::Config {
        recipients_max: 200,
        recipients_per_service_max: 200,
        batches_max: 4,
        ..config()
    };
    let bench = open(folder.path(), small.clone()).await;
    bench.many(4_000).await;
    bench.outlet.hold("t-u00010");
    let id = bench.create(spec(Audience::Everyone)).await;
    eventually("it is in the middle", || bench.outlet.count() >= 1_000).await;
    let first = bench.outlet.clone();
    bench.crash().await;
    let sent_before: std::collections::HashSet<String> = first.tokens().into_iter().collect();
    let bench = open(folder.path(), small).await;
    let progress = bench.ended(id).await;
    assert_eq!((progress.recipients, progress.done), (4_000, 4_000));
    let sent_after: std::collections::HashSet<String> = bench.outlet.tokens().into_iter().collect();
    assert_eq!(sent_before.union(&sent_after).count(), 4_000, "nobody is lost");
    let twice = sent_before.intersection(&sent_after).count();
    // Four batches in flight, and those whose results are not written yet.
    assert!(sent_after.contains("t-u00010") && twice <= 1_000, "{twice} are repeated");
    assert_eq!(sent_after.len(), bench.outlet.count(), "each once");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recipients_removed_by_an_abort_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let log = event_log(&bench.delivery, folder.path());
    let num = bench.devices(&["a"]).await[0].1;
    let after = Duration::from_secs(3_600);
    bench.outlet.script("t-a", [Answer::Later { reason: "UNAVAILABLE", after }]);
    let id = bench.create(spec(Audience::Everyone)).await;
    let waits = async { while bench.progress(id).await.campaign.batches_later != 1 {} };
    tokio::time::timeout(DEADLINE, waits).await.expect("it waits for another attempt");
    bench.delivery.campaigns.abort(bench.app, id).await.expect("aborted");
    let what = r#""why":"cancelled","count":1"#;
    let line = format!(r#""event":"dropped","campaign":"{id}",{what},"devices":[{}]}}"#, num.0);
    eventually(&line, || written_events(folder.path()).contains(&line)).await;
    bench.stop().await;
    tokio::task::spawn_blocking(move || log.drain()).await.expect("drained");
}

/// The events of a campaign, sorted: threads emit them in any order.
fn steps(folder: &std::path::Path, id: CampaignId) -> Vec<String> {
    let text = written_events(folder);
    let of = format!(r#""campaign":"{id}","step":""#);
    let step = |line: &str| line.split(&of).nth(1)?.split('"').next().map(str::to_owned);
    let mut steps: Vec<String> = text.lines().filter_map(step).collect();
    steps.sort_unstable();
    steps
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_of_a_campaign_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    let log = event_log(&bench.delivery, folder.path());
    let scheduled = |now: noroshi_types::Timestamp| Some(now.saturating_add(Duration::from_millis(300)));
    // Without recipients the walk ends the campaign.
    let start_at = scheduled(bench.delivery.clock().now());
    let walked = bench.create(Spec { start_at, ..spec(Audience::Everyone) }).await;
    bench.ended(walked).await;
    // A last batch that is not sent also ends it: its device acknowledged, or the notification was cancelled.
    let (device, num) = bench.devices(&["a"]).await.remove(0);
    let (acknowledged, notification) = bench.published(&device, Duration::from_millis(500)).await;
    bench.delivery.acks.push(bench.app, num, vec![notification]);
    bench.ended(acknowledged).await;
    let (cancelled, notification) = bench.published(&device, Duration::from_secs(3_600)).await;
    bench.delivery.publisher.cancel(bench.app, notification).await.expect("cancelled");
    bench.ended(cancelled).await;
    // The last sent batch ends the campaign.
    bench.many(120).await;
    let sent = bench.create(spec(Audience::Everyone)).await;
    bench.ended(sent).await;
    // The event follows the write that ended it.
    let ends = [sent, acknowledged, cancelled];
    let told = async {
        while steps(folder.path(), walked).len() < 3
            || ends.iter().any(|id| steps(folder.path(), *id).len() < 2)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(DEADLINE, told).await;
    assert_eq!(steps(folder.path(), walked), ["done", "running", "scheduled"]);
    for id in ends {
        assert_eq!(steps(folder.path(), id), ["done", "running"]);
    }
    tokio::task::spawn_blocking(move || log.drain()).await.expect("drained");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_campaign_continues_when_the_clock_goes_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = noroshi_types::Timestamp(1_800_000_000_000);
    let clock = noroshi_delivery::Clock::fixed(start.saturating_add(Duration::from_secs(3_600)));
    let outlet = std::sync::Arc::new(super::FakeOutlet::default());
    let bench = super::open_at(folder.path(), outlet.clone(), config(), clock.clone()).await;
    bench.many(1_500).await;
    let id = bench.create(Spec { batch_size: 1, ..spec(Audience::Everyone) }).await;
    // Before all of its audience is collected and sent.
    clock.set(start);
    let ended = bench.ended(id).await;
    assert_eq!((ended.campaign.state, outlet.count()), (CampaignState::Done, 1_500));
    bench.stop().await;
}
