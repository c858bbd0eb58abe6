//! `noroshi push invalidations`: tokens that push services reported invalid, listed or followed. For backends
//! with a token store of their own.

use std::time::Duration;

use serde_json::Value;

use crate::client::{Client, Connect, PageArguments, escape, pages};
use crate::failure::Failure;
use crate::output;

const PATH: &str = "/v1/push/invalidations";
const COLUMNS: [&str; 6] = ["at", "device", "service", "environment", "reason", "removed"];
/// Poll interval of `--follow`.
const POLL: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Keep running and print new invalidations, one per line
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    page: PageArguments,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

impl Arguments {
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        if self.follow {
            let after = self.page.after.clone().unwrap_or_default();
            return follow(&client, after, self.format).await;
        }
        let listed = pages(&client, PATH, "invalidations", None, self.page).await?;
        listed.print("invalidations", &COLUMNS, self.format)
    }
}

/// Until standard output closes. Retries while the server is unreachable or busy.
async fn follow(client: &Client, mut after: String, format: output::Format) -> Result<(), Failure> {
    loop {
        let answer = match client.get(&format!("{PATH}?limit=1000&after={}", escape(&after))).await {
            Ok(answer) => answer,
            Err(failure @ (Failure::Unreachable { .. } | Failure::Answered { status: 500.., .. })) => {
                eprintln!("{failure}");
                tokio::time::sleep(POLL).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let found = output::entries(&answer, "invalidations");
        for one in found {
            format.print(one, || sentence(one))?;
        }
        match found.last() {
            Some(last) => after = output::cell(last.get("seq")),
            None => tokio::time::sleep(POLL).await,
        }
    }
}

/// `2026-01-02T03:04:05.678Z  d1  apns production  Unregistered  removed`
fn sentence(one: &Value) -> String {
    let field = |name: &str| output::cell(one.get(name));
    let fate = if one["removed"] == true { "removed" } else { "suspended" };
    let (at, device, reason) = (field("at"), field("device"), field("reason"));
    format!("{at}  {device}  {} {}  {reason}  {fate}", field("service"), field("environment"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_invalidation_is_printed_as_one_line() {
        let one = json!({"seq": 1, "at": "2026-01-02T03:04:05.678Z", "device": "d\n1", "service": "apns",
            "environment": "sandbox", "reason": "BadDeviceToken", "removed": false});
        assert_eq!(
            sentence(&one),
            "2026-01-02T03:04:05.678Z  d\u{fffd}1  apns sandbox  BadDeviceToken  suspended"
        );
    }
}
