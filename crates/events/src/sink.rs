//! The interface of sinks. A sink accepts a whole batch or fails, and then gets the same batch again.
//!
//! Each sink has its own thread; sinks on the network wait there for the runtime.

mod archive;
mod file;
#[cfg(feature = "firehose")]
mod firehose;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "firehose")]
mod record;
mod stdout;
pub mod webhook;

use std::sync::Arc;

use noroshi_egress::Egress;
use noroshi_supervision::Threads;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::batch::Batch;
use crate::config;

/// Whether this build supports Firehose.
pub const FIREHOSE: bool = cfg!(feature = "firehose");

/// Whether this build supports Kafka.
pub const KAFKA: bool = cfg!(feature = "kafka");

/// Why a batch, or a part of it, was not accepted: worth a retry.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);

/// What sinks on the network need.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) runtime: Handle,
    pub(crate) egress: Arc<Egress>,
    /// The log is ending: attempts are cancelled, and their batches go to the next run.
    pub(crate) ending: CancellationToken,
}

pub(crate) enum Sink {
    File(file::File),
    Stdout(stdout::Stdout),
    Webhook(webhook::Webhook),
    #[cfg(feature = "firehose")]
    Firehose(Box<firehose::Firehose>),
    #[cfg(feature = "kafka")]
    Kafka(Box<kafka::Kafka>),
}

impl Sink {
    /// `node`: the name of this node, for sinks that use it.
    #[cfg_attr(not(feature = "kafka"), expect(unused_variables, reason = "only Kafka uses it"))]
    pub(crate) fn open(
        config: &config::Sink,
        node: &str,
        network: Option<&Network>,
        threads: &Threads,
    ) -> Result<Self, String> {
        let network = || network.cloned().ok_or("it needs a runtime and egress");
        match config {
            config::Sink::File(file) => match file::File::open(file, threads) {
                Ok(sink) => Ok(Sink::File(sink)),
                Err(error) => Err(format!("{}: {error}", file.folder.display())),
            },
            config::Sink::Stdout => Ok(Sink::Stdout(stdout::Stdout)),
            config::Sink::Webhook(webhook) => {
                Ok(Sink::Webhook(webhook::Webhook::new(webhook.clone(), network()?)))
            }
            #[cfg(feature = "firehose")]
            config::Sink::Firehose(firehose) => {
                Ok(Sink::Firehose(Box::new(firehose::Firehose::new(firehose.clone(), network()?))))
            }
            #[cfg(not(feature = "firehose"))]
            config::Sink::Firehose(_) => {
                Err("this build does not support Firehose (feature firehose)".to_owned())
            }
            #[cfg(feature = "kafka")]
            config::Sink::Kafka(kafka) => {
                Ok(Sink::Kafka(Box::new(kafka::Kafka::new(kafka.clone(), node, network()?))))
            }
            #[cfg(not(feature = "kafka"))]
            config::Sink::Kafka(_) => Err("this build does not support Kafka (feature kafka)".to_owned()),
        }
    }

    /// Sends a batch. Returns how many events the sink rejected permanently.
    pub(crate) fn send(&mut self, batch: &Batch) -> Result<u64, Failure> {
        match self {
            Sink::File(file) => file.write(batch).map(|()| 0),
            Sink::Stdout(stdout) => stdout.write(batch).map(|()| 0),
            Sink::Webhook(webhook) => webhook.send(batch),
            #[cfg(feature = "firehose")]
            Sink::Firehose(firehose) => firehose.send(batch),
            #[cfg(feature = "kafka")]
            Sink::Kafka(kafka) => kafka.send(batch),
        }
    }

    /// Nothing more will be sent.
    pub(crate) fn end(self) {
        if let Sink::File(file) = self {
            file.end();
        }
    }
}

/// Waits for an exchange, unless the log ends first.
fn wait<T>(network: &Network, exchange: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    network.runtime.block_on(async {
        match network.ending.run_until_cancelled(exchange).await {
            Some(result) => result,
            None => Err(Failure("the log is ending".to_owned())),
        }
    })
}
