//! A cell on this machine: gateway and API nodes of our own executable, with PostgreSQL and Redis, which are
//! given by URL or started from installed programs. Nodes are dropped, and so stopped, before the engines.

pub(crate) mod engines;

use std::path::PathBuf;

use crate::Error;
use crate::args::CellArgs;
use crate::cell::engines::Priority;
use crate::http::Origin;
use crate::process::{Cpu, Process};
use crate::program::{Owned, Signals};
use crate::redis::Redis;
use crate::server::{SMALL_PAGES, free_port, random_hex, serve, wait_until_ready};

pub(crate) struct Cell {
    pub(crate) gateways: Vec<CellNode>,
    pub(crate) apis: Vec<CellNode>,
    /// `None` if its commands cannot be counted.
    pub(crate) redis: Option<Redis>,
    pub(crate) key: String,
    pub(crate) jwt_secret: String,
    postgres: Option<Owned>,
    redis_started: Option<Owned>,
    described: String,
}

pub(crate) struct CellNode {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) admin: Origin,
    pub(crate) started: Owned,
}

/// Dropping a node waits for its end: this asks all of them first.
impl Drop for Cell {
    fn drop(&mut self) {
        self.gateways.iter().chain(&self.apis).for_each(|node| node.started.ask_to_stop());
    }
}

impl CellNode {
    /// Waits until it is ready, for example after a restart.
    pub(crate) fn wait_until_ready(&self) -> Result<(), Error> {
        wait_until_ready(&self.started, &self.admin)
    }

    pub(crate) fn process(&self) -> Process {
        self.started.process()
    }
}

/// How many nodes to start, and their settings. The user's settings follow these.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(crate) apis: usize,
    pub(crate) gateways: usize,
    pub(crate) set_api: Vec<String>,
    pub(crate) set_gateway: Vec<String>,
    /// [`SMALL_PAGES`] for gateways, which are many.
    pub(crate) small_pages: bool,
    /// Settings of PostgreSQL.
    pub(crate) set_postgres: Vec<String>,
    /// Of PostgreSQL and Redis.
    pub(crate) priority: Priority,
}

/// Nodes that start at the same time: starting is mostly waiting for PostgreSQL.
const STARTING_MAX: usize = 4;

impl Cell {
    pub(crate) fn start(args: &CellArgs, nodes: &Nodes) -> Result<Self, Error> {
        let parent = args.parent();
        let folder = |kind: &str| Ok(parent.join(format!("noroshi-bench-{kind}-{}", random_hex(8)?)));
        let mut described = Vec::new();
        let (postgres, postgres_url) = match &args.postgres {
            Some(url) => (None, url.clone()),
            None => {
                let settings: Vec<String> =
                    nodes.set_postgres.iter().chain(&args.postgres_set).cloned().collect();
                let (started, url) = engines::postgres(&folder("postgres")?, &settings, nodes.priority)?;
                described.push(format!("PostgreSQL started here in {}", started.folder().display()));
                (Some(started), url)
            }
        };
        let (redis_started, redis_url) = match &args.redis {
            Some(url) => (None, url.clone()),
            None => {
                let (started, url) = engines::redis(&folder("redis")?, nodes.priority)?;
                described.push(match nodes.priority {
                    Priority::Usual => "Redis started here".to_owned(),
                    Priority::First => "Redis started here, both with `nice -n -10`".to_owned(),
                });
                (Some(started), url)
            }
        };
        let redis = match redis_url.starts_with("redis://") {
            true => Some(Redis::open(&redis_url)?),
            false => None,
        };
        let (key, jwt_secret) = (random_hex(16)?, random_hex(32)?);
        let shared = Shared { args, postgres_url, redis_url, key: &key, jwt_secret: &jwt_secret, parent };
        let set_api: Vec<String> = nodes.set_api.iter().chain(&args.set_api).cloned().collect();
        let set_gateway: Vec<String> = nodes.set_gateway.iter().chain(&args.set_gateway).cloned().collect();
        // The first one creates the schema.
        let apis = (1..=nodes.apis).map(|n| shared.node("api", n, &set_api)).collect::<Result<_, _>>()?;
        let gateways = shared.gateways(nodes.gateways, &set_gateway, nodes.small_pages)?;
        described.push(format!("{} gateway and {} API processes", nodes.gateways, nodes.apis));
        let described = described.join(", ");
        Ok(Self { gateways, apis, redis, key, jwt_secret, postgres, redis_started, described })
    }

