//! Which rules are in place, and what they allow.

use noroshi_store::{Sqlite, Store, sqlite::Options};
use noroshi_types::Timestamp;
use noroshi_types::rule::{Allow, Pattern, Rule};

use super::*;
use crate::clock::Clock;

fn rules(pattern: &str) -> (AppName, Arc<TopicRules>) {
    let rule = Rule { pattern: Pattern::parse(pattern).expect("a pattern"), allow: Allow::Anyone };
    let rules = TopicRules::new(Some(vec![rule]), None, None).expect("rules");
    (AppName::parse("shop").expect("a name"), Arc::new(rules))
}

/// Needs a store only because a [`Context`] has one.
fn empty() -> (tempfile::TempDir, Rules) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut registry = noroshi_telemetry::registry();
    let store = Sqlite::open(folder.path(), Options::default(), &mut registry).expect("a store");
    let (store, clock): (Arc<dyn Store>, _) = (Arc::new(store), Clock::fixed(Timestamp(0)));
    let runtime = tokio::runtime::Handle::current();
    let context = Arc::new(Context::new(store, clock, Default::default(), runtime));
    (folder, Rules::new(context, Metrics::default()))
}

#[tokio::test]
async fn only_changed_apps_are_reported() {
    let (_folder, all) = empty();
    let set = |apps: &[(u32, &str)]| {
        let apps = apps.iter().map(|(app, pattern)| (AppId(*app), rules(pattern))).collect();
        let mut changed = all.replace(&apps);
        changed.sort_unstable();
        changed
    };
    assert_eq!(set(&[(1, "a"), (2, "b")]), [AppId(1), AppId(2)]);
    let first = all.of(AppId(1)).expect("rules");
    assert_eq!(set(&[(1, "a"), (2, "c")]), [AppId(2)]);
    assert!(Arc::ptr_eq(&first, &all.of(AppId(1)).expect("rules")));
    assert_eq!(set(&[(2, "c")]), [AppId(1)]);
    assert!(all.of(AppId(1)).is_none());
}

fn question() -> Question {
    let device = DeviceId::parse("d1").expect("a device");
    Question::new(&Holder { app: AppId(1), device, user: None, claims: None }, Action::Subscribe, "a")
}

#[tokio::test]
async fn answers_under_removed_rules_are_not_valid_for_later_rules() {
    let (_folder, all) = empty();
    let set = |pattern: Option<&str>| {
        all.replace(&pattern.map(|pattern| (AppId(1), rules(pattern))).into_iter().collect());
        all.of(AppId(1))
    };
    let known = |rules: &Option<Arc<AppRules>>| rules.as_ref()?.cache.answer(&question(), Timestamp(0));
    let first = set(Some("a"));
    first.as_ref().expect("rules").cache.put(question(), true, Timestamp(10));
    assert_eq!(known(&set(Some("a"))), Some(true), "nothing changed");
    assert!(set(None).is_none() && !all.are_current(AppId(1), first.as_ref()));
    let next = set(Some("a"));
    assert_eq!(known(&next), None);
    assert!(all.are_current(AppId(1), next.as_ref()) && !all.are_current(AppId(1), first.as_ref()));
    assert!(!all.are_current(AppId(1), None) && all.are_current(AppId(2), None));
}

#[tokio::test]
async fn an_app_evicts_no_answer_of_another() {
    let (_folder, all) = empty();
    all.replace(&[(AppId(1), rules("a")), (AppId(2), rules("a"))].into());
    let of = |app| all.of(AppId(app)).expect("rules");
    of(1).cache.put(question(), true, Timestamp(10));
    for number in 0..100_000 {
        let device = DeviceId::parse("d1").expect("a device");
        let holder = Holder { app: AppId(2), device, user: None, claims: None };
        let question = Question::new(&holder, Action::Subscribe, &number.to_string());
        of(2).cache.put(question, true, Timestamp(10));
    }
    assert_eq!(of(1).cache.answer(&question(), Timestamp(0)), Some(true));
}

#[test]
fn claims_suffice_for_the_rules_at_the_start_of_the_session() {
    let needs = |user, topics| Needs { user, topics, claims: Vec::new() };
    let of_a_device_token = Known { user: None, claims: None };
    assert!(of_a_device_token.covers(&needs(true, true)), "a device token has no claims");
    let claims = Claims::default().kept_for(needs(true, false));
    let of_a_jwt = Known { user: None, claims: Some(Arc::new(claims)) };
    assert!(of_a_jwt.covers(&needs(true, false)) && !of_a_jwt.covers(&needs(true, true)));
}
