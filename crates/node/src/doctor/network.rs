//! Queues and tables of the kernel that every connection passes.

use super::{Finding, Patient, Verdict, round_up, unless};
use crate::capacity::{BACKLOG, grouped, tracked};

/// Ports below are for services, the node's 8080 and 9090 among them: one that a proxy happens to use could
/// not be listened on after a restart.
const FIRST_PORT: u64 = 10_000;
const LAST_PORT: u64 = 65_535;

/// A queue never holds more than all devices.
fn queue(patient: &Patient) -> u64 {
    patient.wanted.connections.min(BACKLOG)
}

pub(super) fn listen_queue(patient: &Patient) -> Option<Finding> {
    let (found, wanted) = (patient.host.kernel.somaxconn?, queue(patient));
    let verdict = unless(found >= wanted, Verdict::Warn);
    let finding = Finding::new("listen queue", verdict, grouped(found), grouped(wanted));
    Some(finding.set("net.core.somaxconn", wanted))
}

/// With SYN cookies the number does not matter: tcp_conn_request() looks at it only without them.
pub(super) fn half_open(patient: &Patient) -> Option<Finding> {
    let kernel = &patient.host.kernel;
    let (found, wanted) = (kernel.tcp_max_syn_backlog?, queue(patient));
    let (verdict, found) = match kernel.tcp_syncookies? {
        0 => (unless(found >= wanted, Verdict::Warn), format!("{}, no SYN cookies", grouped(found))),
        _ => (Verdict::Ok, "SYN cookies are on".to_owned()),
    };
    let finding = Finding::new("half-open connections", verdict, found, grouped(wanted));
    Some(finding.set("net.ipv4.tcp_max_syn_backlog", wanted))
}

pub(super) fn overflows(patient: &Patient) -> Option<Finding> {
    let listening = patient.host.listening?;
    let verdict = unless(listening.overflows == 0, Verdict::Warn);
    let found = format!("{} since the machine started, of all programs", grouped(listening.overflows));
    let finding = Finding::new("turned away at a full listen queue", verdict, found, "0");
    Some(finding.advise("if the number grows: a longer listen queue, more cores, or more nodes"))
}

/// A message to all devices is a page of buffers for each until they confirm it: above the second
/// number the kernel begins to save, above the third it refuses (tcp(7), `tcp_mem`).
pub(super) fn tcp_memory(patient: &Patient) -> Option<Finding> {
    let [low, pressure, high] = patient.host.kernel.tcp_mem?;
    let pages = patient.wanted.connections;
    let verdict = unless(pressure >= pages, Verdict::Warn);
    let finding = Finding::new(
        "buffers of all sockets",
        verdict,
        format!("{} pages until the kernel saves", grouped(pressure)),
        format!("{}: one each, for a message to all", grouped(pages)),
    );
    let low = low.max(pages / 4 * 3);
    let value = format!("{low} {pages} {}", high.max(pages.saturating_mul(2)));
    Some(finding.set("net.ipv4.tcp_mem", value))
}

pub(super) fn conntrack(patient: &Patient) -> Option<Finding> {
    let (found, count) = tracked(&patient.host)?;
    // A tenth for those that have ended and are remembered, and for everything else on the machine.
    let wanted = patient.wanted.connections.saturating_add(patient.wanted.connections / 10);
    let verdict = unless(found >= wanted, Verdict::Fail);
    let shown = format!("{}, of which {} are used", grouped(found), grouped(count));
    let finding = Finding::new("tracked connections", verdict, shown, grouped(wanted));
    Some(finding.set("net.netfilter.nf_conntrack_max", round_up(wanted)))
}

/// A proxy reaches one address of a node from one address of its own by as many ports as there are.
pub(super) fn source_ports(patient: &Patient) -> Option<Finding> {
    if !patient.wanted.proxied {
        return None;
    }
    let (first, last) = patient.host.kernel.ip_local_port_range?;
    let (found, wanted) = (last.saturating_sub(first).saturating_add(1), patient.wanted.connections);
    let verdict = unless(found >= wanted, Verdict::Fail);
    let finding = Finding::new("ports of the proxy", verdict, grouped(found), grouped(wanted));
    let most = found.max(LAST_PORT - FIRST_PORT + 1);
    let finding = match most > found {
        true => finding.set("net.ipv4.ip_local_port_range", format!("{FIRST_PORT} {LAST_PORT}")),
        false => finding,
    };
    Some(match wanted.div_ceil(most) {
        0 | 1 => finding,
        addresses => finding.advise(format!(
            "{} ports at most for each pair of addresses: let the node listen on {addresses} addresses, or the proxy use \
             as many",
            grouped(most)
        )),
    })
}
