//! Spans of traces, created explicitly in the few places that are worth one: a request, what it publishes, the store's
//! write, and requests to push services. The exporter takes them from [`Ended`] (crate `otel`).
//!
//! Without an exporter [`Spans`] is empty, and beginning a span is one check of an option. Otherwise a span is recorded
//! if its parent was; one without a parent is sampled ([`Sampling`]). Ending a span never waits: a full queue drops and
//! counts it. Dropping a span ends it, on every path.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender, TrySendError};
use noroshi_types::TraceContext;
use noroshi_types::trace::{SpanId, TraceId, TraceState};
use prometheus_client::metrics::counter::Counter;
use ring::rand::{SecureRandom, SystemRandom};

/// The queue for the exporter: 8,192 spans of about 500 bytes are 4 MB.
pub const WAITING_MAX: usize = 8_192;

const MILLION: u64 = 1_000_000;

/// The kind of a span in OpenTelemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Handles a request of another program.
    Server,
    /// Sends a request to another program.
    Client,
    Internal,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(Cow<'static, str>),
    Count(i64),
    Flag(bool),
}

/// An ended span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub name: Cow<'static, str>,
    pub kind: Kind,
    pub trace: TraceId,
    pub id: SpanId,
    pub parent: Option<SpanId>,
    /// Whether the parent belongs to another program.
    pub parent_is_remote: bool,
    /// `tracestate` of other tracing systems.
    pub state: Option<TraceState>,
    /// Nanoseconds since 1970.
    pub started: u64,
    pub ended: u64,
    pub attributes: Vec<(&'static str, Value)>,
    /// The error, if it failed.
    pub failed: Option<Cow<'static, str>>,
}

/// The share of traces without a parent that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// A trace is recorded if the lower eight bytes of its id are below this: all nodes decide alike.
    below: u64,
    all: bool,
}

/// Creates spans; cheap to clone.
#[derive(Clone, Default)]
pub struct Spans(Option<Arc<Recorder>>);

/// The exporter's end of the queue, in the order in which spans ended.
pub struct Ended(pub Receiver<Span>);

struct Recorder {
    sampling: Sampling,
    random: SystemRandom,
    ended: Sender<Span>,
    dropped: Counter,
}

/// An open span. Ends when it is dropped.
pub struct Open {
    span: Option<Span>,
    since: Instant,
    recorder: Arc<Recorder>,
}

impl Sampling {
    /// A ratio in millionths; greater values mean all.
    pub fn per_million(count: u32) -> Self {
        Self { below: u64::from(count).saturating_mul(u64::MAX / MILLION), all: u64::from(count) >= MILLION }
    }

    fn takes(self, trace: TraceId) -> bool {
        let [.., a, b, c, d, e, f, g, h] = *trace.as_bytes();
        self.all || u64::from_be_bytes([a, b, c, d, e, f, g, h]) < self.below
    }
}

impl Spans {
    /// Records nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// `dropped` counts spans that found the queue full.
    pub fn new(sampling: Sampling, dropped: Counter) -> (Self, Ended) {
        let (ended, taken) = crossbeam_channel::bounded(WAITING_MAX);
        let random = SystemRandom::new();
        (Self(Some(Arc::new(Recorder { sampling, random, ended, dropped }))), Ended(taken))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A child of `parent`; without one the root of a new trace. None if it is not recorded.
    pub fn begin(
        &self,
        name: impl Into<Cow<'static, str>>,
        kind: Kind,
        parent: Option<&TraceContext>,
    ) -> Option<Open> {
        let recorder = self.0.as_ref()?;
        let trace = match parent {
            Some(parent) => parent.sampled.then_some(parent.trace)?,
            None => TraceId::from_bytes(recorder.draw()?).filter(|trace| recorder.sampling.takes(*trace))?,
        };
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started = u64::try_from(started.as_nanos()).unwrap_or(u64::MAX);
        let span = Span {
            name: name.into(),
            kind,
            trace,
            id: SpanId::from_bytes(recorder.draw()?)?,
            parent: parent.map(|parent| parent.parent),
            parent_is_remote: false,
            state: None,
            started,
            ended: started,
            attributes: Vec::with_capacity(8),
            failed: None,
        };
        Some(Open { span: Some(span), since: Instant::now(), recorder: recorder.clone() })
    }
}

impl Recorder {
    /// None without randomness from the system: then there is no span.
    fn draw<const N: usize>(&self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes).ok().map(|()| bytes)
    }
}

