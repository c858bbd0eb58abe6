//! Events know their app when they are emitted.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_delivery::campaign::Audience;
use noroshi_events::{Event, Record, Service, Subject, Tap};
use noroshi_store::{Apps, Devices, Registration, Sqlite};
use noroshi_types::{
    AppId, AppName, DeviceId, DeviceNum, NotificationId, Outcome, PushMode, Target, UserId, When,
};
use parking_lot::Mutex;

use crate::push::{always, campaign::spec, config, eventually, open};
use crate::{NOW, bench, request, users};

/// Keeps what the collector passes.
#[derive(Default)]
struct Emitted(Mutex<Vec<Event>>);

impl Tap for Emitted {
    fn read(&self, records: &mut Vec<Record>, _lost: u64) {
        self.0.lock().extend(records.drain(..).map(|record| record.event));
    }
}

fn tap(delivery: &Delivery, folder: &Path) -> (Service, Arc<Emitted>) {
    let config = noroshi_events::Config::new("n", folder.join("spool"));
    let names = Arc::new(|_| None);
    let log = Service::start(&config, names, None, &Default::default(), &Default::default()).expect("a log");
    delivery.context.outcomes.attach_events(log.events());
    let emitted = Arc::new(Emitted::default());
    let tap: Arc<dyn Tap> = emitted.clone();
    log.events().attach_tap(Arc::downgrade(&tap));
    assert!(log.events().set_tapped(true));
    (log, emitted)
}

async fn other_app(store: &Sqlite) -> AppId {
    let name = AppName::parse("other").expect("a name");
    store.create_app(name, Default::default(), NOW).await.expect("an app").id
}

type Acked = (AppId, Vec<(NotificationId, DeviceNum)>);

#[tokio::test]
async fn acknowledgements_of_two_apps_are_an_event_of_each() {
    let bench = bench().await;
    let folder = tempfile::tempdir().expect("a folder");
    let other = other_app(&bench.store).await;
    let (_, ann) = bench.device("ann").await;
    let (id, user) = (DeviceId::parse("d").expect("an id"), UserId::parse("bob").expect("an id"));
    let registration = Registration { device: Some(id), user: Some(user), ..Registration::default() };
    let bob = bench.store.register(other, vec![registration], NOW).await.expect("registered");
    let bob = bob.into_iter().flatten().next().expect("accepted").num;
    let publish = async |app, name| {
        let published = bench.delivery.publisher.publish(app, request(users(&[name]), When::Stored), None);
        published.await.expect("accepted").id
    };
    let (of_ann, of_bob) = (publish(bench.app, "ann").await, publish(other, "bob").await);
    let (_log, emitted) = tap(&bench.delivery, folder.path());
    bench.delivery.acks.push(other, bob, vec![of_bob, of_ann]);
    bench.delivery.acks.push(bench.app, ann, vec![of_ann]);
    bench.delivery.clone().run(std::future::ready(())).await;
    let acked = || -> Vec<Acked> {
        let events = emitted.0.lock();
        let acked = events.iter().filter_map(|event| match event {
            Event::Acked { app, acked } => Some((*app, acked.to_vec())),
            _ => None,
        });
        acked.collect()
    };
    eventually("both are emitted", || acked().len() == 2).await;
    let of_other = vec![(of_ann, bob), (of_bob, bob)];
    assert_eq!(acked(), [(bench.app, vec![(of_ann, ann)]), (other, of_other)], "bob named Ann's too");
    bench.delivery.devices.open(other, bob, vec![of_bob]).await.expect("written");
    let is_opened = |event: &Event| matches!(event, Event::Outcome { app, outcome: Outcome::Opened, .. } if *app == other);
    eventually("the opening is emitted", || emitted.0.lock().iter().any(is_opened)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_about_pushes_is_of_their_app() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bench = open(folder.path(), config()).await;
    let (first, second) = (bench.app, other_app(&bench.store).await);
    let (_log, emitted) = tap(&bench.delivery, folder.path());
    bench.devices(&["a"]).await;
    let of_first = bench.publish(always(&["a"])).await;
    bench.until(of_first, Outcome::Pushed, 1).await;
    bench.app = second;
    bench.devices(&["a", "b"]).await;
    let everyone = noroshi_types::Push { mode: PushMode::Always, ..noroshi_types::Push::default() };
    let everyone = noroshi_types::Request { push: everyone, ..request(Target::Everyone, When::Stored) };
    let broadcast = bench.publish(everyone).await;
    bench.until(broadcast, Outcome::Pushed, 2).await;
    let campaign = bench.create(spec(Audience::Everyone)).await;
    bench.ended(campaign).await;
    let owner = |of: &Subject| match of {
        Subject::Notification(id) if *id == of_first => first,
        Subject::Notification(_) | Subject::Campaign(_) | Subject::Several => second,
    };
    let expected: BTreeSet<(&str, AppId, bool)> = [
        ("routed", first, false),
        ("outcome", first, false),
        ("sent", first, false),
        ("answered", first, false),
        ("routed", second, false),
        ("sent", second, false),
        ("answered", second, false),
        ("sent", second, true),
        ("answered", second, true),
    ]
    .into();
    let seen = || {
        let mut seen = BTreeSet::new();
        for event in &*emitted.0.lock() {
            let (kind, app, of) = match event {
                Event::Routed { app, id, .. } => ("routed", *app, Subject::Notification(*id)),
                Event::Outcome { app, of, .. } => ("outcome", *app, *of),
                Event::PushSent { app, of, .. } => ("sent", *app, *of),
                Event::PushAnswered { app, of, .. } => ("answered", *app, *of),
                _ => continue,
            };
            assert_eq!(app, owner(&of), "{event:?}");
            seen.insert((kind, app, matches!(of, Subject::Campaign(_))));
        }
        seen
    };
    eventually("all are emitted", || expected.is_subset(&seen())).await;
    bench.stop().await;
}
