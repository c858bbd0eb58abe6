//! Pattern matching and decisions. The properties are compared with every topic of a small universe.

use proptest::prelude::*;

use super::*;

fn device() -> DeviceId {
    DeviceId::parse("d1").expect("a device")
}

fn user(id: &str) -> UserId {
    UserId::parse(id).expect("a user")
}

fn name(text: &str) -> ClaimName {
    ClaimName::parse(text).expect("a name")
}

fn claims(topics: &[&str], values: &[(&str, &str)]) -> Claims {
    Claims::new(
        topics.iter().map(|topic| (*topic).into()).collect(),
        values.iter().map(|(named, value)| (name(named), (*value).into())).collect(),
    )
}

fn rules(subscribe: &[(&str, Allow)]) -> TopicRules {
    let rule = |(pattern, allow): &(&str, Allow)| Rule {
        pattern: Pattern::parse(pattern).expect(pattern),
        allow: *allow,
    };
    let webhook = Webhook {
        url: "https://app.example/ask".to_owned(),
        secret: vec![1; 32],
        timeout: Duration::from_secs(1),
        expires_in: Duration::from_secs(60),
    };
    TopicRules::new(Some(subscribe.iter().map(rule).collect()), None, Some(webhook)).expect("rules")
}

#[test]
fn pattern_matches_level_by_level() {
    let (device, user) = (device(), user("u1"));
    let claims = claims(&[], &[("team", "red"), ("team", "blue"), ("empty", "")]);
    let subject = Subject { device: &device, user: Some(&user), claims: Some(&claims) };
    let check = |pattern: &str, topic: &str, expected: bool| {
        let parsed = Pattern::parse(pattern).expect(pattern);
        assert_eq!(parsed.matches(topic, subject), expected, "{pattern} {topic}");
        assert_eq!(parsed.as_str(), pattern);
    };
    check("news", "news", true);
    check("news", "news/", false);
    check("news", "New", false);
    check("+", "news", true);
    check("+", "a/b", false);
    check("a/+", "a/", true);
    check("a/+", "a", false);
    check("a/+/c", "a/b/c", true);
    check("#", "a/b/c", true);
    check("#", "$maintenance", false);
    check("+", "$maintenance", false);
    check("#", "$app/a", false);
    check("+/a", "$app/a", false);
    check("*/a", "$app/a", false);
    check("$app/#", "$app/a", true);
    check("$app/{user}", "$app/u1", true);
    check("$app/{user}", "$app/u2", false);
    check("$app/a", "app/a", false);
    check("a/#", "a", true);
    check("a/#", "a/", true);
    check("a/#", "a/b/c", true);
    check("a/#", "ab", false);
    check("public/*", "public/a", true);
    check("public/*", "public/", false);
    check("public/*", "public/a/b", false);
    check("team-*", "team-", false);
    check("team-*", "team-1", true);
    check("*-log", "a-log", true);
    check("a*a", "aa", false);
    check("a*a", "a", false);
    check("user/{user}/#", "user/u1", true);
    check("user/{user}/#", "user/u1/a/b", true);
    check("user/{user}/#", "user/u2", false);
    check("user/{user}/#", "user/u11", false);
    check("device/{device}/+", "device/d1/x", true);
    check("team-{claim:team}", "team-red", true);
    check("team-{claim:team}", "team-blue", true);
    check("team-{claim:team}", "team-green", false);
    check("team-{claim:other}", "team-red", false);
    check("team-{claim:empty}", "team-", false);
}

