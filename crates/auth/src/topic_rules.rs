//! Topic rules as JSON: what the API takes and shows, and what the store keeps with the app.
//!
//! The kept text has the webhook's secret; [`show`] leaves it out. What a rule means is the business of
//! `noroshi_types::rule`.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use noroshi_types::rule::{Action, Allow, Pattern, RULES_BYTES_MAX, RULES_MAX, Rule, TopicRules, Webhook};
use noroshi_types::time::{format_duration, parse_duration};
use serde::{Deserialize, Serialize};

/// A device waits for the answer: longer, and it has given up.
const TIMEOUT_MAX: Duration = Duration::from_secs(10);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(3);
/// Without an `expires_in`, in an answer and in the rules.
const EXPIRES_IN_DEFAULT: Duration = Duration::from_secs(300);
/// How long an answer may count.
pub const EXPIRES_IN_MAX: Duration = Duration::from_secs(86_400);
const URL_BYTES_MAX: usize = 2_048;
const SECRET_PREFIX: &str = "whsec_";
const SECRET_RULE: &str =
    "it is \"whsec_\" and 24 to 64 bytes in base64, as `echo whsec_$(openssl rand -base64 32)` gives";

/// As it is written. A secret that is absent stays what it was.
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
    /// In answers. It may come back, and changes nothing.
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

/// Rules that cannot be used: where, and why.
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
    /// The address of the webhook, for whoever knows which addresses its author may name.
    pub fn ask_url(&self) -> Option<&str> {
        self.ask.as_ref().map(|ask| ask.url.as_str())
    }

    /// Checks everything. `kept` are the rules so far, whose secret stays where none is given.
    pub fn check(self, kept: Option<&TopicRules>) -> Result<TopicRules, RulesInvalid> {
        let (subscribe, publish) = (list(self.subscribe, "subscribe")?, list(self.publish, "publish")?);
        if subscribe.is_none() && publish.is_none() {
            return Err(invalid(
                "subscribe",
                "at least one of the lists \"subscribe\" and \"publish\" is needed",
            ));
        }
        let webhook = self.ask.map(|ask| webhook(ask, kept.and_then(TopicRules::webhook))).transpose()?;
        TopicRules::new(subscribe, publish, webhook).map_err(|error| invalid("subscribe", error))
    }
}

fn list(rules: Option<Vec<RuleBody>>, name: &str) -> Result<Option<Vec<Rule>>, RulesInvalid> {
    let Some(rules) = rules else { return Ok(None) };
    if rules.len() > RULES_MAX {
        return Err(invalid(name, format!("an app has at most {RULES_MAX} topic rules")));
    }
    let rule = |(index, rule): (usize, RuleBody)| {
        let pattern =
            Pattern::parse(&rule.topic).map_err(|error| invalid(format!("{name}[{index}].topic"), error))?;
        let expected = "it is \"anyone\", \"token\", \"server\" or \"ask\"";
        let allow =
            Allow::parse(&rule.allow).ok_or_else(|| invalid(format!("{name}[{index}].allow"), expected))?;
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
        return Err(invalid("ask.url", "it is an http or https URL of at most 2,048 bytes"));
    }
    let secret = match (&ask.secret, kept) {
        (Some(text), _) => {
            let bytes = text.strip_prefix(SECRET_PREFIX).and_then(|text| BASE64_STANDARD.decode(text).ok());
            let bytes = bytes.filter(|bytes| (24..=64).contains(&bytes.len()));
            bytes.ok_or_else(|| invalid("ask.secret", SECRET_RULE))?
        }
        (None, Some(kept)) => kept.secret.clone(),
        (None, None) => return Err(invalid("ask.secret", SECRET_RULE)),
    };
    let span = |text: Option<String>, field: &str, default: Duration, max: Duration| {
        let Some(text) = text else { return Ok(default) };
        let span = parse_duration(&text).map_err(|error| invalid(field, error))?;
        let rule = || invalid(field, format!("it is 1ms to {}", format_duration(max)));
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
        secret: with_secret.then(|| format!("{SECRET_PREFIX}{}", BASE64_STANDARD.encode(&webhook.secret))),
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

/// What the API shows: everything but the secret.
pub fn show(rules: &TopicRules) -> RulesBody {
    body(rules, false)
}

/// What the store keeps.
pub fn kept_text(rules: &TopicRules) -> Result<String, RulesInvalid> {
    let text = serde_json::to_string(&body(rules, true)).map_err(|error| invalid("", error))?;
    match text.len() <= RULES_BYTES_MAX {
        true => Ok(text),
        false => {
            Err(invalid("subscribe", format!("topic rules are at most {RULES_BYTES_MAX} bytes of JSON")))
        }
    }
}

/// Reads what the store keeps.
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
    fn rules_are_kept_with_their_secret_and_shown_without() {
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
        // What was shown can be given back.
        assert_eq!(body_of(&shown).check(Some(&rules)), Ok(rules.clone()));
        assert_eq!(body_of(&shown).check(None).expect_err("no secret").field, "ask.secret");
    }

    #[test]
    fn a_bad_rule_is_named_by_its_place() {
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
