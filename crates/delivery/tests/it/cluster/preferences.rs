//! Preferences that devices on several nodes follow, and daily caps.

use noroshi_delivery::first_call;
use noroshi_delivery::preferences::LiveCount;
use noroshi_store::{Counted, Devices, PreferenceStore, Preferring};
use noroshi_types::{CategoryPreference, CloseReason, DeviceId, Label, Preferences};

use super::cell::{Cell, cell, user};

fn capped(max: u32) -> Preferences {
    let own = CategoryPreference { daily_max: Some(max), ..CategoryPreference::default() };
    let ads = Label::parse("ads").expect("a label");
    Preferences { categories: [(ads, own)].into(), ..Preferences::default() }
}

/// What the sessions of a node follow, in the order of the reports.
fn followed(cell: &Cell, node: usize) -> Vec<(DeviceId, Option<Preferences>)> {
    let record = cell.nodes[node].edge.record();
    record.followed.iter().map(|(device, followed)| (device.clone(), followed.preferences.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_reaches_the_sessions_of_every_node() {
    let cell = cell(3).await;
    let (a, b) = (cell.device("a", "u1", &[]).await, cell.device("b", "u1", &[]).await);
    let c = cell.device("c", "u2", &[]).await;
    for (node, device) in [(0, &a), (1, &b), (2, &c)] {
        cell.connect(node, device).await;
    }
    let record = cell.store.device(cell.app, &b).await.expect("read").expect("a device");
    let tags = first_call::tags_of(&record);
    let mark = cell.nodes[1].delivery.freshness.mark();
    let set = async |node: usize, of: Preferring, preferences: Option<Preferences>| {
        let component = &cell.nodes[node].delivery.preferences;
        component.set(cell.app, of, preferences).await
    };
    // From a node without a session of the user.
    let u1 = Preferring::User(user("u1"));
    set(2, u1.clone(), Some(capped(1))).await.expect("set");
    for (node, device) in [(0, &a), (1, &b)] {
        let expected = [(device.clone(), Some(capped(1)))];
        cell.until("the user's", |cell| followed(cell, node) == expected).await;
    }
    cell.until("stale", |cell| !cell.nodes[1].delivery.freshness.is_fresh(&tags, mark)).await;
    set(0, Preferring::Device(b.clone()), Some(capped(2))).await.expect("set");
    let own = (b.clone(), Some(capped(2)));
    cell.until("its own", |cell| followed(cell, 1).last() == Some(&own)).await;
    set(1, u1, None).await.expect("set");
    cell.until("none", |cell| followed(cell, 0).last() == Some(&(a.clone(), None))).await;
    cell.until("its own", |cell| followed(cell, 1).len() == 3).await;
    assert_eq!(followed(&cell, 1).last(), Some(&own));
    assert!(followed(&cell, 2).is_empty(), "another user");
    let nobody = Preferring::Device(DeviceId::parse("nobody").expect("an id"));
    assert!(set(0, nobody, None).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_repairs_a_lost_report() {
    let cell = cell(2).await;
    let a = cell.device("a", "u1", &[]).await;
    cell.connect(1, &a).await;
    cell.nodes[1].member.lose_messages(1);
    let set = cell.nodes[0].delivery.preferences.set(cell.app, Preferring::User(user("u1")), Some(capped(1)));
    set.await.expect("set");
    let expected = [(a, CloseReason::Drain)];
    cell.until("it logs in again", |cell| cell.nodes[1].edge.record().closed == expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_learn_that_a_cap_was_reached_elsewhere() {
    let cell = cell(1).await;
    let a = cell.device("a", "u1", &[]).await;
    cell.connect(0, &a).await;
    let num = cell.store.device(cell.app, &a).await.expect("read").expect("a device").num;
    let ads = Label::parse("ads").expect("a label");
    let counted = |id: u8| Counted { device: num, category: ads.clone(), day: 5, id: [id; 16], max: 2 };
    cell.store.count_for_caps(vec![counted(1)]).await.expect("counted");
    let live = |id| LiveCount { app: cell.app, device: a.clone(), counted: counted(id) };
    cell.nodes[0].delivery.preferences.count([live(1), live(2), live(3)]);
    let expected = [(a.clone(), ads.clone(), 5)];
    cell.until("the third", |cell| cell.nodes[0].edge.record().capped == expected).await;
    let followed = cell.store.followed_preferences(cell.app, vec![a]).await.expect("read").remove(0);
    assert!(followed.counts.is_empty(), "nothing is capped");
}
