//! Every verdict of every check, on made-up machines.

use super::*;
use crate::host::{Cgroup, Clock, Filesystem, Kernel, Listening, Memory, OpenFiles};

/// A machine that has everything for a million devices.
fn subject() -> Subject {
    Subject {
        host: Host {
            open_files: OpenFiles { soft: Some(1_024), hard: Some(1_048_576), pid: None },
            kernel: Kernel {
                release: Some("6.1.0-13-amd64".to_owned()),
                file_max: Some(i64::MAX as u64),
                files_open: Some(1_000),
                nr_open: Some(2_000_000),
                somaxconn: Some(8_192),
                tcp_max_syn_backlog: Some(8_192),
                tcp_syncookies: Some(1),
                tcp_mem: Some([750_000, 1_000_000, 2_000_000]),
                ip_local_port_range: Some((1_024, 65_535)),
                nf_conntrack_max: None,
                nf_conntrack_count: None,
            },
            memory: Memory { total_bytes: Some(32 << 30), available_bytes: Some(30 << 30), cgroup: None },
            listening: Some(Listening { overflows: 0, drops: 5 }),
            clock: Clock { keeper: Some("chronyd".to_owned()), is_set: false, in_container: false },
            cores: 4,
        },
        folder: Folder {
            path: "/var/lib/noroshi".into(),
            exists: true,
            filesystem: Some(Filesystem::Disk),
            free_bytes: Some(100 << 30),
            sync: Some(Duration::from_micros(1_500)),
            ..Folder::default()
        },
        requirements: Requirements { connections: 1_000_000, ..Requirements::default() },
        clock_offset: None,
    }
}

/// The effect of a change to the machine on one check; all others must not change.
#[track_caller]
fn check(name: &str, verdict: Verdict, change: impl FnOnce(&mut Subject)) -> Finding {
    let mut changed = subject();
    change(&mut changed);
    let diagnosis = examine(&changed);
    let found = diagnosis.findings.iter().find(|finding| finding.name == name);
    let found = found.unwrap_or_else(|| panic!("no finding for {name}: {diagnosis:?}"));
    assert_eq!(found.verdict, verdict, "{found:?}");
    assert_eq!(found.advice.is_empty(), verdict == Verdict::Ok, "{found:?}");
    assert!(verdict != Verdict::Ok || found.changes.is_empty(), "{found:?}");
    let worse: Vec<_> = diagnosis
        .findings
        .iter()
        .filter(|other| other.name != name && other.verdict != Verdict::Ok)
        .collect();
    assert!(worse.is_empty(), "{worse:?}");
    assert_eq!(diagnosis.verdict(), verdict);
    found.clone()
}

#[track_caller]
fn sysctl(finding: &Finding, key: &'static str, value: &str) {
    assert_eq!(finding.changes, [Change::Sysctl { key, value: value.to_owned() }]);
}

#[test]
fn a_sufficient_machine_passes_every_check() {
    let diagnosis = examine(&subject());
    assert_eq!(diagnosis.verdict(), Verdict::Ok, "{diagnosis:?}");
    assert!(diagnosis.findings.iter().all(|finding| finding.advice.is_empty()));
    assert_eq!((diagnosis.sysctls().len(), diagnosis.open_files()), (0, None));
    assert!(diagnosis.capacity.devices >= 1_000_000, "{}", diagnosis.capacity);
    let names: std::collections::HashSet<_> = diagnosis.findings.iter().map(|finding| finding.name).collect();
    assert_eq!(names.len(), diagnosis.findings.len(), "each name once");
}

#[test]
fn unknown_values_have_no_finding() {
    let unknown = Subject {
        requirements: subject().requirements,
        host: Host { cores: 4, ..Host::default() },
        ..Subject::default()
    };
    let names: Vec<_> = examine(&unknown).findings.iter().map(|finding| finding.name).collect();
    assert_eq!(names, ["cores", "clock"]);
}

#[test]
fn connection_limits_of_the_configuration() {
    let limit = |limit| move |subject: &mut Subject| subject.requirements.connections_max = limit;
    check("gateway.connections_max", Verdict::Ok, limit(1_000_000));
    let finding = check("gateway.connections_max", Verdict::Fail, limit(999_999));
    assert!(finding.advice.contains("raise it") && finding.changes.is_empty(), "{finding:?}");
}

