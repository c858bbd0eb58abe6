//! `noroshi nodes`: lists the nodes of a cluster, through the admin address of any of them.

use serde_json::Value;

use crate::client::ConnectAdmin;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A killed node leaves the list when its lease lapses. LEASE is the remaining time of the lease, DELIVERIES/S the \
messages per second that it wrote to devices recently, CPU the cores that it uses.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    connect: ConnectAdmin,
    #[command(flatten)]
    format: output::Format,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let answer = self.connect.client()?.get("/v1/nodes").await?;
        if self.format.json {
            return output::line(&answer);
        }
        let head =
            ["name", "roles", "connections", "deliveries/s", "cpu", "lease", "drain", "version", "address"];
        output::table(&head, output::entries(&answer, "nodes").iter().map(row).collect())
    }
}

fn row(node: &Value) -> Vec<String> {
    let cell = |name: &str| output::cell(node.get(name));
    let name = match node["this"].as_bool() {
        Some(true) => format!("{} *", cell("name")),
        _ => cell("name"),
    };
    let lease = match node["lease_ms"].as_u64() {
        Some(ms) => format!("{:.1}s", ms as f64 / 1_000.0),
        None => "-".to_owned(),
    };
    vec![
        name,
        cell("roles"),
        cell("connections"),
        cell("deliveries_per_second"),
        cell("cpu"),
        lease,
        cell("drain"),
        cell("version"),
        cell("http"),
    ]
}
