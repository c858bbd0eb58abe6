//! The time series, and streams of live figures. Figures of nodes and of all apps together are for those who may read all
//! apps; an app has figures of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use noroshi_console::Made;
use noroshi_series::live::{Refused, VIEWERS_MAX, VIEWERS_OF_PERSON_MAX};
use noroshi_series::reader::{POINTS_MAX, Span};
use noroshi_series::{Answer as Figures, Kind, Query as Asked, SHOWN, Scope, Series, Shown, Step, Viewer};
use noroshi_types::{AppId, Permission, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::{Code, Problem};
use crate::request::access::Manager;
use crate::request::parameter::Query;
use crate::request::session::Person;
use crate::respond::Answer;

/// How often a stream checks that its person still may see it.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Without `from`.
const RANGE: u64 = 3_600_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    names: Option<String>,
    from: Option<String>,
    until: Option<String>,
    step: Option<String>,
    node: Option<String>,
}

#[derive(Serialize)]
struct SeriesBody<'a> {
    from: String,
    until: String,
    step_s: u32,
    /// How many seconds of each step were measured. 0: none.
    covered_s: &'a [u64],
    series: Vec<OneSeries>,
    /// Null: the figures are those of an app.
    nodes: Option<Vec<NodeBody<'a>>>,
    /// The number of nodes, and when one or more of them wrote nothing.
    nodes_count: usize,
    missing: Vec<SpanBody>,
}

#[derive(Serialize)]
struct OneSeries {
    name: &'static str,
    unit: &'static str,
    /// `gauge`, `count` or `time`
    kind: &'static str,
    points: Vec<Option<Number>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Whole(i64),
    Fraction(f64),
}

#[derive(Serialize)]
struct NodeBody<'a> {
    name: &'a str,
    missing: Vec<SpanBody>,
}

#[derive(Serialize)]
struct SpanBody {
    from: String,
    until: String,
}

/// `GET /v1/series`
pub(crate) async fn show(
    Shared(series): Shared<Arc<Series>>,
    manager: Manager,
    Query(filter): Query<Filter>,
) -> Answer {
    answer(&series, &filter, None, manager.delivery.clock().now()).await
}

/// `GET /v1/apps/{app}/series`
pub(crate) async fn of_app(
    Shared(series): Shared<Arc<Series>>,
    manager: Manager,
    Query(filter): Query<Filter>,
) -> Answer {
    let app = manager.app()?.id;
    answer(&series, &filter, Some(app), manager.delivery.clock().now()).await
}

async fn answer(series: &Series, filter: &Filter, app: Option<AppId>, now: Timestamp) -> Answer {
    let figures = series.reader.read(asked(filter, app, now)?, now).await?;
    let text = match figures.text.get() {
        Some(text) => text.clone(),
        None => {
            let text = serde_json::to_vec(&body(&figures, app.is_some())).map_err(Problem::internal)?;
            figures.text.get_or_init(|| text.into()).clone()
        }
    };
    let json = HeaderValue::from_static("application/json");
    Ok(([(header::CONTENT_TYPE, json)], text).into_response())
}

fn asked(filter: &Filter, app: Option<AppId>, now: Timestamp) -> Result<Asked, Problem> {
    let series = match &filter.names {
        None => (0..SHOWN.len()).filter(|index| app.is_none() || SHOWN[*index].is_of_apps).collect(),
        Some(names) => places(names, app.is_some())?,
    };
    let when = |name: &'static str, text: &Option<String>| -> Result<Option<Timestamp>, Problem> {
        let Some(text) = text.as_deref() else { return Ok(None) };
        let rule = "must be a time such as 2026-11-27T12:00:00Z";
        Timestamp::parse(text).map(Some).ok_or_else(|| Problem::parameter(name, rule))
    };
    let until = when("until", &filter.until)?;
    let last = until.unwrap_or(now);
    let first = when("from", &filter.from)?.unwrap_or(Timestamp(last.0.saturating_sub(RANGE)));
    if first >= last {
        return Err(Problem::parameter("from", "must be before `until`, which is now if it is absent"));
    }
    let step = match filter.step.as_deref() {
        None => step_for(first, last, now),
        Some(text) => Step::ALL
            .into_iter()
            .find(|step| step.as_str() == text)
            .ok_or_else(|| Problem::parameter("step", "must be 10s, 1m or 1h"))?,
    };
    if filter.node.is_some() && (app.is_some() || step != Step::TenSeconds) {
        let rule = "one node's figures are kept in steps of 10s only, and not by app";
        return Err(Problem::parameter("node", rule));
    }
    let from = step.begin(first);
    // Rows of the present 10 s do not exist; the present minute and hour are summed up so far.
    let until = match step {
        Step::TenSeconds if until.is_none() => step.begin(last),
        _ => step.begin(Timestamp(last.0.saturating_add(step.ms() - 1))),
    };
    if (until.0 - from.0) / step.ms() > POINTS_MAX {
        let rule =
            format!("the range has more than {POINTS_MAX} steps; use a longer step or a shorter range");
        return Err(Problem::parameter("step", rule));
    }
    Ok(Asked { series, from, until, step, app, node: filter.node.clone() })
}

