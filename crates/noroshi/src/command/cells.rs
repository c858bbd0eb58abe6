//! `noroshi cells`: manages the cells of a front, through the front's admin address: state, weights, and moves of users and devices
//! between cells.

use serde_json::{Value, json};

use crate::client::{ConnectAdmin, escape};
use crate::failure::Failure;
use crate::input::present;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connect: ConnectAdmin,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List cells with their state, users, devices and pending notifications
    List,
    /// Change a cell's share of new users and devices
    Weight {
        cell: String,
        /// Relative to the weights of other cells; 0: none; `config`: as configured
        weight: Weight,
    },
    /// Assign no new users and devices to a cell; existing ones stay until they are moved
    Drain {
        cell: String,
        /// Assign new ones again
        #[arg(long)]
        cancel: bool,
    },
    /// Move a user, a device or a share of all from one cell to another
    #[command(after_help = "\
A user moves with all devices. Their sessions end and their tokens are revoked; when they register again (POST \
/v1/devices), they are in the new cell. Pending messages of inboxes move too; messages of topics do not. Devices can \
leave an unreachable cell at once; it is cleaned up when it is back.")]
    Move(MoveArguments),
}

/// None: as configured.
#[derive(Debug, Clone)]
struct Weight(Option<u32>);

impl std::str::FromStr for Weight {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "config" => Ok(Self(None)),
            text => text
                .parse()
                .map(Some)
                .map(Self)
                .map_err(|_| "must be a whole number of at least 0, or `config`"),
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("who").required(true).args(["user", "device", "share"]))]
struct MoveArguments {
    /// Source cell
    from: String,
    /// Target cell
    to: String,
    /// The app of the user or device
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    #[arg(long, requires = "app")]
    user: Option<String>,
    #[arg(long, requires = "app")]
    device: Option<String>,
    /// Percentage of the cell's users and devices
    #[arg(long, value_name = "PERCENT", conflicts_with = "app")]
    share: Option<f64>,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        let answer = match &self.action {
            Action::List => client.get("/v1/cells").await?,
            Action::Weight { cell, weight } => {
                client.patch(&path(cell), &json!({"weight": weight.0})).await?
            }
            Action::Drain { cell, cancel } => {
                client.patch(&path(cell), &json!({"draining": !cancel})).await?
            }
            Action::Move(who) => client.post(&format!("{}/moves", path(&who.from)), &who.order()).await?,
        };
        match (&self.action, self.format.json) {
            (_, true) => output::line(&answer),
            (Action::List, false) => {
                let cells = output::entries(&answer, "cells");
                let head =
                    ["cell", "state", "weight", "users", "devices", "leaving", "waiting", "oldest", "url"];
                output::table(&head, cells.iter().map(row).collect())
            }
            (Action::Move(MoveArguments { from, to, .. }), false) => {
                let (users, devices) = (&answer["users"], &answer["devices"]);
                output::line(format_args!("{users} users and {devices} devices move from {from} to {to}"))
            }
            (Action::Weight { .. } | Action::Drain { .. }, false) => {
                let (weight, draining) = (&answer["weight"], &answer["draining"]);
                let cell = output::cell(answer.get("cell"));
                output::line(format_args!("{cell}: weight {weight}, draining {draining}"))
            }
        }
    }
}

impl MoveArguments {
    fn order(&self) -> Value {
        let mut order = present(&[("app", &self.app), ("user", &self.user), ("device", &self.device)]);
        order.insert("to".to_owned(), self.to.clone().into());
        if let Some(share) = self.share {
            order.insert("share".to_owned(), share.into());
        }
        order.into()
    }
}

fn path(cell: &str) -> String {
    format!("/v1/cells/{}", escape(cell))
}

fn row(one: &Value) -> Vec<String> {
    let cell = |name: &str| output::cell(one.get(name));
    let state = match (one["up"].as_bool(), one["draining"].as_bool()) {
        (Some(false), _) => "away",
        (_, Some(true)) => "draining",
        _ => "up",
    };
    let oldest = format!("{}s", one["oldest_waiting_seconds"]);
    vec![
        cell("cell"),
        state.to_owned(),
        cell("weight"),
        cell("users"),
        cell("devices"),
        cell("leaving"),
        cell("waiting"),
        oldest,
        cell("url"),
    ]
}
