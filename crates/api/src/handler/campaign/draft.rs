//! Drafts of campaigns: changes by several authors, approval by a second person, start, and estimates.
//!
//! Delivery and the store enforce who may start what; this decides to whom the rules apply: to people, and to API keys if
//! the operator wants it.

use axum::extract::State as Shared;
use http::StatusCode;
use noroshi_delivery::Delivery;
use noroshi_delivery::campaign::{Spec, Starting, Written};
use noroshi_store::{Campaign, CampaignState, Unready};
use noroshi_types::{AppId, CampaignId, JsonText};
use serde::Deserialize;

use super::{campaign_id, estimate, show, warnings};
use crate::audit::Trail;
use crate::body::{self, Limits};
use crate::campaign_rules::CampaignRules;
use crate::error::{Code, Problem};
use crate::json;
use crate::push_check;
use crate::request::access::{Provider, Publish, Read};
use crate::request::author::Author;
use crate::request::body::JsonBody;
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};

/// Problems of a draft that a refused start lists.
const LISTED_MAX: usize = 5;

impl CampaignRules {
    /// Above how many recipients a campaign needs the approval of a second person. `None`: it needs none.
    pub(super) fn approval_above(&self, author: &Author) -> Option<u64> {
        let applies = matches!(author, Author::Person(_)) || self.keys_need_approval;
        (applies && self.large > 0).then_some(self.large)
    }
}

/// A draft that was checked, also against what the store knows.
pub(super) struct Examined {
    pub(super) spec: Spec,
    pub(super) problems: Vec<Problem>,
}

/// Checks a draft as a whole. Fails only if that is impossible now.
pub(super) async fn examine(
    delivery: &Delivery,
    app: AppId,
    definition: &JsonText,
    limits: &Limits,
) -> Result<Examined, Problem> {
    let body::draft::Checked { spec, mut problems } = body::draft::checked(definition, limits)?;
    if !problems.is_empty() {
        return Ok(Examined { spec, problems });
    }
    let unchecked = spec.clone();
    let spec = match delivery.campaigns.with_experiment(app, spec).await?.map_err(body::placed) {
        Ok(spec) => spec,
        Err(problem) => {
            problems.push(problem);
            unchecked
        }
    };
    if let Err(problem) = push_check::check_campaign(delivery, app, &spec).await {
        if problem.code().status() >= 500 {
            return Err(problem);
        }
        problems.push(problem);
    }
    let spec = match problems.is_empty() {
        true => spec,
        // As an incomplete one: it has no recipient.
        false => Spec {
            audience: noroshi_delivery::campaign::Audience::Upload,
            filter: noroshi_delivery::campaign::Filter::default(),
            trial: None,
            ..spec
        },
    };
    Ok(Examined { spec, problems })
}

/// A campaign with its definition and, before it starts, what is missing.
pub(super) async fn full(
    delivery: &Delivery,
    app: AppId,
    progress: noroshi_delivery::campaign::CampaignProgress,
    limits: &Limits,
) -> Result<show::CampaignBody, Problem> {
    let Campaign { id, state, .. } = progress.campaign;
    let definition = delivery.campaigns.definition(app, id).await?.map(|(_, definition)| definition);
    // Later, nobody can change the message.
    let problems = match &definition {
        Some(definition) if state == CampaignState::Draft => {
            examine(delivery, app, definition, limits).await?.problems
        }
        _ => Vec::new(),
    };
    let advice = match state {
        CampaignState::Draft => {
            let spec = Spec::from_json(&progress.campaign.spec).map_err(Problem::internal)?;
            warnings(delivery, app, &spec).await
        }
        _ => Vec::new(),
    };
    show::campaign(progress)?.with(advice).with_definition(definition.as_ref(), problems)
}

