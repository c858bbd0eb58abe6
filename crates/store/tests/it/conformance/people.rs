//! People: roles, sessions, tickets and the audit log.

use noroshi_store::{
    AuditFilter, Audited, AuditedBy, Error, NewPerson, NewPersonSession, NewTicket, OpenId, Person,
    PersonChange, PersonSession, Store, TicketPurpose, TotpChange,
};
use noroshi_types::{AppId, PersonId, Role, Timestamp, limits};

use super::fixture::*;

/// Milliseconds later.
fn after(time: Timestamp, ms: u64) -> Timestamp {
    Timestamp(time.0 + ms)
}

fn new(email: &str, roles: &[(Option<AppId>, Role)]) -> NewPerson {
    NewPerson {
        email: email.to_owned(),
        name: "Name".to_owned(),
        password: Some("$argon2id$".to_owned()),
        openid: None,
        roles: roles.to_vec(),
    }
}

async fn create(store: &dyn Store, email: &str, roles: &[(Option<AppId>, Role)]) -> Person {
    store.create_person(new(email, roles), NOW).await.expect("created")
}

async fn log_in(store: &dyn Store, person: PersonId, hash: u8, now: Timestamp) -> PersonSession {
    let session = NewPersonSession {
        hash: [hash; 32],
        person,
        confirmed_at: now,
        expires_at: after(now, 1_000),
        address: "192.0.2.1".to_owned(),
        agent: "Browser".to_owned(),
    };
    store.create_session(session, now).await.expect("logged in")
}

pub(crate) async fn a_person_is_found_by_address_and_openid(store: &dyn Store) {
    let app = app(store, "a").await;
    let ann = create(store, "ann@example.com", &[(Some(app), Role::Support), (None, Role::Viewer)]).await;
    assert_eq!(ann.roles, [(None, Role::Viewer), (Some(app), Role::Support)]);
    let bob = create(store, "bob@example.com", &[]).await;
    assert!(bob.id > ann.id);
    assert_eq!(store.person(ann.id).await.expect("read"), Some(ann.clone()));
    assert_eq!(store.person_with_email("ann@example.com").await.expect("read"), Some(ann.clone()));
    assert_eq!(store.person_with_email("Ann@example.com").await.expect("read"), None);
    let again = store.create_person(new("ann@example.com", &[]), NOW).await;
    assert!(matches!(again, Err(Error::Exists)), "{again:?}");

    let openid = OpenId { issuer: "https://login.example".to_owned(), subject: "1".to_owned() };
    let linked = PersonChange { openid: Some(openid.clone()), ..PersonChange::default() };
    let ann = store.change_person(ann.id, linked.clone(), NOW).await.expect("linked");
    assert_eq!(store.person_with_openid(openid).await.expect("read"), Some(ann.clone()));
    let taken = store.change_person(bob.id, linked, NOW).await;
    assert!(matches!(taken, Err(Error::Exists)), "{taken:?}");

    let all = store.people(PersonId(0), 10).await.expect("listed");
    assert_eq!(all, [ann.clone(), bob.clone()]);
    assert_eq!(store.people(ann.id, 1).await.expect("listed"), [bob]);
    let of_app = store.people_of_app(app, PersonId(0), 10).await.expect("listed");
    assert_eq!(of_app, std::slice::from_ref(&ann), "only those with a role in the app itself");
    assert_eq!(store.people_of_app(app, ann.id, 10).await.expect("listed"), []);
    let removed = store.set_role(ann.id, Some(app), None).await.expect("removed");
    assert_eq!(removed.roles, [(None, Role::Viewer)]);
    let unknown = store.set_role(ann.id, Some(AppId(9_999)), Some(Role::Viewer)).await;
    assert!(matches!(unknown, Err(Error::NotFound)), "{unknown:?}");
}

pub(crate) async fn roles_of_a_deleted_app_are_gone(store: &dyn Store) {
    let app = app(store, "a").await;
    let ann = create(store, "ann@example.com", &[(Some(app), Role::Owner)]).await;
    store.delete_app(app).await.expect("deleted");
    while store.prune(NOW, 100).await.expect("pruned").more {}
    assert_eq!(store.person(ann.id).await.expect("read").expect("there").roles, []);
}

