//! The load generator behind `noroshi bench`: it connects devices over real sockets in any protocol of
//! Noroshi, publishes through the HTTP API, and reports what the server delivered, with latency and cost in
//! CPU and memory. It is as cheap as possible, since on one machine it competes with the server.
//!
//! ```text
//!   Args ── scenario ── Server (its own, or a running one)
//!              │  └──── report (figures with units, medians; table or JSON)
//!            Crew ──commands──► worker ── Engine: one epoll loop ──┬─ Device ── Speech
//!              ◄───reports───                                      └─ Sender   HTTP requests
//! ```
//!
//! Reading order: `args`, `scenario` and one scenario, `crew`, `worker` with its tasks, `engine`, then
//! `device` with `dialect` and `speech`, and `sender`. Messages contain the time they were due (`clock`);
//! workers share nothing and get a part of the work (`partition`).

mod args;
mod cell;
mod clock;
mod connection;
mod crew;
mod device;
mod dialect;
mod disk_floor;
mod engine;
mod error;
mod floor;
mod homes;
mod host;
mod http;
mod jwt;
mod metrics;
mod partition;
mod payload;
mod process;
mod program;
mod publisher;
mod redis;
mod report;
mod request_loop;
mod scenario;
mod seen;
mod sender;
mod server;
mod socket;
mod speech;
mod stats;
mod target;
mod tls;
mod worker;

#[cfg(test)]
mod tests;

pub use args::Args;
pub use error::Error;
pub use program::abandon;

use args::Scenario;

/// Runs a measurement and prints the result on standard output.
pub fn run(args: Args) -> Result<(), Error> {
    let mut verdict = None;
    let (report, json) = match &args.scenario {
        Scenario::Direct(direct) => (scenario::direct::run(direct)?, direct.common.json),
        Scenario::Broadcast(broadcast) => (scenario::broadcast::run(broadcast)?, broadcast.common.json),
        Scenario::Stored(stored) => (scenario::stored::run(stored)?, stored.common.json),
        Scenario::Me(me) => (scenario::me::run(me)?, me.common.json),
        Scenario::Connect(connect) => (scenario::connect::run(connect)?, connect.common.json),
        Scenario::Idle(idle) => (scenario::idle::run(idle)?, idle.common.json),
        Scenario::Disconnect(disconnect) => (scenario::disconnect::run(disconnect)?, disconnect.common.json),
        Scenario::Storm(storm) => (scenario::storm::run(storm)?, storm.common.json),
        Scenario::Slow(slow) => (scenario::slow::run(slow)?, slow.common.json),
        Scenario::Tenants(tenants) => {
            let (report, broken) = scenario::tenants::run(tenants)?;
            verdict = broken;
            (report, tenants.common.json)
        }
        Scenario::Tls(tls) => (scenario::tls::run(tls)?, tls.common.json),
        Scenario::Push(push) => (scenario::push::run(push)?, push.json),
        Scenario::Campaign(campaign) => (scenario::campaign::run(campaign)?, campaign.common.json),
        Scenario::Activities(activities) => (scenario::activities::run(activities)?, activities.common.json),
        Scenario::Homing(homing) => (scenario::homing::run(homing)?, homing.json),
        Scenario::Million(million) => match scenario::million::run(million)? {
            Some(report) => (report, million.json),
            None => return Ok(()), // only the plan was asked for
        },
        Scenario::Events(events) => match events.part {
            Some(part) => return scenario::events::run_part(events, part),
            None if events.fake => return scenario::events::run_fake(events),
            None => (scenario::events::run(events)?, events.common.json),
        },
        Scenario::Floor(args) => return floor::run(args.listen, args.deliveries),
        Scenario::Worker => return worker::run(std::io::stdin(), std::io::stdout().lock()),
        Scenario::Bound(bound) => return Err(program::run_bound(&bound.words)),
    };
    if json {
        eprintln!("{}", report.table());
        println!("{}", report.json());
    } else {
        println!("{}", report.table());
    }
    match verdict {
        Some(broken) => Err(Error::NotWithin(broken)),
        None => Ok(()),
    }
}