/// Where the named series are in [`SHOWN`].
fn places(names: &str, is_of_app: bool) -> Result<Vec<usize>, Problem> {
    let mut places = Vec::new();
    for name in names.split(',') {
        let place = SHOWN.iter().position(|shown| shown.name == name);
        let place = place.filter(|place| !is_of_app || SHOWN[*place].is_of_apps);
        let place = place.ok_or_else(|| {
            let known: Vec<&str> =
                SHOWN.iter().filter(|shown| !is_of_app || shown.is_of_apps).map(|shown| shown.name).collect();
            Problem::parameter("names", format!("must be a list of {}", known.join(",")))
        })?;
        if !places.contains(&place) {
            places.push(place);
        }
    }
    Ok(places)
}

/// The shortest step that has rows of the whole range.
fn step_for(from: Timestamp, until: Timestamp, now: Timestamp) -> Step {
    let fits = |step: &Step| {
        let retention = u64::try_from(step.retention().as_millis()).unwrap_or(u64::MAX);
        // The first and the last step may be partly in the range.
        (until.0 - from.0) / step.ms() + 2 <= POINTS_MAX && now.0.saturating_sub(retention) <= from.0
    };
    Step::ALL.into_iter().find(fits).unwrap_or(Step::Hour)
}

fn body(figures: &Figures, is_of_app: bool) -> SeriesBody<'_> {
    let Figures { from, step, covered_s, series, nodes, .. } = figures;
    let until = Timestamp(from.0 + covered_s.len() as u64 * step.ms());
    let one = |(shown, points): &(&'static Shown, Vec<Option<f64>>)| OneSeries {
        name: shown.name,
        unit: shown.unit,
        kind: shown.kind.as_str(),
        points: points.iter().map(|point| point.map(|value| number(value, shown.kind))).collect(),
    };
    let listed = nodes.iter().map(|(name, missing)| NodeBody { name, missing: spans(missing) });
    SeriesBody {
        from: from.to_string(),
        until: until.to_string(),
        step_s: step.seconds(),
        covered_s,
        series: series.iter().map(one).collect(),
        nodes: (!is_of_app).then(|| listed.collect()),
        nodes_count: nodes.len(),
        missing: spans(&together(nodes.iter().flat_map(|(_, missing)| missing.iter().copied()).collect())),
    }
}

/// Whole numbers without a fraction, gauges to a tenth, times to a microsecond.
fn number(value: f64, kind: Kind) -> Number {
    let digits = if kind == Kind::Time { 1e6 } else { 10.0 };
    let rounded = (value * digits).round() / digits;
    match rounded.fract() == 0.0 && rounded.abs() < 1e15 {
        true => Number::Whole(rounded as i64),
        false => Number::Fraction(rounded),
    }
}

fn spans(spans: &[Span]) -> Vec<SpanBody> {
    spans.iter().map(|span| SpanBody { from: span.from.to_string(), until: span.until.to_string() }).collect()
}

/// Spans that overlap or meet become one.
fn together(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|span| (span.from, span.until));
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut().filter(|last| last.until >= span.from) {
            Some(last) => last.until = last.until.max(span.until),
            None => joined.push(span),
        }
    }
    joined
}

/// `GET /v1/live`
pub(crate) async fn live(Shared(series): Shared<Arc<Series>>, person: Person) -> Answer {
    stream(&series, Scope::All, person)
}

