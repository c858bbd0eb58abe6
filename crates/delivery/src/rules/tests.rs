//! Which rules are in place, and what a holder may do by them.

use noroshi_types::rule::{Allow, Pattern, Rule};

use super::*;

fn rules(pattern: &str) -> (AppName, Arc<TopicRules>) {
    let rule = Rule { pattern: Pattern::parse(pattern).expect("a pattern"), allow: Allow::Anyone };
    let rules = TopicRules::new(Some(vec![rule]), None, None).expect("rules");
    (AppName::parse("shop").expect("a name"), Arc::new(rules))
}

#[test]
fn only_changed_apps_are_told() {
    let all = Rules::new();
    let set = |apps: &[(u32, &str)]| {
        let apps = apps.iter().map(|(app, pattern)| (AppId(*app), rules(pattern))).collect();
        let mut changed = all.set(&apps);
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

#[test]
fn answers_to_rules_that_were_removed_do_not_count_for_the_next_ones() {
    let all = Rules::new();
    let edition = |pattern: Option<&str>| {
        all.set(&pattern.map(|pattern| (AppId(1), rules(pattern))).into_iter().collect());
        all.of(AppId(1)).map(|rules| rules.edition)
    };
    let first = edition(Some("a"));
    assert_eq!(edition(Some("a")), first, "nothing changed");
    assert_eq!(edition(None), None);
    assert_ne!(edition(Some("a")), first);
}

#[test]
fn a_session_knows_enough_for_the_rules_it_began_with() {
    let needs = |user, topics| Needs { user, topics, claims: Vec::new() };
    let of_a_device_token = Known { user: None, claims: None };
    assert!(of_a_device_token.covers(&needs(true, true)), "there is no more to know");
    let claims = Claims::default().kept_for(needs(true, false));
    let of_a_jwt = Known { user: None, claims: Some(Arc::new(claims)) };
    assert!(of_a_jwt.covers(&needs(true, false)) && !of_a_jwt.covers(&needs(true, true)));
}
