//! Push service credentials of an app. Managed by those who manage the app's keys.
//!
//! A secret arrives with one request, and delivery encrypts it. It appears in no response and no log; errors name only the
//! field and the rule.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use http::StatusCode;
use noroshi_delivery::push::{CredentialView, Rotated, Tested};
use noroshi_push::{Condition, CredentialStatus, provider_of};
use noroshi_store::Device;
use noroshi_types::{AppId, CredentialId, PushToken, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::body::{self, RestoreRequest, Rotation, TestTarget};
use crate::error::{Code, Problem};
use crate::nodes::Nodes;
use crate::request::access::Manager;
use crate::request::body::JsonBody;
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};

#[derive(Serialize)]
struct CredentialBody {
    id: String,
    service: &'static str,
    environment: &'static str,
    name: String,
    /// The other public parts.
    settings: Map<String, Value>,
    created_at: String,
    /// Only in lists, and `null` there for a credential that this node has not loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[allow(clippy::option_option)] // absent, null and a state are three different answers
    state: Option<Option<StateBody>>,
}

/// The state on the node that answers.
#[derive(Serialize)]
struct StateBody {
    node: Option<String>,
    breaker: &'static str,
    reason: Option<&'static str>,
    open_until: Option<String>,
    paused_until: Option<String>,
    connections: usize,
    in_flight: usize,
    waiting: usize,
    last_error: Option<ErrorBody>,
}

#[derive(Serialize)]
struct ErrorBody {
    at: String,
    reason: &'static str,
}

#[derive(Serialize)]
struct TestedBody {
    answer: &'static str,
    reason: Option<&'static str>,
    explain: &'static str,
}