/// `GET /v1/apps/{app}/live`
pub(crate) async fn live_of_app(Shared(series): Shared<Arc<Series>>, person: Person) -> Answer {
    let app = person.app_id()?;
    stream(&series, Scope::App(app), person)
}

fn stream(series: &Series, scope: Scope, person: Person) -> Answer {
    let viewer = series.live.view(person.caller.person.id, scope).map_err(|refused| match refused {
        Refused::Full => Problem::new(
            Code::Overloaded,
            format!("{VIEWERS_MAX} streams of live figures are open at this node, which is its limit"),
        ),
        Refused::FullForPerson => Problem::new(
            Code::LimitExceeded,
            format!("you have {VIEWERS_OF_PERSON_MAX} streams of live figures open at this node, the most of a person"),
        ),
        Refused::Closed => Problem::new(Code::Unavailable, "the node stops"),
    })?;
    let stream = Stream { viewer, scope, person, checked: Instant::now() };
    let events = stream::unfold(stream, async |mut stream| {
        let event = stream.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(event), stream))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, Body::from_stream(events)).into_response() as Response)
}

/// An open stream, and who sees it.
struct Stream {
    viewer: Viewer,
    scope: Scope,
    person: Person,
    checked: Instant,
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        let event = self.viewer.next().await?;
        if self.checked.elapsed() >= CHECK_EVERY {
            self.checked = Instant::now();
            let Person { desk, token, .. } = &self.person;
            // A session or a role that ended ends the stream, and so does a store that does not answer: the page tries again.
            let caller = desk.console.caller(token, Made::InBackground, desk.now()).await.ok()?;
            let app = match self.scope {
                Scope::All => None,
                Scope::App(app) => Some(app),
            };
            caller.require(app, Permission::Read).ok()?;
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_123_456);

    fn filter() -> Filter {
        Filter { names: None, from: None, until: None, step: None, node: None }
    }

    fn ago(ms: u64) -> Option<String> {
        Some(Timestamp(NOW.0 - ms).to_string())
    }

    #[test]
    fn the_step_fits_the_range() {
        let hour = 3_600_000;
        for (from, step, points) in [
            (hour, Step::TenSeconds, 360),
            (hour * 2, Step::TenSeconds, 720),
            (hour * 24, Step::Minute, 1_441),
            (hour * 24 * 7, Step::Hour, 169),
            (hour * 24 * 30, Step::Hour, 721),
        ] {
            let asked = asked(&Filter { from: ago(from), ..filter() }, None, NOW).expect("a range");
            assert_eq!((asked.step, (asked.until.0 - asked.from.0) / step.ms()), (step, points), "{from}");
        }
        // An hour of last week has no short steps any more.
        let old = Filter { from: ago(hour * 150), until: ago(hour * 149), ..filter() };
        assert_eq!(asked(&old, None, NOW).expect("a range").step, Step::Hour);
        // Questions within a step are equal, so one answer serves all.
        let later = asked(&filter(), None, Timestamp(NOW.0 + 6_000)).expect("a range");
        assert_eq!(asked(&filter(), None, NOW).expect("a range"), later);
    }

    #[test]
    fn wrong_questions_are_refused() {
        let text = |text: &str| Some(text.to_owned());
        let all = [
            (Filter { names: text("publishes,nothing"), ..filter() }, None),
            (Filter { names: text("cpu"), ..filter() }, Some(AppId(1))),
            (Filter { from: text("yesterday"), ..filter() }, None),
            (Filter { until: ago(0), from: ago(0), ..filter() }, None),
            (Filter { step: text("5s"), ..filter() }, None),
            (Filter { step: text("10s"), from: ago(86_400_000), ..filter() }, None),
            (Filter { step: text("1m"), node: text("a"), ..filter() }, None),
            (Filter { node: text("a"), ..filter() }, Some(AppId(1))),
        ];
        for (index, (filter, app)) in all.into_iter().enumerate() {
            assert!(asked(&filter, app, NOW).is_err(), "{index}");
        }
    }

    #[test]
    fn spans_are_joined() {
        let span = |from, until| Span { from: Timestamp(from), until: Timestamp(until) };
        let joined = together(vec![span(5, 7), span(0, 2), span(2, 3), span(6, 9)]);
        assert_eq!(joined, [span(0, 3), span(5, 9)]);
    }
}
