//! A cell on this machine: gateway and API nodes of our own executable, with PostgreSQL and Redis, which are
//! given by URL or started from installed programs. Nodes are dropped, and so stopped, before the engines.

pub(crate) mod engines;

use std::path::PathBuf;

use crate::Error;
use crate::args::Homing;
use crate::http::Origin;
use crate::process::{Cpu, Process};
use crate::program::{Owned, Signals};
use crate::redis::Redis;
use crate::server::{free_port, random_hex, serve, wait_until_ready};

pub(crate) struct Cell {
    pub(crate) gateways: Vec<CellNode>,
    pub(crate) apis: Vec<CellNode>,
    /// `None` if its commands cannot be counted.
    pub(crate) redis: Option<Redis>,
    pub(crate) key: String,
    pub(crate) jwt_secret: String,
    postgres: Option<Owned>,
    _redis_started: Option<Owned>,
    described: String,
}

pub(crate) struct CellNode {
    pub(crate) name: String,
    pub(crate) origin: Origin,
    pub(crate) started: Owned,
}

impl CellNode {
    pub(crate) fn process(&self) -> Process {
        self.started.process()
    }
}

impl Cell {
    pub(crate) fn start(args: &Homing) -> Result<Self, Error> {
        let parent = args.data.clone().unwrap_or_else(std::env::temp_dir);
        let folder = |kind: &str| Ok(parent.join(format!("noroshi-bench-{kind}-{}", random_hex(8)?)));
        let mut described = Vec::new();
        let (postgres, postgres_url) = match &args.postgres {
            Some(url) => (None, url.clone()),
            None => {
                let (started, url) = engines::postgres(&folder("postgres")?, &args.postgres_set)?;
                described.push(format!("PostgreSQL started here in {}", started.folder().display()));
                (Some(started), url)
            }
        };
        let (redis_started, redis_url) = match &args.redis {
            Some(url) => (None, url.clone()),
            None => {
                let (started, url) = engines::redis(&folder("redis")?)?;
                described.push("Redis started here".to_owned());
                (Some(started), url)
            }
        };
        let redis = match redis_url.starts_with("redis://") {
            true => Some(Redis::open(&redis_url)?),
            false => None,
        };
        let (key, jwt_secret) = (random_hex(16)?, random_hex(32)?);
        let shared = Shared { args, postgres_url, redis_url, key: &key, jwt_secret: &jwt_secret, parent };
        // The first one creates the schema.
        let apis = (1..=args.apis).map(|n| shared.node("api", n, &args.set_api)).collect::<Result<_, _>>()?;
        let gateways = (1..=args.gateways + args.spare)
            .map(|n| shared.node("gateway", n, &args.set_gateway))
            .collect::<Result<_, _>>()?;
        described.push(format!("{} gateway and {} API processes", args.gateways + args.spare, args.apis));
        let described = described.join(", ");
        Ok(Self {
            gateways,
            apis,
            redis,
            key,
            jwt_secret,
            postgres,
            _redis_started: redis_started,
            described,
        })
    }

    /// The description for the report.
    pub(crate) fn describe(&self) -> String {
        self.described.clone()
    }

    /// The first node that exited, with its status and log.
    pub(crate) fn exited(&self) -> Option<(String, String, String)> {
        self.gateways.iter().chain(&self.apis).find_map(|node| {
            let status = node.started.exited()?;
            Some((node.name.clone(), status, node.started.log_end()))
        })
    }

    /// CPU time of a PostgreSQL started here: the postmaster, its processes, and those that have ended.
    pub(crate) fn postgres_cpu(&self) -> Option<Cpu> {
        self.postgres.as_ref()?.process().cpu_with_children()
    }

    /// Whether PostgreSQL was started here: otherwise its CPU time is unknown.
    pub(crate) fn has_postgres(&self) -> bool {
        self.postgres.is_some()
    }
}

/// The settings that all nodes share.
struct Shared<'a> {
    args: &'a Homing,
    postgres_url: String,
    redis_url: String,
    key: &'a str,
    jwt_secret: &'a str,
    parent: PathBuf,
}

impl Shared<'_> {
    fn node(&self, role: &str, number: usize, settings: &[String]) -> Result<CellNode, Error> {
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
            serve(self.args.program.as_deref(), &folder, (http, admin), (self.key, self.jwt_secret), &all)
        })?;
        let origin = Origin::parse(&format!("http://127.0.0.1:{http}"))?;
        let admin = Origin::parse(&format!("http://127.0.0.1:{admin}"))?;
        wait_until_ready(&started, &admin)?;
        Ok(CellNode { name, origin, started })
    }
}
