//! Quotas of an app: limits, usage and rejections. A key with the scope `admin` reads those of its own app on the public
//! listener; only the operator changes them, on the admin listener.

use http::StatusCode;
use noroshi_delivery::quota;
use noroshi_store::App;
use noroshi_types::Quota;
use noroshi_types::quota::Quotas as Overrides;
use serde::Serialize;

use crate::body;
use crate::error::{Code, Problem};
use crate::request::access::{Manager, Operator};
use crate::request::body::JsonBody;
use crate::respond::{self, Answer};

/// Retries of a change after concurrent changes.
const ATTEMPTS_MAX: usize = 16;

#[derive(Serialize)]
struct QuotasBody {
    app: String,
    quotas: Vec<QuotaBody>,
}

#[derive(Serialize)]
struct QuotaBody {
    quota: &'static str,
    /// Null: unlimited.
    limit: Option<u64>,
    /// `app`: its own limit; `default`: the node's.
    source: &'static str,
    /// Null if not counted.
    used: Option<u64>,
    /// Rejections by this node since its start.
    refused: u64,
    /// `node`: enforced per node; `store`: enforced across all nodes that share a store.
    scope: &'static str,
}

/// `GET /v1/apps/{app}/quotas`
pub(crate) async fn show(manager: Manager) -> Answer {
    let app = manager.app()?;
    // Counts usage without a limit only for the operator, since that reads all data of the app.
    let all = manager.is_operator();
    answer(&manager, &app, manager.delivery.usage.shown(app.id, all).await?)
}

/// `PUT /v1/apps/{app}/quotas`: replaces all limits. The others are the node's defaults.
pub(crate) async fn put(_: Operator, manager: Manager, JsonBody(body): JsonBody) -> Answer {
    let app = set(&manager, &body::quotas(&body)?).await?;
    answer(&manager, &app, manager.delivery.usage.known(app.id))
}

/// `PATCH /v1/apps/{app}/quotas`: absent limits stay, `null` restores the node's default.
pub(crate) async fn change(_: Operator, manager: Manager, JsonBody(body): JsonBody) -> Answer {
    let changes = body::quota_changes(&body)?;
    let Manager { auth, delivery, .. } = &manager;
    for _ in 0..ATTEMPTS_MAX {
        // Another node may have changed them.
        auth.follow().await?;
        let app = manager.app()?;
        let before = app.settings.quotas;
        manager.trail.before(&before);
        let mut overrides =
            before.as_deref().map(quota::parse).transpose().map_err(|_| unreadable())?.unwrap_or_default();
        changes.iter().for_each(|(quota, limit)| overrides.set(*quota, *limit));
        match auth.change_quotas(app.id, before, quota::to_text(&overrides)).await {
            // A concurrent change: apply this one on top of it.
            Err(noroshi_store::Error::Conflict) => {}
            changed => {
                let app = changed?;
                delivery.context.outcomes.configured(Some(app.id), ("quotas", "changed"), None);
                manager.trail.after(&app.settings.quotas);
                return answer(&manager, &app, delivery.usage.known(app.id));
            }
        }
    }
    Err(Problem::new(Code::WrongState, "the quotas of this app changed concurrently; retry"))
}

/// `DELETE /v1/apps/{app}/quotas`: restores the node's defaults.
pub(crate) async fn clear(_: Operator, manager: Manager) -> Result<StatusCode, Problem> {
    set(&manager, &Overrides::default()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces the quotas, even if the stored ones are unreadable.
async fn set(manager: &Manager, overrides: &Overrides) -> Result<App, Problem> {
    let Manager { auth, delivery, .. } = manager;
    // Another node may have created the app.
    auth.follow().await?;
    let app = manager.app()?;
    manager.trail.before(&app.settings.quotas);
    let app = auth.set_quotas(app.id, quota::to_text(overrides)).await?;
    delivery.context.outcomes.configured(Some(app.id), ("quotas", "changed"), None);
    manager.trail.after(&app.settings.quotas);
    Ok(app)
}

fn unreadable() -> Problem {
    Problem::new(Code::WrongState, "the stored quotas of this app are unreadable; replace them with PUT")
}

fn answer(manager: &Manager, app: &App, shown: Option<Vec<quota::Shown>>) -> Answer {
    let mut shown = shown.ok_or_else(|| Problem::not_found("app"))?;
    // All keys are in memory.
    let keys = manager.auth.keys(app.id).len() as u64;
    shown.iter_mut().filter(|one| one.quota == Quota::Keys).for_each(|one| one.used = Some(keys));
    let quotas = shown.into_iter().map(QuotaBody::from).collect();
    respond::ok(&QuotasBody { app: app.name.to_string(), quotas })
}

impl From<quota::Shown> for QuotaBody {
    fn from(shown: quota::Shown) -> Self {
        Self {
            quota: shown.quota.as_str(),
            limit: shown.limit,
            source: if shown.is_own { "app" } else { "default" },
            used: shown.used,
            refused: shown.refused,
            scope: if shown.quota.is_per_node() { "node" } else { "store" },
        }
    }
}
