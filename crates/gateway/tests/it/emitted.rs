//! The events of a session name its app.

use noroshi_events::{Event, Subject};
use noroshi_types::{Outcome, When};
use serde_json::json;

use crate::event_log::EventLog;
use crate::node::{Node, plain, user};

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_session_are_of_its_app() {
    let node = Node::start(plain()).await;
    let device = node.device("d1", "u1", &[]).await;
    let log = EventLog::of(&node);
    log.open();
    let mut client = node.connect("d1").await;
    let id = node.publish(user("u1"), When::Stored, "1").await;
    client.next_data().await;
    client.send(json!({"t": "ack", "ids": [id.to_string()]})).await;
    node.until_acknowledged("d1").await;
    let absent = node.publish(user("u2"), When::Connected, "2").await;
    drop(client);
    node.until_sessions(0).await;
    let app = node.app;
    let has = |events: &[Event], is: &dyn Fn(&Event) -> bool| events.iter().any(is);
    let outcome = |of, wanted| {
        move |event: &Event| {
            matches!(event, Event::Outcome { app: found, of: Subject::Notification(id), outcome, .. }
                if (*found, *id, *outcome) == (app, of, wanted))
        }
    };
    let is_acked = |event: &Event| {
        matches!(event, Event::Acked { app: found, acked }
            if (*found, &acked[..]) == (app, &[(id, device)]))
    };
    let is_closed = |event: &Event| {
        matches!(event, Event::Closed { app: found, device: ended, .. }
            if (*found, *ended) == (app, device))
    };
    log.until("its events", |events| {
        let all = has(events, &outcome(id, Outcome::Written))
            && has(events, &outcome(absent, Outcome::Offline))
            && has(events, &is_acked)
            && has(events, &is_closed);
        all.then_some(())
    })
    .await;
    node.gateway.stop();
}
