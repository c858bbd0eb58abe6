//! A campaign in responses: its definition, in the format of requests, and its progress.
//!
//! Pure. Counts appear twice: by outcome, for totals, and by the push services' reasons, for diagnosis.

use std::collections::BTreeMap;

use noroshi_delivery::campaign::count::Count;
use noroshi_delivery::campaign::filter::{Filter, VersionRange};
use noroshi_delivery::campaign::report::Against;
use noroshi_delivery::campaign::{
    Audience, CampaignMessage, CampaignProgress, Difference, Estimate, Own, Report, Share, Spec,
    VariantReport,
};
use noroshi_push::Warning;
use noroshi_store::{Campaign, WaitingStep};
use noroshi_types::time::format_duration;
use noroshi_types::{JsonText, Outcome, Push, PushMode, PushService};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::Problem;
use crate::respond::raw;
use crate::respond::warning::{self, WarningBody};

/// Outcomes of devices for which no push service accepted it.
const ERRORS: [Outcome; 5] = [
    Outcome::PushRefused,
    Outcome::PushTokenGone,
    Outcome::PushTokenSuspect,
    Outcome::PushUnconfigured,
    Outcome::PushExpired,
];

#[derive(Serialize)]
pub(super) struct CampaignBody {
    id: String,
    name: Option<String>,
    state: &'static str,
    audience: AudienceBody,
    message: MessageBody,
    locales: Vec<String>,
    experiment: Option<TrialBody>,
    lane: &'static str,
    schedule: ScheduleBody,
    notification: String,
    created_at: String,
    start_at: Option<String>,
    started_at: Option<String>,
    finished_at: Option<String>,
    uploaded: u64,
    recipients: u64,
    queued: u64,
    done: u64,
    total: Option<u64>,
    counts: BTreeMap<&'static str, u64>,
    reasons: Vec<ReasonBody>,
    errors: u64,
    rate_per_second: f64,
    eta_s: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepBody>,
    latency: LatencyBody,
    revision: u64,
    complete: bool,
    created_by: Option<String>,
    edited_by: Option<String>,
    edited_at: Option<String>,
    authors: Vec<String>,
    approval: Option<ApprovalBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ProblemBody>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<WarningBody>,
}

#[derive(Serialize)]
struct ApprovalBody {
    by: String,
    at: String,
}

/// The answer to an approval.
#[derive(Serialize)]
pub(super) struct ApprovedBody {
    id: String,
    state: &'static str,
    revision: u64,
    approval: Option<ApprovalBody>,
}

impl ApprovedBody {
    pub(super) fn new(campaign: Campaign) -> Self {
        Self {
            id: campaign.id.to_string(),
            state: campaign.state.as_str(),
            revision: campaign.draft.revision,
            approval: campaign.draft.approved.map(|(by, at)| ApprovalBody { by, at: at.to_string() }),
        }
    }
}

/// What is missing or invalid in a draft.
#[derive(Serialize)]
struct ProblemBody {
    field: Option<String>,
    code: &'static str,
    detail: String,
}

/// What one user of an uploaded audience gets.
#[derive(Serialize)]
pub(super) struct RecipientBody {
    user: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    variables: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notification: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

impl RecipientBody {
    pub(super) fn new(user: String, own: Own) -> Result<Self, Problem> {
        let (notification, data) = (raw(own.notification.as_ref())?, raw(own.data.as_ref())?);
        Ok(Self { user, variables: own.variables, notification, data })
    }
}

#[derive(Serialize)]
struct ScheduleBody {
    local_time: Option<String>,
    quiet_hours: Option<HoursBody>,
    rate_per_second: Option<u32>,
    batch_size: u32,
}

#[derive(Serialize)]
struct HoursBody {
    from: String,
    to: String,
}

/// Batches that wait for their time.
#[derive(Serialize)]
struct StepBody {
    due_at: String,
    batches: u64,
}

#[derive(Serialize, Default)]
struct AudienceBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    everyone: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<FilterBody>,
}

#[derive(Serialize)]
pub(in crate::handler) struct FilterBody {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    platforms: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    locales: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    timezones: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_version: Option<VersionBody>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, Vec<String>>,
}

#[derive(Serialize)]
struct VersionBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<String>,
}

#[derive(Serialize)]
struct MessageBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    notification: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    urgency: &'static str,
    ttl: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    collapse_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<&'static str>,
    push: PushBody,
}

#[derive(Serialize)]
struct PushBody {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// A push service's own fields, at its name.
    #[serde(flatten)]
    own: BTreeMap<&'static str, Box<RawValue>>,
}

#[derive(Serialize)]
struct ReasonBody {
    outcome: &'static str,
    reason: Option<String>,
    count: u64,
}

#[derive(Serialize)]
struct LatencyBody {
    p50_ms: Option<u64>,
    p99_ms: Option<u64>,
}

/// Results of the variants of an experiment.
#[derive(Serialize)]
struct TrialBody {
    name: String,
    control: String,
    variants: Vec<VariantBody>,
}

