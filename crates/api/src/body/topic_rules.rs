//! `PUT /v1/apps/{app}/topic-rules`: which devices may use which topics.

use noroshi_auth::topic_rules::{RulesBody, RulesInvalid, kept_text};
use noroshi_types::rule::{RULES_BYTES_MAX, TopicRules};

use super::Author;
use crate::error::{Code, Problem};
use crate::json;

/// Parses all rules of an app. Returns them and the text to store. `kept`: the stored rules.
pub fn topic_rules(
    bytes: &[u8],
    kept: Option<&TopicRules>,
    author: Author,
) -> Result<(TopicRules, String), Problem> {
    if bytes.len() > RULES_BYTES_MAX {
        let rule = format!("topic rules are at most {RULES_BYTES_MAX} bytes of JSON");
        return Err(Problem::new(Code::BodyTooLarge, rule));
    }
    checked(json::parse(bytes)?, kept, author).map_err(|error| refused(error, ""))
}

/// Parses the rules of a mirrored app.
pub(super) fn mirrored(text: &str) -> Result<String, Problem> {
    let body: RulesBody = json::parse_part(text, "topic_rules")?;
    let checked = checked(body, None, Author::Operator);
    checked.map(|(_, text)| text).map_err(|error| refused(error, "topic_rules."))
}

fn checked(
    body: RulesBody,
    kept: Option<&TopicRules>,
    author: Author,
) -> Result<(TopicRules, String), RulesInvalid> {
    // As for a JWK set's URL: a tenant must not make the node send plaintext requests.
    if author == Author::Tenant && body.ask_url().is_some_and(|url| !url.starts_with("https://")) {
        let reason = "must be an https URL; only the operator may set an http URL".to_owned();
        return Err(RulesInvalid { field: "ask.url".to_owned(), reason });
    }
    let rules = body.check(kept)?;
    let text = kept_text(&rules)?;
    Ok((rules, text))
}

fn refused(error: RulesInvalid, prefix: &str) -> Problem {
    Problem::field(format!("{prefix}{}", error.field), error.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_cannot_set_a_plaintext_url() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = format!(r#"{{"subscribe":[],"ask":{{"url":"http://10.0.0.1/","secret":"{secret}"}}}}"#);
        let refused = topic_rules(body.as_bytes(), None, Author::Tenant).expect_err("in the clear");
        assert_eq!(refused.field_path(), Some("ask.url"));
        assert!(topic_rules(body.as_bytes(), None, Author::Operator).is_ok());
    }

    #[test]
    fn errors_of_rules_name_the_path() {
        let body = br#"{"subscribe":[{"topic":"a/#/b","allow":"anyone"}]}"#;
        let refused = topic_rules(body, None, Author::Tenant).expect_err("a bad pattern");
        assert_eq!(refused.field_path(), Some("subscribe[0].topic"));
        let long = vec![b' '; RULES_BYTES_MAX + 1];
        assert!(topic_rules(&long, None, Author::Tenant).is_err());
    }
}
