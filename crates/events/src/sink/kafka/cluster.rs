//! The leaders of a topic, and one call to one of them. `egress` opens the connections, so its guard, proxies and trust
//! apply; rskafka provides the protocol.
//!
//! Only the protocol of rskafka is used, not its client: that one treats an answer that reports a used-up quota as a
//! failure, and repeats what the brokers already have.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use noroshi_egress::{Egress, Stream, Tls};
use rskafka::client::{Credentials, SaslConfig};
use rskafka::messenger::Messenger;
use rskafka::protocol::error::Error as Code;
use rskafka::protocol::messages::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, ProduceRequest, ProduceRequestPartitionData,
    ProduceRequestTopicData, ProduceResponse,
};
use rskafka::protocol::primitives::{Boolean, Int16, Int32, NullableString, Records, String_};
use rskafka::protocol::record::{
    ControlBatchOrRecords, Record, RecordBatch, RecordBatchCompression, RecordBatchTimestampType,
};
use tokio::io::BufStream;
use tokio::time::timeout;

use crate::config::{self, Compression, Login, Mechanism};

/// The limit of an answer: the metadata of a topic with thousands of partitions.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The brokers' timeout for replicas is shorter than ours for the answer.
const ANSWER_SLACK: Duration = Duration::from_millis(500);
/// All in-sync replicas.
const ACKS_ALL: i16 = -1;

type Broker = Messenger<BufStream<Stream>>;

/// Why lines were not accepted.
pub(super) enum Rejection {
    /// Temporary: retry.
    Passing(String),
    /// Too large: retry with fewer lines.
    TooLarge(String),
    /// One of the lines is invalid.
    Invalid(String),
}

pub(super) struct Cluster {
    config: config::Kafka,
    egress: Arc<Egress>,
    addresses: HashMap<i32, (String, u16)>,
    /// Number and leader of each partition, in order; at least one.
    partitions: Vec<(i32, i32)>,
    /// Connections that were needed so far.
    brokers: HashMap<i32, Broker>,
}

impl Cluster {
    /// Queries the brokers one after the other for the topic's leaders. Cancel-safe.
    pub(super) async fn open(config: &config::Kafka, egress: Arc<Egress>) -> Result<Self, String> {
        let mut failures = Vec::new();
        for (host, port) in &config.brokers {
            let asked = async {
                let broker = connect(config, &egress, host, *port).await?;
                let request = MetadataRequest {
                    topics: Some(vec![MetadataRequestTopic { name: String_(config.topic.clone()) }]),
                    allow_auto_topic_creation: Some(Boolean(false)),
                };
                broker.request(request).await.map_err(|error| error.to_string())
            };
            match timeout(config.timeout, asked).await {
                Ok(Ok(metadata)) => return Self::of(config, egress, metadata),
                Ok(Err(error)) => failures.push(format!("{host}:{port}: {error}")),
                Err(_) => failures.push(format!("{host}:{port}: no answer in {:?}", config.timeout)),
            }
        }
        Err(format!("Kafka is unreachable: {}", failures.join("; ")))
    }

    fn of(config: &config::Kafka, egress: Arc<Egress>, metadata: MetadataResponse) -> Result<Self, String> {
        let name = &config.topic;
        let topic = metadata.topics.into_iter().find(|topic| topic.name.0 == *name);
        let topic = topic.ok_or_else(|| format!("Kafka did not report the topic {name}"))?;
        match topic.error {
            None => {}
            Some(Code::UnknownTopicOrPartition) => {
                return Err(format!("Kafka has no topic {name}: create it"));
            }
            Some(code) => return Err(format!("Kafka reports an error for the topic {name}: {code}")),
        }
        let mut partitions: Vec<(i32, i32)> =
            topic.partitions.iter().map(|it| (it.partition_index.0, it.leader_id.0)).collect();
        partitions.sort_unstable();
        if partitions.is_empty() {
            return Err(format!("Kafka's topic {name} has no partitions"));
        }
        let addresses = metadata.brokers.into_iter().filter_map(|broker| {
            Some((broker.node_id.0, (broker.host.0, u16::try_from(broker.port.0).ok()?)))
        });
        let (config, addresses) = (config.clone(), addresses.collect());
        Ok(Self { config, egress, addresses, partitions, brokers: HashMap::new() })
    }

    /// Sends lines to the partition `chosen`, modulo their number. Returns how long a quota is used up.
    pub(super) async fn produce(
        &mut self,
        chosen: usize,
        key: &Bytes,
        lines: impl Iterator<Item = &Bytes>,
    ) -> Result<Duration, Rejection> {
        let (number, leader) = self.partitions[chosen % self.partitions.len()];
        let limit = self.config.timeout;
        let records = RecordBatch { compression: compression(self.config.compression), ..batch(key, lines) };
        let request = ProduceRequest {
            transactional_id: NullableString(None),
            acks: Int16(ACKS_ALL),
            timeout_ms: Int32(i32::try_from(limit.as_millis()).unwrap_or(i32::MAX)),
            topic_data: vec![ProduceRequestTopicData {
                name: String_(self.config.topic.clone()),
                partition_data: vec![ProduceRequestPartitionData {
                    index: Int32(number),
                    records: Records(vec![records]),
                }],
            }],
        };
        let exchange = async {
            let broker = self.broker(leader).await?;
            broker.request(request).await.map_err(|error| format!("Kafka: {error}"))
        };
        match timeout(limit + ANSWER_SLACK, exchange).await {
            Ok(Ok(response)) => interpret(&self.config.topic, number, &response),
            Ok(Err(error)) => Err(Rejection::Passing(error)),
            Err(_) => Err(Rejection::Passing(format!("Kafka: no answer in {limit:?}"))),
        }
    }

