//! Campaigns: creation, recipients, state changes and progress.
//!
//! Delivery does the work. The handlers parse requests, check sizes before creation, and report the current state if it does
//! not allow a change.

pub(super) mod show;

use axum::extract::State as Shared;
use axum::response::IntoResponse;
use http::{HeaderMap, StatusCode};
use noroshi_delivery::campaign::{Audience, CampaignProgress, Line, Spec};
use noroshi_delivery::{Delivery, Error};
use noroshi_push::Warning;
use noroshi_store::CampaignState;
use noroshi_types::{AppId, CampaignId};
use serde::Deserialize;

use crate::body::{self, Limits};
use crate::error::{Code, Problem};
use crate::push_check;
use crate::request::access::{Provider, Publish, Read};
use crate::request::body::{JsonBody, NdjsonBody};
use crate::request::idempotency::{idempotency, mark_replayed};
use crate::request::page::{Page, lines, next};
use crate::request::parameter::{Path, Query};
use crate::request::trace::Traced;
use crate::respond::{self, Answer, Lines};

/// Lines stored in one commit: about ten milliseconds, for which other writers wait.
const LINES_PER_COMMIT: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateQuery {
    #[serde(default)]
    dry_run: bool,
}

/// `POST /v1/campaigns`
pub(crate) async fn create(
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Publish>,
    Query(query): Query<CreateQuery>,
    Traced(trace): Traced,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Answer {
    // A dry run may be repeated.
    let idempotency = if query.dry_run { None } else { idempotency(&headers, &body)? };
    let spec = Spec { trace, ..body::campaign(&body, &body_limits)? };
    drop(body);
    // First, since the experiment and other prerequisites may have been deleted since.
    if let Some(idempotency) = &idempotency
        && let Some(progress) = provider.delivery.campaigns.created(provider.app, idempotency).await?
    {
        return created(&provider.delivery, provider.app, progress, true).await;
    }
    let spec =
        provider.delivery.campaigns.with_experiment(provider.app, spec).await?.map_err(body::placed)?;
    push_check::check_campaign(&provider.delivery, provider.app, &spec).await?;
    if query.dry_run {
        if spec.audience == Audience::Upload {
            let rule =
                "recipients are uploaded after the campaign is created, so there is nothing to count yet";
            return Err(Problem::field("audience.upload", rule));
        }
        let count = provider.delivery.campaigns.dry_run(provider.app, &spec).await?;
        let warnings = warnings(&provider.delivery, provider.app, &spec).await;
        return respond::ok(&show::CountBody::new(count, warnings));
    }
    let (progress, replayed) = provider.delivery.campaigns.create(provider.app, spec, idempotency).await?;
    created(&provider.delivery, provider.app, progress, replayed).await
}

async fn created(delivery: &Delivery, app: AppId, progress: CampaignProgress, replayed: bool) -> Answer {
    let spec = Spec::from_json(&progress.campaign.spec).map_err(Problem::internal)?;
    let warnings = warnings(delivery, app, &spec).await;
    let body = show::campaign(progress)?.with(warnings);
    Ok(mark_replayed(respond::json(StatusCode::CREATED, &body), replayed))
}

async fn warnings(delivery: &Delivery, app: AppId, spec: &Spec) -> Vec<Warning> {
    push_check::unshown_of_campaign(delivery, spec).warnings(delivery, app).await
}

/// `GET /v1/campaigns`
pub(crate) async fn list(provider: Provider<Read>, Query(page): Query<Page>) -> Answer {
    let limit = page.limit()?;
    let before = page.after().map(|after| campaign_id(&after).map_err(|problem| problem.at("after")));
    let found = provider.delivery.campaigns.list(provider.app, before.transpose()?, limit).await?;
    let next = next(&found, limit, |last| last.campaign.id.to_string());
    let campaigns = found.into_iter().map(show::campaign).collect::<Result<Vec<_>, _>>()?;
    respond::page("campaigns", campaigns, next)
}

/// `GET /v1/campaigns/{id}`
pub(crate) async fn show(provider: Provider<Read>, Path(id): Path<String>) -> Answer {
    let found = provider.delivery.campaigns.get(provider.app, campaign_id(&id)?).await;
    let progress = found.map_err(Problem::missing("campaign"))?;
    // Later, nobody can change the message.
    if progress.campaign.state != CampaignState::Draft {
        return answer(StatusCode::OK, progress);
    }
    let spec = Spec::from_json(&progress.campaign.spec).map_err(Problem::internal)?;
    let warnings = warnings(&provider.delivery, provider.app, &spec).await;
    respond::ok(&show::campaign(progress)?.with(warnings))
}

/// `POST /v1/campaigns/{id}/recipients`
pub(crate) async fn upload(
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Publish>,
    Path(id): Path<String>,
    NdjsonBody(body): NdjsonBody,
) -> Answer {
    let id = campaign_id(&id)?;
    let lines = lines(&body)?;
    let mut answers = Lines::with_capacity(lines.len());
    for chunk in lines.chunks(LINES_PER_COMMIT) {
        let read: Vec<Result<Line, Problem>> =
            chunk.iter().map(|line| body::recipient(line, &body_limits)).collect();
        let good: Vec<Line> = read.iter().filter_map(|line| line.as_ref().ok().cloned()).collect();
        // Also without a valid line, to check whether the campaign exists.
        if let Err(error) = provider.delivery.campaigns.upload(provider.app, id, good).await {
            return Err(not_uploaded(&provider, id, error).await);
        }
        for line in read {
            match line {
                Ok(line) => answers.push_field("user", line.user.as_str())?,
                Err(problem) => answers.push_problem(&problem)?,
            }
        }
    }
    Ok(answers.into_response())
}

/// `POST /v1/campaigns/{id}/start`
pub(crate) async fn start(provider: Provider<Publish>, Path(id): Path<String>) -> Answer {
    let id = campaign_id(&id)?;
    changed_to(&provider, id, provider.delivery.campaigns.start(provider.app, id).await).await
}

/// `POST /v1/campaigns/{id}/pause`
pub(crate) async fn pause(provider: Provider<Publish>, Path(id): Path<String>) -> Answer {
    let id = campaign_id(&id)?;
    changed_to(&provider, id, provider.delivery.campaigns.pause(provider.app, id).await).await
}

/// `POST /v1/campaigns/{id}/resume`
pub(crate) async fn resume(provider: Provider<Publish>, Path(id): Path<String>) -> Answer {
    let id = campaign_id(&id)?;
    changed_to(&provider, id, provider.delivery.campaigns.resume(provider.app, id).await).await
}

/// `POST /v1/campaigns/{id}/abort`
pub(crate) async fn abort(provider: Provider<Publish>, Path(id): Path<String>) -> Answer {
    let id = campaign_id(&id)?;
    changed_to(&provider, id, provider.delivery.campaigns.abort(provider.app, id).await).await
}

/// `DELETE /v1/campaigns/{id}`
pub(crate) async fn delete(
    provider: Provider<Publish>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = campaign_id(&id)?;
    match provider.delivery.campaigns.delete(provider.app, id).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(explained(&provider, id, error).await),
    }
}

