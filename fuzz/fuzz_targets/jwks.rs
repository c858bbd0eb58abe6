//! JWK sets, as configured for an app or served by its identity provider.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| noroshi_auth::fuzzing::jwks(data));
