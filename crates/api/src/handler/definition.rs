//! What the handlers of experiments and maintenance notices share. For keys with the scope `admin` on the public listener, and
//! for the operator on the admin listener.

use noroshi_delivery::{Delivery, Held};
use noroshi_store::{Definition, DefinitionKind, NewDefinition};
use noroshi_types::{AppId, JsonText, Label, Quota, Timestamp, limits};
use serde::Deserialize;

use crate::error::Problem;
use crate::request::page::{next, not_a_position, not_first, page_limit};
use crate::request::parameter::Query;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    archived: Option<bool>,
    after: Option<String>,
    limit: Option<usize>,
}

impl ListQuery {
    pub(super) fn wants_archived(&self) -> bool {
        self.archived == Some(true)
    }
}

pub(super) fn name(text: &str) -> Result<Label, Problem> {
    Label::parse(text).map_err(|invalid| Problem::from(invalid).at("name"))
}

/// All live definitions at once, since they are few. Archived ones in pages, with the position of the next page.
pub(super) async fn list(
    delivery: &Delivery,
    app: AppId,
    kind: DefinitionKind,
    Query(query): Query<ListQuery>,
) -> Result<(Vec<Definition>, Option<String>), Problem> {
    let store = delivery.store();
    if !query.wants_archived() {
        let live = store.live_definitions(Some(app)).await?;
        return Ok((live.into_iter().filter(|one| one.kind == kind).collect(), None));
    }
    let limit = page_limit(query.limit)?;
    let position = |text: String| text.parse::<u64>().map_err(|_| not_a_position());
    let before = not_first(query.after).map(position).transpose()?;
    let found = store.archived_definitions(app, kind, before, limit).await?;
    let next = next(&found, limit, |last| last.num.to_string());
    Ok((found, next))
}

pub(super) async fn find(
    delivery: &Delivery,
    app: AppId,
    kind: DefinitionKind,
    name: &Label,
) -> Result<Definition, Problem> {
    let found = delivery.store().definition(app, kind, name).await?;
    found.ok_or_else(|| Problem::not_found(kind.as_str()))
}

/// The live definition with this name.
pub(super) async fn live(
    delivery: &Delivery,
    app: AppId,
    kind: DefinitionKind,
    name: &Label,
) -> Result<Option<Definition>, Problem> {
    let found = delivery.store().definition(app, kind, name).await?;
    Ok(found.filter(|found| found.archived_at.is_none()))
}

/// Stores a definition. This node uses it when this returns.
pub(super) async fn put(
    delivery: &Delivery,
    app: AppId,
    kind: DefinitionKind,
    name: Label,
    spec: JsonText,
    ends_at: Option<Timestamp>,
) -> Result<Definition, Problem> {
    let live_max = match kind {
        DefinitionKind::Experiment => limits::EXPERIMENTS_MAX,
        DefinitionKind::Notice => limits::NOTICES_MAX,
    };
    let held = match kind {
        DefinitionKind::Experiment if !is_live(delivery, app, kind, &name).await? => {
            delivery.usage.admit_one(app, Quota::Experiments).await?
        }
        DefinitionKind::Experiment | DefinitionKind::Notice => Held::default(),
    };
    let new = NewDefinition { app, kind, name, spec, ends_at };
    let kept = delivery.store().put_definition(new, live_max, delivery.clock().now()).await?;
    held.settle();
    delivery.context.outcomes.configured(Some(app), (kind.as_str(), "changed"), Some(kept.name.as_str()));
    delivery.first_calls.definitions_changed().await?;
    Ok(kept)
}

/// Reads the store only if the app has a quota.
async fn is_live(
    delivery: &Delivery,
    app: AppId,
    kind: DefinitionKind,
    name: &Label,
) -> Result<bool, Problem> {
    if delivery.quotas.limit(app, Quota::Experiments).is_none() {
        return Ok(true);
    }
    Ok(live(delivery, app, kind, name).await?.is_some())
}
