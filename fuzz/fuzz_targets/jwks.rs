//! JWK sets, as an app gives them or its identity provider serves them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| noroshi_auth::fuzzing::jwks(data));
