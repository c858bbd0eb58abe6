//! The client that both parts share: timeouts, few retries, and the meaning of errors.

use std::borrow::Cow;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::receive_message::ReceiveMessageOutput;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
    MessageSystemAttributeName,
};
use noroshi_cluster::Error;
use noroshi_egress::aws::{error_chain, is_temporary};

use crate::call::{ENTRIES_MAX, calls};
use crate::config::Connection;

/// The longest wait of a call for messages that SQS allows.
pub(crate) const POLL: Duration = Duration::from_secs(20);

/// The timeout of an answer, added to its wait.
const ANSWER: Duration = Duration::from_secs(10);

/// Attempts per call by the SDK.
const ATTEMPTS: u32 = 3;

pub(crate) async fn open(connection: &Connection) -> Client {
    Client::new(&noroshi_egress::aws::sdk::load(connection, POLL + ANSWER, ATTEMPTS).await)
}

/// Converts an error into what the caller does next.
pub(crate) fn failed<E>(error: SdkError<E>) -> Error
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
{
    match &error {
        SdkError::ServiceError(service) => {
            let text =
                format!("{}: {}", error.code().unwrap_or("error"), error.message().unwrap_or("no reason"));
            let status = service.raw().status().as_u16();
            match status >= 500 || status == 429 || error.code().is_some_and(is_temporary) {
                true => Error::Unavailable(Cow::Owned(text)),
                false => Error::Refused(text),
            }
        }
        // Mostly missing credentials, which may appear later.
        _ => Error::Unavailable(Cow::Owned(error_chain(&error))),
    }
}

/// Converts the error of one entry of a call: one that failed for the service's own reasons may be repeated.
pub(crate) fn entry_failed(entry: &BatchResultErrorEntry) -> Error {
    let text = format!("{}: {}", entry.code(), entry.message().unwrap_or("no reason"));
    match entry.sender_fault() {
        true => Error::Refused(text),
        false => Error::Unavailable(Cow::Owned(text)),
    }
}

/// Receives at most ten messages; waits at most `wait` for the first.
pub(crate) async fn receive(
    client: &Client,
    url: &str,
    max: usize,
    wait: Duration,
    visibility: Duration,
) -> Result<ReceiveMessageOutput, Error> {
    client
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(i32::try_from(max.clamp(1, ENTRIES_MAX)).unwrap_or(1))
        .wait_time_seconds(seconds(wait))
        .visibility_timeout(seconds(visibility))
        .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
        .message_attribute_names("All")
        .send()
        .await
        .map_err(failed)
}

/// Deletes messages; entries that failed for the service's own reasons are repeated once. An invalid receipt means that
/// another consumer received the message, or that it is deleted.
pub(crate) async fn delete(client: &Client, url: &str, receipts: Vec<String>) -> Result<(), Error> {
    let mut worst = Ok(());
    for call in calls(receipts, String::len) {
        let mut left = call;
        for attempt in 0..2 {
            let entries = left.iter().enumerate().map(|(index, receipt)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(index.to_string())
                    .receipt_handle(receipt)
                    .build()
            });
            let entries: Result<Vec<_>, _> = entries.collect();
            let request = client.delete_message_batch().queue_url(url);
            let request = request.set_entries(Some(entries.map_err(built)?));
            let answer = request.send().await.map_err(failed)?;
            let again = repeatable(answer.failed(), &left);
            if again.is_empty() {
                break;
            }
            if attempt > 0 {
                worst = Err(Error::Unavailable("failed to delete some messages".into()));
            }
            left = again;
        }
    }
    worst
}

/// Extends the visibility timeout of messages to `time` from now.
pub(crate) async fn extend(
    client: &Client,
    url: &str,
    receipts: Vec<String>,
    time: Duration,
) -> Result<(), Error> {
    for call in calls(receipts, String::len) {
        let entries = call.iter().enumerate().map(|(index, receipt)| {
            ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(index.to_string())
                .receipt_handle(receipt)
                .visibility_timeout(seconds(time))
                .build()
        });
        let entries: Result<Vec<_>, _> = entries.collect();
        let request = client.change_message_visibility_batch().queue_url(url);
        let answer = request.set_entries(Some(entries.map_err(built)?)).send().await.map_err(failed)?;
        // A message that is not in flight belongs to another consumer, or is deleted.
        if !repeatable(answer.failed(), &call).is_empty() {
            return Err(Error::Unavailable("failed to extend some messages".into()));
        }
    }
    Ok(())
}

fn repeatable(failed: &[BatchResultErrorEntry], call: &[String]) -> Vec<String> {
    let ours = failed.iter().filter(|entry| !entry.sender_fault());
    ours.filter_map(|entry| call.get(entry.id().parse::<usize>().ok()?).cloned()).collect()
}

/// An error of the SDK's request builder: a missing field, which cannot happen.
pub(crate) fn built(error: aws_sdk_sqs::error::BuildError) -> Error {
    Error::Refused(error.to_string())
}

/// SQS counts whole seconds; fractions are rounded up.
pub(crate) fn seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(seconds).unwrap_or(i32::MAX)
}
