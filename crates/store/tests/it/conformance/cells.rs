//! What a front stores: residences, moves, the outbox, and provisioned apps.

use std::sync::Arc;

use noroshi_store::cells::{
    Assign, CellChange, CellNum, Cells, MoveStep, NewMessage, PartEnd, PartState, Relocated, Relocation,
    Residence, Taken, Wanted,
};
use noroshi_store::{Error, Idempotency, Store};
use noroshi_types::{AppId, AppName, NotificationId, Target, Timestamp, TraceContext};

use super::fixture::*;

/// The store of a front with three cells.
async fn cells(store: &(impl Store + Cells)) -> [CellNum; 3] {
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let known = store.enrol(names).await.expect("enrolled");
    [known[0].num, known[1].num, known[2].num]
}

fn assignment(name: &str, of: Option<&str>, fresh: CellNum) -> Assign {
    Assign { device: device(name), user: of.map(user), fresh }
}

async fn assign(store: &impl Cells, app: AppId, assignment: Assign) -> Result<Residence, Error> {
    let answers = store.assign(app, vec![assignment], NOW).await.expect("assigned");
    answers.into_iter().next().expect("an answer")
}

async fn cell_in(store: &impl Cells, app: AppId, name: &str, of: Option<&str>, fresh: CellNum) -> CellNum {
    assign(store, app, assignment(name, of, fresh)).await.expect("a place").cell
}

async fn asked(store: &impl Cells, app: AppId, name: &str, now: Timestamp) -> Vec<CellNum> {
    store.cells_of_users(app, vec![user(name)], now).await.expect("read").remove(0)
}

async fn step(store: &impl Cells, app: AppId, name: &str) -> MoveStep {
    store.residences(&[app], &device(name)).await.expect("read")[0].step
}

async fn assert_arrives(store: &impl Cells, app: AppId, name: &str, cell: CellNum) {
    assert_eq!(store.arrived(app, vec![(device(name), cell)]).await.expect("arrived"), []);
}

fn id(n: u8) -> NotificationId {
    NotificationId::from_bytes([n; 16])
}

