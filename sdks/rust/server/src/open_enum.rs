//! Enums of texts that may have values of a later version of the service.

/// Declares an enum with `as_str`, `Display`, `From<&str>` and serde.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(
                $(#[$variant_meta])*
                #[doc = concat!("`", $text, "`")]
                $variant,
            )+
            /// A value that this version of the library does not know.
            Unrecognized(String),
        }

        impl $name {
            /// The text on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Unrecognized(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)+
                    _ => Self::Unrecognized(text.to_owned()),
                }
            }
        }

        /// For an answer without the field.
        impl Default for $name {
            fn default() -> Self {
                Self::Unrecognized(String::new())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::open_enum::text(deserializer).map(|text| Self::from(&*text))
            }
        }
    };
}

pub(crate) use open_enum;

pub(crate) fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    serde::Deserialize::deserialize(deserializer)
}