    async fn broker(&mut self, id: i32) -> Result<&Broker, String> {
        if !self.brokers.contains_key(&id) {
            let address = self.addresses.get(&id);
            let (host, port) = address.ok_or_else(|| "Kafka: the partition has no leader".to_owned())?;
            let failed = |error| format!("Kafka at {host}:{port}: {error}");
            let broker = connect(&self.config, &self.egress, host, *port).await.map_err(failed)?;
            self.brokers.insert(id, broker);
        }
        Ok(&self.brokers[&id])
    }
}

async fn connect(config: &config::Kafka, egress: &Egress, host: &str, port: u16) -> Result<Broker, String> {
    let connected = egress.connect(config.tls, host, port, Tls::default()).await;
    let stream = connected.map_err(|error| error.to_string())?.stream;
    let mut broker = Messenger::new(BufStream::new(stream), ANSWER_BYTES_MAX, Arc::from("noroshi"));
    broker.sync_versions().await.map_err(|error| error.to_string())?;
    if let Some(login) = &config.login {
        let logged_in = broker.do_sasl(sasl(login)).await;
        logged_in.map_err(|error| format!("the log-in as {} failed: {error}", login.user))?;
    }
    Ok(broker)
}

fn sasl(login: &Login) -> SaslConfig {
    let credentials = Credentials::new(login.user.clone(), login.password.clone());
    match login.mechanism {
        Mechanism::Plain => SaslConfig::Plain(credentials),
        Mechanism::ScramSha256 => SaslConfig::ScramSha256(credentials),
        Mechanism::ScramSha512 => SaslConfig::ScramSha512(credentials),
    }
}

fn compression(of: Compression) -> RecordBatchCompression {
    match of {
        Compression::None => RecordBatchCompression::NoCompression,
        Compression::Gzip => RecordBatchCompression::Gzip,
        Compression::Snappy => RecordBatchCompression::Snappy,
    }
}

/// All records have the time of sending; the time of the event is in the line.
fn batch<'a>(key: &Bytes, lines: impl Iterator<Item = &'a Bytes>) -> RecordBatch {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    let records: Vec<Record> = (0..)
        .zip(lines)
        .map(|(offset_delta, line)| Record {
            timestamp_delta: 0,
            offset_delta,
            key: Some(key.to_vec()),
            value: Some(line.to_vec()),
            headers: Vec::new(),
        })
        .collect();
    RecordBatch {
        base_offset: 0,
        partition_leader_epoch: 0,
        last_offset_delta: records.last().map_or(0, |record| record.offset_delta),
        first_timestamp: now_ms,
        max_timestamp: now_ms,
        // Neither transactions nor an idempotent producer.
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records: ControlBatchOrRecords::Records(records),
        compression: RecordBatchCompression::NoCompression,
        is_transactional: false,
        timestamp_type: RecordBatchTimestampType::CreateTime,
    }
}

/// The result for the requested partition.
fn interpret(topic: &str, number: i32, response: &ProduceResponse) -> Result<Duration, Rejection> {
    let partitions = response.responses.iter().filter(|it| it.name.0 == topic);
    let mut answers = partitions.flat_map(|it| &it.partition_responses).filter(|it| it.index.0 == number);
    let Some(answer) = answers.next() else {
        return Err(Rejection::Passing(format!("Kafka did not answer for partition {number} of {topic}")));
    };
    let Some(code) = answer.error else {
        let quota_ms = response.throttle_time_ms.map_or(0, |it| it.0);
        return Ok(Duration::from_millis(u64::try_from(quota_ms).unwrap_or(0)));
    };
    let text = format!("Kafka, partition {number} of {topic}: {code}");
    Err(match code {
        Code::MessageTooLarge | Code::RecordListTooLarge => Rejection::TooLarge(text),
        Code::InvalidRecord => Rejection::Invalid(text),
        // Replicas, leaders, permissions, quotas, and this node's clock, which stamps records: all fixed elsewhere.
        _ => Rejection::Passing(text),
    })
}

#[cfg(test)]
mod tests {
    use rskafka::protocol::messages::{ProduceResponsePartitionResponse, ProduceResponseResponse};
    use rskafka::protocol::primitives::Int64;

    use super::*;

    #[test]
    fn an_answer_with_a_used_up_quota_is_a_success() {
        let answer = |error: Option<Code>, throttle_ms: i32| {
            let partition = ProduceResponsePartitionResponse {
                index: Int32(3),
                error,
                base_offset: Int64(0),
                log_append_time_ms: None,
                log_start_offset: None,
            };
            let topic = ProduceResponseResponse {
                name: String_("t".to_owned()),
                partition_responses: vec![partition],
            };
            ProduceResponse { responses: vec![topic], throttle_time_ms: Some(Int32(throttle_ms)) }
        };
        assert!(
            matches!(interpret("t", 3, &answer(None, 250)), Ok(quota) if quota == Duration::from_millis(250))
        );
        assert!(matches!(interpret("t", 3, &answer(None, -1)), Ok(Duration::ZERO)));
        assert!(matches!(interpret("t", 2, &answer(None, 0)), Err(Rejection::Passing(_))));
        let judged = |code| interpret("t", 3, &answer(Some(code), 0));
        assert!(matches!(judged(Code::MessageTooLarge), Err(Rejection::TooLarge(_))));
        assert!(matches!(judged(Code::InvalidRecord), Err(Rejection::Invalid(_))));
        for code in [Code::NotLeaderOrFollower, Code::NotEnoughReplicas, Code::TopicAuthorizationFailed] {
            assert!(matches!(judged(code), Err(Rejection::Passing(_))), "{code}");
        }
    }
}