#[test]
fn errors_state_the_position() {
    let check = |pattern: &str, at: usize, reason: &str| {
        let error = Pattern::parse(pattern).expect_err(pattern);
        assert_eq!(error.at, at, "{pattern}: {error}");
        assert!(error.reason.contains(reason), "{pattern}: {error}");
    };
    check("", 0, "1 to 255 bytes");
    check(&"a".repeat(256), 0, "1 to 255 bytes");
    for own in ["$everyone", "$noroshi/inbox", "$SYS/#", "$share/g/t"] {
        check(own, 0, "the service's own");
    }
    check("${user}/a", 0, "must be plain text");
    check("$*/a", 0, "must be plain text");
    check("a\u{7}", 1, "control characters");
    check("a/#/b", 2, "the last level");
    check("a/b#", 3, "whole levels");
    check("a+/b", 1, "whole levels");
    check("a/**", 3, "at most one");
    check("a/{user}*", 8, "at most one");
    check("{user}-{device}", 7, "at most one");
    check("a/{user", 2, "not closed");
    check("a/{user/x}", 2, "not closed");
    check("a/user}", 6, "without a matching");
    check("a/{name}", 3, "a variable must be");
    check("a/{claim:}", 9, "a claim name");
    check("a/{claim:a b}", 9, "a claim name");
}

#[test]
fn first_match_decides() {
    let (device, user) = (device(), user("u1"));
    let claims = claims(&["paid/gold", "paid/silver/+", "wide/#"], &[]);
    let subject = Subject { device: &device, user: Some(&user), claims: Some(&claims) };
    let rules = rules(&[
        ("user/{user}/#", Allow::Anyone),
        ("user/#", Allow::Server),
        ("paid/#", Allow::Token),
        ("wide/#", Allow::Token),
        ("room/+", Allow::Ask),
        ("public/*", Allow::Anyone),
    ]);
    let check = |topic: &str, expected: Decision| {
        assert_eq!(rules.decide(Action::Subscribe, topic, subject), expected, "{topic}");
        assert_eq!(rules.decide_filter(topic, subject), expected, "{topic} as a filter");
    };
    check("user/u1/mail", Decision::Allowed { rule: 0 });
    check("user/u2/mail", Decision::Denied(Denied::Server { rule: 1 }));
    check("paid/gold", Decision::Allowed { rule: 2 });
    check("paid/silver/x", Decision::Allowed { rule: 2 });
    check("paid/bronze", Decision::Denied(Denied::NotInToken { rule: 2 }));
    check("room/7", Decision::Ask { rule: 4 });
    check("public/a", Decision::Allowed { rule: 5 });
    check("other", Decision::Denied(Denied::NoRule));
    assert_eq!(rules.decide(Action::Publish, "other", subject), Decision::Unruled);
    let bare = Subject { device: &device, user: None, claims: None };
    let decide = |topic: &str| rules.decide(Action::Subscribe, topic, bare);
    assert_eq!(decide("paid/gold"), Decision::Denied(Denied::NotInToken { rule: 2 }));
    assert_eq!(decide("user/u1/mail"), Decision::Denied(Denied::Server { rule: 1 }));
}

#[test]
fn filter_needs_permission_for_all_its_topics() {
    let (device, user) = (device(), user("u1"));
    let claims = claims(&["paid/gold/#"], &[]);
    let subject = Subject { device: &device, user: Some(&user), claims: Some(&claims) };
    let rules = rules(&[
        ("user/{user}/#", Allow::Anyone),
        ("user/#", Allow::Server),
        ("paid/#", Allow::Token),
        ("room/+", Allow::Ask),
        ("mixed/open", Allow::Anyone),
        ("mixed/#", Allow::Anyone),
        ("public/*", Allow::Anyone),
    ]);
    let check = |filter: &str, expected: Decision| {
        assert_eq!(rules.decide_filter(filter, subject), expected, "{filter}");
    };
    check("user/u1/#", Decision::Allowed { rule: 0 });
    check("user/u1/+", Decision::Allowed { rule: 0 });
    check("user/u2/#", Decision::Denied(Denied::Server { rule: 1 }));
    check("user/+/mail", Decision::Denied(Denied::Server { rule: 1 }));
    check("user/#", Decision::Denied(Denied::Server { rule: 1 }));
    check("paid/gold/+", Decision::Allowed { rule: 2 });
    check("paid/+", Decision::Denied(Denied::NotInToken { rule: 2 }));
    check("room/+", Decision::Ask { rule: 3 });
    check("room/#", Decision::Denied(Denied::Overlap { rule: 3 }));
    check("mixed/#", Decision::Allowed { rule: 5 });
    check("public/+", Decision::Denied(Denied::NoRule));
    check("#", Decision::Denied(Denied::Overlap { rule: 1 }));
    check("+", Decision::Denied(Denied::Overlap { rule: 1 }));
    check("other/+", Decision::Denied(Denied::NoRule));
}

