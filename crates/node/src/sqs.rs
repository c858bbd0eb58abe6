//! Amazon SQS, if the build includes it: the queue of push batches, and the intake of notifications from a queue, which are
//! parsed and published like those of `POST /v1/notifications`.
//!
//! Without the feature `sqs`, the configuration rejects its keys.

#[cfg(feature = "sqs")]
mod intake;

use std::sync::Arc;

use noroshi_api::State;
use noroshi_delivery::Delivery;
use noroshi_telemetry::Registry;

use crate::config::Config;
use crate::tasks::Tasks;

/// The intake, which starts with the other tasks.
pub(crate) struct Parts {
    #[cfg(feature = "sqs")]
    intake: Option<(noroshi_sqs::IntakeConfig, noroshi_sqs::metrics::Metrics)>,
}

#[cfg(feature = "sqs")]
impl Parts {
    pub(crate) async fn open(
        config: &Config,
        delivery: &Arc<Delivery>,
        registry: &mut Registry,
    ) -> Result<Self, noroshi_cluster::Error> {
        if config.push.queue == crate::config::Queue::Sqs {
            let queue = noroshi_sqs::Queue::open(&config.sqs.queue).await?;
            delivery.push.attach_batches(Arc::new(queue));
        }
        let metrics = |config| (config, noroshi_sqs::metrics::Metrics::new(registry));
        Ok(Self { intake: config.sqs.intake.clone().map(metrics) })
    }

    pub(crate) fn spawn(self, tasks: &mut Tasks, state: &Arc<State>) {
        let Some((config, metrics)) = self.intake else { return };
        let accept = intake::accept(state.clone());
        tasks.spawn(crate::tasks::TaskKind::Intake, |end| async move {
            let run = noroshi_sqs::intake::run(config, metrics, accept, end.cancelled_owned());
            if let Err(error) = run.await {
                tracing::error!(%error, "the intake of notifications from the queue stopped");
            }
        });
    }
}

#[cfg(not(feature = "sqs"))]
impl Parts {
    pub(crate) async fn open(
        _: &Config,
        _: &Arc<Delivery>,
        _: &mut Registry,
    ) -> Result<Self, noroshi_cluster::Error> {
        Ok(Self {})
    }

    pub(crate) fn spawn(self, _: &mut Tasks, _: &Arc<State>) {}
}
