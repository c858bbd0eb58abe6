//! Profiles: for the operator only, within bounds, and the error of builds without them.

use http::{Method, StatusCode};

use crate::service::{OPERATOR, Service};

#[tokio::test]
async fn only_the_operator_gets_profiles_and_only_within_bounds() {
    let service = Service::with(|_| {}).await;
    for path in ["/debug/pprof/profile?seconds=1", "/debug/pprof/heap"] {
        for credential in ["", "no_wrong", &service.key] {
            let answer = service.operate(Method::GET, path, credential, "").await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        }
    }
    for (query, field) in
        [("seconds=0", "seconds"), ("seconds=61", "seconds"), ("hz=0", "hz"), ("hz=251", "hz")]
    {
        let path = format!("/debug/pprof/profile?{query}");
        let answer = service.operate(Method::GET, &path, OPERATOR, "").await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        assert_eq!(answer.json()["field"], field);
    }
    for unknown in ["second=1", "format=svg"] {
        let path = format!("/debug/pprof/profile?{unknown}");
        let answer = service.operate(Method::GET, &path, OPERATOR, "").await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{unknown}");
    }
}

#[tokio::test]
async fn a_build_without_the_feature_names_it() {
    let service = Service::with(|_| {}).await;
    let builds = [
        ("/debug/pprof/profile?seconds=1", noroshi_profiling::CPU, "`profiling`"),
        ("/debug/pprof/profile?seconds=1&format=tree", noroshi_profiling::CPU, "`profiling`"),
        ("/debug/pprof/heap", noroshi_profiling::HEAP, "`heap-profiling`"),
    ];
    for (path, built, feature) in builds {
        if !built {
            let answer = service.operate(Method::GET, path, OPERATOR, "").await;
            assert_eq!(answer.status, StatusCode::NOT_IMPLEMENTED, "{path}");
            let problem = answer.json();
            assert_eq!(problem["code"], "not_built");
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(feature)), "{problem}");
        }
    }
}
