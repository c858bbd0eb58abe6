//! CPU and heap profiles, for `go tool pprof`, `noroshi profile` and Pyroscope's scraper. Paths and responses are those of Go's
//! `net/http/pprof`. Only for the operator, on the admin listener.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::header;
use noroshi_profiling::profiler::{HZ_DEFAULT, HZ_MAX, SECONDS_MAX, Taken};
use noroshi_profiling::tree::{CallTree, Frame};
use noroshi_profiling::{Ask, Detail, Error, Profiler};
use serde::{Deserialize, Serialize};

use crate::error::{Code, Problem};
use crate::inspection::Inspector;
use crate::request::access::Operator;
use crate::request::parameter::Query;
use crate::respond::{self, Answer};

/// The default of Go's `net/http/pprof`.
const SECONDS_DEFAULT: u64 = 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameters {
    seconds: Option<u64>,
    hz: Option<u32>,
    #[serde(default)]
    format: Format,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Format {
    #[default]
    Pprof,
    Tree,
}

/// A tree of calls, for a flame graph.
#[derive(Serialize)]
struct TreeBody {
    node: Option<String>,
    seconds: u64,
    hz: u32,
    unit: String,
    sum: i64,
    names: Vec<String>,
    frames: Vec<FrameBody>,
}

#[derive(Serialize)]
struct FrameBody {
    caller: Option<usize>,
    name: usize,
    total: i64,
    own: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// `GET /debug/pprof/profile`
pub(crate) async fn cpu(
    Shared(profiler): Shared<Profiler>,
    Shared(inspector): Shared<Option<Arc<Inspector>>>,
    _: Operator,
    Query(parameters): Query<Parameters>,
) -> Answer {
    let seconds = parameters.seconds.unwrap_or(SECONDS_DEFAULT);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        let rule = format!("must be 1 to {SECONDS_MAX} seconds");
        return Err(Problem::new(Code::InvalidParameter, rule).at("seconds"));
    }
    let hz = parameters.hz.unwrap_or(HZ_DEFAULT);
    if !(1..=HZ_MAX).contains(&hz) {
        let rule = format!("must be 1 to {HZ_MAX} samples per second of CPU time");
        return Err(Problem::new(Code::InvalidParameter, rule).at("hz"));
    }
    let ask = Ask { duration: Duration::from_secs(seconds), hz };
    match parameters.format {
        Format::Pprof => Ok(answer(profiler.cpu(ask).await?, "profile")),
        Format::Tree => {
            let CallTree { names, frames, sum, unit } = profiler.cpu_tree(ask).await?;
            let frames = frames.into_iter().map(|Frame { caller, name, total, own }| FrameBody {
                caller,
                name,
                total,
                own,
            });
            let node = inspector.map(|inspector| inspector.node().to_owned());
            respond::ok(&TreeBody { node, seconds, hz, unit, sum, names, frames: frames.collect() })
        }
    }
}

/// `GET /debug/pprof/heap`
pub(crate) async fn heap(
    Shared(profiler): Shared<Profiler>,
    _: Operator,
    Query(Nothing {}): Query<Nothing>,
) -> Answer {
    Ok(answer(profiler.heap(Detail::Lines).await?, "heap"))
}

/// The format itself is compressed, so there is no `Content-Encoding`.
fn answer(taken: Taken, name: &str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.pb.gz\"")),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (headers, taken.pprof).into_response()
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::NotBuilt { .. } => Self::new(Code::NotBuilt, error.to_string()),
            Error::Busy => Self::new(Code::WrongState, error.to_string()),
            Error::Failed(_) => Self::new(Code::Unavailable, error.to_string()),
        }
    }
}
