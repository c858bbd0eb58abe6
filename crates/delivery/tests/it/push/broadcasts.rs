//! Broadcast channels: created, given broadcasts, and what a crash leaves.

use noroshi_delivery::Error;
use noroshi_delivery::push::ChannelSpec;
use noroshi_delivery::push::record::decode;
use noroshi_push::{ChannelCall, ChannelError};
use noroshi_store::{BroadcastsOf, Channels as _, PushRecord, StoredBroadcast};
use noroshi_types::{Broadcast, BroadcastId, BroadcastState, Label};

use super::*;

fn label(name: &str) -> Label {
    Label::parse(name).expect(name)
}

fn spec(name: &str, to: Option<&str>) -> ChannelSpec {
    ChannelSpec {
        name: label(name),
        environment: PushEnvironment::Production,
        policy: None,
        topic: to.map(|to| Topic::parse(to).expect(to)),
        adopt: None,
    }
}

fn broadcast(text: &str) -> Broadcast {
    Broadcast { payload: JsonText::from_valid(format!("\"{text}\"")), priority: 10, replaceable: false }
}

impl Bench {
    async fn cast(&self, text: &str) -> BroadcastId {
        let channels = self.delivery.push.channels().expect("attached");
        let accepted =
            channels.broadcast(self.app, label("c"), (broadcast(text), Ttl::default()), None).await;
        accepted.expect("accepted").0.id
    }

    async fn broadcast_state(&self, id: BroadcastId) -> StoredBroadcast {
        self.store.stored_broadcast(self.app, id).await.expect("read").expect("found")
    }

