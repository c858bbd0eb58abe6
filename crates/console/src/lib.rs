//! The server part of the web console: who people are, how they log in, and what they may do.
//!
//! ```text
//!   console      what a handler calls: log in, confirm, invite; a caller and their permissions;
//!                log-in with an OpenID provider, and roles from its groups
//!      │
//!   attempts     limits on failed log-ins
//!   password     Argon2id, on few threads at a time
//!   totp         codes of an authenticator app; the secret is sealed
//!   token        random tokens and their hashes; signed tickets
//!
//!   assets       the files of the page
//! ```
//!
//! The crate serves no HTTP. Rows are in the store ([`noroshi_store::People`]); tokens are stored as hashes only.

mod assets;
mod attempts;
mod console;
mod error;
mod password;
mod token;
mod totp;

pub use assets::{Asset, asset};
pub use console::{
    AppOf, AppRef, AuthorizationResponse, Caller, Client, Config, Console, Finished, Invitation, LoggedIn,
    Made, MappedRoles, Mapping, OPENID_ROUTES, OpenIdFailure, OpenIdOutcome, PASSWORD_BYTES,
    PENDING_LIFETIME, Proof, Provider, StartFor, Started, Step, TotpSetup, check_email, check_name,
};
pub use error::Refused;
pub use token::{SESSION_TOKEN_CHARS, csrf_of};