#[test]
fn open_files_of_the_process() {
    let limit = |limit| move |subject: &mut Subject| subject.host.open_files.hard = Some(limit);
    check("open files", Verdict::Ok, limit(1_004_608));
    let finding = check("open files", Verdict::Fail, limit(1_004_607));
    assert_eq!(finding.changes, [Change::OpenFiles(1_005_000)]);
    assert!(finding.advice.contains("LimitNOFILE=1005000"), "{finding:?}");
    let finding = check("open files", Verdict::Fail, |subject| {
        subject.host.open_files = OpenFiles { soft: Some(9), hard: Some(9), pid: Some(77) };
    });
    assert!(finding.found.contains("node (77)"), "{finding:?}");
}

#[test]
fn open_files_of_the_machine() {
    let finding = check("fs.nr_open", Verdict::Fail, |subject| subject.host.kernel.nr_open = Some(1_000_000));
    sysctl(&finding, "fs.nr_open", "1005000");
    let finding =
        check("fs.file-max", Verdict::Fail, |subject| subject.host.kernel.file_max = Some(1_005_000));
    sysctl(&finding, "fs.file-max", "1007000");
}

#[test]
fn memory_must_hold_every_idle_device() {
    let left = |gib: u64| move |subject: &mut Subject| subject.host.memory.available_bytes = Some(gib << 30);
    check("memory", Verdict::Ok, left(7));
    check("memory", Verdict::Warn, left(6));
    check("memory", Verdict::Fail, left(4));
    let tls = check("memory", Verdict::Warn, |subject| {
        subject.requirements.tls = true;
        subject.host.memory.available_bytes = Some(11 << 30);
    });
    assert!(tls.required.contains("9.0 KiB per connection with TLS"), "{tls:?}");
    let contained = check("memory", Verdict::Fail, |subject| {
        subject.host.memory.cgroup = Some(Cgroup { limit_bytes: 2 << 30, used_bytes: 1 << 30 });
    });
    assert_eq!(contained.found, "1.0 GiB available of the cgroup's 2.0 GiB");
}

#[test]
fn cores_and_kernel() {
    let finding = check("cores", Verdict::Warn, |subject| subject.host.cores = 2);
    assert!(finding.advice.contains("100 s"), "{finding:?}");
    let kernel = |release: &'static str| {
        move |subject: &mut Subject| subject.host.kernel.release = Some(release.to_owned())
    };
    check("kernel", Verdict::Warn, kernel("4.19.0"));
    check("kernel", Verdict::Ok, kernel("5.10.0-28-amd64"));
    check("kernel", Verdict::Ok, kernel("6.18-rc1"));
}

#[test]
fn queues_of_new_connections() {
    let finding = check("listen queue", Verdict::Warn, |subject| subject.host.kernel.somaxconn = Some(4_096));
    sysctl(&finding, "net.core.somaxconn", "8192");
    check("listen queue", Verdict::Ok, |subject| {
        subject.host.kernel.somaxconn = Some(128);
        subject.requirements.connections = 100;
    });
    let without_cookies = |backlog| {
        move |subject: &mut Subject| {
            subject.host.kernel.tcp_syncookies = Some(0);
            subject.host.kernel.tcp_max_syn_backlog = Some(backlog);
        }
    };
    let finding = check("half-open connections", Verdict::Warn, without_cookies(512));
    sysctl(&finding, "net.ipv4.tcp_max_syn_backlog", "8192");
    check("half-open connections", Verdict::Ok, without_cookies(8_192));
    check("half-open connections", Verdict::Ok, |subject| {
        subject.host.kernel.tcp_max_syn_backlog = Some(512);
    });
    check("turned away at a full listen queue", Verdict::Warn, |subject| {
        subject.host.listening = Some(Listening { overflows: 1, drops: 1 });
    });
}

#[test]
fn tables_of_open_connections() {
    let finding = check("buffers of all sockets", Verdict::Warn, |subject| {
        subject.host.kernel.tcp_mem = Some([1, 2, 9_000_000]);
    });
    sysctl(&finding, "net.ipv4.tcp_mem", "750000 1000000 9000000");
    let tracked = |max, count| {
        move |subject: &mut Subject| {
            subject.host.kernel.nf_conntrack_max = Some(max);
            subject.host.kernel.nf_conntrack_count = Some(count);
        }
    };
    let finding = check("tracked connections", Verdict::Fail, tracked(262_144, 12));
    sysctl(&finding, "net.netfilter.nf_conntrack_max", "1100000");
    check("tracked connections", Verdict::Ok, tracked(1_100_000, 12));
    let mut unused = subject();
    tracked(262_144, 0)(&mut unused);
    assert_eq!(examine(&unused).verdict(), Verdict::Ok, "nothing is tracked");
}

