//! Doctor's findings and the effective configuration of the node that answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State as Shared;
use noroshi_auth::Auth;
use noroshi_types::{Timestamp, limits};
use serde::{Deserialize, Serialize};

use crate::error::{Code, Problem};
use crate::inspection::{Check, Diagnosis, Inspector, Setting};
use crate::request::access::{Manager, Operator};
use crate::request::parameter::Query;
use crate::respond::{self, Answer};

/// More than any node can hold. `noroshi doctor` has the same limit.
const CONNECTIONS_MAX: u64 = 100_000_000;

/// API keys that a finding names.
const NAMED_MAX: usize = 5;

type SharedInspector = Option<Arc<Inspector>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameters {
    connections: Option<u64>,
}

#[derive(Serialize)]
struct DoctorBody<'a> {
    node: &'a str,
    verdict: &'static str,
    connections: u64,
    tls: bool,
    checks: Vec<CheckBody>,
    sysctl: BTreeMap<&'static str, String>,
    limit_nofile: Option<u64>,
    room: RoomBody,
}

#[derive(Serialize)]
struct CheckBody {
    name: &'static str,
    verdict: &'static str,
    found: String,
    wanted: String,
    advice: String,
}

#[derive(Serialize)]
struct RoomBody {
    devices: Option<u64>,
    limited_by: Option<String>,
}

#[derive(Serialize)]
struct ConfigurationBody<'a> {
    node: &'a str,
    settings: Vec<SettingBody>,
}

#[derive(Serialize)]
struct SettingBody {
    key: &'static str,
    value: Option<String>,
    default: Option<String>,
    masked: bool,
    source: &'static str,
    place: Option<String>,
    unit: &'static str,
    range: String,
    description: &'static str,
}

/// `GET /v1/doctor`
pub(crate) async fn doctor(
    Shared(inspector): Shared<SharedInspector>,
    manager: Manager,
    Query(Parameters { connections }): Query<Parameters>,
) -> Answer {
    if connections.is_some_and(|connections| !(1..=CONNECTIONS_MAX).contains(&connections)) {
        let rule = format!("must be 1 to {CONNECTIONS_MAX}");
        return Err(Problem::new(Code::InvalidParameter, rule).at("connections"));
    }
    let inspector = available(inspector.as_ref())?;
    let diagnosis = inspector.examine(connections).await.map_err(Problem::internal)?;
    let Diagnosis { mut verdict, connections, tls, mut checks, sysctl, limit_nofile, room } = diagnosis;
    if let Some(check) = expiring_keys(&manager.auth, manager.delivery.clock().now()) {
        // A warning is worse than `ok` only.
        verdict = if verdict == "ok" { check.verdict } else { verdict };
        checks.push(check);
    }
    let (devices, limited_by) = room.unzip();
    respond::ok(&DoctorBody {
        node: inspector.node(),
        verdict,
        connections,
        tls,
        checks: checks.into_iter().map(CheckBody::from).collect(),
        sysctl: sysctl.into_iter().collect(),
        limit_nofile,
        room: RoomBody { devices, limited_by },
    })
}

/// `GET /v1/configuration`
pub(crate) async fn configuration(Shared(inspector): Shared<SharedInspector>, _: Operator) -> Answer {
    let inspector = available(inspector.as_ref())?;
    let settings = inspector.settings().into_iter().map(SettingBody::from).collect();
    respond::ok(&ConfigurationBody { node: inspector.node(), settings })
}

/// A warning if API keys have expired or expire soon.
fn expiring_keys(auth: &Auth, now: Timestamp) -> Option<Check> {
    let soon = now.saturating_add(limits::KEY_EXPIRES_SOON);
    let keys = auth.apps().into_iter().flat_map(|app| {
        auth.keys(app.id)
            .into_iter()
            .map(move |key| (key.expires_at, format!("{} of {}", key.name, app.name)))
    });
    let mut keys: Vec<(Timestamp, String)> =
        keys.filter_map(|(at, name)| Some((at.filter(|at| *at <= soon)?, name))).collect();
    keys.sort();
    let expired = keys.iter().filter(|(at, _)| *at <= now).count();
    let expiring = keys.len() - expired;
    let more = keys.len().saturating_sub(NAMED_MAX);
    let mut named: Vec<String> =
        keys.iter().take(NAMED_MAX).map(|(at, name)| format!("{name} ({at})")).collect();
    named.extend((more > 0).then(|| format!("{more} more")));
    (!keys.is_empty()).then(|| Check {
        name: "API keys",
        verdict: "warn",
        found: format!("{expired} expired, {expiring} expire within 14 days"),
        wanted: "0".to_owned(),
        advice: format!(
            "create another key, switch the backend to it, and revoke the old one: {}",
            named.join(", ")
        ),
    })
}

fn available(inspector: Option<&Arc<Inspector>>) -> Result<&Arc<Inspector>, Problem> {
    inspector.ok_or_else(|| Problem::new(Code::Unavailable, "this node cannot examine itself"))
}

impl From<Check> for CheckBody {
    fn from(check: Check) -> Self {
        let Check { name, verdict, found, wanted, advice } = check;
        Self { name, verdict, found, wanted, advice }
    }
}

impl From<Setting> for SettingBody {
    fn from(setting: Setting) -> Self {
        let Setting { key, help, unit, range, value, default, is_masked, source, place } = setting;
        Self {
            key,
            value,
            default,
            masked: is_masked,
            source: source.as_str(),
            place,
            unit,
            range,
            description: help,
        }
    }
}
