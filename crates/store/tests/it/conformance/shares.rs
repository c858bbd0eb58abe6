//! Groups of shared subscriptions.

use std::slice::from_ref;

use noroshi_store::{
    Error, JoinShares, Leave, LeaveShares, MemberState, Place, SettleShares, Share, ShareGroup, ShareNum,
    Store,
};
use noroshi_types::{AppId, DeviceNum, NotificationId, Timestamp, limits};

use super::fixture::*;

fn share(name: &str, filter: &str) -> Share {
    Share { name: name.into(), filter: filter.into() }
}

fn joining(app: AppId, device: DeviceNum, generation: u64, shares: &[Share]) -> JoinShares {
    let shares = shares.iter().map(|share| (share.clone(), 1)).collect();
    JoinShares { app, device, shares, generation, expiry_s: 60 }
}

async fn enter(store: &dyn Store, app: AppId, device: DeviceNum, generation: u64, shares: &[Share]) {
    store.join_shares(joining(app, device, generation, shares)).await.expect("joined");
}

/// An app with two devices and a share.
async fn two_devices(store: &dyn Store) -> (AppId, [DeviceNum; 2], Share) {
    let app = app(store, "app").await;
    let (a, b) = (join(store, app, "a", "u", &[]).await, join(store, app, "b", "u", &[]).await);
    (app, [a, b], share("jobs", "t"))
}

async fn leave(store: &dyn Store, device: DeviceNum, generation: u64, what: Leave) -> bool {
    let held = Vec::new();
    store.leave_shares(LeaveShares { device, generation, what, held }).await.expect("left")
}

async fn groups(store: &dyn Store) -> Vec<ShareGroup> {
    store.share_groups().await.expect("read")
}

/// The states of the members of the only group.
async fn states(store: &dyn Store) -> Vec<(DeviceNum, MemberState)> {
    let groups = groups(store).await;
    assert_eq!(groups.len(), 1);
    groups[0].members.iter().map(|member| (member.num, member.state)).collect()
}

pub(crate) async fn a_share_lists_its_members(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    let a = join(store, mine, "a", "u", &[]).await;
    let b = join(store, mine, "b", "u", &[]).await;
    let other = join(store, theirs, "a", "u", &[]).await;
    let before = send(store, mine, stored(to_topic("t"))).await;
    let (jobs, all) = (share("jobs", "t/#"), share("all", "t/#"));
    enter(store, mine, b, 7, from_ref(&jobs)).await;
    enter(store, mine, a, 8, &[jobs.clone(), all.clone()]).await;
    enter(store, theirs, other, 9, from_ref(&jobs)).await;
    let found = groups(store).await;
    let names: Vec<_> = found.iter().map(|group| (group.app, &group.share)).collect();
    assert_eq!(names, [(mine, &jobs), (mine, &all), (theirs, &jobs)]);
    assert_eq!(found[0].since, Place::of(before), "earlier messages are not for the group");
    let members: Vec<_> = found[0].members.iter().map(|member| member.num).collect();
    assert_eq!(members, [a, b]);
    let first = &found[0].members[0];
    assert_eq!(first.device, Some(device("a")));
    assert_eq!((first.qos, first.generation, first.expiry_s, first.state), (1, 8, 60, MemberState::Here));
    let mut twice = joining(mine, a, 8, &[jobs.clone(), jobs.clone()]);
    twice.shares[1].1 = 2;
    store.join_shares(twice).await.expect("joined");
    assert_eq!(groups(store).await[0].members[0].qos, 2, "the later subscription counts (§3.8.4)");
    let foreign = store.join_shares(joining(theirs, a, 9, &[jobs])).await;
    assert!(matches!(foreign, Err(Error::NotFound)), "a device of another app");
}

pub(crate) async fn members_leave_a_share(store: &dyn Store) {
    let (app, [a, b], jobs) = two_devices(store).await;
    enter(store, app, a, 1, from_ref(&jobs)).await;
    enter(store, app, b, 1, from_ref(&jobs)).await;
    let held = vec![NotificationId::from_bytes([7; 16]), NotificationId::from_bytes([8; 16])];
    let what = Leave::Connection { ends_at: Timestamp(99) };
    let away = LeaveShares { device: a, generation: 1, what: what.clone(), held: held.clone() };
    assert!(store.leave_shares(away.clone()).await.expect("left"));
    assert!(!store.leave_shares(away).await.expect("left"), "the member is away");
    let found = groups(store).await;
    assert_eq!((&found[0].members[0].held, found[0].members[0].ends_at), (&held, Some(Timestamp(99))));
    assert_eq!(states(store).await, [(a, MemberState::Away), (b, MemberState::Here)]);
    assert!(leave(store, a, 1, Leave::Session).await);
    let found = groups(store).await;
    let ended = &found[0].members[0];
    assert_eq!((ended.state, ended.ends_at), (MemberState::Ended, None));
    assert_eq!(ended.held, held, "messages stay assigned to it after its session ended");
    assert!(!leave(store, a, 1, what).await, "the position does not move back");
    enter(store, app, a, 2, from_ref(&jobs)).await;
    assert!(groups(store).await[0].members[0].held.is_empty(), "the member is back");
    assert!(!leave(store, a, 1, Leave::Session).await, "a later connection holds it");
    assert!(!leave(store, a, 2, Leave::Shares(vec![share("jobs", "u")])).await, "it is not in that one");
    assert!(leave(store, a, 2, Leave::Shares(vec![jobs.clone()])).await);
    assert_eq!(states(store).await, [(a, MemberState::Left), (b, MemberState::Here)]);
    assert!(leave(store, a, 2, Leave::Session).await, "the session outlived the subscription");
    assert_eq!(states(store).await, [(a, MemberState::Ended), (b, MemberState::Here)]);
    enter(store, app, b, 0, &[jobs]).await;
    assert_eq!(
        groups(store).await[0].members[1].generation,
        1,
        "the call of an earlier connection is ignored"
    );
}