#[test]
fn values_never_widen_a_rule() {
    let device = device();
    let pattern = Pattern::parse("user/{user}/#").expect("a pattern");
    for odd in ["#", "+", "*", "a/b", "u1/#", "{user}", "u*"] {
        let user = user(odd);
        let subject = Subject { device: &device, user: Some(&user), claims: None };
        for topic in ["user/u1", "user/a", "user/a/b", "user/x/y", "user/u1/z", "user/"] {
            assert!(!pattern.matches(topic, subject), "{odd} {topic}");
        }
        for filter in ["user/#", "user/+", "user/+/#", "user/u1/#", "#"] {
            assert!(!pattern.covers(filter, subject), "{odd} {filter}");
        }
    }
    let user = user("u*");
    let subject = Subject { device: &device, user: Some(&user), claims: None };
    assert!(pattern.matches("user/u*/x", subject), "as it is");
}

#[test]
fn rules_state_their_needs() {
    let rules = rules(&[("u/{user}", Allow::Anyone), ("t/{claim:b}/{claim:a}", Allow::Token)]);
    let needs = Needs { user: true, topics: true, claims: vec![name("a"), name("b")] };
    assert_eq!(*rules.needs(), needs);
    assert!(needs.covers(&Needs::default()) && !Needs::default().covers(&needs) && needs.covers(&needs));
    let rule = || Rule { pattern: Pattern::parse("a").expect("a pattern"), allow: Allow::Ask };
    assert_eq!(TopicRules::new(Some(vec![rule()]), None, None), Err(RulesError::NoWebhook));
    let many = vec![Rule { allow: Allow::Anyone, ..rule() }; RULES_MAX];
    assert!(TopicRules::new(Some(many.clone()), None, None).is_ok());
    let more = vec![Rule { allow: Allow::Anyone, ..rule() }];
    assert_eq!(TopicRules::new(Some(many), Some(more), None), Err(RulesError::TooMany));
    let claims = (0..17).map(|number| Rule {
        pattern: Pattern::parse(&format!("{{claim:c{number}}}")).expect("a pattern"),
        allow: Allow::Anyone,
    });
    assert_eq!(TopicRules::new(Some(claims.collect()), None, None), Err(RulesError::TooManyClaims));
}

/// Every topic of at most three levels with these names.
fn world() -> Vec<String> {
    const NAMES: [&str; 5] = ["", "a", "ab", "b", "*"];
    let two = NAMES.iter().flat_map(|one| NAMES.iter().map(move |two| format!("{one}/{two}")));
    let two: Vec<String> = two.collect();
    let three = two.iter().flat_map(|two| NAMES.iter().map(move |one| format!("{two}/{one}")));
    let one = NAMES.iter().map(|name| (*name).to_owned());
    one.chain(three).chain(two.clone()).filter(|topic| !topic.is_empty()).collect()
}

/// MQTT 5 §4.7.1, implemented independently of the tested code.
fn filter_matches(filter: &[&str], topic: &[&str]) -> bool {
    match (filter, topic) {
        (["#"], _) => true,
        ([], []) => true,
        ([first, filter @ ..], [name, topic @ ..]) => {
            (*first == "+" || first == name) && filter_matches(filter, topic)
        }
        _ => false,
    }
}

