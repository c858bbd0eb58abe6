//! An estimate in a response. Pure.

use std::collections::BTreeMap;

use noroshi_delivery::campaign::estimate::{Estimated, Example, Forecast, Size};
use noroshi_types::Timestamp;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct EstimateBody {
    exact: bool,
    examined: u64,
    revision: u64,
    devices: SizeBody,
    users: SizeBody,
    no_push_token: SizeBody,
    suspect: SizeBody,
    by_service: BTreeMap<&'static str, SizeBody>,
    by_locale: Vec<LocaleBody>,
    other_locales: SizeBody,
    sample: Vec<ExampleBody>,
    forecast: ForecastBody,
    approval_above: Option<u64>,
    needs_approval: bool,
}

#[derive(Serialize)]
struct SizeBody {
    value: u64,
    low: u64,
    high: u64,
}

#[derive(Serialize)]
struct LocaleBody {
    locale: Option<String>,
    devices: SizeBody,
}

#[derive(Serialize)]
struct ExampleBody {
    device: String,
    user: Option<String>,
    platform: Option<String>,
    locale: Option<String>,
    timezone: Option<String>,
    service: Option<&'static str>,
}

#[derive(Serialize)]
struct ForecastBody {
    starts_at: String,
    ends_at: Option<String>,
    rate_per_second: Option<f64>,
    rate_from: &'static str,
    measured_campaigns: usize,
    steps: Vec<StepBody>,
}

#[derive(Serialize)]
struct StepBody {
    due_at: String,
    devices: u64,
}

impl EstimateBody {
    pub(super) fn new(estimated: Estimated, revision: u64, approval_above: Option<u64>) -> Self {
        let locale = |(locale, size): (String, Size)| LocaleBody {
            locale: (!locale.is_empty()).then_some(locale),
            devices: size.into(),
        };
        Self {
            exact: estimated.is_exact,
            examined: estimated.examined,
            revision,
            // The upper end of the interval: the start counts exactly.
            needs_approval: approval_above.is_some_and(|above| estimated.devices.high > above),
            approval_above,
            devices: estimated.devices.into(),
            users: estimated.users.into(),
            no_push_token: estimated.no_push_token.into(),
            suspect: estimated.suspect.into(),
            by_service: estimated
                .by_service
                .into_iter()
                .map(|(service, size)| (service.as_str(), size.into()))
                .collect(),
            by_locale: estimated.by_locale.into_iter().map(locale).collect(),
            other_locales: estimated.other_locales.into(),
            sample: estimated.sample.into_iter().map(ExampleBody::from).collect(),
            forecast: estimated.forecast.into(),
        }
    }
}

impl From<Size> for SizeBody {
    fn from(Size { value, low, high }: Size) -> Self {
        Self { value, low, high }
    }
}

impl From<Example> for ExampleBody {
    fn from(example: Example) -> Self {
        Self {
            device: example.device.to_string(),
            user: example.user.map(|user| user.to_string()),
            platform: example.platform,
            locale: example.locale,
            timezone: example.timezone,
            service: example.service.map(|service| service.as_str()),
        }
    }
}

impl From<Forecast> for ForecastBody {
    fn from(forecast: Forecast) -> Self {
        let step = |(due_at, devices): (Timestamp, u64)| StepBody { due_at: due_at.to_string(), devices };
        Self {
            starts_at: forecast.starts_at.to_string(),
            ends_at: forecast.ends_at.map(|at| at.to_string()),
            rate_per_second: forecast.rate_per_second.map(|rate| (rate * 10.0).round() / 10.0),
            rate_from: forecast.rate_from.as_str(),
            measured_campaigns: forecast.measured_campaigns,
            steps: forecast.steps.into_iter().map(step).collect(),
        }
    }
}
