//! Campaigns: creation, recipients, state changes and progress.
//!
//! Delivery does the work. The handlers parse requests, check sizes before creation, and report the current state if it does
//! not allow a change.

pub(crate) mod draft;
mod estimate;
pub(super) mod show;

use axum::extract::State as Shared;
use axum::response::IntoResponse;
use http::{HeaderMap, StatusCode};
use noroshi_delivery::campaign::{Audience, CampaignProgress, Line, Spec, Written};
use noroshi_delivery::{Delivery, Error};
use noroshi_push::Warning;
use noroshi_store::{CampaignFilter, CampaignState, Uploader};
use noroshi_types::{AppId, CampaignId, Timestamp};
use serde::Deserialize;

use crate::body::{self, Limits};
use crate::campaign_rules::CampaignRules;
use crate::error::{Code, Problem};
use crate::push_check;
use crate::request::access::{Provider, Publish, Read};
use crate::request::author::Author;
use crate::request::body::{JsonBody, NdjsonBody};
use crate::request::idempotency::{idempotency, mark_replayed};
use crate::request::page::{lines, not_first, page_limit};
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
    /// Keeps the request although parts are missing or invalid; the campaign does not start.
    #[serde(default)]
    draft: bool,
}

/// `POST /v1/campaigns`
pub(crate) async fn create(
    (Shared(body_limits), Shared(rules)): (Shared<Limits>, Shared<CampaignRules>),
    provider: Provider<Publish>,
    author: Author,
    Query(query): Query<CreateQuery>,
    Traced(trace): Traced,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Answer {
    // A dry run may be repeated.
    let idempotency = if query.dry_run { None } else { idempotency(&headers, &body)? };
    if query.draft {
        if query.dry_run {
            return Err(Problem::parameter("draft", "a dry run keeps nothing"));
        }
        let (delivery, app) = (&provider.delivery, provider.app);
        let (status, body, replayed) =
            draft::created(delivery, app, &author, &body_limits, &body, idempotency).await?;
        return Ok(mark_replayed(respond::json(status, &body), replayed));
    }
    let spec = Spec { trace, ..body::campaign(&body, &body_limits)? };
    let definition = body::draft::definition(&body)?;
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
    draft::check_size(&provider.delivery, provider.app, &spec, &rules, &author).await?;
    // Those that start at once are not changed any more.
    let definition = (!spec.start || spec.start_at.is_some()).then_some(definition);
    let written = Written { definition, is_complete: true, by: author.text() };
    let (progress, replayed) =
        provider.delivery.campaigns.create_written(provider.app, spec, idempotency, written).await?;
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Names of states, separated by commas.
    state: Option<String>,
    name: Option<String>,
    created_by: Option<String>,
    created_since: Option<String>,
    created_until: Option<String>,
    start_since: Option<String>,
    start_until: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// `GET /v1/campaigns`
pub(crate) async fn list(provider: Provider<Read>, Query(query): Query<ListQuery>) -> Answer {
    let (found, next) = provider.delivery.campaigns.list(provider.app, filter(query)?).await?;
    let campaigns = found.into_iter().map(show::campaign).collect::<Result<Vec<_>, _>>()?;
    respond::page("campaigns", campaigns, next.map(|next| next.to_string()))
}

fn filter(query: ListQuery) -> Result<CampaignFilter, Problem> {
    let before = not_first(query.after);
    let before = before.map(|after| campaign_id(&after).map_err(|problem| problem.at("after")));
    let when = |name: &'static str, text: Option<String>| -> Result<Option<Timestamp>, Problem> {
        let Some(text) = text else { return Ok(None) };
        let rule = "must be a time such as 2026-11-27T12:00:00Z";
        Timestamp::parse(&text).map(Some).ok_or_else(|| Problem::parameter(name, rule))
    };
    let state = |name: &str| {
        use CampaignState::{Aborted, Done, Draft, Paused, Running, Scheduled};
        let known = [Draft, Scheduled, Running, Paused, Done, Aborted];
        let rule =
            "must be draft, scheduled, running, paused, done or aborted, or several of them with commas";
        let found = known.into_iter().find(|state| state.as_str() == name);
        found.ok_or_else(|| Problem::parameter("state", rule))
    };
    let states = query.state.iter().flat_map(|text| text.split(',')).map(state).collect::<Result<_, _>>()?;
    Ok(CampaignFilter {
        states,
        name: query.name.filter(|name| !name.is_empty()),
        created_by: query.created_by,
        since: when("created_since", query.created_since)?,
        until: when("created_until", query.created_until)?,
        start_since: when("start_since", query.start_since)?,
        start_until: when("start_until", query.start_until)?,
        before: before.transpose()?,
        limit: page_limit(query.limit)?,
    })
}

/// `GET /v1/campaigns/{id}`
pub(crate) async fn show(
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Read>,
    Path(id): Path<String>,
) -> Answer {
    let found = provider.delivery.campaigns.get(provider.app, campaign_id(&id)?).await;
    let progress = found.map_err(Problem::missing("campaign"))?;
    respond::ok(&draft::full(&provider.delivery, provider.app, progress, &body_limits).await?)
}

/// `POST /v1/campaigns/{id}/recipients`
pub(crate) async fn upload(
    Shared(body_limits): Shared<Limits>,
    Shared(rules): Shared<CampaignRules>,
    provider: Provider<Publish>,
    author: Author,
    Path(id): Path<String>,
    NdjsonBody(body): NdjsonBody,
) -> Answer {
    let id = campaign_id(&id)?;
    let lines = lines(&body)?;
    let uploader = Uploader { by: author.text(), scheduled_max: rules.approval_above(&author) };
    let mut answers = Lines::with_capacity(lines.len());
    for chunk in lines.chunks(LINES_PER_COMMIT) {
        let read: Vec<Result<Line, Problem>> =
            chunk.iter().map(|line| body::recipient(line, &body_limits)).collect();
        let good: Vec<Line> = read.iter().filter_map(|line| line.as_ref().ok().cloned()).collect();
        // Also without a valid line, to check whether the campaign exists.
        if let Err(error) = provider.delivery.campaigns.upload(provider.app, id, good, uploader.clone()).await
        {
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