async fn changed_to(
    provider: &Provider<Publish>,
    id: CampaignId,
    changed: Result<CampaignProgress, Error>,
) -> Answer {
    match changed {
        Ok(progress) => answer(StatusCode::OK, progress),
        Err(error) => Err(explained(provider, id, error).await),
    }
}

/// If the state does not allow the change, names the current state.
async fn explained(provider: &Provider<Publish>, id: CampaignId, error: Error) -> Problem {
    let missing = Problem::missing("campaign");
    if !is_conflict(&error) {
        return missing(error);
    }
    match provider.delivery.campaigns.get(provider.app, id).await {
        Ok(progress) => {
            Problem::new(Code::WrongState, format!("the campaign is {}", progress.campaign.state.as_str()))
        }
        Err(_) => missing(error),
    }
}

/// As [`explained`]; also names an audience that is not uploaded.
async fn not_uploaded(provider: &Provider<Publish>, id: CampaignId, error: Error) -> Problem {
    match provider.delivery.campaigns.get(provider.app, id).await {
        Ok(progress) if is_conflict(&error) && !show::is_upload(&progress.campaign) => {
            Problem::new(Code::WrongState, "the campaign's audience is not uploaded")
        }
        _ => explained(provider, id, error).await,
    }
}

fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Store(noroshi_store::Error::Conflict))
}

fn answer(status: StatusCode, progress: CampaignProgress) -> Answer {
    Ok(respond::json(status, &show::campaign(progress)?))
}

fn campaign_id(text: &str) -> Result<CampaignId, Problem> {
    CampaignId::parse(text).map_err(|invalid| Problem::from(invalid).at("id"))
}
