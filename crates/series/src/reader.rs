//! Answers questions about the time series, from the rows of all nodes.
//!
//! The end of a range is not summed up yet: it is summed up here, from finer rows. Equal questions within a step of 10 s get
//! the same answer without reading, so many open pages cost as much as one.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use noroshi_store::{Error, Store};
use noroshi_types::{AppId, Timestamp};

use crate::figure::Shown;
use crate::recorder::{Step, rows, sums};
use crate::row::{Row, shown};

/// The most points of a series.
pub const POINTS_MAX: u64 = 1_500;
/// Answers that are kept: 1,500 points of 28 series are 700 KB.
const KEPT_MAX: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Query {
    /// The series, by their place in [`crate::SHOWN`].
    pub series: Vec<usize>,
    /// A multiple of the step.
    pub from: Timestamp,
    /// A multiple of the step; at most [`POINTS_MAX`] steps later.
    pub until: Timestamp,
    pub step: Step,
    /// Only this app's figures.
    pub app: Option<AppId>,
    /// Only this node's figures. In steps of 10 s only.
    pub node: Option<String>,
}

/// One value for each step from `from`.
#[derive(Debug)]
pub struct Answer {
    pub from: Timestamp,
    pub step: Step,
    /// How many seconds of each step were measured. 0: a gap.
    pub covered_s: Vec<u64>,
    pub series: Vec<(&'static Shown, Vec<Option<f64>>)>,
    /// All nodes with rows in the range, each with the steps in which it has none, up to the newest row of all.
    pub nodes: Vec<(String, Vec<Span>)>,
    /// Its encoding, written by the first caller that sends it.
    pub text: OnceLock<Bytes>,
}

/// From the begin of a step to the end of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: Timestamp,
    pub until: Timestamp,
}

pub struct Reader {
    store: Arc<dyn Store>,
    /// Answers of one step of 10 s. Held while a question is answered, so that equal ones wait for its answer.
    kept: tokio::sync::Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    at: Option<Timestamp>,
    answers: Vec<(Query, Arc<Answer>)>,
}

impl Reader {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, kept: tokio::sync::Mutex::default() }
    }

    pub async fn read(&self, query: Query, now: Timestamp) -> Result<Arc<Answer>, Error> {
        // Rows are written shortly after the end of a step.
        let at = Step::TenSeconds.begin(Timestamp(now.0.saturating_sub(1_000)));
        let mut kept = self.kept.lock().await;
        if kept.at != Some(at) {
            *kept = Kept { at: Some(at), answers: Vec::new() };
        }
        if let Some((_, answer)) = kept.answers.iter().find(|(asked, _)| *asked == query) {
            return Ok(answer.clone());
        }
        let answer = Arc::new(self.answer(&query, now).await?);
        if kept.answers.len() == KEPT_MAX {
            kept.answers.remove(0);
        }
        kept.answers.push((query, answer.clone()));
        Ok(answer)
    }

    async fn answer(&self, query: &Query, now: Timestamp) -> Result<Answer, Error> {
        let Query { series, from, until, step, app, node } = query;
        let rows = points(&*self.store, (*step, now), *from, *until, node.as_deref()).await?;
        let count = usize::try_from((until.0 - from.0) / step.ms()).unwrap_or(0);
        let place = |at: Timestamp| usize::try_from((at.0 - from.0) / step.ms()).unwrap_or(usize::MAX);
        let mut covered_s = vec![0; count];
        let shown_series = series.iter().filter_map(|index| crate::SHOWN.get(*index));
        let mut series: Vec<(&'static Shown, Vec<Option<f64>>)> =
            shown_series.map(|shown| (shown, vec![None; count])).collect();
        for (at, row) in &rows {
            let values = match app {
                None => Some(row.values.clone()),
                Some(app) => row.of_app(app.0),
            };
            let place = place(*at);
            let Some(covered) = covered_s.get_mut(place) else { continue };
            *covered = row.steps() * u64::from(Step::TenSeconds.seconds());
            let Some(values) = values else { continue };
            for (series, points) in &mut series {
                points[place] = shown(&values, series.number, series.quantile);
            }
        }
        Ok(Answer {
            from: *from,
            step: *step,
            covered_s,
            series,
            nodes: nodes(*step, &rows),
            text: OnceLock::new(),
        })
    }
}

/// The sum of all nodes, or one node, in each step that has rows.
async fn points(
    store: &dyn Store,
    (step, now): (Step, Timestamp),
    from: Timestamp,
    until: Timestamp,
    node: Option<&str>,
) -> Result<Vec<(Timestamp, Row)>, Error> {
    let mut found = rows(store, step, from, until).await?;
    let Some(finer) = step.finer() else {
        found.retain(|(_, row)| node.is_none_or(|node| row.nodes.contains_key(node)));
        return Ok(sums(step, &found));
    };
    let summed = found.last().map_or(from, |(at, _)| Timestamp(at.0 + step.ms()));
    // While no node leads, more may be missing; the next leader sums it up.
    let recent = Timestamp(step.begin(until.min(now)).0.saturating_sub(5 * step.ms()));
    let rest = Box::pin(points(store, (finer, now), summed.max(recent), until, node)).await?;
    found.extend(sums(step, &rest));
    Ok(found)
}

fn nodes(step: Step, rows: &[(Timestamp, Row)]) -> Vec<(String, Vec<Span>)> {
    let mut nodes: BTreeMap<&str, (Timestamp, Vec<Span>)> = BTreeMap::new();
    for (at, row) in rows {
        let end = Timestamp(at.0 + step.ms());
        for name in row.nodes.keys() {
            let (seen, missing) = nodes.entry(name).or_insert((*at, Vec::new()));
            if *seen < *at {
                missing.push(Span { from: *seen, until: *at });
            }
            *seen = end;
        }
    }
    let end = rows.last().map(|(at, _)| Timestamp(at.0 + step.ms()));
    let closed = nodes.into_iter().map(|(name, (seen, mut missing))| {
        if let Some(end) = end.filter(|end| seen < *end) {
            missing.push(Span { from: seen, until: end });
        }
        (name.to_owned(), missing)
    });
    closed.collect()
}