fn message(app: AppId, n: u8, target: Target, everywhere: &[CellNum]) -> NewMessage {
    NewMessage {
        id: id(n),
        app,
        target,
        to: r#"{"topic":"t"}"#.into(),
        body: format!(r#"{{"data":{n}}}"#).into(),
        summary: r#"{"when":"stored"}"#.into(),
        expires_at: at(60),
        trace: None,
        idempotency: None,
        everywhere: Arc::from(everywhere),
        full: Arc::from([]),
    }
}

async fn take(store: &impl Cells, message: NewMessage) -> Result<Taken, Error> {
    store.keep(vec![message], NOW).await.expect("taken").remove(0)
}

/// The waiting parts of a cell: id and `to`.
async fn waiting(store: &impl Cells, cell: CellNum) -> Vec<(NotificationId, String)> {
    let parts = store.waiting(cell, Wanted::ALL, 100, 1 << 20).await.expect("read");
    parts.into_iter().map(|part| (part.id, part.to)).collect()
}

async fn states(store: &impl Cells, app: AppId, n: u8) -> Vec<(CellNum, PartState)> {
    let found = store.relayed(app, id(n)).await.expect("read").expect("found");
    found.parts.iter().map(|part| (part.cell, part.state)).collect()
}

pub(crate) async fn cells_are_enrolled_once(store: &(impl Store + Cells)) {
    let [a, b, c] = cells(store).await;
    assert_eq!(cells(store).await, [a, b, c]);
    let more = store.enrol(vec!["d".to_owned(), "a".to_owned()]).await.expect("enrolled");
    assert_eq!(more.iter().map(|cell| &*cell.name).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert_eq!((more[0].weight, more[0].draining), (None, false));

    let change = CellChange { weight: Some(Some(7)), draining: Some(true) };
    let changed = store.adjust(b, change).await.expect("changed");
    assert_eq!((changed.weight, changed.draining), (Some(7), true));
    let kept = store.adjust(b, CellChange::default()).await.expect("unchanged");
    assert_eq!(kept, changed);
    let back = CellChange { weight: Some(None), draining: Some(false) };
    let back = store.adjust(b, back).await.expect("changed");
    assert_eq!((back.weight, back.draining), (None, false));
    assert!(matches!(store.adjust(CellNum(99), change).await, Err(Error::NotFound)));
}

pub(crate) async fn devices_of_a_user_live_in_one_cell(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, _] = cells(store).await;
    assert_eq!(cell_in(store, app, "d1", Some("u1"), a).await, a);
    assert_eq!(cell_in(store, app, "d2", Some("u1"), b).await, a, "in the cell of the first device");
    assert_eq!(cell_in(store, app, "d1", Some("u1"), b).await, a, "where it was");
    assert_eq!(cell_in(store, app, "d1", None, b).await, a, "its user is as before");
    assert_eq!(cell_in(store, app, "d3", None, b).await, b);
    // A device's first user gets the device's cell.
    assert_eq!(cell_in(store, app, "d3", Some("u2"), a).await, b);
    assert_eq!(asked(store, app, "u2", NOW).await, [b]);
    assert_eq!(asked(store, app, "u1", NOW).await, [a]);
    assert_eq!(asked(store, app, "nobody", NOW).await, []);
    // Tenants are independent.
    let other = self::app(store, "news").await;
    assert_eq!(cell_in(store, other, "d1", Some("u1"), b).await, b);
    let third = self::app(store, "weather").await;
    let found = async |apps: &[AppId]| {
        let found = store.residences(apps, &device("d1")).await.expect("read");
        found.iter().map(|residence| (residence.app, residence.cell)).collect::<Vec<_>>()
    };
    assert_eq!(found(&[other, third, app, other]).await, [(app, a), (other, b)], "in order, each once");
    assert_eq!(found(&[other]).await, [(other, b)], "apps that are not named are skipped");
    assert_eq!(found(&[third]).await, []);
    assert_eq!(found(&[]).await, []);

    cell_in(store, app, "d4", None, b).await;
    let populations = store.populations().await.expect("read");
    assert_eq!(
        populations.iter().map(|p| (p.devices, p.users, p.alone)).collect::<Vec<_>>(),
        [(2, 1, 0), (3, 2, 1), (0, 0, 0)]
    );
    store.forget_device(app, &device("d1")).await.expect("forgotten");
    assert_eq!(store.residences(&[app], &device("d1")).await.expect("read"), []);
}

/// Any number of tenants may use the same device id: each finds only its own device.
pub(crate) async fn several_apps_may_use_the_same_device_id(store: &(impl Store + Cells)) {
    let [a, b, _] = cells(store).await;
    let mut apps = Vec::new();
    for n in 0..70 {
        let app = app(store, &format!("app-{n}")).await;
        cell_in(store, app, "d1", None, if n % 2 == 0 { a } else { b }).await;
        apps.push(app);
    }
    let last = *apps.last().expect("an app");
    assert_eq!(store.residences(&[last], &device("d1")).await.expect("read")[0].cell, b);
    assert_eq!(store.residences(&apps, &device("d1")).await.expect("read").len(), 70);
    store.forget_device(last, &device("d1")).await.expect("forgotten");
    assert_eq!(store.residences(&apps, &device("d1")).await.expect("read").len(), 69);
}

pub(crate) async fn a_device_that_changes_its_user_moves_to_that_users_cell(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, _] = cells(store).await;
    cell_in(store, app, "d1", Some("u1"), a).await;
    cell_in(store, app, "d2", Some("u2"), b).await;
    let moved = assign(store, app, assignment("d1", Some("u2"), a)).await.expect("a place");
    assert_eq!((moved.cell, moved.previous, moved.step), (b, Some(a), MoveStep::Leave));
    // It cannot move to a third cell before it has left the first one.
    cell_in(store, app, "d3", Some("u3"), a).await;
    assert!(matches!(assign(store, app, assignment("d1", Some("u3"), a)).await, Err(Error::Conflict)));
    store.advance(app, &device("d1"), MoveStep::Leave, MoveStep::Settled).await.expect("gone");
    let moved = assign(store, app, assignment("d1", Some("u3"), a)).await.expect("a place");
    assert_eq!((moved.cell, moved.previous), (a, Some(b)));
}

