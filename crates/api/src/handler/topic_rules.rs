//! Topic rules of an app: setting and reading them, and explaining a decision for one device.

use std::sync::Arc;

use axum::extract::State as Shared;
use futures_util::future::join_all;
use http::StatusCode;
use noroshi_auth::Auth;
use noroshi_delivery::Delivery;
use noroshi_delivery::rules::{Holder, QUESTIONS_IN_FLIGHT_MAX, Reason, Verdict, is_ruled};
use noroshi_protocol::mqtt::filter_matches;
use noroshi_store::Device;
use noroshi_types::rule::{Action, Claims, Decision, Rule};
use noroshi_types::topic::needs_rule;
use noroshi_types::{AppId, Topic};
use serde::{Deserialize, Serialize};

use crate::body;
use crate::error::{Code, Problem};
use crate::request::access::{Manager, Provider, Read};
use crate::request::body::JsonBody;
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};

/// Maximum number of topics of one request that the webhook decides.
const PENDING_MAX: usize = 64;

/// `GET /v1/apps/{app}/topic-rules`
pub(crate) async fn show(manager: Manager) -> Answer {
    let app = manager.app()?;
    let rules = manager.auth.topic_rules(app.id).ok_or_else(|| Problem::not_found("topic rules"))?;
    respond::ok(&noroshi_auth::topic_rules::show(&rules))
}

/// `PUT /v1/apps/{app}/topic-rules`: replaces all rules. Subscriptions without permission end.
pub(crate) async fn put(manager: Manager, JsonBody(body): JsonBody) -> Answer {
    let app = manager.app()?;
    // Another node may have changed the secret.
    manager.auth.follow().await?;
    let kept = manager.auth.topic_rules(app.id);
    manager.trail.before(&kept.as_deref().map(noroshi_auth::topic_rules::show));
    let (rules, text) = body::topic_rules(&body, kept.as_deref(), manager.author())?;
    manager.auth.set_topic_rules(app.id, Some(text)).await?;
    manager.delivery.context.outcomes.configured(Some(app.id), ("topic_rules", "changed"), None);
    let after = noroshi_auth::topic_rules::show(&rules);
    manager.trail.after(&after);
    respond::ok(&after)
}

/// `DELETE /v1/apps/{app}/topic-rules`: succeeds also without rules.
pub(crate) async fn delete(manager: Manager) -> Result<StatusCode, Problem> {
    let app = manager.app()?;
    manager.trail.before(&manager.auth.topic_rules(app.id).as_deref().map(noroshi_auth::topic_rules::show));
    manager.auth.set_topic_rules(app.id, None).await?;
    manager.delivery.context.outcomes.configured(Some(app.id), ("topic_rules", "removed"), None);
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionQuery {
    action: Option<String>,
}

#[derive(Serialize)]
struct PermissionBody<'a> {
    device: &'a str,
    user: Option<&'a str>,
    topic: &'a str,
    action: &'static str,
    /// `allowed`, `denied` or `ask`.
    decision: &'static str,
    /// Present if denied.
    reason: Option<&'static str>,
    detail: String,
    rule: Option<RuleBody>,
}

#[derive(Serialize)]
struct RuleBody {
    /// Index in the list, from 0.
    number: usize,
    topic: String,
    allow: &'static str,
}

/// `GET /v1/devices/{device}/topics/{topic}/permission`: the decision of the topic rules, and why. Calls no webhook.
pub(crate) async fn explain(
    Shared(auth): Shared<Arc<Auth>>,
    provider: Provider<Read>,
    Path((device, topic)): Path<(String, String)>,
    Query(query): Query<PermissionQuery>,
) -> Answer {
    let action = match query.action.as_deref() {
        None | Some("subscribe") => Action::Subscribe,
        Some("publish") => Action::Publish,
        Some(_) => return Err(Problem::parameter("action", "must be \"subscribe\" or \"publish\"")),
    };
    let topic = Topic::parse_any(&topic).map_err(|invalid| Problem::from(invalid).at("topic"))?;
    let found = provider.delivery.store().device(provider.app, &body::device_id(&device)?).await?;
    let device = found.ok_or_else(|| Problem::not_found("device"))?;
    let holder = holder(&device, None);
    let (decision, rules) = match is_ruled(topic.as_str()) {
        true => provider.delivery.rules.explain(&holder, action, topic.as_str()),
        false => (Decision::Unruled, None),
    };
    let (decision, reason, detail, number) = match decision {
        Decision::Unruled => without_rule(&auth, provider.app, action, &topic),
        Decision::Allowed { rule } => ("allowed", None, "the rule allows it".to_owned(), Some(rule)),
        Decision::Ask { rule } => {
            ("ask", None, "the app's webhook decides when the device requests it".to_owned(), Some(rule))
        }
        Decision::Denied(denied) => {
            let unknown = match rules.as_ref().map(|rules| rules.rules.needs()) {
                Some(needs) if needs.topics || !needs.claims.is_empty() => {
                    "; a JWT's claims are not considered here, so a device with a JWT may be allowed more"
                }
                _ => "",
            };
            ("denied", Some(denied.code()), format!("{}{unknown}", denied.text()), denied.rule())
        }
    };
    let rules = rules.as_ref().and_then(|rules| rules.rules.rules(action));
    let shown = |(number, rule): (usize, &Rule)| RuleBody {
        number,
        topic: rule.pattern.to_string(),
        allow: rule.allow.as_str(),
    };
    let rule = number.and_then(|number| Some((number, rules?.get(number)?))).map(shown);
    let body = PermissionBody {
        device: device.id.as_str(),
        user: device.user.as_ref().map(|user| user.as_str()),
        topic: topic.as_str(),
        action: action.as_str(),
        decision,
        reason,
        detail,
        rule,
    };
    respond::ok(&body)
}

