//! Campaigns: creation, recipients, state changes and progress.
//!
//! Delivery does the work. The handlers parse requests, check sizes before creation, and report the current state if it does
//! not allow a change.

pub(super) mod show;

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode};
use noroshi_delivery::Delivery;
use noroshi_delivery::campaign::{Audience, CampaignProgress, Line, Spec};
use noroshi_types::{AppId, CampaignId};
use serde::{Deserialize, Serialize};

use crate::body::Limits;
use crate::error::{Code, Problem};
use crate::request::access::{Provider, Publish, Read};
use crate::request::body::{JsonBody, NdjsonBody};
use crate::request::idempotency::{IDEMPOTENT_REPLAYED, idempotency};
use crate::request::page::lines;
use crate::request::page::page_limit;
use crate::request::parameter::{Path, Query};
use crate::request::trace::Traced;
use crate::respond::{self, Lines};
use crate::{body, push_check};

/// Lines stored in one commit: about ten milliseconds, for which other writers wait.
const LINES_PER_COMMIT: usize = 1_000;

#[derive(Serialize)]
struct CampaignsBody {
    campaigns: Vec<show::CampaignBody>,
    next: Option<String>,
}

#[derive(Serialize)]
struct RecipientLine<'a> {
    user: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateQuery {
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    after: Option<String>,
    limit: Option<usize>,
}

/// `POST /v1/campaigns`
pub(crate) async fn create(
    Shared(delivery): Shared<Arc<Delivery>>,
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Publish>,
    Query(query): Query<CreateQuery>,
    Traced(trace): Traced,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    // A dry run may be repeated.
    let idempotency = if query.dry_run { None } else { idempotency(&headers, &body)? };
    let spec = Spec { trace, ..body::campaign(&body, &body_limits)? };
    drop(body);
    // First, since the experiment and other prerequisites may have been deleted since.
    if let Some(idempotency) = &idempotency
        && let Some(progress) = delivery.campaigns.created(provider.app, idempotency).await?
    {
        return created(progress, true);
    }
    let spec = delivery.campaigns.with_experiment(provider.app, spec).await?.map_err(body::placed)?;
    push_check::check_campaign(&delivery, provider.app, &spec).await?;
    if query.dry_run {
        if spec.audience == Audience::Upload {
            let rule =
                "recipients are uploaded after the campaign is created, so there is nothing to count yet";
            return Err(Problem::field("audience.upload", rule));
        }
        let count = delivery.campaigns.dry_run(provider.app, &spec).await?;
        return Ok(respond::json(StatusCode::OK, &show::CountBody::from(count)));
    }
    let (progress, replayed) = delivery.campaigns.create(provider.app, spec, idempotency).await?;
    created(progress, replayed)
}