#[derive(Serialize)]
struct RestoredBody {
    /// Tokens.
    restored: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddQuery {
    #[serde(default)]
    replace: bool,
}

/// `GET /v1/apps/{app}/push`
pub(crate) async fn list(Shared(nodes): Shared<Option<Arc<dyn Nodes>>>, manager: Manager) -> Answer {
    let app = manager.app()?;
    let credentials = manager.delivery.push.list_credentials(app.id).await?;
    let (states, now) = (manager.delivery.push.credential_status(app.id), manager.delivery.clock().now());
    let nodes = nodes.as_ref().map(|nodes| nodes.nodes()).unwrap_or_default();
    let node = nodes.into_iter().find(|node| node.this).map(|node| node.name);
    let with_state = |view: CredentialView| {
        let is_of = |state: &&CredentialStatus| {
            (state.service, state.environment, &*state.provider)
                == (view.service, view.environment, &*view.provider)
        };
        let state = states.iter().flatten().find(is_of);
        let state = state.map(|state| state_body(state, node.clone(), now));
        Ok::<_, Problem>(CredentialBody { state: Some(state), ..credential_body(view)? })
    };
    respond::field("credentials", credentials.into_iter().map(with_state).collect::<Result<Vec<_>, _>>()?)
}

/// `POST /v1/apps/{app}/push`
pub(crate) async fn add(manager: Manager, Query(query): Query<AddQuery>, JsonBody(body): JsonBody) -> Answer {
    let app = manager.app()?;
    body::push_credential(&body)?;
    let added = manager.delivery.push.credentials()?.put(app.id, &body, query.replace).await;
    let credential = added.map_err(|error| match error {
        noroshi_delivery::Error::Store(noroshi_store::Error::Exists) => Problem::new(
            Code::AlreadyExists,
            "the app has a credential for this push service and environment (for this name, of \"webhook\"); replace=true replaces it",
        ),
        error => error.into(),
    })?;
    let (app, id) = (Some(app.id), credential.id.0.to_string());
    manager.delivery.context.outcomes.configured(
        app,
        ("credential", if query.replace { "changed" } else { "made" }),
        Some(&id),
    );
    let after = credential_body(credential)?;
    manager.trail.after(&after);
    Ok(respond::json(StatusCode::CREATED, &after))
}

/// `DELETE /v1/apps/{app}/push/{id}`
pub(crate) async fn remove(
    manager: Manager,
    Path((_, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let app = manager.app()?;
    let deleted = manager.delivery.push.credentials()?.delete(app.id, credential_id(&id)?).await;
    deleted.map_err(Problem::missing("credential"))?;
    manager.delivery.context.outcomes.configured(Some(app.id), ("credential", "removed"), Some(&id));
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/apps/{app}/push/{id}/test`
pub(crate) async fn test(
    manager: Manager,
    Path((_, id)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Answer {
    let app = manager.app()?;
    let id = credential_id(&id)?;
    let view = view(&manager, app.id, id).await?;
    let token = target_token(&manager, app.id, view.as_ref(), body::push_test(&body)?).await?;
    let tested = manager
        .delivery
        .push
        .credentials()?
        .test(app.id, id, token)
        .await
        .map_err(Problem::missing("credential"))?;
    respond::ok(&TestedBody::from(tested))
}

/// `POST /v1/apps/{app}/push/{id}/rotate`
pub(crate) async fn rotate(
    manager: Manager,
    Path((_, id)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Answer {
    let app = manager.app()?;
    let id = credential_id(&id)?;
    let Rotation { credential, target } = body::rotation(&body)?;
    let view = view(&manager, app.id, id).await?.ok_or_else(|| Problem::not_found("credential"))?;
    let token = target_token(&manager, app.id, Some(&view), target).await?;
    manager.trail.before(&credential_body(view)?);
    let rotated = manager.delivery.push.credentials()?.rotate(app.id, id, credential, token).await;
    let rotated = rotated.map_err(|error| match error {
        noroshi_delivery::Error::Store(noroshi_store::Error::Conflict) => {
            let detail = "the credential was changed or removed during the test; nothing was changed here";
            Problem::new(Code::WrongState, detail)
        }
        error => Problem::missing("credential")(error),
    })?;
    let credential = match rotated {
        Rotated::Replaced(credential) => credential,
        Rotated::Rejected(tested) => return Err(failed_test(tested)),
    };
    let number = id.0.to_string();
    manager.delivery.context.outcomes.configured(Some(app.id), ("credential", "changed"), Some(&number));
    let after = credential_body(credential)?;
    manager.trail.after(&after);
    respond::ok(&after)
}

fn failed_test(tested: Tested) -> Problem {
    let TestedBody { answer, reason, explain } = TestedBody::from(tested);
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let detail = format!("the test got \"{answer}\"{reason}: {explain}; the former credential stays in use");
    Problem::new(Code::CredentialTestFailed, detail)
}

async fn view(manager: &Manager, app: AppId, id: CredentialId) -> Result<Option<CredentialView>, Problem> {
    Ok(manager.delivery.push.list_credentials(app).await?.into_iter().find(|view| view.id == id))
}

/// The token to test with.
async fn target_token(
    manager: &Manager,
    app: AppId,
    view: Option<&CredentialView>,
    target: TestTarget,
) -> Result<PushToken, Problem> {
    match target {
        TestTarget::Token(token) => Ok(token),
        TestTarget::Device(device) => {
            let found = manager.delivery.store().device(app, &device).await?;
            let device = found.ok_or_else(|| Problem::not_found("device").at("device"))?;
            token_for(&device, view)
                .ok_or_else(|| Problem::new(Code::NotFound, "the device has no push token").at("device"))
        }
    }
}

/// `POST /v1/apps/{app}/push/{id}/restore`
pub(crate) async fn restore(
    manager: Manager,
    Path((_, id)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Answer {
    let app = manager.app()?;
    let credential = credential_id(&id)?;
    let RestoreRequest { since, reason } = body::restore(&body)?;
    let restored = manager
        .delivery
        .push
        .credentials()?
        .restore(app.id, credential, since, reason)
        .await
        .map_err(Problem::missing("credential"))?;
    manager.delivery.context.outcomes.configured(Some(app.id), ("push_tokens", "restored"), Some(&id));
    respond::ok(&RestoredBody { restored })
}

/// The device's main token; for a provider behind a webhook, its token of that provider if it has one.
fn token_for(device: &Device, view: Option<&CredentialView>) -> Option<PushToken> {
    let tokens = device.all_push_tokens().into_iter().map(|one| one.token);
    let mut of_provider = tokens.filter(|token| {
        let provider = provider_of(token);
        view.is_some_and(|view| token.service == view.service && provider.as_deref() == Some(&*view.provider))
    });
    match view.is_some_and(|view| !view.provider.is_empty()) {
        true => of_provider.next().or_else(|| device.push_token.clone()),
        false => device.push_token.clone(),
    }
}

fn credential_id(text: &str) -> Result<CredentialId, Problem> {
    text.parse().map(CredentialId).map_err(|_| Problem::not_found("credential"))
}

fn credential_body(view: CredentialView) -> Result<CredentialBody, Problem> {
    let mut settings: Map<String, Value> =
        serde_json::from_str(view.shown.as_str()).map_err(Problem::internal)?;
    settings.retain(|name, _| !matches!(name.as_str(), "service" | "environment" | "name"));
    Ok(CredentialBody {
        id: view.id.0.to_string(),
        service: view.service.as_str(),
        environment: view.environment.as_str(),
        name: view.name,
        settings,
        created_at: view.created_at.to_string(),
        state: None,
    })
}

fn state_body(state: &CredentialStatus, node: Option<String>, now: Timestamp) -> StateBody {
    let (breaker, reason, after) = match state.breaker {
        Condition::Closed => ("closed", None, None),
        Condition::Open { reason, after } => ("open", Some(reason), Some(after)),
        Condition::HalfOpen { reason } => ("half-open", Some(reason), None),
    };
    let time = |after: Duration| now.saturating_add(after).to_string();
    StateBody {
        node,
        breaker,
        reason,
        open_until: after.map(time),
        paused_until: state.paused.map(|(_, left)| time(left)),
        connections: state.connections,
        in_flight: state.in_flight,
        waiting: state.queued,
        last_error: state.last_error.map(|(at, reason)| ErrorBody { at: at.to_string(), reason }),
    }
}

impl From<Tested> for TestedBody {
    fn from(tested: Tested) -> Self {
        let explain = match tested.answer {
            "accepted" => "the push service accepted it",
            "gone" => "the push service reports that the token is permanently invalid",
            "suspect" => {
                "the push service reports that the token belongs to another environment, topic or sender"
            }
            "refused" => "the push service rejected it permanently",
            "later" => "the push service rejects the credential or is unavailable; a push would be retried",
            "not_configured" => "the credential is not in use; the node's log contains the reason",
            "expired" => "timeout while connecting to the push service",
            _ => "timeout while waiting for the push service",
        };
        Self { answer: tested.answer, reason: tested.reason, explain }
    }
}