/// `PATCH /v1/campaigns/{id}`
pub(crate) async fn change(
    Shared(limits): Shared<Limits>,
    provider: Provider<Publish>,
    author: Author,
    trail: Trail,
    Path(id): Path<String>,
    JsonBody(text): JsonBody,
) -> Answer {
    let id = campaign_id(&id)?;
    let (delivery, app) = (&provider.delivery, provider.app);
    // First, so that a stranger's id is not found whatever the body is.
    let state = delivery.campaigns.get(app, id).await.map_err(Problem::missing("campaign"))?.campaign.state;
    let Some((present, former)) = delivery.campaigns.definition(app, id).await? else {
        let detail = "an earlier version created the campaign, which cannot be changed: create it again";
        return Err(Problem::new(Code::WrongState, detail));
    };
    let (revision, definition) = body::draft::changed(&former, &text)?;
    drop(text);
    // The store would accept a revision that another change makes meanwhile, without the fields of that change.
    if revision != present && matches!(state, CampaignState::Draft | CampaignState::Scheduled) {
        return Err(refused(Unready::Revision(present)));
    }
    let Examined { spec, problems } = examine(delivery, app, &definition, &limits).await?;
    trail.before(&respond::raw(Some(&former))?);
    trail.after(&respond::raw(Some(&definition))?);
    let written =
        Written { definition: Some(definition), is_complete: problems.is_empty(), by: author.text() };
    let edited = delivery.campaigns.edit(app, id, revision, &spec, written).await;
    let progress = edited.map_err(Problem::missing("campaign"))?.map_err(refused)?;
    respond::ok(&full(delivery, app, progress, &limits).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Revision {
    revision: Option<u64>,
}

/// `POST /v1/campaigns/{id}/start`
pub(crate) async fn start(
    Shared(limits): Shared<Limits>,
    Shared(rules): Shared<CampaignRules>,
    provider: Provider<Publish>,
    author: Author,
    Path(id): Path<String>,
    Query(Revision { revision }): Query<Revision>,
) -> Answer {
    let id = campaign_id(&id)?;
    let (delivery, app) = (&provider.delivery, provider.app);
    let found = delivery.campaigns.get(app, id).await.map_err(Problem::missing("campaign"))?.campaign;
    let mut revision = revision;
    if found.state == CampaignState::Draft && !found.draft.is_complete {
        revision = Some(complete(delivery, app, &found, revision, &author, &limits).await?);
    }
    let approval_above = rules.approval_above(&author);
    if let Some(max) = approval_above
        && found.state == CampaignState::Draft
        && revision.is_none_or(|revision| revision == found.draft.revision)
        && found.draft.is_complete
    {
        // The checks below hold for this revision only.
        revision = Some(found.draft.revision);
        let spec = Spec::from_json(&found.spec).map_err(Problem::internal)?;
        if delivery.campaigns.is_large(app, id, &spec, max).await? {
            if found.draft.approved.is_none() {
                return Err(needs_approval(max));
            }
            author.require_confirmed()?;
        }
    }
    let started = delivery.campaigns.start(app, id, Starting { revision, approval_above }).await;
    let progress = started.map_err(Problem::missing("campaign"))?.map_err(|unready| match unready {
        Unready::Unapproved => needs_approval(approval_above.unwrap_or_default()),
        unready => refused(unready),
    })?;
    respond::ok(&show::campaign(progress)?)
}

/// Checks an incomplete draft again, since what it lacked may exist by now. Returns the revision that is complete.
async fn complete(
    delivery: &Delivery,
    app: AppId,
    found: &Campaign,
    revision: Option<u64>,
    author: &Author,
    limits: &Limits,
) -> Result<u64, Problem> {
    let known = delivery.campaigns.definition(app, found.id).await?;
    let Some((present, definition)) = known else { return Err(refused(Unready::Incomplete)) };
    if revision.is_some_and(|revision| revision != present) {
        return Err(refused(Unready::Revision(present)));
    }
    let Examined { spec, problems } = examine(delivery, app, &definition, limits).await?;
    if let Some(first) = problems.first() {
        let line = |problem: &Problem| {
            format!("{}: {}", problem.field_path().unwrap_or("the campaign"), problem.detail())
        };
        let lines: Vec<String> = problems.iter().take(LISTED_MAX).map(line).collect();
        let field = first.field_path().unwrap_or_default().to_owned();
        return Err(Problem::new(Code::CampaignIncomplete, lines.join("; ")).at(field));
    }
    let written = Written { definition: Some(definition), is_complete: true, by: author.text() };
    let edited = delivery.campaigns.edit(app, found.id, present, &spec, written).await?.map_err(refused)?;
    Ok(edited.campaign.draft.revision)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Approval {
    revision: u64,
}

/// `POST /v1/campaigns/{id}/approve`
pub(crate) async fn approve(
    provider: Provider<Publish>,
    author: Author,
    trail: Trail,
    Path(id): Path<String>,
    JsonBody(text): JsonBody,
) -> Answer {
    let id = campaign_id(&id)?;
    // First, so that a stranger's id is not found whatever the body is.
    provider.delivery.campaigns.get(provider.app, id).await.map_err(Problem::missing("campaign"))?;
    let Approval { revision } = json::parse(&text)?;
    trail.after(&serde_json::json!({"revision": revision}));
    approved(&provider, id, revision, Some(author.text())).await
}

/// `DELETE /v1/campaigns/{id}/approve`
pub(crate) async fn withdraw(provider: Provider<Publish>, Path(id): Path<String>) -> Answer {
    let id = campaign_id(&id)?;
    let found = provider.delivery.campaigns.get(provider.app, id).await;
    let revision = found.map_err(Problem::missing("campaign"))?.campaign.draft.revision;
    approved(&provider, id, revision, None).await
}

async fn approved(provider: &Provider<Publish>, id: CampaignId, revision: u64, by: Option<String>) -> Answer {
    let approved = provider.delivery.campaigns.approve(provider.app, id, revision, by).await;
    let progress = approved.map_err(Problem::missing("campaign"))?.map_err(refused)?;
    respond::ok(&show::ApprovedBody::new(progress.campaign))
}

/// `POST /v1/campaigns/{id}/estimate`
pub(crate) async fn estimate(
    Shared(limits): Shared<Limits>,
    Shared(rules): Shared<CampaignRules>,
    provider: Provider<Read>,
    author: Author,
    Path(id): Path<String>,
) -> Answer {
    let id = campaign_id(&id)?;
    let (delivery, app) = (&provider.delivery, provider.app);
    let found = delivery.campaigns.get(app, id).await.map_err(Problem::missing("campaign"))?.campaign;
    let spec = match delivery.campaigns.definition(app, id).await? {
        Some((_, definition)) if !found.draft.is_complete => body::draft::audience_of(&definition, &limits)?,
        _ => Spec::from_json(&found.spec).map_err(Problem::internal)?,
    };
    let seed =
        u64::from_be_bytes(id.as_bytes()[8..].try_into().unwrap_or_default()) ^ delivery.clock().now().0;
    let estimated = delivery.campaigns.estimate(app, Some(id), &spec, seed).await?.map_err(|_| {
        let detail = "another estimate of the app runs, or the node computes too many: retry in a moment";
        Problem::new(Code::TooManyRequests, detail).retry_after(1)
    })?;
    respond::ok(&estimate::EstimateBody::new(estimated, found.draft.revision, rules.approval_above(&author)))
}

/// `GET /v1/campaigns/{id}/recipients/{user}`
pub(crate) async fn uploaded(provider: Provider<Read>, Path((id, user)): Path<(String, String)>) -> Answer {
    let (id, name) = (campaign_id(&id)?, user);
    let user = crate::handler::user::user_id(&name)?;
    let found = provider.delivery.campaigns.uploaded(provider.app, id, &user).await;
    let own = found.map_err(Problem::missing("campaign"))?;
    let own = own.ok_or_else(|| Problem::not_found("recipient of this campaign"))?;
    respond::ok(&show::RecipientBody::new(name, own)?)
}

pub(super) fn needs_approval(max: u64) -> Problem {
    let detail = format!(
        "a campaign with more than {max} recipients needs the approval of a second person for its present revision"
    );
    Problem::new(Code::ApprovalRequired, detail)
}

pub(super) fn refused(unready: Unready) -> Problem {
    match unready {
        Unready::State(state) => {
            Problem::new(Code::WrongState, format!("the campaign is {}", state.as_str()))
        }
        Unready::Revision(revision) => {
            let detail = format!("somebody changed the campaign: its revision is {revision}. Read it again");
            Problem::new(Code::RevisionConflict, detail)
        }
        Unready::Incomplete => Problem::new(Code::CampaignIncomplete, "parts of the campaign are missing"),
        Unready::Unapproved => Problem::new(Code::ApprovalRequired, "the campaign is not approved"),
        Unready::Author => {
            let detail = "another person must approve it: you created or changed the campaign";
            Problem::new(Code::OwnApproval, detail)
        }
    }
}

/// For a campaign that would start at once.
pub(super) async fn check_size(
    delivery: &Delivery,
    app: AppId,
    spec: &Spec,
    rules: &CampaignRules,
    author: &Author,
) -> Result<(), Problem> {
    let Some(max) = rules.approval_above(author).filter(|_| spec.start) else { return Ok(()) };
    match delivery.campaigns.is_large(app, CampaignId::from_bytes([0; 16]), spec, max).await? {
        true => Err(needs_approval(max)),
        false => Ok(()),
    }
}

/// A new draft: `POST /v1/campaigns?draft=true`.
pub(super) async fn created(
    delivery: &Delivery,
    app: AppId,
    author: &Author,
    limits: &Limits,
    text: &[u8],
    idempotency: Option<noroshi_store::Idempotency>,
) -> Result<(StatusCode, show::CampaignBody, bool), Problem> {
    let definition = body::draft::new_draft(text)?;
    let Examined { spec, problems } = examine(delivery, app, &definition, limits).await?;
    let written =
        Written { definition: Some(definition), is_complete: problems.is_empty(), by: author.text() };
    let (progress, replayed) = delivery.campaigns.create_written(app, spec, idempotency, written).await?;
    Ok((StatusCode::CREATED, full(delivery, app, progress, limits).await?, replayed))
}