pub(crate) async fn mapped_roles_are_replaced_and_others_stay(store: &dyn Store) {
    let (one, two) = (app(store, "a").await, app(store, "b").await);
    let ann = create(store, "ann@example.com", &[(Some(one), Role::Viewer)]).await;
    assert_eq!(ann.mapped, []);
    let map = async |roles: &[(Option<AppId>, Role)]| store.map_roles(ann.id, roles.to_vec()).await;
    let mapped = [(None, Role::Support), (Some(one), Role::Owner), (Some(two), Role::Author)];
    let person = map(&mapped).await.expect("mapped");
    let all = [(None, Role::Support), (Some(one), Role::Viewer), (Some(two), Role::Author)];
    assert_eq!(person.roles, all, "the role that a person gave takes precedence");
    assert_eq!(person.mapped, [None, Some(two)]);
    assert_eq!(store.people(PersonId(0), 10).await.expect("listed"), [person]);
    // A person gives a role where the mapping did: it stays from now on.
    let given = store.set_role(ann.id, Some(two), Some(Role::Operator)).await.expect("given");
    assert_eq!(given.mapped, [None]);
    let person = map(&[(Some(two), Role::Viewer)]).await.expect("mapped");
    assert_eq!(person.roles, [(Some(one), Role::Viewer), (Some(two), Role::Operator)]);
    assert_eq!(person.mapped, []);
    // Without it, the mapping applies again.
    store.set_role(ann.id, Some(two), None).await.expect("removed");
    let person = map(&[(Some(two), Role::Viewer)]).await.expect("mapped");
    assert_eq!((person.roles.len(), person.mapped.as_slice()), (2, [Some(two)].as_slice()));
    store.set_role(ann.id, Some(two), None).await.expect("a mapped role can be removed");
    let nobody = store.map_roles(PersonId(9_999), Vec::new()).await;
    assert!(matches!(nobody, Err(Error::NotFound)), "{nobody:?}");
    let unknown = map(&[(Some(AppId(9_999)), Role::Viewer)]).await;
    assert!(matches!(unknown, Err(Error::NotFound)), "{unknown:?}");
}

pub(crate) async fn a_mapped_owner_can_lose_the_role(store: &dyn Store) {
    let ann = create(store, "ann@example.com", &[]).await.id;
    store.map_roles(ann, vec![(None, Role::Owner)]).await.expect("mapped");
    let refused = store.set_role(ann, None, None).await;
    assert!(matches!(refused, Err(Error::Conflict)), "people keep the last owner: {refused:?}");
    let person = store.map_roles(ann, Vec::new()).await.expect("the provider decides");
    assert_eq!((person.roles, person.mapped), (Vec::new(), Vec::new()));
}

pub(crate) async fn the_last_owner_stays(store: &dyn Store) {
    let ann = create(store, "ann@example.com", &[(None, Role::Owner)]).await.id;
    let disable = PersonChange { is_disabled: Some(true), ..PersonChange::default() };
    let refused = [
        store.set_role(ann, None, None).await.map(drop),
        store.set_role(ann, None, Some(Role::Operator)).await.map(drop),
        store.change_person(ann, disable.clone(), NOW).await.map(drop),
        store.delete_person(ann).await,
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::Conflict)), "{refused:?}");
    }
    let bob = create(store, "bob@example.com", &[(None, Role::Owner)]).await.id;
    store.change_person(bob, disable.clone(), NOW).await.expect("disabled");
    let refused = store.delete_person(ann).await;
    assert!(matches!(refused, Err(Error::Conflict)), "an owner who is disabled does not count: {refused:?}");
    let enable = PersonChange { is_disabled: Some(false), ..PersonChange::default() };
    let bob_again = store.change_person(bob, enable, NOW).await.expect("enabled");
    assert_eq!(bob_again.disabled_at, None);
    // Both at once: one of them stays.
    let (first, second) = tokio::join!(store.delete_person(ann), store.delete_person(bob));
    assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
    assert_eq!(store.people(PersonId(0), 10).await.expect("listed").len(), 1);
}

pub(crate) async fn no_code_works_twice(store: &dyn Store) {
    let ann = create(store, "ann@example.com", &[]).await.id;
    let change = async |totp| {
        let change = PersonChange { totp: Some(totp), ..PersonChange::default() };
        store.change_person(ann, change, NOW).await
    };
    let early = change(TotpChange::On { step: 5, recovery: Vec::new() }).await;
    assert!(matches!(early, Err(Error::NotFound)), "there is no secret: {early:?}");
    let set = change(TotpChange::Secret(vec![7; 40])).await.expect("set").login;
    assert_eq!((set.totp.as_deref(), set.totp_is_on), (Some([7; 40].as_slice()), false));
    assert!(!store.use_totp(ann, 9).await.expect("asked"), "it is off");
    let on = change(TotpChange::On { step: 5, recovery: vec![[1; 32], [2; 32]] }).await.expect("on");
    assert_eq!((on.login.totp_is_on, on.login.recovery.len()), (true, 2));
    let used = [5, 6, 6, 4, 8].map(|step| store.use_totp(ann, step));
    let mut answers = Vec::new();
    for used in used {
        answers.push(used.await.expect("asked"));
    }
    assert_eq!(answers, [false, true, false, false, true]);
    let code = async |byte| store.use_recovery_code(ann, [byte; 32]).await.expect("asked");
    assert_eq!([code(3).await, code(1).await, code(1).await, code(2).await], [false, true, false, true]);
    let off = change(TotpChange::Off).await.expect("off").login;
    assert_eq!((off.totp, off.totp_is_on), (None, false));
    assert!(!store.use_totp(ann, 99).await.expect("asked"));
}

