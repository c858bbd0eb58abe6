//! Tests against a real node, whose binary `NOROSHI_BIN` names: `it [PART OF A NAME]`.

mod client;
mod readme;
mod server;

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_sdk_tests::Problem;
use noroshi_sdk_tests::node::{KEY, Node};
use noroshi_sdk_tests::recorder::Device;
use noroshi_server_sdk::Client as Backend;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Tests at a time. They wait most of the time.
const PARALLEL: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(120);

type Outcome = Result<(), Problem>;
type Test = fn(Context) -> Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What the tests share.
#[derive(Clone)]
struct Context {
    /// Of a node that no test ends.
    url: Arc<str>,
    port: u16,
    backend: Backend,
}

impl Context {
    /// A device of the shared node.
    async fn device(&self, name: &str) -> Result<Device, Problem> {
        let device = Device::new(&self.url, name, |builder| builder)?;
        device.connect().await?;
        Ok(device)
    }
}

/// Names of tests and their functions.
macro_rules! tests {
    ($($module:ident: $($name:ident),+;)+) => {
        [$($((concat!(stringify!($module), "::", stringify!($name)), (|context| Box::pin($module::$name(context))) as Test)),+),+]
    };
}

#[tokio::main]
async fn main() -> ExitCode {
    let tests = tests! {
        client:
            messages_arrive_and_are_acknowledged,
            after_a_kill_nothing_is_lost_or_shown_twice,
            a_drain_moves_the_client,
            a_newer_connection_replaces_the_client,
            a_revoked_device_continues_with_another_token,
            a_token_is_renewed_on_the_open_connection,
            a_token_that_expires_is_replaced,
            a_stalled_network_is_noticed,
            server_sent_events,
            close_sends_acknowledgements,
            a_message_that_failed_arrives_again,
            a_delivery_that_is_dropped_arrives_again,
            items_preferences_and_variants,
            reports_survive_the_process,
            a_burst_does_not_disconnect,
            a_client_without_messages_acknowledges_nothing,
            dropped_handles_end_everything;
        readme: the_programs_of_the_readme;
        server:
            publishes,
            publishes_batches,
            manages_devices_and_preferences,
            runs_campaigns,
            manages_the_app,
            jwts_are_accepted;
    };
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let tests: Vec<(&str, Test)> = tests.into_iter().filter(|(name, _)| name.contains(&wanted)).collect();
    match run(tests).await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Returns how many tests failed.
async fn run(tests: Vec<(&'static str, Test)>) -> Result<usize, Problem> {
    let node = Node::start().await?;
    let context =
        Context { url: node.url().into(), port: node.port(), backend: Backend::new(node.url(), KEY)? };
    let permits = Arc::new(Semaphore::new(PARALLEL));
    let mut running = JoinSet::new();
    for (name, test) in tests {
        let (context, permits) = (context.clone(), Arc::clone(&permits));
        running.spawn(async move {
            let _permit = permits.acquire().await;
            let began = Instant::now();
            // A task of its own, whose panic fails this test only.
            let outcome = match tokio::time::timeout(TIMEOUT, tokio::spawn(test(context))).await {
                Ok(Ok(outcome)) => outcome.map_err(|problem| problem.to_string()),
                Ok(Err(panic)) => Err(panic.to_string()),
                Err(_) => Err(format!("took more than {TIMEOUT:?}")),
            };
            (name, outcome, began.elapsed())
        });
    }
    let (mut passed, mut failed) = (0, 0);
    while let Some(done) = running.join_next().await {
        let (name, outcome, took) = done?;
        match outcome {
            Ok(()) => {
                passed += 1;
                println!("{name} ok, {:.1} s", took.as_secs_f64());
            }
            Err(problem) => {
                failed += 1;
                println!("{name} FAILED: {problem}");
            }
        }
    }
    println!("test result: {passed} passed; {failed} failed");
    Ok(failed)
}

fn numbers(prefix: &str, range: Range<usize>) -> Vec<String> {
    range.map(|n| format!("{prefix}{n}")).collect()
}

/// A condition of a test.
fn ensure(is_true: bool, what: impl FnOnce() -> String) -> Outcome {
    if is_true { Ok(()) } else { Err(what().into()) }
}
