//! What people may do: roles as sets of permissions. API keys have scopes instead.

use crate::names;

names! {
    /// What a route requires of its caller.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Permission {
        /// Read everything of the app except secrets.
        Read = 1 => "read",
        /// Change devices, and what belongs to users: tokens, items, preferences.
        Devices = 2 => "devices",
        /// Send: notifications, campaigns, activities, broadcasts.
        Publish = 4 => "publish",
        /// Change notices and experiments.
        Define = 8 => "define",
        /// Change settings, keys, credentials, topic rules and quotas.
        Manage = 16 => "manage",
        /// Change the people of the app, and delete it.
        Own = 32 => "own",
    }
}

names! {
    /// What a person is in an app, or in all apps.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Role {
        Viewer = 1 => "viewer",
        /// Helps users: manages their devices.
        Support = 2 => "support",
        /// Writes notifications and campaigns.
        Author = 3 => "author",
        Operator = 4 => "operator",
        Owner = 5 => "owner",
    }
}

/// A set of permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Permissions(u8);

impl Permissions {
    pub const ALL: Self =
        Self::of(&[Permission::Read, Permission::Devices, Permission::Publish, Permission::Define])
            .and(Self::of(&[Permission::Manage, Permission::Own]));

    const fn of(permissions: &[Permission]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < permissions.len() {
            bits |= permissions[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    #[must_use]
    pub const fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    pub const fn contains(self, permission: Permission) -> bool {
        self.0 & permission as u8 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.contains(*permission))
    }
}

impl Role {
    pub const fn permissions(self) -> Permissions {
        use Permission::{Define, Devices, Manage, Publish, Read};
        match self {
            Self::Viewer => Permissions::of(&[Read]),
            Self::Support => Permissions::of(&[Read, Devices]),
            Self::Author => Permissions::of(&[Read, Publish, Define]),
            Self::Operator => Permissions::of(&[Read, Devices, Publish, Define, Manage]),
            Self::Owner => Permissions::ALL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_grow_from_viewer_to_owner() {
        let may = |role: Role| role.permissions();
        for role in Role::ALL {
            assert!(may(role).contains(Permission::Read), "{}", role.as_str());
            assert_eq!(may(role).and(may(Role::Operator)) == may(Role::Operator), role != Role::Owner);
        }
        assert_eq!(may(Role::Owner), Permissions::ALL);
        assert_eq!(may(Role::Owner).iter().count(), Permission::ALL.len());
        assert!(!may(Role::Author).contains(Permission::Devices));
        assert!(!may(Role::Support).contains(Permission::Publish));
        assert!(!may(Role::Operator).contains(Permission::Own));
    }
}
