//! The batch queue and the intake against a real SQS: ElasticMQ, which `e2e/sqs/run` starts and names in
//! `NOROSHI_SQS_ENDPOINT`. Without it every test says that it is skipped. Each test has queues of its own.

mod intake;
mod queue;
mod sqs;
#[path = "../../../cluster/tests/it/batches/suite.rs"]
mod suite;
