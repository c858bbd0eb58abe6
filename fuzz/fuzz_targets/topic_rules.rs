//! Any text is a pattern of a topic rule or an error within it. An allowed filter matches no topic that the
//! rules deny, whatever the device's user and claims, and neither a user nor a claim widens a pattern.

#![no_main]

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::mqtt::{TopicFilter, filter_matches};
use noroshi_types::rule::{Action, Allow, ClaimName, Claims, Decision, Pattern, Rule, Subject, TopicRules};
use noroshi_types::{DeviceId, Topic, UserId};

/// Rules with the allowed parties, a filter, a topic, the user, the claim `team` and the claim `topics`.
type Input<'a> = (Vec<(&'a str, u8)>, &'a str, &'a str, &'a str, &'a str, Vec<&'a str>);

fuzz_target!(|input: Input<'_>| {
    let (texts, filter, topic, user_id, team_name, listed) = input;
    let mut rules = Vec::new();
    for (text, allow) in &texts {
        match Pattern::parse(text) {
            Ok(pattern) => {
                assert_eq!(pattern.as_str(), *text);
                // A rule with "ask" requires a webhook.
                let allow = [Allow::Anyone, Allow::Token, Allow::Server][usize::from(*allow) % 3];
                rules.push(Rule { pattern, allow });
            }
            Err(error) => assert!(error.at <= text.len()),
        }
    }
    let Ok(rules) = TopicRules::new(Some(rules), None, None) else { return };
    let device = DeviceId::parse("d1").expect("a device");
    let user = UserId::parse(user_id).ok();
    let team = ClaimName::parse("team").expect("a claim");
    let claims =
        Claims::new(listed.iter().map(|topic| (*topic).into()).collect(), vec![(team, team_name.into())]);
    let subject = Subject { device: &device, user: user.as_ref(), claims: Some(&claims) };
    let (Ok(topic), Ok(filter)) = (Topic::parse(topic), TopicFilter::parse(filter)) else { return };
    let allowed = |decision| matches!(decision, Decision::Allowed { .. });
    let by_name = allowed(rules.decide(Action::Subscribe, topic.as_str(), subject));
    if filter_matches(filter.as_str(), topic.as_str())
        && allowed(rules.decide_filter(filter.as_str(), subject))
    {
        assert!(by_name, "{rules:?} {filter:?} {topic}");
    }
    let pattern = Pattern::parse("u/{user}/{claim:team}/x").expect("a pattern");
    if pattern.matches(topic.as_str(), subject) {
        assert_eq!(topic.as_str(), format!("u/{user_id}/{team_name}/x"));
    }
});
