//! Profiles of this process: on demand, pushed to a strict fake of Pyroscope, and without the features.

#[cfg(feature = "heap")]
mod heap;
#[cfg(feature = "cpu")]
mod push;
#[cfg(all(feature = "cpu", target_arch = "aarch64"))]
mod signed;
#[cfg(feature = "cpu")]
mod take;

#[cfg(not(feature = "cpu"))]
#[tokio::test]
async fn a_build_without_profiles_names_the_missing_feature() {
    use noroshi_profiling::{Ask, Detail, Error, Profiler};

    let profiler = Profiler::new("never-made");
    let ask = Ask { duration: std::time::Duration::from_secs(1), hz: 99 };
    assert!(matches!(profiler.cpu(ask).await, Err(Error::NotBuilt { feature: "profiling", .. })));
    assert!(matches!(
        profiler.heap(Detail::Lines).await,
        Err(Error::NotBuilt { feature: "heap-profiling", .. })
    ));
    assert!(!std::path::Path::new("never-made").exists());
}