fn created(progress: CampaignProgress, replayed: bool) -> Result<Response, Problem> {
    let mut response = answer(StatusCode::CREATED, progress)?;
    if replayed {
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// `GET /v1/campaigns`
pub(crate) async fn list(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Read>,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let limit = page_limit(page.limit)?;
    let after = page.after.filter(|after| !after.is_empty());
    let before = after.map(|after| campaign_id(&after).map_err(|problem| problem.at("after"))).transpose()?;
    let found = delivery.campaigns.list(provider.app, before, limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.campaign.id.to_string());
    let campaigns = found.into_iter().map(show::campaign).collect::<Result<_, _>>()?;
    Ok(respond::json(StatusCode::OK, &CampaignsBody { campaigns, next }))
}

/// `GET /v1/campaigns/{id}`
pub(crate) async fn show(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Read>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = campaign_id(&id)?;
    answer(StatusCode::OK, delivery.campaigns.get(provider.app, id).await.map_err(no_campaign)?)
}

/// `POST /v1/campaigns/{id}/recipients`
pub(crate) async fn upload(
    Shared(delivery): Shared<Arc<Delivery>>,
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Publish>,
    Path(id): Path<String>,
    NdjsonBody(body): NdjsonBody,
) -> Result<Response, Problem> {
    let id = campaign_id(&id)?;
    let lines = lines(&body)?;
    let mut answers = Lines::with_capacity(lines.len());
    for chunk in lines.chunks(LINES_PER_COMMIT) {
        let read: Vec<Result<Line, Problem>> =
            chunk.iter().map(|line| body::recipient(line, &body_limits)).collect();
        let good: Vec<Line> = read.iter().filter_map(|line| line.as_ref().ok().cloned()).collect();
        // Also without a valid line, to check whether the campaign exists.
        if let Err(error) = delivery.campaigns.upload(provider.app, id, good).await {
            return Err(not_uploaded(&delivery, provider.app, id, error).await);
        }
        for line in read {
            match line {
                Ok(line) => answers.push(&RecipientLine { user: line.user.as_str() })?,
                Err(problem) => answers.push_problem(&problem)?,
            }
        }
    }
    Ok(answers.into_response())
}

/// `POST /v1/campaigns/{id}/start`
pub(crate) async fn start(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Publish>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = campaign_id(&id)?;
    let changed = delivery.campaigns.start(provider.app, id).await;
    changed_to(&delivery, provider.app, id, changed).await
}

/// `POST /v1/campaigns/{id}/pause`
pub(crate) async fn pause(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Publish>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = campaign_id(&id)?;
    let changed = delivery.campaigns.pause(provider.app, id).await;
    changed_to(&delivery, provider.app, id, changed).await
}

/// `POST /v1/campaigns/{id}/resume`
pub(crate) async fn resume(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Publish>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = campaign_id(&id)?;
    let changed = delivery.campaigns.resume(provider.app, id).await;
    changed_to(&delivery, provider.app, id, changed).await
}

/// `POST /v1/campaigns/{id}/abort`
pub(crate) async fn abort(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Publish>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id = campaign_id(&id)?;
    let changed = delivery.campaigns.abort(provider.app, id).await;
    changed_to(&delivery, provider.app, id, changed).await
}

/// `DELETE /v1/campaigns/{id}`
pub(crate) async fn delete(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Publish>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = campaign_id(&id)?;
    match delivery.campaigns.delete(provider.app, id).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(explained(&delivery, provider.app, id, error).await),
    }
}

async fn changed_to(
    delivery: &Delivery,
    app: AppId,
    id: CampaignId,
    changed: Result<CampaignProgress, noroshi_delivery::Error>,
) -> Result<Response, Problem> {
    match changed {
        Ok(progress) => answer(StatusCode::OK, progress),
        Err(error) => Err(explained(delivery, app, id, error).await),
    }
}

/// If the state does not allow the change, names the current state.
async fn explained(
    delivery: &Delivery,
    app: AppId,
    id: CampaignId,
    error: noroshi_delivery::Error,
) -> Problem {
    let noroshi_delivery::Error::Store(noroshi_store::Error::Conflict) = error else {
        return no_campaign(error);
    };
    match delivery.campaigns.get(app, id).await {
        Ok(progress) => {
            Problem::new(Code::WrongState, format!("the campaign is {}", progress.campaign.state.as_str()))
        }
        Err(_) => no_campaign(error),
    }
}

/// As [`explained`]; also names an audience that is not uploaded.
async fn not_uploaded(
    delivery: &Delivery,
    app: AppId,
    id: CampaignId,
    error: noroshi_delivery::Error,
) -> Problem {
    let conflict = matches!(error, noroshi_delivery::Error::Store(noroshi_store::Error::Conflict));
    match delivery.campaigns.get(app, id).await {
        Ok(progress) if conflict && !show::is_upload(&progress.campaign) => {
            Problem::new(Code::WrongState, "the campaign's audience is not uploaded")
        }
        _ => explained(delivery, app, id, error).await,
    }
}

fn answer(status: StatusCode, progress: CampaignProgress) -> Result<Response, Problem> {
    Ok(respond::json(status, &show::campaign(progress)?))
}

fn campaign_id(text: &str) -> Result<CampaignId, Problem> {
    CampaignId::parse(text).map_err(|invalid| Problem::from(invalid).at("id"))
}

fn no_campaign(error: noroshi_delivery::Error) -> Problem {
    match error {
        noroshi_delivery::Error::Store(noroshi_store::Error::NotFound) => Problem::not_found("campaign"),
        error => error.into(),
    }
}
