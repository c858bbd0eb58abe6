//! Enums whose variants have names: one table instead of an enum, a list and a match with the same rows.

/// Defines an enum from rows of a variant and its name, with `ALL` in the order of the rows, `as_str` and
/// `named`. If the variants have numbers, also `from_code`.
#[macro_export]
macro_rules! names {
    (
        $(#[$attribute:meta])* $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $code:literal => $text:literal),+ $(,)?
        }
    ) => {
        $crate::names! { @define
            [$(#[$attribute])* #[repr(u8)]] $vis enum $name {
                $($(#[$doc])* $variant = $code => $text),+
            }
        }

        #[allow(dead_code, reason = "no enum uses everything")]
        impl $name {
            $vis fn from_code(code: u8) -> Option<Self> {
                Self::ALL.into_iter().find(|known| *known as u8 == code)
            }
        }
    };
    (
        $(#[$attribute:meta])* $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident => $text:literal),+ $(,)?
        }
    ) => {
        $crate::names! { @define
            [$(#[$attribute])*] $vis enum $name {
                $($(#[$doc])* $variant => $text),+
            }
        }
    };
    (@define
        [$(#[$attribute:meta])*] $vis:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident $(= $code:literal)? => $text:literal),+
        }
    ) => {
        $(#[$attribute])*
        $vis enum $name {
            $($(#[$doc])* $variant $(= $code)?),+
        }

        #[allow(dead_code, reason = "no enum uses everything")]
        impl $name {
            $vis const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            $vis const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }

            $vis fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.as_str() == name)
            }
        }
    };
}
