//! Topic rules as JSON: the formats of the API and of the store.
//!
//! The stored text has the webhook's secret; [`show`] omits it. `noroshi_types::rule` defines the meaning of rules.

use std::time::Duration;

use noroshi_egress::webhook::{SECRET_RULE, secret, secret_text};
use noroshi_types::rule::{Action, Allow, Pattern, RULES_BYTES_MAX, RULES_MAX, Rule, TopicRules, Webhook};
use noroshi_types::time::{format_duration, parse_duration};
use serde::{Deserialize, Serialize};

/// A device waits for the answer and gives up after this time.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(3);
/// The default of `expires_in`, in an answer and in the rules.
const EXPIRES_IN_DEFAULT: Duration = Duration::from_secs(300);
/// The maximum lifetime of an answer.
pub const EXPIRES_IN_MAX: Duration = Duration::from_secs(86_400);
const URL_BYTES_MAX: usize = 2_048;

/// The format of requests. Without a secret the previous one stays.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RulesBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    subscribe: Option<Vec<RuleBody>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    publish: Option<Vec<RuleBody>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ask: Option<AskBody>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RuleBody {
    topic: String,
    allow: String,
}

#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AskBody {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    /// Part of answers. Accepted in requests and ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_set: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in: Option<String>,
}

impl std::fmt::Debug for AskBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AskBody").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Why rules are invalid, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct RulesInvalid {
    /// Such as `subscribe[3].topic`.
    pub field: String,
    pub reason: String,
}

fn invalid(field: impl Into<String>, reason: impl ToString) -> RulesInvalid {
    RulesInvalid { field: field.into(), reason: reason.to_string() }
}

impl RulesBody {
    /// The URL of the webhook, for a caller that knows which URLs its author may use.
    pub fn ask_url(&self) -> Option<&str> {
        self.ask.as_ref().map(|ask| ask.url.as_str())
    }

    /// Validates the rules. `kept` are the present rules, whose secret stays if none is given.
    pub fn check(self, kept: Option<&TopicRules>) -> Result<TopicRules, RulesInvalid> {
        let (subscribe, publish) = (list(self.subscribe, "subscribe")?, list(self.publish, "publish")?);
        if subscribe.is_none() && publish.is_none() {
            return Err(invalid(
                "subscribe",
                "must have at least one of the lists \"subscribe\" and \"publish\"",
            ));
        }
        let webhook = self.ask.map(|ask| webhook(ask, kept.and_then(TopicRules::webhook))).transpose()?;
        TopicRules::new(subscribe, publish, webhook).map_err(|error| invalid("subscribe", error))
    }
}

fn list(rules: Option<Vec<RuleBody>>, name: &str) -> Result<Option<Vec<Rule>>, RulesInvalid> {
    let Some(rules) = rules else { return Ok(None) };
    if rules.len() > RULES_MAX {
        return Err(invalid(name, format!("must have at most {RULES_MAX} topic rules in total")));
    }
    let rule = |(index, rule): (usize, RuleBody)| {
        let pattern =
            Pattern::parse(&rule.topic).map_err(|error| invalid(format!("{name}[{index}].topic"), error))?;
        let expected = "must be \"anyone\", \"token\", \"server\" or \"ask\"";
        let allow =
            Allow::named(&rule.allow).ok_or_else(|| invalid(format!("{name}[{index}].allow"), expected))?;
        Ok(Rule { pattern, allow })
    };
    rules.into_iter().enumerate().map(rule).collect::<Result<_, _>>().map(Some)
}

fn webhook(ask: AskBody, kept: Option<&Webhook>) -> Result<Webhook, RulesInvalid> {
    let host = ask.url.strip_prefix("https://").or(ask.url.strip_prefix("http://")).unwrap_or_default();
    if ask.url.len() > URL_BYTES_MAX
        || host.is_empty()
        || ask.url.contains(|c: char| c.is_whitespace() || c.is_control())
    {
        return Err(invalid("ask.url", "must be an http or https URL of at most 2,048 bytes"));
    }
    let secret = match (&ask.secret, kept) {
        (Some(text), _) => secret(text).map_err(|rule| invalid("ask.secret", rule))?,
        (None, Some(kept)) => kept.secret.clone(),
        (None, None) => return Err(invalid("ask.secret", SECRET_RULE)),
    };
    let span = |text: Option<String>, field: &str, default: Duration, max: Duration| {
        let Some(text) = text else { return Ok(default) };
        let span = parse_duration(&text).map_err(|error| invalid(field, error))?;
        let rule = || invalid(field, format!("must be 1ms to {}", format_duration(max)));
        (!span.is_zero() && span <= max).then_some(span).ok_or_else(rule)
    };
    Ok(Webhook {
        timeout: span(ask.timeout, "ask.timeout", TIMEOUT_DEFAULT, TIMEOUT_MAX)?,
        expires_in: span(ask.expires_in, "ask.expires_in", EXPIRES_IN_DEFAULT, EXPIRES_IN_MAX)?,
        url: ask.url,
        secret,
    })
}