pub(crate) async fn sessions_expire_and_end(store: &dyn Store) {
    let ann = create(store, "ann@example.com", &[]).await.id;
    let session = log_in(store, ann, 1, NOW).await;
    let start = Timestamp(0);
    let find = async |hash: u8, idle_since, now| {
        let found = store.person_session([hash; 32], idle_since, now).await.expect("read");
        found.map(|(session, person)| (session.id, person.id))
    };
    assert_eq!(find(1, start, NOW).await, Some((session.id, ann)));
    assert_eq!(find(2, start, NOW).await, None);
    assert_eq!(find(1, start, after(NOW, 1_000)).await, None, "expired");
    assert_eq!(find(1, NOW, NOW).await, None, "idle");
    store.touch_session(session.id, after(NOW, 10)).await.expect("seen");
    store.confirm_session(session.id, after(NOW, 20)).await.expect("confirmed");
    let (seen, _) = store.person_session([1; 32], NOW, NOW).await.expect("read").expect("there");
    assert_eq!((seen.seen_at, seen.confirmed_at), (after(NOW, 10), after(NOW, 20)));

    let bob = create(store, "bob@example.com", &[]).await.id;
    let others = [log_in(store, ann, 2, NOW).await.id, log_in(store, ann, 3, NOW).await.id];
    log_in(store, bob, 4, NOW).await;
    let listed = store.person_sessions(ann, start, NOW).await.expect("listed");
    assert_eq!(listed.iter().map(|one| one.id).collect::<Vec<_>>(), [others[1], others[0], session.id]);
    let foreign = store.end_session(bob, session.id).await;
    assert!(matches!(foreign, Err(Error::NotFound)), "{foreign:?}");
    store.end_session(ann, others[0]).await.expect("ended");
    assert_eq!(store.end_other_sessions(ann, Some(session.id)).await.expect("ended"), 1);
    assert_eq!(find(3, start, NOW).await, None);
    assert!(find(1, start, NOW).await.is_some() && find(4, start, NOW).await.is_some());

    let disable = PersonChange { is_disabled: Some(true), ..PersonChange::default() };
    store.change_person(ann, disable, NOW).await.expect("disabled");
    assert_eq!(find(1, start, NOW).await, None);
    let refused = NewPersonSession {
        hash: [9; 32],
        person: ann,
        confirmed_at: NOW,
        expires_at: after(NOW, 1),
        address: String::new(),
        agent: String::new(),
    };
    let refused = store.create_session(refused, NOW).await;
    assert!(matches!(refused, Err(Error::NotFound)), "{refused:?}");
}

pub(crate) async fn the_oldest_sessions_make_room(store: &dyn Store) {
    let ann = create(store, "ann@example.com", &[]).await.id;
    let max = limits::SESSIONS_OF_A_PERSON_MAX as u8;
    for number in 0..=max {
        log_in(store, ann, number, NOW).await;
    }
    let sessions = store.person_sessions(ann, Timestamp(0), NOW).await.expect("listed");
    assert_eq!(sessions.len(), usize::from(max));
    let oldest = store.person_session([0; 32], Timestamp(0), NOW).await.expect("read");
    assert_eq!(oldest, None);
}

pub(crate) async fn a_ticket_works_once(store: &dyn Store) {
    let app = app(store, "a").await;
    let ann = create(store, "ann@example.com", &[]).await.id;
    let invitation = TicketPurpose::Invitation {
        email: "new@example.com".to_owned(),
        roles: vec![(Some(app), Role::Author), (None, Role::Viewer)],
    };
    let create = async |hash, purpose: TicketPurpose| {
        let expires_at = after(NOW, 100);
        let ticket = NewTicket { hash: [hash; 32], purpose, created_by: Some(ann), expires_at };
        store.create_ticket(ticket, NOW).await.expect("created")
    };
    let invited = create(1, invitation.clone()).await;
    assert_eq!((&invited.purpose, invited.created_by), (&invitation, Some(ann)));
    create(2, TicketPurpose::LogIn(ann)).await;
    assert_eq!(store.invitations(NOW).await.expect("listed"), std::slice::from_ref(&invited));
    assert_eq!(store.ticket([1; 32], NOW).await.expect("read"), Some(invited.clone()));
    let expired = store.take_ticket([1; 32], after(NOW, 100)).await.expect("asked");
    assert_eq!(expired, None);
    let take = || store.take_ticket([1; 32], NOW);
    let (first, second) = tokio::join!(take(), take());
    let taken: Vec<_> = [first, second].into_iter().filter_map(|one| one.expect("asked")).collect();
    assert_eq!(taken, [invited]);
    let other = create(3, invitation).await;
    store.delete_ticket(other.id).await.expect("deleted");
    let again = store.delete_ticket(other.id).await;
    assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
    // Who is deleted cannot use a link any more.
    store.delete_person(ann).await.expect("deleted");
    assert_eq!(store.take_ticket([2; 32], NOW).await.expect("asked"), None);
}