pub(crate) async fn a_user_moves_with_all_devices(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, c] = cells(store).await;
    cell_in(store, app, "d1", Some("u1"), a).await;
    cell_in(store, app, "d2", Some("u1"), a).await;
    let who = Relocation::Device(app, device("d1"));
    let moved = store.relocate(who.clone(), b, NOW, at(100)).await.expect("moved");
    assert_eq!(moved, Relocated { users: 1, alone: 0, devices: 2 }, "a user's devices live in one cell");
    assert_eq!(store.relocate(who, b, NOW, at(100)).await.expect("present"), Relocated::default());
    assert_eq!(asked(store, app, "u1", NOW).await, [b, a], "both are asked");
    assert_eq!(asked(store, app, "u1", at(100)).await, [b], "not for ever");

    let first = store.moves(a, MoveStep::Tell, None, 1).await.expect("read");
    assert_eq!((&first[0].device, first[0].from, first[0].to, first[0].since), (&device("d1"), a, b, NOW));
    let rest = store.moves(a, MoveStep::Tell, Some((app, device("d1"))), 9).await.expect("read");
    assert_eq!(rest.iter().map(|residence| &residence.device).collect::<Vec<_>>(), [&device("d2")]);
    for name in ["d1", "d2"] {
        store.advance(app, &device(name), MoveStep::Tell, MoveStep::Told).await.expect("recorded");
    }
    // d1 returns, and its pending messages are transferred.
    assert_eq!(
        assign(store, app, assignment("d1", Some("u1"), a)).await.expect("a place").step,
        MoveStep::Told
    );
    assert_arrives(store, app, "d1", b).await;
    assert_eq!(step(store, app, "d1").await, MoveStep::Arrived);
    store.advance(app, &device("d1"), MoveStep::Arrived, MoveStep::Settled).await.expect("settled");
    assert_eq!(asked(store, app, "u1", NOW).await, [b, a], "d2 is still there");
    // d2 and its user are redirected to a third cell during the move.
    let user_moves = Relocation::User(app, user("u1"));
    store.relocate(user_moves.clone(), c, at(1), at(100)).await.expect("moved");
    let d2 = store.residences(&[app], &device("d2")).await.expect("read").remove(0);
    assert_eq!((d2.cell, d2.previous), (c, Some(a)));
    // And back to the cell it is still in.
    store.relocate(user_moves, a, at(2), at(100)).await.expect("moved");
    let d2 = store.residences(&[app], &device("d2")).await.expect("read").remove(0);
    assert_eq!((d2.cell, d2.previous, d2.step), (a, None, MoveStep::Settled));
    assert_eq!(asked(store, app, "u1", NOW).await[0], a);
    let unknown = Relocation::User(app, user("nobody"));
    assert!(matches!(store.relocate(unknown, c, NOW, at(100)).await, Err(Error::NotFound)));
}

/// The device registered in one cell after it was redirected to another: its pending messages follow later.
pub(crate) async fn a_device_that_moves_on_has_not_arrived(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, c] = cells(store).await;
    cell_in(store, app, "d1", Some("u1"), a).await;
    let moved = |to| store.relocate(Relocation::User(app, user("u1")), to, NOW, at(100));
    moved(b).await.expect("moved");
    moved(c).await.expect("moved");
    let d1 = vec![(device("d1"), b), (device("d7"), b)];
    assert_eq!(store.arrived(app, d1).await.expect("searched"), [device("d1"), device("d7")]);
    assert_eq!(step(store, app, "d1").await, MoveStep::Tell);
    assert_arrives(store, app, "d1", c).await;
    assert_eq!(step(store, app, "d1").await, MoveStep::Arrived);
    assert_arrives(store, app, "d1", c).await;
}

