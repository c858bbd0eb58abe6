//! The claims of a verified JWT that topic rules need.
//!
//! Only claims that the app's rules name are kept. The topics of the JWT are checked against the rules too: denied ones
//! move from [`Identity::topics`] to [`Identity::denied_topics`].

use std::sync::Arc;

use noroshi_types::rule::claims::{VALUE_BYTES_MAX, VALUES_MAX};
use noroshi_types::rule::{Action, ClaimName, Claims, Decision, Subject, TopicRules};
use serde_json::{Map, Value};

use crate::identity::Identity;
use crate::refused::Refused;

/// Completes the identity of a verified JWT.
pub(crate) fn complete(
    mut identity: Identity,
    token: &str,
    rules: Option<&TopicRules>,
) -> Result<Identity, Refused> {
    let filters = std::mem::take(&mut identity.topic_filters);
    let Some(rules) = rules else {
        // Without rules a filter has no effect, which its author would not expect.
        return match filters.is_empty() {
            true => Ok(identity),
            false => Err(Refused::Malformed("the claim topics has an invalid topic")),
        };
    };
    let needs = rules.needs().clone();
    let names = identity.topics.iter().map(|topic| topic.as_str().into());
    let listed = if needs.topics { names.chain(filters).collect() } else { Vec::new() };
    let claims = Claims::new(listed, values(token, &needs.claims)).kept_for(needs);
    let subject = Subject { device: &identity.device, user: identity.user.as_ref(), claims: Some(&claims) };
    let denied = |topic: &noroshi_types::Topic| {
        *topic != noroshi_types::Topic::maintenance()
            && !matches!(
                rules.decide(Action::Subscribe, topic.as_str(), subject),
                Decision::Unruled | Decision::Allowed { .. }
            )
    };
    (identity.denied_topics, identity.topics) = identity.topics.into_iter().partition(denied);
    identity.claims = Some(Arc::new(claims));
    Ok(identity)
}

/// The values of the claims that rules name: strings, whole numbers, and lists of them.
fn values(token: &str, names: &[ClaimName]) -> Vec<(ClaimName, Box<str>)> {
    if names.is_empty() {
        return Vec::new();
    }
    let claims: Map<String, Value> =
        jsonwebtoken::dangerous::insecure_decode_claims(token).unwrap_or_default();
    let mut values = Vec::new();
    for name in names {
        let value = claims.get(name.as_str());
        let many = value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let one = value.filter(|value| !value.is_array());
        let texts = one.into_iter().chain(many).filter_map(text).take(VALUES_MAX);
        values.extend(texts.map(|text| (name.clone(), text)));
    }
    values
}

fn text(value: &Value) -> Option<Box<str>> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_i64() || number.is_u64() => number.to_string(),
        _ => return None,
    };
    // An empty or longer value matches no topic.
    (1..=VALUE_BYTES_MAX).contains(&text.len()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use noroshi_types::{AppId, DeviceId, Timestamp, Topic, UserId};

    fn identity(topics: &[&str], filters: &[&str]) -> Identity {
        Identity {
            app: AppId(1),
            device: DeviceId::parse("d1").expect("a device"),
            user: UserId::parse("u1").ok(),
            create: true,
            token_version: None,
            issued: noroshi_store::Issued::Unknown,
            topics: topics.iter().map(|topic| Topic::parse_subscription(topic).expect("a topic")).collect(),
            topic_filters: filters.iter().map(|filter| (*filter).into()).collect(),
            denied_topics: Vec::new(),
            claims: None,
            expires_at: Timestamp(1),
        }
    }

    #[test]
    fn only_claims_that_rules_name_are_kept() {
        let rules = crate::topic_rules::read(
            r#"{"subscribe":[{"topic":"team/{claim:team}/#","allow":"anyone"},{"topic":"paid/#","allow":"token"},
                {"topic":"n/{claim:number}","allow":"anyone"}]}"#,
        )
        .expect("rules");
        let claims = r#"{"team":["red",{},7,""],"number":12,"secret":"s"}"#;
        let token = format!("e30.{}.x", URL_SAFE_NO_PAD.encode(claims));
        let given =
            identity(&["paid/a", "team/red/x", "team/blue/x", "$maintenance", "other"], &["paid/b/#"]);
        let complete = complete(given, &token, Some(&rules)).expect("complete");
        let names = |topics: &[Topic]| topics.iter().map(|topic| topic.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&complete.topics), ["paid/a", "team/red/x", "$maintenance"]);
        assert_eq!(names(&complete.denied_topics), ["team/blue/x", "other"]);
        let claims = complete.claims.expect("kept");
        assert!(claims.lists("paid/b/c") && claims.needs() == rules.needs());
        assert!(!format!("{claims:?}").contains("secret"));
        let subject = Subject { device: &complete.device, user: None, claims: Some(&claims) };
        let decide = |topic: &str| rules.decide(Action::Subscribe, topic, subject);
        assert!(matches!(decide("team/7/x"), Decision::Allowed { .. }));
        assert!(matches!(decide("n/12"), Decision::Allowed { .. }));
    }

    #[test]
    fn without_rules_no_claims_are_kept_and_a_filter_is_rejected() {
        let kept = complete(identity(&["a"], &[]), "", None).expect("complete");
        assert!(kept.claims.is_none() && kept.topics.len() == 1);
        assert!(complete(identity(&["a"], &["a/#"]), "", None).is_err());
    }
}
