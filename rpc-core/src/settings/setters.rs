//! Setters of a builder, from the declaration of its settings.

/// Declares the setters of a builder in an `impl` block of it, one for each key and group of a list
/// of settings. They write the layer of the program's code, whose place in the builder is named:
///
/// ```text
/// impl ServerBuilder {
///     rpc_core::server_settings! { rpc_core::builder_setters [layers.code] }
/// }
/// ```
///
/// A setter has the name of its key, or the one that the list has for it. It takes the value, or
/// `impl Into<Option<_>>` where there may be none, and panics at the caller's line where it is out
/// of range. The setter of a group sets each of its keys.
#[macro_export]
macro_rules! builder_setters {
    (
        $layer:tt
        $(#[doc = $about:literal])*
        $name:ident, $overlay:ident, $path:tt, $setters:tt, derive($($derive:ident),*) {
            $(
                $(#[doc = $doc:literal])*
                $key:ident $(, $setter:ident)?: $type:ty as $format:ident
                    = $default:expr $(=> $example:literal)?, $effect:ident,
                    $range:expr, $reason:expr;
            )*
        } $(groups {
            $(
                $(#[doc = $group_doc:literal])*
                $group:ident $(, $group_setter:ident)?: $inner:ty $(= $group_default:expr)?,
                    $inner_overlay:ty, $within:ident $(, $heading:literal)?;
            )*
        })? $(private { $($hidden:tt)* })? $(flat { $($flat:tt)* })? $(gone { $($gone:tt)* })?
    ) => {
        $($crate::builder_setter! {
            $format: [$($setter)? $key] $type, $layer $key, [
                #[doc = concat!("Sets `", stringify!($key), "`.")]
                #[doc = ""]
                $(#[doc = $doc])*
            ], |value: &$type| {
                use $crate::settings::{format, table};

                let name = $crate::setting_name!($path $key);
                table::check::<format::$format, $type>(name, value, $range, $reason)
            }
        })*
        $($($crate::builder_setter! {
            Group: [$($group_setter)? $group] $inner, $layer $group, [
                #[doc = concat!("Sets `", stringify!($group), "`, with all that it has.")]
                #[doc = ""]
                $(#[doc = $group_doc])*
            ], |value: &$inner| {
                let checked = <$inner as $crate::settings::Settings>::check_all(value);
                $crate::define_settings!(@checked $group $($group_default)?; checked)
            }
        })*)?
    };
}

/// Declares one setter: its [`Format`](crate::settings::format::Format) decides what it takes.
#[doc(hidden)]
#[macro_export]
macro_rules! builder_setter {
    (Plain: $name:tt $type:ty, $($rest:tt)*) => {
        $crate::builder_setter! { @panics $name [$type] [$type] same Some, $($rest)* }
    };
    (Size: $name:tt $type:ty, $($rest:tt)*) => {
        $crate::builder_setter! { @panics $name [$type] [$type] same Some, $($rest)* }
    };
    (CountOrAll: $name:tt $type:ty, $($rest:tt)*) => {
        $crate::builder_setter! { @panics $name [$type] [$type] same Some, $($rest)* }
    };
    (Switch: $name:tt $type:ty, $($rest:tt)*) => {
        $crate::builder_setter! { @function $name [$type] [$type] same Some, $($rest)* }
    };
    (Texts: $name:tt $type:ty, $($rest:tt)*) => {
        $crate::builder_setter! {
            @panics $name [impl IntoIterator<Item: Into<String>>] [$type] collect Some, $($rest)*
        }
    };
    (Text: $name:tt $type:ty, $($rest:tt)*) => {
        $crate::builder_setter! { @panics $name [impl Into<String>] [$type] some Some, $($rest)* }
    };
    (Group: $name:tt $type:ty, $($rest:tt)*) => {
        $crate::builder_setter! {
            @panics $name [impl Into<$type>] [$type] into From::from, $($rest)*
        }
    };
    ($optional:ident: $name:tt $type:ty, $($rest:tt)*) => {
        $crate::builder_setter! {
            @panics $name [impl Into<$type>] [$type] into Some, $($rest)*
        }
    };
    (
        @panics $name:tt $argument:tt $type:tt $conversion:ident $set:path, $layer:tt $key:ident,
        [$($doc:tt)*], $check:expr
    ) => {
        $crate::builder_setter! {
            @function $name $argument $type $conversion $set, $layer $key, [
                $($doc)*
                #[doc = ""]
                #[doc = " # Panics"]
                #[doc = ""]
                #[doc = " Panics if the value is out of its range."]
            ], $check
        }
    };
    (@function [$setter:ident $($key:ident)?] $($rest:tt)*) => {
        $crate::builder_setter! { @named $setter $($rest)* }
    };
    (
        @named $setter:ident [$($argument:tt)*] [$type:ty] $conversion:ident $set:path,
        [$($layer:ident).+] $key:ident, [$(#[$doc:meta])*], $check:expr
    ) => {
        $(#[$doc])*
        #[must_use]
        #[track_caller]
        pub fn $setter(mut self, $key: $($argument)*) -> Self {
            let value: $type = $crate::builder_setter!(@convert $conversion $key);
            let check = $check;
            $crate::settings::expect_valid(check(&value));
            self.$($layer).+.$key = $set(value);
            self
        }
    };
    (@convert same $key:ident) => { $key };
    (@convert some $key:ident) => { Some($key.into()) };
    (@convert into $key:ident) => { $key.into() };
    (@convert collect $key:ident) => { $key.into_iter().map(Into::into).collect() };
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macros are for public types")]
mod tests {
    use std::time::Duration;

    use crate::settings::{InvalidSetting, Layers, Raw, Slot, Slots, Table as _, Units};

    mod inner {
        use super::*;

        crate::define_settings! {
            /// Settings within others.
            Inner, InnerOverlay, "inner", [], derive(PartialEq) {
                /// Smallest count.
                least: u8 as Plain = 1, Live, 1.., "0 is none";
                /// Greatest count.
                most, with_most: u8 as Plain = 9, Live, 1.., "0 is none";
            } private {
                is_odd: bool = false;
            }
        }

        impl Inner {
            fn check(&self) -> Result<(), InvalidSetting> {
                self.check_each()
            }

            pub(super) fn odd() -> Self {
                Self { least: 3, is_odd: true, ..Self::DEFAULTS }
            }

            pub(super) fn is_odd(&self) -> bool {
                self.is_odd
            }
        }
    }

    use inner::{Inner, InnerOverlay};

    macro_rules! outer_settings {
        ($($macro:ident)::+ $([$($argument:tt)*])?) => {
            $($macro)::+! {
                $([$($argument)*])?
                /// Settings of a builder.
                Outer, OuterOverlay, "outer", [builder], derive(PartialEq) {
                    /// A number.
                    ///
                    /// More of it.
                    count: u32 as Plain = 5, Live, 1.., "nothing would come";
                    /// A bound.
                    bound: Option<Duration> as OrOff = None, Live,
                        Duration::from_millis(1).., "time passes";
                    /// Names.
                    names: Vec<String> as Texts = Vec::new(), Start, .., "";
                    /// A switch of code.
                    enabled: bool as Switch = true, CodeOnly, .., "";
                } groups {
                    /// Others.
                    inner, with_inner: Inner, InnerOverlay, Live, "inner.heading";
                }
            }
        };
    }

    outer_settings! { crate::define_settings }

    impl Outer {
        fn check(&self) -> Result<(), InvalidSetting> {
            self.check_each()
        }
    }

    #[derive(Debug, Default)]
    struct Builder {
        layers: Layers<Outer>,
    }

    impl Builder {
        outer_settings! { crate::builder_setters [layers.code] }
    }

    fn read(table: &mut dyn Slots, name: &str, raw: &Raw<'_>) {
        let units = Units { duration: |_| None, size: |_| None };
        let Some(Slot::Value(read)) = table.slot(name) else { panic!("{name} is no value") };
        read(raw, &units).unwrap();
    }

    #[test]
    fn code_takes_precedence_key_by_key() {
        let mut builder = Builder::default().count(7).bound(None).enabled(false).names(["a"]);
        let file = &mut builder.layers.file;
        for (name, number) in [("count", 8), ("most", 4), ("least", 4)] {
            let inner = name != "count";
            let table: &mut dyn Slots = if inner { &mut file.inner } else { file };
            read(table, name, &Raw::Integer(number));
        }
        file.bound = Some(Some(Duration::from_secs(1)));
        let outer = builder.layers.resolve();
        assert_eq!((outer.count, outer.bound, outer.enabled), (7, None, false));
        assert_eq!((outer.names, outer.inner.most), (vec!["a".to_owned()], 4));
        builder.layers.code.inner.most = Some(5);
        let inner = builder.layers.resolve().inner;
        assert_eq!((inner.most, inner.least), (5, 4));
        assert_eq!(Layers::<Outer>::default().resolve(), Outer::DEFAULTS);
    }

    #[test]
    fn setter_of_a_group_sets_each_of_its_keys() {
        let mut builder = Builder::default().with_inner(Inner::odd());
        read(&mut builder.layers.file.inner, "most", &Raw::Integer(4));
        let inner = builder.layers.resolve().inner;
        assert_eq!((inner.least, inner.most, inner.is_odd()), (3, 9, true));
    }

    #[test]
    fn heading_of_a_group_may_differ_from_its_name() {
        assert_eq!(OuterOverlay::describe().groups[0].heading, "inner.heading");
        assert_eq!(OuterOverlay::describe().names(), ["count", "bound", "names", "inner"]);
    }

    #[test]
    fn values_out_of_range_panic() {
        type Case = (fn() -> Builder, &'static str);
        let cases: [Case; 3] = [
            (|| Builder::default().count(0), "outer.count is 0: at least 1, since nothing would"),
            (|| Builder::default().bound(Duration::ZERO), "outer.bound is 0ns: at least 1 ms"),
            (|| Builder::default().with_inner(Inner::odd().with_most(0)), "inner.most is 0: "),
        ];
        for (set, message) in cases {
            let panic = std::panic::catch_unwind(set).expect_err("it is out of range");
            let text = panic.downcast_ref::<String>().expect("a message");
            assert!(text.starts_with(message), "{text}");
        }
    }
}