fn levels(text: &str) -> Vec<&str> {
    text.split('/').collect()
}

fn a_filter() -> impl Strategy<Value = String> {
    let level = prop::sample::select(vec!["", "a", "ab", "b", "*", "+"]);
    (prop::collection::vec(level, 1..4), any::<bool>()).prop_filter_map("empty", |(mut levels, rest)| {
        if rest {
            levels.push("#");
        }
        let text = levels.join("/");
        (!text.is_empty()).then_some(text)
    })
}

fn a_pattern() -> impl Strategy<Value = String> {
    let level =
        prop::sample::select(vec!["", "a", "ab", "+", "*", "a*", "*b", "{user}", "a{claim:c}", "{device}"]);
    (prop::collection::vec(level, 1..4), any::<bool>()).prop_filter_map("empty", |(mut levels, rest)| {
        if rest {
            levels.push("#");
        }
        let text = levels.join("/");
        (!text.is_empty()).then_some(text)
    })
}

proptest! {
    #[test]
    fn covers_and_overlaps_match_their_definitions(pattern in a_pattern(), filter in a_filter(), id in "[ab*+#/]{1,2}") {
        let (device, user) = (DeviceId::parse("b").expect("a device"), user(&id));
        let claims = claims(&[], &[("c", "b"), ("c", "#")]);
        let subject = Subject { device: &device, user: Some(&user), claims: Some(&claims) };
        let pattern = Pattern::parse(&pattern).expect("a pattern");
        let (covers, overlaps) = (pattern.covers(&filter, subject), pattern.overlaps(&filter, subject));
        for topic in world() {
            if filter_matches(&levels(&filter), &levels(&topic)) {
                let matches = pattern.matches(&topic, subject);
                prop_assert!(!covers || matches, "{pattern} covers {filter} without {topic}");
                prop_assert!(overlaps || !matches, "{pattern} and {filter} share {topic}");
            }
        }
    }

    #[test]
    fn filter_is_allowed_only_if_its_topics_are(
        patterns in prop::collection::vec((a_pattern(), prop::sample::select(Allow::ALL.to_vec())), 1..5),
        filter in a_filter(),
        listed in prop::collection::vec(a_filter(), 0..3),
    ) {
        let (device, user) = (DeviceId::parse("b").expect("a device"), user("a"));
        let listed: Vec<&str> = listed.iter().map(String::as_str).collect();
        let claims = claims(&listed, &[("c", "b")]);
        let subject = Subject { device: &device, user: Some(&user), claims: Some(&claims) };
        let patterns: Vec<(&str, Allow)> = patterns.iter().map(|(text, allow)| (text.as_str(), *allow)).collect();
        let rules = rules(&patterns);
        if let Decision::Allowed { .. } = rules.decide_filter(&filter, subject) {
            for topic in world().iter().filter(|topic| filter_matches(&levels(&filter), &levels(topic))) {
                let decision = rules.decide(Action::Subscribe, topic, subject);
                prop_assert!(matches!(decision, Decision::Allowed { .. }), "{patterns:?} {filter} {topic} {decision:?}");
            }
        }
    }

    #[test]
    fn variable_matches_one_equal_level(id in "[ab*+#/{}]{1,4}", topic in "[ab*/]{1,6}") {
        let (device, user) = (device(), user(&id));
        let subject = Subject { device: &device, user: Some(&user), claims: None };
        let pattern = Pattern::parse("{user}/#").expect("a pattern");
        prop_assert_eq!(pattern.matches(&topic, subject), topic.split('/').next() == Some(id.as_str()));
    }

    #[test]
    fn any_text_parses_or_fails_within_it(text in "[a#+*{}/:clmuser$]{0,24}") {
        match Pattern::parse(&text) {
            Ok(pattern) => prop_assert_eq!(pattern.as_str(), text),
            Err(error) => prop_assert!(error.at <= text.len()),
        }
    }
}
