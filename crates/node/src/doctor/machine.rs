//! Memory, cores, and the kernel's age.

use super::{Finding, Patient, Verdict, unless};
use crate::capacity::{device_bytes, grouped, memory_for_devices, size};

/// Log-ins a second that a core takes, token check and store read included; half of what is measured.
const LOG_INS_PER_CORE: u64 = 5_000;
/// Longer than this for all devices to be back, and people notice.
const ALL_BACK_S: u64 = 60;
/// The oldest long-term kernel that is looked after.
const KERNEL_MIN: (u32, u32) = (5, 10);

pub(super) fn memory(patient: &Patient) -> Option<Finding> {
    let (memory, wanted) = (&patient.host.memory, &patient.wanted);
    let left = memory.left_bytes()?;
    let idle = device_bytes(wanted.tls).saturating_mul(wanted.connections);
    let verdict = match idle {
        idle if idle <= memory_for_devices(left) => Verdict::Ok,
        idle if idle <= left => Verdict::Warn,
        _ => Verdict::Fail,
    };
    let limit = match &memory.cgroup {
        Some(group) if group.left_bytes() == left => format!(" of a group's {}", size(group.limit_bytes)),
        _ => memory.total_bytes.map(|total| format!(" of {}", size(total))).unwrap_or_default(),
    };
    let kind = if wanted.tls { "over TLS" } else { "without TLS" };
    let needed = size(idle.saturating_mul(4) / 3);
    let each = size(device_bytes(wanted.tls));
    Some(
        Finding::new(
            "memory",
            verdict,
            format!("{} left{limit}", size(left)),
            format!("{needed}: {each} each {kind}, a quarter to spare"),
        )
        .advise("more memory, a higher limit of the group or container, or more nodes"),
    )
}

pub(super) fn cores(patient: &Patient) -> Option<Finding> {
    let (cores, connections) = (patient.host.cores, patient.wanted.connections);
    let wanted = connections.div_ceil(LOG_INS_PER_CORE * ALL_BACK_S).max(1);
    let seconds = connections.div_ceil(LOG_INS_PER_CORE.saturating_mul(cores.max(1)));
    let verdict = unless(cores >= wanted, Verdict::Warn);
    let finding = Finding::new("cores", verdict, cores.to_string(), wanted.to_string());
    let all_back =
        format!("if all devices come back at once, it takes {} s until the last is in", grouped(seconds));
    Some(finding.advise(all_back))
}

pub(super) fn kernel(patient: &Patient) -> Option<Finding> {
    let release = patient.host.kernel.release.as_ref()?;
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let found = (numbers.next()?, numbers.next()?);
    let verdict = unless(found >= KERNEL_MIN, Verdict::Warn);
    let wanted = format!("{}.{}", KERNEL_MIN.0, KERNEL_MIN.1);
    let finding = Finding::new("kernel", verdict, format!("Linux {release}"), wanted);
    Some(finding.advise("an older kernel is not tested, and nobody repairs it any more"))
}
