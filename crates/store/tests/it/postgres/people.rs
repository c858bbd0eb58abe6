//! People on two nodes at once, and the audit log in a database that sorts text by a language.

use noroshi_store::{NewPerson, People as _, PersonChange};
use noroshi_types::{PersonId, Role};

use super::{open, server, two};
use crate::conformance;
use crate::conformance::fixture::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_of_a_person_undoes_another() {
    let (_database, one, other) = two().await;
    let new = NewPerson {
        email: "ann@example.com".to_owned(),
        name: "Ann".to_owned(),
        password: None,
        openid: None,
        roles: Vec::new(),
    };
    let ann = one.create_person(new, NOW).await.expect("created").id;
    for round in 0..50 {
        let (name, password) = (format!("Ann {round}"), format!("$argon2id${round}"));
        let named = PersonChange { name: Some(name.clone()), ..PersonChange::default() };
        let secured = PersonChange { password: Some(password.clone()), ..PersonChange::default() };
        let disabled = PersonChange { is_disabled: Some(true), ..PersonChange::default() };
        let changed = tokio::join!(
            one.change_person(ann, named, NOW),
            other.change_person(ann, secured, NOW),
            one.change_person(ann, disabled, NOW),
        );
        assert!(changed.0.is_ok() && changed.1.is_ok() && changed.2.is_ok(), "{changed:?}");
        let found = other.person(ann).await.expect("read").expect("there");
        let (is_disabled, its_password) = (found.disabled_at.is_some(), found.login.password);
        assert_eq!((found.name, its_password, is_disabled), (name, Some(password), true), "round {round}");
        let enable = PersonChange { is_disabled: Some(false), ..PersonChange::default() };
        one.change_person(ann, enable, NOW).await.expect("enabled");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_a_person_gives_during_a_log_in_stays() {
    let (_database, one, other) = two().await;
    let app = app(&one, "shop").await;
    let new = |email: &str| NewPerson {
        email: email.to_owned(),
        name: "Name".to_owned(),
        password: None,
        openid: None,
        roles: Vec::new(),
    };
    let ann: PersonId = one.create_person(new("ann@example.com"), NOW).await.expect("created").id;
    for round in 0..50 {
        one.map_roles(ann, vec![(Some(app), Role::Viewer)]).await.expect("mapped");
        let (mapped, given) = tokio::join!(
            one.map_roles(ann, vec![(Some(app), Role::Viewer)]),
            other.set_role(ann, Some(app), Some(Role::Author)),
        );
        assert!(mapped.is_ok() && given.is_ok(), "{mapped:?} {given:?}");
        let found = one.person(ann).await.expect("read").expect("there");
        assert_eq!((found.roles, found.mapped), (vec![(Some(app), Role::Author)], Vec::new()), "{round}");
        one.set_role(ann, Some(app), None).await.expect("removed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_is_searched_whatever_the_language_of_the_database() {
    let database = server().database().await;
    let sql = "ALTER TABLE audit ALTER COLUMN action TYPE TEXT COLLATE \"en-x-icu\"";
    database.client().await.batch_execute(sql).await.expect("changed");
    let store = open(&database).await;
    conformance::people::changes_are_listed_by_what_is_asked(&store).await;
}