pub(crate) async fn a_member_marked_away_returns(store: &dyn Store) {
    let (app, [a, b], jobs) = two_devices(store).await;
    enter(store, app, a, 5, from_ref(&jobs)).await;
    enter(store, app, b, 5, from_ref(&jobs)).await;
    leave(store, a, 5, Leave::Connection { ends_at: Timestamp(99) }).await;
    leave(store, b, 5, Leave::Session).await;
    assert!(!store.return_to_shares(vec![(a, 4), (a, 6)]).await.expect("queried"), "other connections");
    assert!(store.return_to_shares(vec![(a, 5), (b, 5)]).await.expect("queried"));
    assert_eq!(states(store).await, [(a, MemberState::Here), (b, MemberState::Ended)]);
    assert_eq!(groups(store).await[0].members[0].ends_at, None);
    assert!(!store.return_to_shares(vec![(a, 5)]).await.expect("queried"), "the member was present");
}

pub(crate) async fn a_share_moves_forward_and_ends(store: &dyn Store) {
    let (app, [a, b], jobs) = two_devices(store).await;
    enter(store, app, a, 1, from_ref(&jobs)).await;
    enter(store, app, b, 1, from_ref(&jobs)).await;
    let num = groups(store).await[0].num;
    let settle = async |since: &[(ShareNum, Place)], over: &[(ShareNum, DeviceNum)]| {
        let settle = SettleShares { since: since.to_vec(), over: over.to_vec() };
        store.settle_shares(settle).await.expect("settled");
    };
    settle(&[(num, Place(50))], &[]).await;
    settle(&[(num, Place(40))], &[(num, a)]).await;
    assert_eq!(groups(store).await[0].since, Place(50), "the position never moves back");
    assert_eq!(states(store).await.len(), 2, "present members stay");
    leave(store, a, 1, Leave::Session).await;
    settle(&[], &[(num, a)]).await;
    assert_eq!(states(store).await, [(b, MemberState::Here)]);
    store.delete_device(app, &device("b"), NOW).await.expect("deleted");
    assert_eq!(groups(store).await[0].members[0].device, None);
    settle(&[], &[(num, b)]).await;
    assert_eq!(groups(store).await, []);
    enter(store, app, a, 2, &[jobs]).await;
    assert_ne!(groups(store).await[0].num, num, "numbers are not used again");
}

pub(crate) async fn a_share_without_members_restarts_at_the_present(store: &dyn Store) {
    let app = app(store, "app").await;
    let a = join(store, app, "a", "u", &[]).await;
    let jobs = share("jobs", "t");
    enter(store, app, a, 1, from_ref(&jobs)).await;
    leave(store, a, 1, Leave::Connection { ends_at: Timestamp(99) }).await;
    let kept = groups(store).await[0].since;
    send(store, app, stored(to_topic("t"))).await;
    enter(store, app, a, 2, from_ref(&jobs)).await;
    assert_eq!(groups(store).await[0].since, kept, "the member was only away");
    leave(store, a, 2, Leave::Session).await;
    let last = send(store, app, stored(to_topic("t"))).await;
    enter(store, app, a, 3, from_ref(&jobs)).await;
    assert_eq!(groups(store).await[0].since, Place::of(last));
    store.delete_device(app, &device("a"), NOW).await.expect("deleted");
    let last = send(store, app, stored(to_topic("t"))).await;
    let b = join(store, app, "b", "u", &[]).await;
    enter(store, app, b, 1, &[jobs]).await;
    assert_eq!(groups(store).await[0].since, Place::of(last), "its only member was deleted");
}

pub(crate) async fn shares_are_limited_and_removed_with_their_app(store: &dyn Store) {
    let app = app(store, "app").await;
    let a = join(store, app, "a", "u", &[]).await;
    let many: Vec<Share> =
        (0..=limits::SHARES_PER_DEVICE_MAX).map(|at| share(&format!("g{at}"), "t")).collect();
    let over = store.join_shares(joining(app, a, 1, &many)).await;
    assert!(matches!(over, Err(Error::Limit(_))));
    assert_eq!(groups(store).await, [], "all or none");
    enter(store, app, a, 1, &many[1..]).await;
    assert_eq!(groups(store).await.len(), limits::SHARES_PER_DEVICE_MAX);
    store.delete_app(app).await.expect("deleted");
    assert_eq!(groups(store).await, []);
}
