//! Enums whose variants have names.

/// Declares an enum: `ALL` has its variants in order, `as_str` is the name in formats, metrics and logs. A number in parentheses is
/// the value of the variant.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $visible:vis enum $enum:ident {
        $($(#[$variant_about:meta])* $variant:ident $(($value:literal))? = $name:literal,)*
    }) => {
        $(#[$about])*
        $visible enum $enum {
            $($(#[$variant_about])* $variant $(= $value)?,)*
        }

        #[allow(dead_code)] // some enums need only the names
        impl $enum {
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}
