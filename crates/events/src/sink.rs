//! The interface of sinks. A sink accepts all given batches or fails, and then gets the same ones again.
//!
//! Each sink has its own thread; sinks on the network wait there for the runtime.

mod archive;
mod file;
#[cfg(feature = "firehose")]
mod firehose;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "firehose")]
mod sources;
mod stdout;
pub mod webhook;

use std::sync::Arc;

use noroshi_egress::Egress;
use noroshi_supervision::{Heartbeat, Threads};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::batch::Batch;
use crate::config;
use crate::health::Health;

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

    /// How many bytes of batches it takes at once. 0: one batch.
    pub(crate) fn window_bytes(&self) -> usize {
        match self {
            #[cfg(feature = "firehose")]
            Sink::Firehose(firehose) => firehose.window_bytes(),
            _ => 0,
        }
    }

    /// Sends the oldest batches: one, unless it takes several at once. Returns how many events the sink rejected
    /// permanently. `pulse`: long work reports its steps.
    #[cfg_attr(
        not(any(feature = "firehose", feature = "kafka")),
        expect(unused_variables, reason = "see above")
    )]
    pub(crate) fn send(
        &mut self,
        batches: &[Batch],
        health: &mut Health,
        pulse: &Heartbeat,
    ) -> Result<u64, Failure> {
        #[cfg(feature = "firehose")]
        if let Sink::Firehose(firehose) = self {
            return firehose.send(batches, health, pulse);
        }
        batches.iter().try_fold(0, |refused, batch| {
            let more = match self {
                Sink::File(file) => file.write(batch).map(|()| 0),
                Sink::Stdout(stdout) => stdout.write(batch).map(|()| 0),
                Sink::Webhook(webhook) => webhook.send(batch, health),
                #[cfg(feature = "kafka")]
                Sink::Kafka(kafka) => kafka.send(batch, health, pulse),
                #[cfg(feature = "firehose")]
                Sink::Firehose(_) => Ok(0),
            };
            Ok(refused + more?)
        })
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
