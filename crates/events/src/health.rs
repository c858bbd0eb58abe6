//! Counts and logs the failures of one sink: a line when it begins to fail, one when it is well again, and a reminder
//! every ten minutes in between. A sink that rejects parts of calls is failing until it has been calm for a minute.

use std::time::Instant;

use noroshi_egress::Failing;
use noroshi_egress::failing::Report;
use prometheus_client::metrics::counter::Counter;

pub(crate) struct Health {
    sink: &'static str,
    attempts: Counter,
    failing: Failing,
    /// Events that an accepted call did not accept, since the sink began to fail.
    delayed: u64,
    refusing: Failing,
    /// Events that are lost, since the sink began to reject some.
    refused: u64,
    /// Whether the sink accepted events since the last question.
    progressed: bool,
}

impl Health {
    pub(crate) fn new(sink: &'static str, attempts: Counter) -> Self {
        let (failing, refusing) = (Failing::default(), Failing::default());
        Self { sink, attempts, failing, delayed: 0, refusing, refused: 0, progressed: false }
    }

    /// An attempt failed, or a part of it with `delayed` events. They will be sent again.
    pub(crate) fn failed(&mut self, why: &dyn std::fmt::Display, delayed: u64) {
        self.attempts.inc();
        let report = self.failing.failed(Instant::now());
        if report == Some(Report::Began) {
            self.delayed = 0;
        }
        self.delayed += delayed;
        let sink = self.sink;
        match report {
            Some(Report::Began) => tracing::warn!(sink, error = %why, "the sink failed; retrying"),
            Some(Report::Lasts(summary)) => {
                let (failures, delayed) = (summary.failures, self.delayed);
                tracing::warn!(sink, error = %why, failures, delayed_events = delayed, lasted = ?summary.lasted, "the sink still fails");
            }
            Some(Report::Over(_)) | None => {
                tracing::debug!(sink, error = %why, "an attempt of the sink failed")
            }
        }
    }

    /// The sink rejects events permanently: they are lost.
    pub(crate) fn refused(&mut self, why: &dyn std::fmt::Display, events: u64) {
        let report = self.refusing.failed(Instant::now());
        if report == Some(Report::Began) {
            self.refused = 0;
        }
        self.refused += events;
        let (sink, refused) = (self.sink, self.refused);
        match report {
            Some(Report::Began) => {
                tracing::error!(sink, error = %why, events, "the sink rejects events permanently; they are lost");
            }
            Some(Report::Lasts(summary)) => {
                tracing::error!(sink, error = %why, events = refused, lasted = ?summary.lasted, "the sink still rejects events permanently");
            }
            Some(Report::Over(_)) | None => {
                tracing::debug!(sink, error = %why, events, "the sink rejected events")
            }
        }
    }

    /// The sink accepted events.
    pub(crate) fn succeeded(&mut self) {
        self.progressed = true;
        let now = Instant::now();
        let reports = (self.failing.succeeded(now), self.refusing.succeeded(now));
        self.report_end(reports);
    }

    /// Whether the sink accepted events since the last call, although it may have failed since.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    /// Call it at [`Health::over_at`].
    pub(crate) fn check(&mut self) {
        let now = Instant::now();
        let reports = (self.failing.check(now), self.refusing.check(now));
        self.report_end(reports);
    }

    pub(crate) fn over_at(&self) -> Option<Instant> {
        [self.failing.over_at(), self.refusing.over_at()].into_iter().flatten().min()
    }

    fn report_end(&self, (failing, refusing): (Option<Report>, Option<Report>)) {
        let sink = self.sink;
        if let Some(Report::Over(summary)) = failing {
            let (failures, delayed) = (summary.failures, self.delayed);
            tracing::info!(sink, failures, delayed_events = delayed, lasted = ?summary.lasted, "the sink accepts events again");
        }
        if let Some(Report::Over(summary)) = refusing {
            tracing::info!(sink, lost_events = self.refused, lasted = ?summary.lasted, "the sink rejects no more events");
        }
    }
}
