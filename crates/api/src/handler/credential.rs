//! Push service credentials of an app. Managed by those who manage the app's keys.
//!
//! A secret arrives with one request, and delivery encrypts it. It appears in no response and no log; errors name only the
//! field and the rule.

use http::StatusCode;
use noroshi_delivery::push::{CredentialView, Tested};
use noroshi_types::CredentialId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::body::{self, TestTarget};
use crate::error::{Code, Problem};
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
}

#[derive(Serialize)]
struct TestedBody {
    answer: &'static str,
    reason: Option<&'static str>,
    explain: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddQuery {
    #[serde(default)]
    replace: bool,
}

/// `GET /v1/apps/{app}/push`
pub(crate) async fn list(manager: Manager) -> Answer {
    let app = manager.app()?;
    let credentials = manager.delivery.push.list_credentials(app.id).await?;
    let credentials = credentials.into_iter().map(credential_body).collect::<Result<Vec<_>, _>>()?;
    respond::field("credentials", credentials)
}

/// `POST /v1/apps/{app}/push`
pub(crate) async fn add(manager: Manager, Query(query): Query<AddQuery>, JsonBody(body): JsonBody) -> Answer {
    let app = manager.app()?;
    body::push_credential(&body)?;
    let added = manager.delivery.push.credentials()?.put(app.id, &body, query.replace).await;
    let credential = added.map_err(|error| match error {
        noroshi_delivery::Error::Store(noroshi_store::Error::Exists) => Problem::new(
            Code::AlreadyExists,
            "the app has a credential for this push service and environment; replace=true replaces it",
        ),
        error => error.into(),
    })?;
    let (app, id) = (Some(app.id), credential.id.0.to_string());
    manager.delivery.context.outcomes.configured(
        app,
        ("credential", if query.replace { "changed" } else { "made" }),
        Some(&id),
    );
    Ok(respond::json(StatusCode::CREATED, &credential_body(credential)?))
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
    let token = match body::push_test(&body)? {
        TestTarget::Token(token) => token,
        TestTarget::Device(device) => {
            let found = manager.delivery.store().device(app.id, &device).await?;
            let device = found.ok_or_else(|| Problem::not_found("device").at("device"))?;
            device
                .push_token
                .ok_or_else(|| Problem::new(Code::NotFound, "the device has no push token").at("device"))?
        }
    };
    let tested = manager
        .delivery
        .push
        .credentials()?
        .test(app.id, id, token)
        .await
        .map_err(Problem::missing("credential"))?;
    respond::ok(&TestedBody::from(tested))
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
    })
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
            "later" => "the push service is unavailable; a push would be retried",
            "not_configured" => "the credential is not in use; the node's log contains the reason",
            "expired" => "timeout while connecting to the push service",
            _ => "timeout while waiting for the push service",
        };
        Self { answer: tested.answer, reason: tested.reason, explain }
    }
}