impl Open {
    /// The context for child spans, in this or another program.
    pub fn context(&self) -> Option<TraceContext> {
        let span = self.span.as_ref()?;
        Some(TraceContext { trace: span.trace, parent: span.id, sampled: true })
    }

    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.span {
            span.attributes.push((key, value.into()));
        }
    }

    /// Its parent belongs to another program, which sent this `tracestate`.
    pub fn parent_was_remote(&mut self, state: Option<TraceState>) {
        if let Some(span) = &mut self.span {
            (span.parent_is_remote, span.state) = (span.parent.is_some(), state);
        }
    }

    /// Whether another program began its trace.
    pub fn is_of_another(&self) -> bool {
        self.span.as_ref().is_some_and(|span| span.parent_is_remote)
    }

    /// Discards the span.
    pub fn forget(&mut self) {
        self.span = None;
    }

    pub fn fail(&mut self, why: impl Into<Cow<'static, str>>) {
        if let Some(span) = &mut self.span {
            span.failed = Some(why.into());
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(mut span) = self.span.take() else { return };
        let took = u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        span.ended = span.started.saturating_add(took);
        match self.recorder.ended.try_send(span) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.recorder.dropped.inc();
            }
        }
    }
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(sampled: bool) -> TraceContext {
        let text = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0{}", u8::from(sampled));
        TraceContext::parse(text.as_bytes()).expect("a context")
    }

    #[test]
    fn a_child_is_recorded_like_its_parent() {
        let (spans, ended) = Spans::new(Sampling::per_million(0), Counter::default());
        assert!(spans.begin("a", Kind::Server, Some(&parent(false))).is_none());
        assert!(spans.begin("a", Kind::Server, None).is_none());
        let mut open = spans.begin("a", Kind::Server, Some(&parent(true))).expect("recorded");
        open.set("n", 7_u64);
        let context = open.context().expect("a context");
        drop(spans.begin("b", Kind::Internal, Some(&context)));
        drop(open);
        let (child, span) = (ended.0.recv().expect("ended"), ended.0.recv().expect("ended"));
        assert_eq!((span.trace, span.parent), (parent(true).trace, Some(parent(true).parent)));
        assert_eq!((child.trace, child.parent), (span.trace, Some(span.id)));
        // The two clocks are not compared: one may be set, and a thread may pause between two readings.
        assert!(child.started <= child.ended && span.started <= span.ended);
        assert_eq!(span.attributes, [("n", Value::Count(7))]);
    }

    #[test]
    fn the_ratio_holds_and_all_nodes_decide_alike() {
        let (spans, ended) = Spans::new(Sampling::per_million(250_000), Counter::default());
        let recorded = (0..4_000).filter(|_| spans.begin("a", Kind::Server, None).is_some()).count();
        // 1,000 ± 27 (one standard deviation): eight of them.
        assert!((780..1_220).contains(&recorded), "{recorded}");
        assert!(ended.0.try_iter().all(|span| Sampling::per_million(250_000).takes(span.trace)));
        let (all, _ended) = Spans::new(Sampling::per_million(1_000_000), Counter::default());
        assert!((0..100).all(|_| all.begin("a", Kind::Server, None).is_some()));
        assert!(
            !Spans::off().is_on() && Spans::off().begin("a", Kind::Server, Some(&parent(true))).is_none()
        );
    }

    #[test]
    fn a_full_queue_drops_and_counts_spans() {
        let dropped = Counter::default();
        let (spans, ended) = Spans::new(Sampling::per_million(1_000_000), dropped.clone());
        for _ in 0..WAITING_MAX + 5 {
            drop(spans.begin("a", Kind::Internal, None));
        }
        assert_eq!(dropped.get(), 5);
        drop(ended);
        drop(spans.begin("a", Kind::Internal, None));
        assert_eq!(dropped.get(), 6, "there is no exporter any more");
    }
}