fn audited(action: &str, by: AuditedBy, app: Option<AppId>) -> Audited {
    Audited {
        by,
        app,
        action: action.to_owned(),
        target: "target".to_owned(),
        before: None,
        after: Some("{}".to_owned()),
        address: "192.0.2.1".to_owned(),
        request: "r".to_owned(),
    }
}

pub(crate) async fn changes_are_listed_by_what_is_asked(store: &dyn Store) {
    let app = app(store, "a").await;
    let ann = AuditedBy::Person { id: PersonId(1), email: "ann@example.com".to_owned() };
    let changes = [
        audited("key.create", ann.clone(), Some(app)),
        audited("key.revoke", AuditedBy::Key("k".to_owned()), Some(app)),
        audited("app.create", AuditedBy::OperatorToken, None),
        audited("keys.other", AuditedBy::Node, None),
    ];
    for (number, change) in changes.iter().enumerate() {
        let at = after(NOW, number as u64);
        store.record_audit(vec![change.clone()], at).await.expect("recorded");
    }
    let list = async |filter: AuditFilter| {
        let entries =
            store.audit(AuditFilter { limit: filter.limit.max(1), ..filter }).await.expect("listed");
        entries.into_iter().map(|entry| entry.change.action).collect::<Vec<_>>()
    };
    let all = AuditFilter { limit: 10, ..AuditFilter::default() };
    let newest = store.audit(AuditFilter { limit: 1, ..all.clone() }).await.expect("listed");
    assert_eq!((newest[0].at, &newest[0].change), (after(NOW, 3), &changes[3]));
    assert_eq!(list(all.clone()).await, ["keys.other", "app.create", "key.revoke", "key.create"]);
    let before = AuditFilter { before: Some(newest[0].id), limit: 2, ..all.clone() };
    assert_eq!(list(before).await, ["app.create", "key.revoke"]);
    assert_eq!(list(AuditFilter { app: Some(app), ..all.clone() }).await, ["key.revoke", "key.create"]);
    assert_eq!(list(AuditFilter { person: Some(PersonId(1)), ..all.clone() }).await, ["key.create"]);
    let keys = AuditFilter { action: Some("key.".to_owned()), app: Some(app), ..all.clone() };
    assert_eq!(list(keys).await, ["key.revoke", "key.create"]);
    let all_keys = AuditFilter { action: Some("key".to_owned()), ..all.clone() };
    assert_eq!(list(all_keys).await, ["keys.other", "key.revoke", "key.create"]);
    let times = AuditFilter { since: Some(after(NOW, 1)), until: Some(after(NOW, 3)), ..all.clone() };
    assert_eq!(list(times).await, ["app.create", "key.revoke"]);
}

pub(crate) async fn what_is_over_is_pruned(store: &dyn Store) {
    let ann = create(store, "ann@example.com", &[]).await.id;
    log_in(store, ann, 1, NOW).await;
    log_in(store, ann, 2, after(NOW, 500)).await;
    let ticket = |hash, ms| NewTicket {
        hash: [hash; 32],
        purpose: TicketPurpose::LogIn(ann),
        created_by: None,
        expires_at: after(NOW, ms),
    };
    store.create_ticket(ticket(1, 100), NOW).await.expect("created");
    store.create_ticket(ticket(2, 5_000), NOW).await.expect("created");
    let changes = vec![audited("a.b", AuditedBy::Node, None)];
    store.record_audit(changes.clone(), NOW).await.expect("recorded");
    store.record_audit(changes, after(NOW, 10)).await.expect("recorded");
    let removed = store.prune_people(after(NOW, 1_000), Timestamp(0), NOW, 10).await.expect("pruned");
    assert_eq!(removed, 3, "a session, a ticket, and a change");
    let idle = store.prune_people(NOW, after(NOW, 500), Timestamp(0), 10).await.expect("pruned");
    assert_eq!(idle, 1, "the other session");
    assert_eq!(
        store.audit(AuditFilter { limit: 9, ..AuditFilter::default() }).await.expect("listed").len(),
        1
    );
}
