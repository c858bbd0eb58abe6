//! The permissions of API keys.

use std::fmt;

use crate::Invalid;

crate::names! {
    /// One permission of an API key.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Scope {
        /// Send and cancel notifications, change retained messages.
        Publish = 1 => "publish",
        /// Register, import, change and delete devices.
        Devices = 2 => "devices",
        /// Read presence, topics, devices and notification state.
        Read = 4 => "read",
        /// Apps and keys.
        Admin = 8 => "admin",
    }
}

impl Scope {
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::named(text).ok_or_else(|| Invalid::new("a scope must be one of publish, devices, read, admin"))
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Scopes(u8);

impl Scopes {
    pub const ALL: Scopes = Scopes(15);

    pub fn contains(self, scope: Scope) -> bool {
        self.0 & scope as u8 != 0
    }

    #[must_use]
    pub fn with(self, scope: Scope) -> Self {
        Self(self.0 | scope as u8)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }

    /// The representation in the store: one bit per scope.
    pub fn bits(self) -> u8 {
        self.0
    }

    pub fn from_bits(bits: u8) -> Self {
        Self(bits & Self::ALL.0)
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, scope) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            f.write_str(scope.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_form_a_set() {
        let scopes: Scopes = [Scope::Read, Scope::Publish].into_iter().collect();
        assert!(scopes.contains(Scope::Publish) && scopes.contains(Scope::Read));
        assert!(!scopes.contains(Scope::Admin));
        assert_eq!(scopes.to_string(), "publish,read");
        assert_eq!(Scopes::from_bits(scopes.bits()), scopes);
        assert_eq!(Scope::parse("devices"), Ok(Scope::Devices));
        assert!(Scope::parse("root").is_err());
    }
}