#[test]
fn ports_of_a_proxy_on_this_machine() {
    let proxied = |connections, ports| {
        move |subject: &mut Subject| {
            subject.requirements.connections = connections;
            subject.requirements.proxied = true;
            subject.host.kernel.ip_local_port_range = Some(ports);
        }
    };
    check("ports of the proxy", Verdict::Ok, proxied(20_000, (32_768, 60_999)));
    let finding = check("ports of the proxy", Verdict::Fail, proxied(50_000, (32_768, 60_999)));
    sysctl(&finding, "net.ipv4.ip_local_port_range", "10000 65535");
    let finding = check("ports of the proxy", Verdict::Fail, proxied(200_000, (1_024, 65_535)));
    assert!(finding.advice.contains("on 4 addresses"), "{finding:?}");
    assert!(finding.changes.is_empty(), "the range is already wider than recommended: {finding:?}");
}

#[test]
fn the_clock_is_synchronized_and_agrees_with_the_server() {
    let clock = |keeper: Option<&str>, is_set, in_container| {
        let keeper = keeper.map(str::to_owned);
        move |subject: &mut Subject| subject.host.clock = Clock { keeper, is_set, in_container }
    };
    check("clock", Verdict::Ok, clock(Some("systemd-timesyn"), true, false));
    check("clock", Verdict::Warn, clock(Some("systemd-timesyn"), false, false));
    check("clock", Verdict::Ok, clock(None, false, true));
    check("clock", Verdict::Warn, clock(None, false, false));
    let offset =
        |seconds| move |subject: &mut Subject| subject.clock_offset = Some(Duration::from_secs(seconds));
    check("clock of the server", Verdict::Ok, offset(2));
    check("clock of the server", Verdict::Warn, offset(3));
    check("clock of the server", Verdict::Fail, offset(31));
}

#[test]
fn the_folder_is_on_a_disk_and_private() {
    let on = |filesystem| move |subject: &mut Subject| subject.folder.filesystem = Some(filesystem);
    check("data folder", Verdict::Warn, on(Filesystem::Memory));
    check("data folder", Verdict::Warn, on(Filesystem::Overlay));
    check("data folder", Verdict::Fail, on(Filesystem::Network));
    check("data folder", Verdict::Fail, |subject| {
        subject.folder.unwritable = Some("Read-only file system".to_owned());
    });
    let finding = check("privacy of the data", Verdict::Fail, |subject| {
        subject.folder.open_to_others = vec!["operator.token".to_owned()];
    });
    assert!(finding.found.contains("operator.token") && finding.advice.contains("chmod"), "{finding:?}");
    check("privacy of the data", Verdict::Warn, |subject| subject.folder.is_foreign = true);
    check("privacy of the data", Verdict::Fail, |subject| {
        subject.folder.is_foreign = true;
        subject.folder.open_to_others = vec!["operator.token".to_owned()];
    });
    let mut absent = subject();
    absent.folder = Folder { exists: false, sync: None, ..absent.folder };
    let diagnosis = examine(&absent);
    assert_eq!(diagnosis.verdict(), Verdict::Ok);
    assert!(diagnosis.findings.iter().any(|finding| finding.found.contains("does not exist yet")));
}

#[test]
fn the_disk_has_space_and_is_fast_enough() {
    let free = |mib: u64| move |subject: &mut Subject| subject.folder.free_bytes = Some(mib << 20);
    check("disk", Verdict::Ok, free(1_024));
    check("disk", Verdict::Warn, free(1_023));
    check("disk", Verdict::Fail, free(127));
    check("disk", Verdict::Warn, |subject| subject.requirements.database_bytes_max = Some(200 << 30));
    check("disk", Verdict::Ok, |subject| {
        subject.requirements.database_bytes_max = Some(200 << 30);
        subject.folder.database_bytes = 101 << 30;
    });
    let slow =
        check("disk", Verdict::Warn, |subject| subject.folder.sync = Some(Duration::from_micros(20_150)));
    assert!(slow.found.contains("20.1 ms") && slow.advice.contains("faster disk"), "{slow:?}");
}

#[test]
fn remedies_are_collected() {
    let mut small = subject();
    small.host.open_files.hard = Some(1_024);
    small.host.kernel.nr_open = Some(1_024);
    small.host.kernel.somaxconn = Some(128);
    let diagnosis = examine(&small);
    assert_eq!(diagnosis.verdict(), Verdict::Fail);
    assert_eq!(diagnosis.open_files(), Some(1_005_000));
    let settings: Vec<_> = diagnosis.sysctls().into_iter().collect();
    assert_eq!(settings, [("fs.nr_open", "1005000"), ("net.core.somaxconn", "8192")]);
    assert!(diagnosis.capacity.devices < 1_024, "{}", diagnosis.capacity);
}
