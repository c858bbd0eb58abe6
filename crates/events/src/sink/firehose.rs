//! Amazon Kinesis Data Firehose: `PutRecordBatch`, with Amazon's own SDK.
//!
//! Lines share records, because Firehose counts and bills records; readers of its output see lines either way. An
//! answer may report failed records (`FailedPutCount`): only those are sent again. The accepted part of a batch is
//! remembered until all of it is accepted.

use std::collections::VecDeque;

use aws_sdk_firehose::Client;
use aws_sdk_firehose::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_firehose::operation::put_record_batch::PutRecordBatchOutput;
use aws_sdk_firehose::primitives::Blob;
use aws_sdk_firehose::types::Record;
use noroshi_egress::aws::{error_chain, is_temporary};

use super::record::{self, RECORD_BYTES_MAX, SharedRecord};
use super::{Failure, Network, wait};
use crate::batch::Batch;
use crate::config;

/// The SDK does not retry: this file handles failed records.
const ATTEMPTS: u32 = 1;

pub(crate) struct Firehose {
    config: config::Firehose,
    network: Network,
    /// Created on first use: reading credentials may take time.
    client: Option<Client>,
    /// Of the current batch: the records that are not accepted yet, and the number of rejected events.
    left: VecDeque<SharedRecord>,
    refused: u64,
}

/// How to handle a call that failed as a whole.
enum Wrong {
    Passing(String),
    /// A retry would fail too: the records are invalid.
    Final(String),
}

impl Firehose {
    pub(crate) fn new(config: config::Firehose, network: Network) -> Self {
        Self { config, network, client: None, left: VecDeque::new(), refused: 0 }
    }

    pub(crate) fn send(&mut self, batch: &Batch) -> Result<u64, Failure> {
        if self.left.is_empty() {
            self.left = record::records(batch, self.config.record_bytes);
            // Lines are far shorter; the call would fail as a whole.
            self.left.retain(|record| {
                let fits = record.bytes.len() <= RECORD_BYTES_MAX;
                self.refused += if fits { 0 } else { record.events };
                fits
            });
        }
        let network = self.network.clone();
        wait(&network, self.send_left())?;
        Ok(std::mem::take(&mut self.refused))
    }

    async fn send_left(&mut self) -> Result<(), Failure> {
        while !self.left.is_empty() {
            let client = match &self.client {
                Some(client) => client.clone(),
                None => {
                    let shared = noroshi_egress::aws::sdk::load(
                        &self.config.connection,
                        self.config.timeout,
                        ATTEMPTS,
                    )
                    .await;
                    self.client.insert(Client::new(&shared)).clone()
                }
            };
            let count = record::call(&self.left);
            match put(&client, &self.config.stream, self.left.iter().take(count)).await {
                Ok(answer) => self.sort(&answer, count)?,
                Err(Wrong::Passing(error)) => return Err(Failure(error)),
                Err(Wrong::Final(error)) => {
                    let events: u64 = self.left.drain(..count).map(|record| record.events).sum();
                    tracing::error!(events, %error, "Firehose rejected events");
                    self.refused += events;
                }
            }
        }
        Ok(())
    }

    /// Keeps the failed ones of the first `count` records, before all unsent ones.
    fn sort(&mut self, answer: &PutRecordBatchOutput, count: usize) -> Result<(), Failure> {
        let answers = answer.request_responses();
        if answer.failed_put_count() == 0 {
            self.left.drain(..count);
            return Ok(());
        }
        if answers.len() != count {
            return Err(Failure(format!("Firehose answered {} of {count} records", answers.len())));
        }
        let sent: Vec<SharedRecord> = self.left.drain(..count).collect();
        let failed: Vec<SharedRecord> = sent
            .into_iter()
            .zip(answers)
            .filter(|(_, answer)| answer.error_code().is_some())
            .map(|(record, _)| record)
            .collect();
        let code = answers.iter().find_map(|answer| answer.error_code()).unwrap_or("no reason").to_owned();
        let count = failed.len();
        failed.into_iter().rev().for_each(|record| self.left.push_front(record));
        match count {
            0 => Ok(()),
            count => Err(Failure(format!("Firehose rejected {count} records: {code}"))),
        }
    }
}

async fn put(
    client: &Client,
    stream: &str,
    records: impl Iterator<Item = &SharedRecord>,
) -> Result<PutRecordBatchOutput, Wrong> {
    let records: Result<Vec<Record>, _> =
        records.map(|record| Record::builder().data(Blob::new(record.bytes.as_ref())).build()).collect();
    let records = records.map_err(|error| Wrong::Final(error.to_string()))?;
    let request = client.put_record_batch().delivery_stream_name(stream).set_records(Some(records));
    request.send().await.map_err(failed)
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