#[derive(Serialize)]
struct VariantBody {
    name: String,
    held_out: bool,
    notification: String,
    targeted: u64,
    pushed: u64,
    written: u64,
    acked: u64,
    delivered: ShareBody,
    opened: ShareBody,
    against_control: Option<AgainstBody>,
}

#[derive(Serialize)]
struct ShareBody {
    count: u64,
    rate: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

#[derive(Serialize)]
struct AgainstBody {
    delivered: Option<DifferenceBody>,
    opened: Option<DifferenceBody>,
}

#[derive(Serialize)]
struct DifferenceBody {
    difference: f64,
    low: f64,
    high: f64,
    p_value: f64,
    distinguishable: bool,
}

/// The counts of a dry run.
#[derive(Serialize)]
pub(super) struct CountBody {
    devices: u64,
    users: Option<u64>,
    no_push_token: u64,
    suspect: u64,
    filtered: u64,
    by_service: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<WarningBody>,
}

impl CampaignBody {
    pub(super) fn with_definition(
        self,
        definition: Option<&JsonText>,
        problems: Vec<Problem>,
    ) -> Result<Self, Problem> {
        let problem = |problem: Problem| ProblemBody {
            field: problem.field_path().map(str::to_owned),
            code: problem.code().as_str(),
            detail: problem.detail().to_owned(),
        };
        let problems = problems.into_iter().map(problem).collect();
        Ok(Self { definition: raw(definition)?, problems, ..self })
    }

