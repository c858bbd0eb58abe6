//! Keys of continuous profiling. Without a server, profiles are taken only on request.

use std::time::Duration;

use noroshi_profiling::Config as Push;
use noroshi_profiling::profiler::{HZ_DEFAULT, HZ_MAX};
use noroshi_profiling::push::{Label, check_application, check_header, check_server, labels as parse_labels};

use super::{MINUTE, SECOND};
use crate::config::reader::Reader;

/// The default of Pyroscope's own agents.
const INTERVAL: Duration = Duration::from_secs(15);

/// Continuous profiling.
#[derive(Debug, Clone)]
pub struct Profiling {
    /// None: profiles only on request.
    pub push: Option<Push>,
}

impl Profiling {
    pub(in crate::config) fn read(reader: &mut Reader) -> Profiling {
        let server = reader.optional(
            "profiling.server",
            ("url", "http:// or https://, optionally with a path"),
            check_server,
            "Pyroscope server for continuous CPU profiles. May have a private address. Unset: none. See docs/profiling.md.",
        );
        let push = keys!(reader, Push {
            server = value(server.clone().unwrap_or_default()),
            application = value(application(reader)),
            /// Duration of each pushed profile. Profiles follow each other without a gap.
            interval = duration("profiling.interval", INTERVAL, 5 * SECOND..=10 * MINUTE),
            /// Samples per second of CPU time.
            hz = count("profiling.hz", HZ_DEFAULT.into(), 1..=HZ_MAX.into(), "samples") as u32,
            /// Also pushes heap profiles. Requires a build with the feature heap-profiling.
            heap = switch("profiling.heap", false),
            labels = value(labels(reader)),
            /// User name for HTTP Basic authentication.
            user = optional("profiling.user", ("text", "a user"), user),
            /// File with the password of profiling.user. Read again for each profile.
            password_file = optional_path("profiling.password_file", "a file with the password"),
            /// Tenant, sent as X-Scope-OrgID.
            tenant = optional("profiling.tenant", ("text", "a tenant's id"), check_header),
        });
        Profiling { push: server.map(|_| push) }
    }

    pub(in crate::config) fn check(&self, reader: &mut Reader) {
        if let Some(Err((part, problem))) = self.push.as_ref().map(Push::check) {
            reader.problem(&format!("profiling.{part}"), problem);
        }
    }
}

fn application(reader: &mut Reader) -> String {
    let help = "Application name in Pyroscope. Unset: noroshi.";
    let named = reader.optional("profiling.application", ("text", "a name"), check_application, help);
    named.unwrap_or_else(|| "noroshi".to_owned())
}

fn labels(reader: &mut Reader) -> Vec<Label> {
    let form = ("list", "NAME=VALUE, separated by commas");
    let help = "Labels of the profiles, in addition to node, role and version.";
    let text = reader.optional("profiling.labels", form, |text| parse_labels(text).map(drop), help);
    // Checked: an invalid value is already a problem.
    parse_labels(text.as_deref().unwrap_or_default()).unwrap_or_default()
}

fn user(text: &str) -> Result<(), String> {
    match text.contains(':') {
        // RFC 7617 §2
        true => Err("a user without a colon".to_owned()),
        false => check_header(text),
    }
}