/// The user moved again while pending messages were still being transferred.
pub(crate) async fn a_moving_device_follows_its_user_again(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, c] = cells(store).await;
    cell_in(store, app, "d1", Some("u1"), a).await;
    let moved = |to| store.relocate(Relocation::User(app, user("u1")), to, NOW, at(100));
    moved(b).await.expect("moved");
    assert_arrives(store, app, "d1", b).await;
    moved(c).await.expect("moved");
    let d1 = device("d1");
    let settled = |step| store.advance(app, &d1, step, MoveStep::Settled);
    settled(MoveStep::Arrived).await.expect("settled");
    let now = store.residences(&[app], &device("d1")).await.expect("read").remove(0);
    assert_eq!((now.cell, now.previous, now.step), (c, Some(b), MoveStep::Tell));
    assert_eq!(asked(store, app, "u1", NOW).await, [c, b], "the first is left");
    assert_arrives(store, app, "d1", c).await;
    settled(MoveStep::Arrived).await.expect("settled");
    assert_eq!(step(store, app, "d1").await, MoveStep::Settled);
    assert_eq!(asked(store, app, "u1", NOW).await, [c]);
}

pub(crate) async fn deleting_an_app_removes_its_cell_messages(store: &(impl Store + Cells)) {
    let (gone, app) = (app(store, "gone").await, app(store, "shop").await);
    let [a, ..] = cells(store).await;
    store.delete_app(gone).await.expect("deleted");
    let messages = [gone, app].map(|app| message(app, app.0 as u8, to_topic("t"), &[a]));
    let answers = store.keep(messages.to_vec(), NOW).await.expect("taken");
    assert!(matches!(answers[..], [Err(Error::NotFound), Ok(_)]), "{answers:?}");
    assert_eq!(waiting(store, a).await.len(), 1);
}

pub(crate) async fn a_former_home_ends_with_the_last_device(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, _] = cells(store).await;
    cell_in(store, app, "d1", Some("u1"), a).await;
    store.relocate(Relocation::User(app, user("u1")), b, NOW, at(100)).await.expect("moved");
    assert_eq!(asked(store, app, "u1", NOW).await, [b, a]);
    assert_arrives(store, app, "d1", b).await;
    store.advance(app, &device("d1"), MoveStep::Arrived, MoveStep::Settled).await.expect("settled");
    assert_eq!(asked(store, app, "u1", NOW).await, [b]);
    // A step that was taken in the meantime is not repeated.
    store.advance(app, &device("d1"), MoveStep::Arrived, MoveStep::Tell).await.expect("nothing");
    assert_eq!(step(store, app, "d1").await, MoveStep::Settled);
}

pub(crate) async fn part_of_a_cell_moves(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, _] = cells(store).await;
    for n in 0..4 {
        cell_in(store, app, &format!("d{n}"), Some(&format!("u{n}")), a).await;
    }
    for n in 4..7 {
        cell_in(store, app, &format!("d{n}"), None, a).await;
    }
    let some = |limit| Relocation::Some { from: a, limit };
    let moved = store.relocate(some(3), b, NOW, at(100)).await.expect("moved");
    assert_eq!(moved, Relocated { users: 3, alone: 0, devices: 3 });
    let moved = store.relocate(some(3), b, NOW, at(100)).await.expect("moved");
    assert_eq!(moved, Relocated { users: 1, alone: 2, devices: 3 });
    let moved = store.relocate(some(3), b, NOW, at(100)).await.expect("moved");
    assert_eq!(moved, Relocated { users: 0, alone: 1, devices: 1 });
    assert_eq!(store.relocate(some(3), b, NOW, at(100)).await.expect("none"), Relocated::default());
}