    /// The description for the report.
    pub(crate) fn describe(&self) -> String {
        self.described.clone()
    }

    /// Returns the exit of a node as the cause of an error.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match self.exited() {
            Some((name, status, log)) => {
                Error::Start { why: format!("{name} started, then exited with {status} ({error})"), log }
            }
            None => error,
        }
    }

    /// The first node that exited unasked, with its status and log.
    fn exited(&self) -> Option<(String, String, String)> {
        let unexpected =
            self.gateways.iter().chain(&self.apis).filter(|node| !node.started.is_asked_to_stop());
        unexpected.into_iter().find_map(|node| {
            let status = node.started.exited()?;
            Some((node.name.clone(), status, node.started.log_end()))
        })
    }

    /// CPU time of a PostgreSQL started here: the postmaster, its processes, and those that have ended.
    pub(crate) fn postgres_cpu(&self) -> Option<Cpu> {
        self.postgres.as_ref()?.process().cpu_with_children()
    }

    /// The process of a PostgreSQL started here, whose children are its sessions.
    pub(crate) fn postgres_process(&self) -> Option<Process> {
        self.postgres.as_ref().map(Owned::process)
    }

    /// The process of a Redis started here.
    pub(crate) fn redis_process(&self) -> Option<Process> {
        self.redis_started.as_ref().map(Owned::process)
    }

    /// Whether PostgreSQL was started here: otherwise its CPU time is unknown.
    pub(crate) fn has_postgres(&self) -> bool {
        self.postgres.is_some()
    }
}

/// The settings that all nodes share.
struct Shared<'a> {
    args: &'a CellArgs,
    postgres_url: String,
    redis_url: String,
    key: &'a str,
    jwt_secret: &'a str,
    parent: PathBuf,
}

impl Shared<'_> {
    /// Starts several at a time. This thread starts them all: the kernel ends a bound process with the thread that
    /// started it (PR_SET_PDEATHSIG(2const)).
    fn gateways(&self, count: usize, settings: &[String], small_pages: bool) -> Result<Vec<CellNode>, Error> {
        let mut all: Vec<CellNode> = Vec::with_capacity(count);
        for from in (1..=count).step_by(STARTING_MAX) {
            for number in from..(from + STARTING_MAX).min(count + 1) {
                all.push(self.begin("gateway", number, settings, small_pages)?);
            }
            all[from - 1..].iter().try_for_each(CellNode::wait_until_ready)?;
        }
        Ok(all)
    }

    fn node(&self, role: &str, number: usize, settings: &[String]) -> Result<CellNode, Error> {
        let node = self.begin(role, number, settings, false)?;
        node.wait_until_ready()?;
        Ok(node)
    }

    /// Starts a node without waiting.
    fn begin(
        &self,
        role: &str,
        number: usize,
        settings: &[String],
        small_pages: bool,
    ) -> Result<CellNode, Error> {
        let name = format!("{role}-{number}");
        let (http, admin) = (free_port()?, free_port()?);
        let mut all = vec![
            format!("store.url={}", self.postgres_url),
            format!("cluster.redis={}", self.redis_url),
            format!("node.name={name}"),
            format!("node.roles={role}"),
        ];
        all.extend(self.args.set.iter().chain(settings).cloned());
        let folder = self.parent.join(format!("noroshi-bench-{name}-{}", random_hex(8)?));
        let started = Owned::start(&folder, Signals::USUAL, || {
            let addresses = (http, admin);
            let mut command =
                serve(self.args.program.as_deref(), &folder, addresses, (self.key, self.jwt_secret), &all)?;
            let (name, value) = SMALL_PAGES;
            command.envs(small_pages.then_some((name, value)));
            Ok(command)
        })?;
        let origin = Origin::parse(&format!("http://127.0.0.1:{http}"))?;
        let admin = Origin::parse(&format!("http://127.0.0.1:{admin}"))?;
        Ok(CellNode { name, origin, admin, started })
    }
}