    async fn broadcast_ended(&self, id: BroadcastId) -> StoredBroadcast {
        let started = std::time::Instant::now();
        loop {
            let found = self.broadcast_state(id).await;
            if found.state != BroadcastState::Waiting {
                return found;
            }
            assert!(started.elapsed() < DEADLINE, "{found:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn with_channel(folder: &std::path::Path, to: Option<&str>) -> Bench {
    let bench = open(folder, config()).await;
    let channels = bench.delivery.push.channels().expect("attached");
    assert!(channels.create(bench.app, spec("c", to)).await.expect("created").1);
    bench
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_is_created_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = with_channel(folder.path(), Some("game")).await;
    let channels = bench.delivery.push.channels().expect("attached");
    let (again, created) = channels.create(bench.app, spec("c", None)).await.expect("found");
    assert_eq!((again.apple.as_deref(), created), (Some("apple"), false));
    let other = channels.create(bench.app, spec("c", Some("other"))).await;
    assert!(matches!(other, Err(Error::ChannelDiffers("topic"))), "{other:?}");
    let creations = bench.outlet.calls().into_iter().filter(|call| matches!(call, ChannelCall::Create(_)));
    assert_eq!(creations.count(), 1);

    // Whatever APNs answers, the name is free again.
    for error in [
        ChannelError::Rejected("FeatureNotEnabled"),
        ChannelError::TooMany("CannotCreateChannelConfig"),
        ChannelError::Busy { reason: "TooManyRequests", after: None },
        ChannelError::Failed { reason: "timeout", may_be_done: true },
    ] {
        bench.outlet.fail_call(error.clone());
        let refused = channels.create(bench.app, spec("d", None)).await;
        assert!(matches!(&refused, Err(Error::Channel(found)) if *found == error), "{refused:?}");
        assert_eq!(bench.store.channel(bench.app, &label("d")).await.expect("read"), None);
    }
    let listed = channels.listed(bench.app, PushEnvironment::Production).await.expect("listed");
    let listed: Vec<_> =
        listed.iter().map(|one| (&*one.apple, one.name.as_ref().map(Label::as_str))).collect();
    assert_eq!(listed, [("apple", Some("c")), ("lost", None)]);
    let production = PushEnvironment::Production;
    let known = channels.delete_unknown(bench.app, production, "apple".to_owned()).await;
    assert!(matches!(known, Err(Error::ChannelKnown(_))), "{known:?}");
    channels.delete_unknown(bench.app, production, "lost".to_owned()).await.expect("deleted");

    // APNs does not know it any more: a deletion that was interrupted.
    bench.outlet.fail_call(ChannelError::Failed { reason: "timeout", may_be_done: true });
    assert!(channels.delete(bench.app, &label("c"), false).await.is_err());
    bench.outlet.fail_call(ChannelError::Unknown("ChannelNotRegistered"));
    channels.delete(bench.app, &label("c"), false).await.expect("deleted");
    assert_eq!(bench.store.channel(bench.app, &label("c")).await.expect("read"), None);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_decide_about_a_broadcast() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = with_channel(folder.path(), None).await;
    let later = Answer::Later { reason: "ServiceUnavailable", after: Duration::ZERO };
    bench
        .outlet
        .script("apple", [later, Answer::Accepted, Answer::Refused { reason: "ChannelNotRegistered" }]);
    let (first, second) = (bench.cast("1").await, bench.cast("2").await);
    let sent = bench.broadcast_ended(first).await;
    assert_eq!((sent.state, sent.attempts), (BroadcastState::Sent, 2));
    let refused = bench.broadcast_ended(second).await;
    assert_eq!(
        (refused.state, refused.reason.as_deref()),
        (BroadcastState::Refused, Some("ChannelNotRegistered"))
    );
    let ids: Vec<_> = bench.outlet.received().iter().map(|received| received.id).collect();
    assert_eq!(ids, [first.0, first.0, second.0]);
    let reasons = async |id| {
        let rows = bench.store.broadcast_attempts(bench.app, id).await.expect("read");
        let decoded = rows.iter().flat_map(|row| decode(row, PushRecord::NO_DEVICE).expect("a row"));
        decoded.map(|attempt| attempt.reason).collect::<Vec<_>>()
    };
    assert_eq!(reasons(first).await, [Some("ServiceUnavailable".to_owned()), None]);
    assert_eq!(reasons(second).await, [Some("ChannelNotRegistered".to_owned())]);
    bench.outlet.script("apple", [Answer::Unconfigured]);
    let unconfigured = bench.cast("3").await;
    assert_eq!(bench.broadcast_ended(unconfigured).await.reason.as_deref(), Some("not_configured"));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_repeats_a_broadcast_with_its_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = with_channel(folder.path(), Some("game")).await;
    bench.outlet.hold_all(true);
    let push = Push { broadcast: Some(Box::new(broadcast("1"))), ..Push::default() };
    let request =
        Request { push, ..request(Target::Topic(Topic::parse("game").expect("a topic")), When::Stored) };
    let id = bench.publish(request).await;
    let second = bench.cast("2").await;
    eventually("the first attempt", || bench.outlet.received().len() == 1).await;
    let first = bench.outlet.received()[0].id;
    bench.crash().await;

    let bench = open(folder.path(), config()).await;
    let of = BroadcastsOf::Notification(id);
    let stored = bench.store.broadcasts(bench.app, of, 10).await.expect("read");
    assert_eq!((stored.len(), stored[0].id.0), (1, first));
    assert_eq!(bench.broadcast_ended(stored[0].id).await.state, BroadcastState::Sent);
    assert_eq!(bench.broadcast_ended(second).await.state, BroadcastState::Sent);
    let ids: Vec<_> = bench.outlet.received().iter().map(|received| received.id).collect();
    assert_eq!(ids, [first, second.0]);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_without_a_channel_takes_no_broadcast() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = with_channel(folder.path(), Some("game")).await;
    let push = Push { broadcast: Some(Box::new(broadcast("1"))), ..Push::default() };
    let to = |topic: &str| {
        let target = Target::Topic(Topic::parse(topic).expect(topic));
        Request { push: push.clone(), ..request(target, When::Stored) }
    };
    let refused = bench.delivery.publisher.publish(bench.app, to("other"), None).await;
    assert!(matches!(refused, Err(Error::NoChannel)), "{refused:?}");
    bench.publish(to("game")).await;
    eventually("sent", || bench.outlet.received().len() == 1).await;
    bench.stop().await;
}