pub(crate) async fn a_message_has_a_part_for_each_cell(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, c] = cells(store).await;
    cell_in(store, app, "d1", Some("u1"), a).await;
    cell_in(store, app, "d2", Some("u2"), b).await;
    cell_in(store, app, "d3", Some("u3"), a).await;

    let taken = take(store, message(app, 1, users(&["u1", "u2", "u3", "nobody"]), &[])).await.expect("taken");
    assert_eq!(taken, Taken { id: id(1), targets: Some(4), cells: vec![a, b], replayed: false });
    take(store, message(app, 2, devices(&["d2", "d9"]), &[a, b, c])).await.expect("taken");
    let taken = take(store, message(app, 3, to_topic("t"), &[a, b, c])).await.expect("taken");
    assert_eq!((taken.targets, taken.cells), (None, vec![a, b, c]));
    let nobody = take(store, message(app, 4, users(&["nobody"]), &[a, b, c])).await.expect("taken");
    assert_eq!((nobody.targets, nobody.cells), (Some(1), vec![]));

    let topic = r#"{"topic":"t"}"#.to_owned();
    let to = |text: &str| text.to_owned();
    assert_eq!(waiting(store, a).await, [(id(1), to(r#"{"users":["u1","u3"]}"#)), (id(3), topic.clone())]);
    assert_eq!(
        waiting(store, b).await,
        [(id(1), to(r#"{"users":["u2"]}"#)), (id(2), to(r#"{"devices":["d2"]}"#)), (id(3), topic.clone())]
    );
    assert_eq!(waiting(store, c).await, [(id(3), topic)]);
    let crowded = |target| NewMessage { full: Arc::from([c]), ..message(app, 5, target, &[a, b, c]) };
    assert!(matches!(take(store, crowded(to_topic("t"))).await, Err(Error::Overloaded)));
    assert_eq!(store.relayed(app, id(5)).await.expect("read"), None);
    take(store, crowded(users(&["nobody"]))).await.expect("unaffected by users of other cells");

    let first = store.waiting(b, Wanted::ALL, 1, 1 << 20).await.expect("read").remove(0);
    assert_eq!((first.app, &*first.body, first.expires_at), (app, r#"{"data":1}"#, at(60)));
    assert_eq!(store.waiting(b, Wanted::ALL, 9, 1).await.expect("read").len(), 1, "at least one");
    assert!(store.newest().await.expect("read") > first.num);
    assert!(store.waits_before(b, app, first.num + 1).await.expect("read"));
    assert!(!store.waits_before(b, app, first.num).await.expect("read"));

    let found = store.relayed(app, id(1)).await.expect("read").expect("found");
    assert_eq!((found.unknown, found.targets, found.accepted_at), (1, Some(4), NOW));
    assert_eq!(found.summary, r#"{"when":"stored"}"#);
    let other = self::app(store, "news").await;
    assert_eq!(store.relayed(other, id(1)).await.expect("read"), None);
    let depths = store.depths().await.expect("read");
    assert_eq!(
        depths.iter().map(|d| (d.cell, d.parts, d.oldest)).collect::<Vec<_>>(),
        [(a, 2, Some(NOW)), (b, 3, Some(NOW)), (c, 1, Some(NOW))]
    );
}

pub(crate) async fn a_message_keeps_its_trace(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, _] = cells(store).await;
    let context = |flags: u8| {
        let text = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0{flags}");
        Some(TraceContext::parse(text.as_bytes()).expect("a context"))
    };
    let traces = [context(1), None, context(0)];
    let messages = (1..).zip(traces);
    let messages = messages.map(|(n, trace)| NewMessage { trace, ..message(app, n, to_topic("t"), &[a, b]) });
    for taken in store.keep(messages.collect(), NOW).await.expect("kept") {
        taken.expect("taken");
    }
    for cell in [a, b] {
        let parts = store.waiting(cell, Wanted::ALL, 9, 1 << 20).await.expect("read");
        assert_eq!(parts.iter().map(|part| part.trace).collect::<Vec<_>>(), traces);
        let ended = parts.iter().map(|part| (part.num, PartEnd::Expired)).collect();
        store.end(cell, ended).await.expect("ended");
    }
    for (n, trace) in (1..).zip(traces) {
        let found = store.relayed(app, id(n)).await.expect("read").expect("found");
        assert_eq!(found.trace, trace, "also when nothing is waiting any more");
    }
}

pub(crate) async fn parts_are_selected_by_app(store: &(impl Store + Cells)) {
    let (shop, news) = (app(store, "shop").await, app(store, "news").await);
    let [a, ..] = cells(store).await;
    for (n, app) in [(1, shop), (2, shop), (3, news), (4, shop), (5, news)] {
        take(store, message(app, n, to_topic("t"), &[a])).await.expect("taken");
    }
    let read = async |wanted: Wanted, rows_max: usize| {
        let parts = store.waiting(a, wanted, rows_max, 1 << 20).await.expect("read");
        parts.into_iter().map(|part| (part.id, part.num)).collect::<Vec<_>>()
    };
    let ids = |parts: &[(NotificationId, u64)]| parts.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    let others = |apart: &[AppId], after: u64| Wanted::Others { apart: apart.to_vec(), after };
    assert_eq!(ids(&read(Wanted::ALL, 9).await), [id(1), id(2), id(3), id(4), id(5)]);
    assert_eq!(ids(&read(Wanted::Of { app: news, after: 0 }, 9).await), [id(3), id(5)]);
    assert_eq!(ids(&read(Wanted::Of { app: shop, after: 0 }, 2).await), [id(1), id(2)]);
    let first = read(Wanted::Of { app: news, after: 0 }, 1).await[0].1;
    assert_eq!(ids(&read(Wanted::Of { app: news, after: first }, 9).await), [id(5)]);
    let behind = read(others(&[shop], 0), 1).await;
    assert_eq!(ids(&behind), [id(3)], "rows of others do not count");
    assert_eq!(ids(&read(others(&[shop], behind[0].1), 9).await), [id(5)]);
    assert_eq!(read(others(&[shop, news], 0), 9).await, []);

    assert!(store.waits_before(a, shop, behind[0].1).await.expect("read"));
    assert!(
        !store.waits_before(a, news, behind[0].1).await.expect("read"),
        "the waiting message belongs to another app"
    );
}

pub(crate) async fn a_part_ends_once(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, c] = cells(store).await;
    take(store, message(app, 1, to_topic("t"), &[a, b, c])).await.expect("taken");
    let num = store.waiting(a, Wanted::ALL, 9, 1 << 20).await.expect("read")[0].num;
    store.end(a, vec![(num, PartEnd::Forwarded(id(101)))]).await.expect("ended");
    store.end(b, vec![(num, PartEnd::Refused("forbidden".to_owned()))]).await.expect("ended");
    assert_eq!(waiting(store, c).await.len(), 1, "its body is kept for the last part");
    store.end(c, vec![(num, PartEnd::Expired)]).await.expect("ended");
    store.end(c, vec![(num, PartEnd::Refused("late".to_owned()))]).await.expect("nothing");
    let found = store.relayed(app, id(1)).await.expect("read").expect("found");
    let parts: Vec<_> =
        found.parts.iter().map(|part| (part.state, part.remote, part.reason.as_deref())).collect();
    assert_eq!(
        parts,
        [
            (PartState::Forwarded, Some(id(101)), None),
            (PartState::Refused, None, Some("forbidden")),
            (PartState::Expired, None, None)
        ]
    );
    assert_eq!(store.depths().await.expect("read"), []);
    let found = store.relayed_as(a, id(101)).await.expect("read").expect("found");
    assert_eq!(found.id, id(1));
    assert_eq!(store.relayed_as(b, id(101)).await.expect("read"), None);
}

pub(crate) async fn an_idempotency_key_is_used_once(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, ..] = cells(store).await;
    let keyed = |n: u8, body: u8| NewMessage {
        idempotency: Some(Idempotency { key: "k".into(), body_hash: [body; 32] }),
        ..message(app, n, to_topic("t"), &[a])
    };
    let answers = store.keep(vec![keyed(1, 7), keyed(2, 7), keyed(3, 8)], NOW).await.expect("taken");
    assert_eq!(answers[0].as_ref().expect("taken").id, id(1));
    let repeated = answers[1].as_ref().expect("repeated");
    assert_eq!((repeated.id, repeated.replayed, repeated.cells.len()), (id(1), true, 0));
    assert!(matches!(answers[2], Err(Error::IdempotencyConflict)));
    assert_eq!(waiting(store, a).await.len(), 1);
    let next_day = Timestamp(NOW.0 + 86_400_000);
    let later = store.keep(vec![keyed(4, 8)], next_day).await.expect("taken").remove(0).expect("new again");
    assert_eq!(later.id, id(4));
}

pub(crate) async fn cancelled_parts_are_not_forwarded(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, c] = cells(store).await;
    take(store, message(app, 1, to_topic("t"), &[a, b, c])).await.expect("taken");
    let num = store.waiting(a, Wanted::ALL, 9, 1 << 20).await.expect("read")[0].num;
    store.end(a, vec![(num, PartEnd::Forwarded(id(101)))]).await.expect("ended");
    let other = self::app(store, "news").await;
    assert_eq!(store.cancel_relayed(other, id(1)).await.expect("unknown"), None);
    let found = store.cancel_relayed(app, id(1)).await.expect("cancelled").expect("found");
    assert!(found.cancelled);
    let state = [(a, PartState::Cancelling), (b, PartState::Cancelled), (c, PartState::Cancelled)];
    assert_eq!(states(store, app, 1).await, state);
    assert_eq!((waiting(store, b).await, waiting(store, c).await), (vec![], vec![]));
    // It was being forwarded to c when it was cancelled.
    store.end(c, vec![(num, PartEnd::Forwarded(id(103)))]).await.expect("ended");
    assert_eq!(store.cancelling(a, 9).await.expect("read"), [(num, app, id(101))]);
    assert_eq!(store.cancelling(c, 9).await.expect("read"), [(num, app, id(103))]);
    store.cancelled(a, vec![num]).await.expect("recorded");
    assert_eq!(store.cancelling(a, 9).await.expect("read"), []);
    assert_eq!(states(store, app, 1).await[0], (a, PartState::Forwarded));
}

pub(crate) async fn expired_parts_stop_waiting(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, b, _] = cells(store).await;
    take(store, message(app, 1, to_topic("t"), &[a, b])).await.expect("taken");
    let lasting = NewMessage { expires_at: at(10_000), ..message(app, 2, to_topic("t"), &[a]) };
    take(store, lasting).await.expect("taken");
    let never = Timestamp(0);
    assert!(!store.prune_relayed(at(60), at(60), never, 9).await.expect("pruned"));
    assert_eq!(waiting(store, a).await.len(), 2, "not yet");
    assert!(store.prune_relayed(at(61), at(61), never, 1).await.expect("pruned"), "there is more");
    store.prune_relayed(at(61), at(61), never, 9).await.expect("pruned");
    assert_eq!(states(store, app, 1).await, [(a, PartState::Expired), (b, PartState::Expired)]);
    assert_eq!(waiting(store, a).await.len(), 1);
    store.prune_relayed(at(61), at(61), at(61), 9).await.expect("pruned");
    assert_eq!(store.relayed(app, id(1)).await.expect("read"), None, "forgotten");
    assert!(store.relayed(app, id(2)).await.expect("read").is_some(), "the message still waits");
}

pub(crate) async fn removing_an_app_from_a_front_removes_its_rows(store: &(impl Store + Cells)) {
    let app = app(store, "shop").await;
    let [a, ..] = cells(store).await;
    cell_in(store, app, "d1", Some("u1"), a).await;
    take(store, message(app, 1, users(&["u1"]), &[])).await.expect("taken");
    store.delete_app(app).await.expect("deleted");
    assert_eq!(store.residences(&[app], &device("d1")).await.expect("read"), []);
    assert_eq!(asked(store, app, "u1", NOW).await, []);
    assert_eq!(waiting(store, a).await, []);
    assert_eq!(store.relayed(app, id(1)).await.expect("read"), None);
}

pub(crate) async fn provisioned_apps_are_stored(store: &(impl Store + Cells)) {
    let [a, b, _] = cells(store).await;
    let shop = AppName::parse("shop").expect("a name");
    store.set_provisioned(a, shop.clone(), Some([1; 32])).await.expect("kept");
    store.set_provisioned(a, shop.clone(), Some([2; 32])).await.expect("kept");
    assert_eq!(store.provisioned(a).await.expect("read"), [(shop.clone(), [2; 32])]);
    assert_eq!(store.provisioned(b).await.expect("read"), []);
    store.set_provisioned(a, shop, None).await.expect("kept");
    assert_eq!(store.provisioned(a).await.expect("read"), []);
}
