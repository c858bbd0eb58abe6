//! Streams of live figures: their number, their end, and that nothing runs without them.

use std::sync::Arc;
use std::time::Duration;

use noroshi_series::live::{Refused, VIEWERS_MAX, VIEWERS_OF_PERSON_MAX};
use noroshi_series::{Live, Metrics, Scope};
use noroshi_types::{AppId, PersonId};
use serde_json::Value;
use tokio::runtime::Handle;

use crate::world::World;

const PERSON: PersonId = PersonId(99);
const PATIENCE: Duration = Duration::from_secs(30);

fn json(event: &[u8]) -> Value {
    let text = std::str::from_utf8(event).expect("text");
    let data = text.strip_prefix("event: figures\ndata: ").expect("an event");
    serde_json::from_str(data.trim_end()).expect("JSON")
}

#[tokio::test]
async fn viewers_share_one_task_which_ends_with_the_last() {
    let world = World::new();
    let node = world.node("a");
    let metrics = Metrics::default();
    let live = Live::new(
        node.sampler.clone(),
        node.delivery.clone(),
        "a".to_owned(),
        Handle::current(),
        metrics.clone(),
    );
    node.connections.set(3);
    let mut viewers: Vec<_> = (0..10).map(|_| live.view(PERSON, Scope::All).expect("room")).collect();
    viewers.push(live.view(PERSON, Scope::App(AppId(1))).expect("room"));
    let next = async |viewer: &mut noroshi_series::Viewer| {
        tokio::time::timeout(PATIENCE, viewer.next()).await.expect("in time").expect("open")
    };
    let first = json(&next(&mut viewers[0]).await);
    assert_eq!(
        (&first["figures"]["connections"], &first["figures"]["publishes"]),
        (&3.0.into(), &Value::Null)
    );
    assert_eq!(first["nodes"][0]["name"], "a");
    node.publishes.inc_by(50);
    let second = json(&next(&mut viewers[0]).await);
    assert!(second["figures"]["publishes"].as_f64().is_some_and(|rate| rate > 0.0), "{second}");
    let of_app = json(&next(&mut viewers[10]).await);
    assert_eq!((of_app.get("nodes"), of_app["figures"].get("cpu")), (None, None));
    // One sample for all, and none without viewers.
    assert!(metrics.series_live_samples.get() <= 3);
    drop(viewers);
    assert_eq!(metrics.series_viewers.get(), 0);
    let task_ended = async {
        // The task holds a reference.
        while Arc::strong_count(&live) > 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, task_ended).await.expect("the task ended");
    // It begins again.
    next(&mut live.view(PERSON, Scope::All).expect("room")).await;
}

#[tokio::test]
async fn the_number_of_viewers_is_bounded_and_closing_ends_them() {
    let world = World::new();
    let node = world.node("a");
    let live = Live::new(
        node.sampler.clone(),
        node.delivery.clone(),
        "a".to_owned(),
        Handle::current(),
        Metrics::default(),
    );
    let mut viewers: Vec<_> = (0..VIEWERS_MAX)
        .map(|n| live.view(PersonId((n / VIEWERS_OF_PERSON_MAX) as u64), Scope::All).expect("room"))
        .collect();
    assert_eq!(live.view(PersonId(0), Scope::All).err(), Some(Refused::FullForPerson));
    assert_eq!(live.view(PERSON, Scope::App(AppId(1))).err(), Some(Refused::Full));
    viewers.pop();
    let again = live.view(PERSON, Scope::App(AppId(1)));
    assert!(again.is_ok());
    live.close();
    assert_eq!(live.view(PERSON, Scope::All).err(), Some(Refused::Closed));
    let ended = async { while viewers[0].next().await.is_some() {} };
    tokio::time::timeout(PATIENCE, ended).await.expect("ended");
}
