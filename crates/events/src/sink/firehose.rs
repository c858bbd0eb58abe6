//! Amazon Kinesis Data Firehose: `PutRecordBatch`, with Amazon's own SDK.
//!
//! Several calls are in flight. `sources` decides what they carry, so that lines of one thread stay in order whatever
//! fails. An answer may report failed records (`FailedPutCount`): only those are sent again, and only their sources
//! wait. A call that fails as a whole stops new calls; the worker retries later. The accepted part of a window is
//! remembered until all of it is accepted.
//!
//! All calls run on the sink's own thread: encoding and signing never delay the threads of the node.

use std::time::Instant;

use aws_sdk_firehose::Client;
use aws_sdk_firehose::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_firehose::operation::put_record_batch::PutRecordBatchOutput;
use aws_sdk_firehose::primitives::Blob;
use aws_sdk_firehose::types::Record as Sent;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use noroshi_egress::aws::{error_chain, is_temporary};
use noroshi_supervision::Heartbeat;

use super::sources::{Record, Sources};
use super::{Failure, Network, wait};
use crate::batch::Batch;
use crate::config;
use crate::health::Health;

/// The SDK does not retry: this file handles failed records.
const ATTEMPTS: u32 = 1;
/// Batches that are taken at once, per call in flight: four full records, so that the threads of a window rarely wait
/// for the slowest of them.
const WINDOW_BYTES: usize = 4 << 20;

pub(crate) struct Firehose {
    config: config::Firehose,
    network: Network,
    /// Created on first use: reading credentials may take time.
    client: Option<Client>,
    /// The lines of the current batches that are not accepted yet.
    left: Option<Sources>,
}

/// How to handle a call that failed as a whole.
enum Wrong {
    Passing(String),
    /// A retry would fail too: the records are invalid.
    Final(String),
}

type Answer = (Vec<Record>, Result<PutRecordBatchOutput, Wrong>);

impl Firehose {
    pub(crate) fn new(config: config::Firehose, network: Network) -> Self {
        Self { config, network, client: None, left: None }
    }

    pub(crate) fn window_bytes(&self) -> usize {
        self.config.calls * WINDOW_BYTES
    }

    pub(crate) fn send(
        &mut self,
        batches: &[Batch],
        health: &mut Health,
        pulse: &Heartbeat,
    ) -> Result<u64, Failure> {
        let sources = || Sources::new(batches, self.config.record_bytes, self.config.calls == 1);
        let mut left = self.left.take().unwrap_or_else(sources);
        let network = self.network.clone();
        let sent = wait(&network, self.send_left(&mut left, health, pulse));
        if let Err(failure) = sent {
            self.left = Some(left);
            return Err(failure);
        }
        if left.too_long > 0 {
            health.refused(&"a line is longer than a record of Firehose may be", left.too_long);
        }
        Ok(left.rejected + left.too_long)
    }

    async fn send_left(
        &mut self,
        left: &mut Sources,
        health: &mut Health,
        pulse: &Heartbeat,
    ) -> Result<(), Failure> {
        let (client, stream) = (self.client().await, &self.config.stream);
        let (mut calls, mut failure) = (FuturesUnordered::new(), None);
        loop {
            pulse.working();
            while failure.is_none() && calls.len() < self.config.calls {
                let call = left.call(Instant::now());
                if call.is_empty() {
                    break;
                }
                calls.push(put(&client, stream, call));
            }
            let ready_at = left.ready_at().filter(|_| failure.is_none() && calls.len() < self.config.calls);
            let retry = async {
                match ready_at {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            if calls.is_empty() && ready_at.is_none() {
                return failure.map_or(Ok(()), Err);
            }
            pulse.waiting();
            tokio::select! {
                Some((call, answer)) = calls.next() => {
                    if let Err(error) = settle(left, call, answer, health) {
                        failure.get_or_insert(error);
                    }
                }
                () = retry => {}
            }
        }
    }

    async fn client(&mut self) -> Client {
        if let Some(client) = &self.client {
            return client.clone();
        }
        let (connection, timeout) = (&self.config.connection, self.config.timeout);
        let shared = noroshi_egress::aws::sdk::load(connection, timeout, ATTEMPTS).await;
        self.client.insert(Client::new(&shared)).clone()
    }
}

/// Sorts the records of a call. An error: the call failed as a whole.
fn settle(
    left: &mut Sources,
    call: Vec<Record>,
    answer: Result<PutRecordBatchOutput, Wrong>,
    health: &mut Health,
) -> Result<(), Failure> {
    let now = Instant::now();
    let answer = match answer {
        Ok(answer) => answer,
        Err(Wrong::Passing(error)) => {
            left.unanswered(call);
            return Err(Failure(error));
        }
        Err(Wrong::Final(error)) => {
            let events = call.iter().map(Record::events).sum();
            left.answered(&call, Vec::new(), now);
            health.refused(&error, events);
            left.rejected += events;
            return Ok(());
        }
    };
    let answers = answer.request_responses();
    if answer.failed_put_count() == 0 {
        left.answered(&call, Vec::new(), now);
        health.succeeded();
        return Ok(());
    }
    if answers.len() != call.len() {
        let error = format!("Firehose answered {} of {} records", answers.len(), call.len());
        left.unanswered(call);
        return Err(Failure(error));
    }
    let count = call.len();
    let code = answers.iter().find_map(|answer| answer.error_code()).unwrap_or("no reason");
    let (failed, accepted): (Vec<_>, Vec<_>) =
        call.into_iter().zip(answers).partition(|(_, answer)| answer.error_code().is_some());
    let records = |of: Vec<(Record, _)>| of.into_iter().map(|(record, _)| record).collect::<Vec<_>>();
    let (failed, accepted) = (records(failed), records(accepted));
    let events = failed.iter().map(Record::events).sum();
    if !accepted.is_empty() {
        health.succeeded();
    }
    health.failed(&format_args!("Firehose rejected {} of {count} records: {code}", failed.len()), events);
    left.answered(&accepted, failed, now);
    Ok(())
}

async fn put(client: &Client, stream: &str, call: Vec<Record>) -> Answer {
    let records = call.iter().map(|record| Sent::builder().data(Blob::new(record.bytes())).build());
    let answer = match records.collect::<Result<Vec<_>, _>>() {
        Ok(records) => {
            let request = client.put_record_batch().delivery_stream_name(stream).set_records(Some(records));
            request.send().await.map_err(failed)
        }
        Err(error) => Err(Wrong::Final(error.to_string())),
    };
    (call, answer)
}

fn failed<E>(error: SdkError<E>) -> Wrong
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    let SdkError::ServiceError(service) = &error else { return Wrong::Passing(error_chain(&error)) };
    let code = error.code().unwrap_or("error");
    let text = format!("Firehose: {code}: {}", error.message().unwrap_or("no reason"));
    // An operator has to fix credentials, permissions and a missing stream: no event is lost meanwhile.
    let argument = matches!(code, "InvalidArgumentException" | "ValidationException");
    match argument && service.raw().status().as_u16() == 400 && !is_temporary(code) {
        true => Wrong::Final(text),
        false => Wrong::Passing(text),
    }
}
