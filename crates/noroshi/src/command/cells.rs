//! `noroshi cells`: the cells behind a front, through the front's admin address: who lives where, how many newcomers
//! each gets, and moving users and devices from one to another.

use std::process::ExitCode;

use http::Method;
use serde_json::{Map, Value};

use crate::client::{ConnectAdmin, escape};
use crate::failure::Failure;
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
    /// Cells with their state, who lives there and what waits for them
    List,
    /// Change a cell's share of new users and devices
    Weight {
        cell: String,
        /// Relative to the others' weights; 0: no new ones; `config`: as configured
        weight: Weight,
    },
    /// Give a cell no new users and devices; those that live there stay until they are moved
    Drain {
        cell: String,
        /// Give it new ones again
        #[arg(long)]
        cancel: bool,
    },
    /// Move a user, a device or a share of all from a cell to another
    #[command(after_help = "\
A user moves with all devices. Their sessions are ended and their tokens revoked; they register again (POST \
/v1/devices) and are in the new cell. What waits in an inbox follows; messages of topics do not. A cell that is \
away is left when it is back: devices need not wait for it.")]
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
            text => text.parse().map(Some).map(Self).map_err(|_| "a whole number from 0, or `config`"),
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("who").required(true).args(["user", "device", "share"]))]
struct MoveArguments {
    /// Cell that they leave
    from: String,
    /// Cell that they go to
    to: String,
    /// The app of the user or device
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    #[arg(long, requires = "app")]
    user: Option<String>,
    #[arg(long, requires = "app")]
    device: Option<String>,
    /// Percent of those who live in the cell
    #[arg(long, value_name = "PERCENT", conflicts_with = "app")]
    share: Option<f64>,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let client = self.connect.client()?;
        let answer = match &self.action {
            Action::List => client.get("/v1/cells").await?,
            Action::Weight { cell, weight } => {
                client.json(Method::PATCH, &path(cell), Some(&one("weight", weight.0.into()))).await?
            }
            Action::Drain { cell, cancel } => {
                client.json(Method::PATCH, &path(cell), Some(&one("draining", (!cancel).into()))).await?
            }
            Action::Move(who) => {
                let path = format!("{}/moves", path(&who.from));
                client.json(Method::POST, &path, Some(&who.order())).await?
            }
        };
        match (&self.action, self.format.json) {
            (_, true) => output::line(&answer)?,
            (Action::List, false) => {
                let cells = answer["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
                let head =
                    ["cell", "state", "weight", "users", "devices", "leaving", "waiting", "oldest", "url"];
                output::table(&head, cells.iter().map(row).collect())?;
            }
            (Action::Move(who), false) => {
                let (users, devices) = (&answer["users"], &answer["devices"]);
                output::line(format!(
                    "{users} users and {devices} devices move from {} to {}",
                    who.from, who.to
                ))?;
            }
            (Action::Weight { .. } | Action::Drain { .. }, false) => {
                let (weight, draining) = (&answer["weight"], &answer["draining"]);
                output::line(format!(
                    "{}: weight {weight}, draining {draining}",
                    output::cell(answer.get("cell"))
                ))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl MoveArguments {
    fn order(&self) -> Value {
        let mut order = Map::from_iter([("to".to_owned(), self.to.clone().into())]);
        for (name, value) in [("app", &self.app), ("user", &self.user), ("device", &self.device)] {
            if let Some(value) = value {
                order.insert(name.to_owned(), value.clone().into());
            }
        }
        if let Some(share) = self.share {
            order.insert("share".to_owned(), share.into());
        }
        order.into()
    }
}

fn path(cell: &str) -> String {
    format!("/v1/cells/{}", escape(cell))
}

fn one(name: &str, value: Value) -> Value {
    Map::from_iter([(name.to_owned(), value)]).into()
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
