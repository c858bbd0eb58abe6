//! Experiments of an app, and the devices' reports of shown variants.

use std::collections::BTreeMap;

use http::StatusCode;
use noroshi_delivery::definition::{Experiment, ExperimentVariant, Group};
use noroshi_store::{Definition, DefinitionKind};
use noroshi_types::{AppId, Label, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::body;
use crate::error::{Code, Problem};
use crate::handler::campaign::show::FilterBody;
use crate::handler::definition::{self, ListQuery};
use crate::request::access::{Consumer, Manager};
use crate::request::body::JsonBody;
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};

const KIND: DefinitionKind = DefinitionKind::Experiment;

#[derive(Serialize)]
struct ExperimentBody {
    name: String,
    /// `scheduled`, `running`, `killed`, `ended` or `archived`.
    state: &'static str,
    description: Option<String>,
    variants: Vec<VariantBody>,
    starts_at: Option<String>,
    ends_at: Option<String>,
    audience: AudienceBody,
    overrides: OverridesBody,
    killed: bool,
    created_at: String,
    updated_at: String,
    archived_at: Option<String>,
}

#[derive(Serialize)]
struct VariantBody {
    name: String,
    weight: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct AudienceBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<FilterBody>,
}

#[derive(Serialize)]
struct OverridesBody {
    users: BTreeMap<String, String>,
    devices: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct AssignedBody {
    experiment: String,
    device: String,
    user: Option<String>,
    /// Whether it is running.
    running: bool,
    /// None: the device is not in its audience.
    variant: Option<String>,
}

/// `GET /v1/apps/{app}/experiments`
pub(crate) async fn list(manager: Manager, query: Query<ListQuery>) -> Answer {
    let app = manager.app()?;
    let (found, next) = definition::list(&manager.delivery, app.id, KIND, query).await?;
    let now = manager.delivery.clock().now();
    let experiments = found.into_iter().map(|one| shown(one, now)).collect::<Result<Vec<_>, _>>()?;
    respond::page("experiments", experiments, next)
}

/// `GET /v1/apps/{app}/experiments/{name}`: the live one with this name, otherwise the last archived one.
pub(crate) async fn show(manager: Manager, Path((_, name)): Path<(String, String)>) -> Answer {
    let app = manager.app()?;
    let found = definition::find(&manager.delivery, app.id, KIND, &definition::name(&name)?).await?;
    respond::ok(&shown(found, manager.delivery.clock().now())?)
}

/// `PUT /v1/apps/{app}/experiments/{name}`: creates or replaces it.
pub(crate) async fn put(
    manager: Manager,
    Path((_, name)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Answer {
    let app = manager.app()?;
    let (name, experiment) = (definition::name(&name)?, body::experiment(&body)?);
    if experiment.ends_at.is_some_and(|ends_at| ends_at <= manager.delivery.clock().now()) {
        return Err(Problem::field("ends_at", "must not be in the past"));
    }
    keep(&manager, app.id, name, &experiment).await
}

/// `PATCH /v1/apps/{app}/experiments/{name}`: stops or restarts it.
pub(crate) async fn kill(
    manager: Manager,
    Path((_, name)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Answer {
    let app = manager.app()?;
    let (name, killed) = (definition::name(&name)?, body::killing(&body)?);
    let found = definition::find(&manager.delivery, app.id, KIND, &name).await?;
    if found.archived_at.is_some() {
        return Err(Problem::new(Code::WrongState, "the experiment is archived"));
    }
    let experiment = Experiment { killed, ..read(&found)? };
    keep(&manager, app.id, name, &experiment).await
}

async fn keep(manager: &Manager, app: AppId, name: Label, experiment: &Experiment) -> Answer {
    if let Some(before) = definition::live(&manager.delivery, app, KIND, &name).await? {
        manager.trail.before(&shown(before, manager.delivery.clock().now())?);
    }
    let (spec, ends_at) = (experiment.to_json(), experiment.ends_at);
    let kept = definition::put(&manager.delivery, app, KIND, name, spec, ends_at).await?;
    let after = shown(kept, manager.delivery.clock().now())?;
    manager.trail.after(&after);
    respond::ok(&after)
}

/// `DELETE /v1/apps/{app}/experiments/{name}`: archives it.
pub(crate) async fn archive(
    manager: Manager,
    Path((_, name)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (app, name) = (manager.app()?, definition::name(&name)?);
    let now = manager.delivery.clock().now();
    let archived = manager.delivery.store().archive_definition(app.id, KIND, &name, now).await;
    archived.map_err(Problem::missing(KIND.as_str()))?;
    manager.delivery.context.outcomes.configured(
        Some(app.id),
        (KIND.as_str(), "removed"),
        Some(name.as_str()),
    );
    manager.delivery.first_calls.definitions_changed().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/apps/{app}/experiments/{name}/devices/{device}`: the variant of a device.
pub(crate) async fn assigned(
    manager: Manager,
    Path((_, name, device)): Path<(String, String, String)>,
) -> Answer {
    let (app, name) = (manager.app()?, definition::name(&name)?);
    let found = definition::find(&manager.delivery, app.id, KIND, &name).await?;
    let device = manager.delivery.store().device(app.id, &body::device_id(&device)?).await?;
    let device = device.ok_or_else(|| Problem::not_found("device"))?;
    let group = Group::new(name, read(&found)?);
    let body = AssignedBody {
        experiment: group.name.to_string(),
        device: device.id.to_string(),
        user: device.user.as_ref().map(ToString::to_string),
        running: found.archived_at.is_none() && group.experiment.is_running(manager.delivery.clock().now()),
        variant: group.variant_of(&device).map(|variant| variant.name.to_string()),
    };
    respond::ok(&body)
}

/// `POST /v1/me/exposures`: reports that the device was shown its variants.
pub(crate) async fn exposed(consumer: Consumer, JsonBody(body): JsonBody) -> Answer {
    let names = body::exposures(&body)?;
    let exposed = consumer.delivery.first_calls.exposed(&consumer.device, &names);
    let name = |(experiment, variant): (&Label, Label)| (experiment.to_string(), variant.to_string());
    respond::field("exposed", exposed.into_iter().map(name).collect::<BTreeMap<_, _>>())
}

fn read(definition: &Definition) -> Result<Experiment, Problem> {
    Experiment::from_json(&definition.spec).map_err(Problem::internal)
}

fn shown(definition: Definition, now: Timestamp) -> Result<ExperimentBody, Problem> {
    let Experiment { description, variants, starts_at, ends_at, condition, filter, users, devices, killed } =
        read(&definition)?;
    let state = match () {
        () if definition.archived_at.is_some() => "archived",
        () if ends_at.is_some_and(|ends_at| ends_at <= now) => "ended",
        () if killed => "killed",
        () if starts_at.is_some_and(|starts_at| now < starts_at) => "scheduled",
        () => "running",
    };
    let text = |at: Timestamp| at.to_string();
    let variant = |variant: ExperimentVariant| {
        let data = respond::raw(variant.data.as_ref())?;
        Ok(VariantBody { name: variant.name.to_string(), weight: variant.weight, data })
    };
    Ok(ExperimentBody {
        name: definition.name.to_string(),
        state,
        description,
        variants: variants.into_iter().map(variant).collect::<Result<_, Problem>>()?,
        starts_at: starts_at.map(text),
        ends_at: ends_at.map(text),
        audience: AudienceBody {
            condition: condition.map(|condition| condition.to_string()),
            devices: (!filter.is_empty()).then(|| FilterBody::from(filter)),
        },
        overrides: OverridesBody {
            users: users.into_iter().map(|(user, name)| (user.to_string(), name.to_string())).collect(),
            devices: devices.into_iter().map(|(one, name)| (one.to_string(), name.to_string())).collect(),
        },
        killed,
        created_at: definition.created_at.to_string(),
        updated_at: definition.updated_at.to_string(),
        archived_at: definition.archived_at.map(text),
    })
}
