//! Values of a statement that takes many rows, column by column.

/// Makes a type of columns, in the order in which its statement numbers them.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident $(<$life:lifetime>)? { $($column:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(in crate::postgres) struct $name $(<$life>)? {
            $(pub(in crate::postgres) $column: Vec<$type>,)*
        }

        impl $(<$life>)? $name $(<$life>)? {
            pub(in crate::postgres) fn push_row(&mut self, ($($column,)*): ($($type,)*)) {
                $(self.$column.push($column);)*
            }

            pub(in crate::postgres) fn values(
                &self,
            ) -> [&(dyn tokio_postgres::types::ToSql + Sync); [$(stringify!($column)),*].len()] {
                [$(&self.$column),*]
            }
        }
    };
}
pub(super) use columns;