fn body(rules: &TopicRules, with_secret: bool) -> RulesBody {
    let list = |action| {
        let rule =
            |rule: &Rule| RuleBody { topic: rule.pattern.to_string(), allow: rule.allow.as_str().to_owned() };
        rules.rules(action).map(|rules| rules.iter().map(rule).collect())
    };
    let ask = |webhook: &Webhook| AskBody {
        url: webhook.url.clone(),
        secret: with_secret.then(|| secret_text(&webhook.secret)),
        secret_set: (!with_secret).then_some(true),
        timeout: Some(format_duration(webhook.timeout)),
        expires_in: Some(format_duration(webhook.expires_in)),
    };
    RulesBody {
        subscribe: list(Action::Subscribe),
        publish: list(Action::Publish),
        ask: rules.webhook().map(ask),
    }
}

/// The API's answer: everything except the secret.
pub fn show(rules: &TopicRules) -> RulesBody {
    body(rules, false)
}

/// The text for the store.
pub fn kept_text(rules: &TopicRules) -> Result<String, RulesInvalid> {
    let text = serde_json::to_string(&body(rules, true)).map_err(|error| invalid("", error))?;
    match text.len() <= RULES_BYTES_MAX {
        true => Ok(text),
        false => {
            Err(invalid("subscribe", format!("must have at most {RULES_BYTES_MAX} bytes of JSON in total")))
        }
    }
}

/// Parses the stored text.
pub fn read(text: &str) -> Result<TopicRules, RulesInvalid> {
    let body: RulesBody = serde_json::from_str(text).map_err(|error| invalid("", error))?;
    body.check(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(text: &str) -> RulesBody {
        serde_json::from_str(text).expect(text)
    }

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn rules_are_stored_with_their_secret_and_shown_without() {
        let text = format!(
            r#"{{"subscribe":[{{"topic":"room/+","allow":"ask"}}],"ask":{{"url":"https://a.example/","secret":"{SECRET}"}}}}"#
        );
        let rules = body_of(&text).check(None).expect("rules");
        let kept = kept_text(&rules).expect("short");
        assert!(kept.contains(SECRET));
        assert_eq!(read(&kept), Ok(rules.clone()));
        let shown = serde_json::to_string(&show(&rules)).expect("JSON");
        assert!(!shown.contains("whsec_") && shown.contains(r#""secret_set":true"#), "{shown}");
        assert!(!format!("{rules:?} {:?}", body_of(&text)).contains(SECRET));
        // An answer is a valid request.
        assert_eq!(body_of(&shown).check(Some(&rules)), Ok(rules.clone()));
        assert_eq!(body_of(&shown).check(None).expect_err("no secret").field, "ask.secret");
    }

    #[test]
    fn an_invalid_rule_is_named_by_its_path() {
        let check = |text: &str, field: &str, reason: &str| {
            let error = body_of(text).check(None).expect_err(text);
            assert_eq!(error.field, field, "{error}");
            assert!(error.reason.contains(reason), "{error}");
        };
        check("{}", "subscribe", "at least one");
        check(
            r#"{"publish":[{"topic":"a","allow":"anyone"},{"topic":"a/#/b","allow":"anyone"}]}"#,
            "publish[1].topic",
            "at byte 2",
        );
        check(r#"{"subscribe":[{"topic":"a","allow":"all"}]}"#, "subscribe[0].allow", "\"anyone\"");
        check(r#"{"subscribe":[{"topic":"a","allow":"ask"}]}"#, "subscribe", "no webhook");
        check(r#"{"subscribe":[],"ask":{"url":"ftp://a","secret":"x"}}"#, "ask.url", "http");
        check(r#"{"subscribe":[],"ask":{"url":"https://a","secret":"x"}}"#, "ask.secret", "whsec_");
        let timed = |field: &str| {
            format!(r#"{{"subscribe":[],"ask":{{"url":"https://a","secret":"{SECRET}",{field}}}}}"#)
        };
        check(&timed(r#""timeout":"11s""#), "ask.timeout", "10s");
        check(&timed(r#""expires_in":"0s""#), "ask.expires_in", "1d");
        assert!(serde_json::from_str::<RulesBody>(r#"{"subscribe":[],"deny":[]}"#).is_err());
    }
}