    pub(super) fn with(self, warnings: Vec<Warning>) -> Self {
        Self { warnings: warning::bodies(warnings), ..self }
    }
}

impl CountBody {
    pub(super) fn new(count: Count, warnings: Vec<Warning>) -> Self {
        let Count { devices, users, by_service, no_push_token, suspect, filtered } = count;
        let by_service = by_service.into_iter().map(|(service, count)| (service.as_str(), count)).collect();
        let warnings = warning::bodies(warnings);
        Self { devices, users, no_push_token, suspect, filtered, by_service, warnings }
    }
}

pub(super) fn campaign(progress: CampaignProgress) -> Result<CampaignBody, Problem> {
    let CampaignProgress { campaign, recipients, done, total, rate_per_second, eta, steps, p50, p99, report } =
        progress;
    let spec = Spec::from_json(&campaign.spec).map_err(Problem::internal)?;
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for (outcome, _, count) in &campaign.counts {
        *counts.entry(outcome.as_str()).or_default() += count;
    }
    let failed = campaign.counts.iter().filter(|(outcome, ..)| ERRORS.contains(outcome));
    Ok(CampaignBody {
        id: campaign.id.to_string(),
        state: campaign.state.as_str(),
        audience: match campaign.draft.is_complete {
            true => audience(spec.audience, spec.filter),
            // It has a stand-in until it is complete.
            false => AudienceBody::default(),
        },
        message: message(spec.message)?,
        locales: spec.locales.into_keys().collect(),
        experiment: report.map(TrialBody::from),
        lane: spec.lane.as_str(),
        schedule: ScheduleBody {
            local_time: spec.local_time.map(|time| time.to_string()),
            quiet_hours: spec
                .quiet_hours
                .map(|hours| HoursBody { from: hours.from.to_string(), to: hours.to.to_string() }),
            rate_per_second: spec.rate_per_second,
            batch_size: spec.batch_size,
        },
        notification: campaign.notification.to_string(),
        created_at: campaign.created_at.to_string(),
        start_at: spec.start_at.map(|time| time.to_string()),
        started_at: campaign.started_at.map(|time| time.to_string()),
        finished_at: campaign.finished_at.map(|time| time.to_string()),
        uploaded: campaign.uploaded,
        recipients,
        queued: recipients.saturating_sub(done),
        done,
        total,
        errors: failed.map(|(.., count)| count).sum(),
        counts,
        reasons: reasons(campaign.counts),
        // A tenth is precise enough.
        rate_per_second: (rate_per_second * 10.0).round() / 10.0,
        eta_s: eta.map(|eta| eta.as_secs()),
        steps: steps.into_iter().map(StepBody::from).collect(),
        latency: LatencyBody { p50_ms: p50.map(milliseconds), p99_ms: p99.map(milliseconds) },
        name: spec.name,
        revision: campaign.draft.revision,
        complete: campaign.draft.is_complete,
        created_by: Some(campaign.draft.created_by).filter(|by| !by.is_empty()),
        edited_by: Some(campaign.draft.edited_by).filter(|by| !by.is_empty()),
        edited_at: campaign.draft.edited_at.map(|at| at.to_string()),
        authors: campaign.draft.authors,
        approval: campaign.draft.approved.map(|(by, at)| ApprovalBody { by, at: at.to_string() }),
        definition: None,
        problems: Vec::new(),
        warnings: Vec::new(),
    })
}

impl From<WaitingStep> for StepBody {
    fn from(step: WaitingStep) -> Self {
        Self { due_at: step.due_at.to_string(), batches: step.batches }
    }
}

impl From<Report> for TrialBody {
    fn from(report: Report) -> Self {
        Self {
            name: report.experiment.to_string(),
            control: report.control.to_string(),
            variants: report.variants.into_iter().map(VariantBody::from).collect(),
        }
    }
}

impl From<VariantReport> for VariantBody {
    fn from(variant: VariantReport) -> Self {
        let against = |against: Against| AgainstBody {
            delivered: against.delivered.map(DifferenceBody::from),
            opened: against.opened.map(DifferenceBody::from),
        };
        // Nothing is sent to held-out devices: a rate of 0 would look like a failure.
        let share = |share: Share| ShareBody::of(share, !variant.held_out);
        Self {
            name: variant.name.to_string(),
            held_out: variant.held_out,
            notification: variant.notification.to_string(),
            targeted: variant.targeted,
            pushed: variant.pushed,
            written: variant.written,
            acked: variant.acked,
            delivered: share(variant.delivered),
            opened: share(variant.opened),
            against_control: variant.against_control.map(against),
        }
    }
}

impl ShareBody {
    fn of(share: Share, is_rate: bool) -> Self {
        let estimate = share.estimate().filter(|_| is_rate);
        Self {
            count: share.count(),
            rate: estimate.map(|estimate| fraction(estimate.value)),
            low: estimate.map(|estimate| fraction(estimate.low)),
            high: estimate.map(|estimate| fraction(estimate.high)),
        }
    }
}

impl From<Difference> for DifferenceBody {
    fn from(difference: Difference) -> Self {
        let Estimate { value, low, high } = difference.estimate;
        Self {
            difference: fraction(value),
            low: fraction(low),
            high: fraction(high),
            p_value: fraction(difference.p_value),
            distinguishable: difference.is_distinguishable(),
        }
    }
}

/// Rounded to a millionth: more precise than a million devices allow.
fn fraction(value: f64) -> f64 {
    // Avoids -0.
    (value * 1e6).round() / 1e6 + 0.0
}

/// Whether its recipients are uploaded. False if its definition is unreadable.
pub(super) fn is_upload(campaign: &Campaign) -> bool {
    Spec::from_json(&campaign.spec).is_ok_and(|spec| spec.audience == Audience::Upload)
}

impl From<Filter> for FilterBody {
    fn from(filter: Filter) -> Self {
        let Filter { platforms, locales, app_version, tags, timezones } = filter;
        let VersionRange { min, max } = app_version;
        let app_version = (min.is_some() || max.is_some()).then_some(VersionBody { min, max });
        Self { platforms, locales, timezones, app_version, tags }
    }
}

fn audience(audience: Audience, filter: Filter) -> AudienceBody {
    let devices = (audience == Audience::Devices || !filter.is_empty()).then(|| FilterBody::from(filter));
    let body = AudienceBody { devices, ..AudienceBody::default() };
    match audience {
        Audience::Everyone => AudienceBody { everyone: Some(true), ..body },
        Audience::Topic(topic) => AudienceBody { topic: Some(topic.to_string()), ..body },
        Audience::Condition(condition) => {
            AudienceBody { condition: Some(condition.as_str().to_owned()), ..body }
        }
        Audience::Upload => AudienceBody { upload: Some(true), ..body },
        Audience::Devices => body,
    }
}

fn message(message: CampaignMessage) -> Result<MessageBody, Problem> {
    // A campaign is not broadcast.
    let Push { mode, after, token, own, broadcast: _ } = message.push;
    let fields = |(service, fields): (PushService, &JsonText)| {
        Ok(raw(Some(fields))?.map(|fields| (service.as_str(), fields)))
    };
    let own = own.iter().filter_map(|own| fields(own).transpose()).collect::<Result<_, Problem>>()?;
    Ok(MessageBody {
        notification: raw(message.notification.as_ref())?,
        data: raw(message.data.as_ref())?,
        urgency: message.urgency.as_str(),
        ttl: format_duration(message.ttl.duration()),
        collapse_key: message.collapse_key.map(String::from),
        category: message.category.map(|category| category.to_string()),
        when: message.when.map(|when| when.as_str()),
        push: PushBody {
            mode: mode.as_str(),
            after: (mode == PushMode::Fallback).then(|| format_duration(after)),
            token: token.map(|token| token.to_string()),
            own,
        },
    })
}

/// Most frequent first.
fn reasons(counts: Vec<(Outcome, String, u64)>) -> Vec<ReasonBody> {
    let body = |(outcome, reason, count): (Outcome, String, u64)| ReasonBody {
        outcome: outcome.as_str(),
        reason: (!reason.is_empty()).then_some(reason),
        count,
    };
    let mut reasons: Vec<ReasonBody> = counts.into_iter().map(body).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
    reasons
}

fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