type Explained = (&'static str, Option<&'static str>, String, Option<usize>);

/// The decision if the app has no rules for the action.
fn without_rule(auth: &Auth, app: AppId, action: Action, topic: &Topic) -> Explained {
    let allowed = |text: &str| ("allowed", None, text.to_owned(), None);
    if needs_rule(topic.as_str()) {
        let text = "a topic that begins with \"$\" needs a topic rule, and the app has none for this action";
        return ("denied", Some("no_rule"), text.to_owned(), None);
    }
    if !is_ruled(topic.as_str()) && action == Action::Subscribe {
        return allowed("topic rules do not apply to the service's own topics");
    }
    if action == Action::Subscribe {
        return allowed("the app has no topic rules for subscribing");
    }
    let filters = auth.with_app(app, |app| app.settings.client_publish.clone()).unwrap_or_default();
    match filters.iter().find(|filter| filter_matches(filter, topic.as_str())) {
        Some(filter) => {
            allowed(&format!("the app has no topic rules for publishing; client_publish has {filter}"))
        }
        None => {
            let text = "the app has no topic rules for publishing, and no filter of client_publish matches";
            ("denied", Some("no_rule"), text.to_owned(), None)
        }
    }
}

/// A device, as input of topic rules.
pub(crate) fn holder(device: &Device, claims: Option<Arc<Claims>>) -> Holder {
    Holder { app: device.app, device: device.id.clone(), user: device.user.clone(), claims }
}

/// Rejects topics that a device may not subscribe to. `field`: the path of a topic by its index. Calls the webhook for as many
/// topics at a time as one app may have in progress; the timeout of the next ones starts after those.
pub(crate) async fn permit(
    delivery: &Delivery,
    holder: &Holder,
    topics: &[Topic],
    field: impl Fn(usize) -> String,
) -> Result<(), Problem> {
    let Some(rules) = delivery.rules.of(holder.app) else { return Ok(()) };
    let (delivery, action) = (&delivery, Action::Subscribe);
    let mut pending = Vec::new();
    for (index, topic) in restricted(topics) {
        match delivery.rules.check(&rules, holder, action, topic.as_str()) {
            Verdict::Allowed => {}
            Verdict::Denied(reason) => return Err(refused(reason).at(field(index))),
            Verdict::Ask if pending.len() == PENDING_MAX => {
                let rule = format!("the webhook decides at most {PENDING_MAX} topics per request");
                return Err(Problem::new(Code::Forbidden, rule).at(field(index)));
            }
            Verdict::Ask => pending.push((index, topic)),
        }
    }
    for pending in pending.chunks(QUESTIONS_IN_FLIGHT_MAX) {
        let questions = pending
            .iter()
            .map(|(_, topic)| delivery.rules.ask(&rules, holder, action, topic.as_str(), "http"));
        let verdicts = join_all(questions).await;
        for ((index, _), verdict) in pending.iter().zip(verdicts) {
            if let Verdict::Denied(reason) = verdict {
                return Err(refused(reason).at(field(*index)));
            }
        }
    }
    Ok(())
}

/// Checks again after subscribing, since rules may have changed after [`permit`]. Ends the first subscription that they now
/// deny, and rejects the request.
pub(crate) async fn keep(
    delivery: &Delivery,
    holder: &Holder,
    topics: &[Topic],
    field: impl Fn(usize) -> String,
) -> Result<(), Problem> {
    let Some(rules) = delivery.rules.of(holder.app) else { return Ok(()) };
    for (index, topic) in restricted(topics) {
        let verdict = delivery.rules.check(&rules, holder, Action::Subscribe, topic.as_str());
        if let Verdict::Denied(reason) = verdict {
            delivery.devices.unsubscribe(holder.app, &holder.device, topic).await?;
            return Err(refused(reason).at(field(index)));
        }
    }
    Ok(())
}

/// The topics that rules apply to, with their index.
fn restricted(topics: &[Topic]) -> impl Iterator<Item = (usize, &Topic)> {
    topics.iter().enumerate().filter(|(_, topic)| is_ruled(topic.as_str()))
}

fn refused(reason: Reason) -> Problem {
    Problem::new(Code::Forbidden, format!("{} ({})", reason.text(), reason.code()))
}
