//! Passwords: Argon2id with 19 MiB, two passes and one lane, the minimum of the OWASP Password Storage Cheat Sheet.
//!
//! A hash takes some 20 ms of CPU and 19 MiB. Few are computed at a time, and few wait, so log-ins can neither exhaust the
//! memory nor starve the node.

use std::sync::{Arc, LazyLock};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use tokio::sync::Semaphore;

use crate::error::Refused;

const AT_ONCE: usize = 2;
/// Including those that run.
const WAITING_MAX: usize = 32;

pub(crate) struct Passwords {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The hash that a log-in without a password is compared with, so that it takes as long as one with a wrong password.
static NOBODY: LazyLock<String> = LazyLock::new(|| hash_now(&crate::token::fresh().0));

fn hash_now(password: &str) -> String {
    let hash = Argon2::default().hash_password(password.as_bytes());
    hash.expect("the parameters are valid, and the system has randomness").to_string()
}

fn is_of(hash: &str, password: &str) -> bool {
    PasswordHash::new(hash)
        .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

impl Passwords {
    pub(crate) fn new() -> Self {
        Self { running: Arc::new(Semaphore::new(AT_ONCE)), waiting: Arc::new(Semaphore::new(WAITING_MAX)) }
    }

    pub(crate) async fn hash(&self, password: String) -> Result<String, Refused> {
        self.run(move || hash_now(&password)).await
    }

    /// Takes the same time without a hash.
    pub(crate) async fn verify(&self, hash: Option<String>, password: String) -> Result<bool, Refused> {
        self.run(move || match hash {
            Some(hash) => is_of(&hash, &password),
            None => {
                std::hint::black_box(is_of(&NOBODY, &password));
                false
            }
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refused> {
        let waiting = self.waiting.clone().try_acquire_owned().map_err(|_| Refused::Busy)?;
        let running = self.running.clone().acquire_owned().await.map_err(|_| Refused::Busy)?;
        let result = tokio::task::spawn_blocking(move || {
            let result = work();
            // Held until here also if the request was dropped.
            drop((waiting, running));
            result
        });
        Ok(result.await.expect("hashing does not panic, and is not cancelled"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_recognized() {
        let passwords = Passwords::new();
        let hash = passwords.hash("correct horse".to_owned()).await.expect("hashed");
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        let verify = async |hash: Option<&str>, text: &str| {
            passwords.verify(hash.map(str::to_owned), text.to_owned()).await.expect("verified")
        };
        assert!(verify(Some(&hash), "correct horse").await);
        assert!(!verify(Some(&hash), "correct  horse").await);
        assert!(!verify(None, "correct horse").await);
        assert!(!verify(Some("no hash"), "correct horse").await);
    }

    #[tokio::test]
    async fn a_bounded_number_waits() {
        let passwords = Passwords::new();
        let _all = passwords.waiting.clone().acquire_many_owned(WAITING_MAX as u32).await.expect("open");
        assert!(matches!(passwords.hash("x".to_owned()).await, Err(Refused::Busy)));
    }
}
