//! Rules of the event log's keys, and the secrets of its sinks.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use noroshi_events::config::Sink;

use super::Events;
use super::reader::Reader;
use crate::small_file;

/// Longer than any form of the secret. A larger file is a different one.
const FILE_BYTES_MAX: u64 = 4 << 10;

const EXPECTED: &str = "must contain `whsec_` and 24 to 64 bytes in base64, as created by `echo whsec_$(openssl rand -base64 32)`";

impl Events {
    pub(super) fn complete(&mut self, reader: &mut Reader) {
        for sink in &mut self.log.sinks {
            match sink {
                Sink::Webhook(webhook) => match self.webhook_key_file.as_deref().map(read) {
                    Some(Ok(secret)) => webhook.secret = secret,
                    Some(Err(problem)) => return reader.problem("events.webhook.key_file", problem),
                    None => return reader.problem("events.webhook.key_file", EXPECTED),
                },
                Sink::Firehose(_) if !noroshi_events::sink::FIREHOSE => {
                    let text = "this build does not include Amazon Kinesis Data Firehose (feature `firehose`); `make dist` builds one that does";
                    reader.problem("events.firehose.stream", text);
                }
                Sink::Kafka(_) if !noroshi_events::sink::KAFKA => {
                    let text = "this build does not include Apache Kafka (feature `kafka`); `make dist` builds one that does";
                    reader.problem("events.kafka.topic", text);
                }
                Sink::Kafka(kafka) => {
                    let Some(login) = &mut kafka.login else { continue };
                    match self.kafka_password_file.as_deref().map(password) {
                        Some(Ok(password)) => login.password = password,
                        Some(Err(problem)) => return reader.problem("events.kafka.password_file", problem),
                        None => {
                            let text = "must name the file with the password of events.kafka.user";
                            return reader.problem("events.kafka.password_file", text);
                        }
                    }
                }
                _ => {}
            }
        }
        if let Err(problem) = self.log.check() {
            reader.problem("events.flush_interval", problem);
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let text = small_file::read(path, FILE_BYTES_MAX)?.ok_or(EXPECTED)?;
    let secret = text.trim().strip_prefix("whsec_").and_then(|text| BASE64_STANDARD.decode(text).ok());
    secret.filter(|secret| (24..=64).contains(&secret.len())).ok_or_else(|| EXPECTED.to_owned())
}

/// One line.
fn password(path: &Path) -> Result<String, String> {
    let text = small_file::read(path, FILE_BYTES_MAX)?.unwrap_or_default();
    let password = text.trim_end_matches(['\r', '\n']);
    match password.is_empty() || password.contains(char::is_control) {
        true => Err("must contain a password, on one line".to_owned()),
        false => Ok(password.to_owned()),
    }
}
