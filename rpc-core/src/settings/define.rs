//! Macros that declare settings, each of them once.

/// Declares settings of the program: a type with its fields, its defaults and its setters, and the
/// table of a file that has them.
///
/// ```text
/// define_settings! {
///     /// Documentation, whose first paragraph a settings file has, too.
///     Limits, LimitsOverlay, "limits", [const], derive(Copy, PartialEq, Eq) {
///         /// Documentation, whose first paragraph a settings file has, too.
///         max_calls, with_max_calls: u32 as Plain = 1024, Live, 1.., "no call would ever be made";
///     } groups {
///         connect, with_connect: ConnectOptions, ConnectOptionsOverlay, Start;
///     } private {
///         has_rules: bool = true;
///     } flat {
///         base: Others, OthersOverlay;
///     }
/// }
/// ```
///
/// The path stands before the names in errors. Setters are `const` where that is said; with
/// `[builder]` the type has none, since [`builder_setters`](crate::builder_setters) gives them to a
/// builder. A key has a name, its setter's name, its type and
/// [`Format`](crate::settings::format::Format), the default (with `=> "3"` an example if a file
/// cannot say the default), an [`Effect`](crate::settings::Effect), a range and its reason. Groups
/// are [`Settings`](crate::settings::Settings) of their own, with their heading in the reference if
/// it is not their name. Private fields have no setter and no key. A flat field has settings whose
/// keys stand in the same table: before its own keys, and with their tables after its own.
///
/// `DEFAULTS` has the defaults, and `check_each` checks every range. The type's `check`, which is
/// written by hand, adds the rules for several keys together. The overlay's `settings` lays it over
/// the defaults.
///
/// # Lists for several macros
///
/// Settings of a builder stand in a list macro, which hands the same declaration to each macro that
/// is named, with what that macro has to know before it:
///
/// ```text
/// #[macro_export]
/// macro_rules! server_settings {
///     ($($macro:ident)::+ $([$($argument:tt)*])?) => {
///         $($macro)::+! {
///             $([$($argument)*])?
///             /// Settings of a server.
///             ServerSettings, ServerOverlay, "server", [builder], derive(PartialEq) {
///                 /// Maximum number of calls that run at a time.
///                 max_calls: u32 as Plain = 65_536, Live, 1.., "no call would ever run";
///             }
///         }
///     };
/// }
/// server_settings! { crate::define_settings }
/// ```
#[macro_export]
macro_rules! define_settings {
    (
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
                $group:ident $(, $group_setter:ident)?: $inner:ty, $inner_overlay:ty, $within:ident
                    $(, $heading:literal)?;
            )*
        })? $(private {
            $(
                $(#[doc = $hidden_doc:literal])*
                $hidden:ident: $hidden_type:ty = $hidden_default:expr;
            )*
        })? $(flat {
            $(#[doc = $flat_doc:literal])*
            $flat:ident: $flat_type:ty, $flat_overlay:ty;
        })?
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, $($derive),*)]
        #[non_exhaustive]
        pub struct $name {
            $(
                $(#[doc = $doc])*
                pub $key: $type,
            )*
            $($(
                $(#[doc = $group_doc])*
                pub $group: $inner,
            )*)?
            $($(
                $(#[doc = $hidden_doc])*
                $hidden: $hidden_type,
            )*)?
            $(
                $(#[doc = $flat_doc])*
                pub $flat: $flat_type,
            )?
        }

        impl $name {
            /// The defaults.
            #[doc(hidden)]
            pub const DEFAULTS: Self = Self {
                $($key: $default,)*
                $($($group: <$inner as $crate::settings::Settings>::DEFAULTS,)*)?
                $($($hidden: $hidden_default,)*)?
                $($flat: <$flat_type as $crate::settings::Settings>::DEFAULTS,)?
            };

            $($($crate::define_setter! { $setters $key, $setter: $type })?)*
            $($($($crate::define_setter! { $setters $group, $group_setter: $inner })?)*)?

            /// Checks that each value is in its range.
            fn check_each(&self) -> Result<(), $crate::settings::InvalidSetting> {
                $(
                    $crate::settings::table::check::<$crate::settings::format::$format, $type>(
                        $crate::setting_name!($path $key),
                        &self.$key,
                        $range,
                        $reason,
                    )?;
                )*
                $($($crate::settings::Settings::check_all(&self.$group)?;)*)?
                $($crate::settings::Settings::check_all(&self.$flat)?;)?
                Ok(())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::DEFAULTS
            }
        }

        $crate::define_overlay! {
            $(#[doc = $about])*
            pub $overlay {
                $(
                    $(#[doc = $doc])*
                    $key: $type as $format = $crate::settings::table::shown::<
                        $crate::settings::format::$format,
                        $type,
                    >(&$default, $crate::define_settings!(@example $($example)?)),
                    $effect, $range, $reason;
                )*
            } tables {
                $($(
                    $group: $inner_overlay
                        = $crate::define_settings!(@heading $group $($heading)?), $within;
                )*)?
            } private {
                $($($hidden: $hidden_type;)*)?
            } $(flat {
                $flat: $flat_overlay;
            })?
        }

        impl $overlay {
            /// Lays what is set over the defaults.
            #[must_use]
            pub fn settings(&self) -> $name {
                $name {
                    $($key: self.$key.clone().unwrap_or($default),)*
                    $($(
                        $group: <$inner as $crate::settings::Settings>::resolve(&self.$group),
                    )*)?
                    $($($hidden: self.$hidden.clone().unwrap_or($hidden_default),)*)?
                    $($flat: <$flat_type as $crate::settings::Settings>::resolve(&self.$flat),)?
                }
            }
        }

        impl From<$name> for $overlay {
            /// Sets every key.
            fn from(settings: $name) -> Self {
                Self {
                    $($key: Some(settings.$key),)*
                    $($($group: settings.$group.into(),)*)?
                    $($($hidden: Some(settings.$hidden),)*)?
                    $($flat: settings.$flat.into(),)?
                }
            }
        }

        #[doc(hidden)]
        impl $crate::settings::Settings for $name {
            type Overlay = $overlay;

            const DEFAULTS: Self = <$name>::DEFAULTS;

            fn resolve(overlay: &$overlay) -> Self {
                overlay.settings()
            }

            fn check_all(&self) -> Result<(), $crate::settings::InvalidSetting> {
                <$name>::check(self)
            }

            fn faults(&self) -> Vec<$crate::settings::InvalidSetting> {
                let parts: &[Vec<$crate::settings::InvalidSetting>] = &[
                    $($($crate::settings::Settings::faults(&self.$group),)*)?
                    $($crate::settings::Settings::faults(&self.$flat),)?
                ];
                let faults = parts.concat();
                if !faults.is_empty() {
                    return faults;
                }
                self.check_all().err().into_iter().collect()
            }
        }
    };
    (@example) => { None };
    (@example $example:literal) => { Some($example) };
    (@heading $group:ident) => { stringify!($group) };
    (@heading $group:ident $heading:literal) => { $heading };
}

/// The name of a setting in errors: its key, and the path before it unless that is empty.
#[doc(hidden)]
#[macro_export]
macro_rules! setting_name {
    ("" $key:ident) => {
        stringify!($key)
    };
    ($path:literal $key:ident) => {
        concat!($path, ".", stringify!($key))
    };
}

/// Declares the setter of a field.
#[doc(hidden)]
#[macro_export]
macro_rules! define_setter {
    ([builder] $($setter:tt)*) => {};
    ([$($const:ident)?] $key:ident, $setter:ident: $type:ty) => {
        #[doc = concat!("Sets [`", stringify!($key), "`](Self::", stringify!($key), ").")]
        #[must_use]
        pub $($const)? fn $setter(mut self, $key: $type) -> Self {
            self.$key = $key;
            self
        }
    };
}

/// Declares a table of a settings file: values with a default as a file has it, the
/// [`Effect`](crate::settings::Effect) of another value, a range and its reason; then tables within
/// it with their heading in the reference, which is empty for one that is left out there. A table
/// that is `Start` has no key that is `Live`.
#[macro_export]
macro_rules! define_overlay {
    (
        $(#[doc = $about:literal])*
        $visible:vis $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $key:ident: $type:ty as $format:ident
                    = $shown:expr, $effect:ident, $range:expr, $reason:expr;
            )*
        } tables {
            $($table:ident: $inner:ty = $heading:expr, $within:ident;)*
        } $(private {
            $($hidden:ident: $hidden_type:ty;)*
        })? $(flat {
            $flat:ident: $flat_type:ty;
        })?
    ) => {
        $(#[doc = $about])*
        #[doc(hidden)]
        #[derive(Debug, Clone, Default)]
        $visible struct $name {
            $(
                $(#[doc = $doc])*
                $visible $key: Option<$type>,
            )*
            $(
                /// A table within it.
                $visible $table: $inner,
            )*
            $($($hidden: Option<$hidden_type>,)*)?
            $(
                /// Keys of the same table.
                $visible $flat: $flat_type,
            )?
        }

        impl $crate::settings::Slots for $name {
            fn names(&self) -> Vec<&'static str> {
                <Self as $crate::settings::Table>::describe().names()
            }

            fn slot(&mut self, name: &str) -> Option<$crate::settings::Slot<'_>> {
                use $crate::settings::{Effect, Slot, format, table};

                match name {
                    $(
                        stringify!($key) if Effect::$effect != Effect::CodeOnly => {
                            let slot = &mut self.$key;
                            Some(Slot::Value(Box::new(move |raw, units| {
                                let value = table::read::<format::$format, $type>(
                                    (raw, units),
                                    $range,
                                    $reason,
                                );
                                *slot = Some(value?);
                                Ok(())
                            })))
                        }
                    )*
                    $(stringify!($table) => Some(Slot::Table(&mut self.$table)),)*
                    _ => {
                        $(if true {
                            return self.$flat.slot(name);
                        })?
                        None
                    }
                }
            }
        }

        impl $crate::settings::Table for $name {
            fn or(self, defaults: &Self) -> Self {
                let _ = defaults;
                Self {
                    $($key: self.$key.or_else(|| defaults.$key.clone()),)*
                    $($table: $crate::settings::Table::or(self.$table, &defaults.$table),)*
                    $($($hidden: self.$hidden.or_else(|| defaults.$hidden.clone()),)*)?
                    $($flat: $crate::settings::Table::or(self.$flat, &defaults.$flat),)?
                }
            }

            fn describe() -> $crate::settings::Description {
                use $crate::settings::{Description, Effect, Group, Key};

                let mut keys: Vec<Key> = vec![
                    $(
                        Key {
                            name: stringify!($key),
                            docs: &[$($doc),*],
                            shown: $shown.to_owned(),
                            effect: Effect::$effect,
                        },
                    )*
                ];
                keys.retain(|key| key.effect != Effect::CodeOnly);
                let mut groups: Vec<Group> = vec![
                    $(
                        Group {
                            name: stringify!($table),
                            heading: $heading,
                            table: <$inner as $crate::settings::Table>::describe(),
                            effect: Effect::$within,
                        },
                    )*
                ];
                let _ = &mut groups;
                $(
                    let flat = <$flat_type as $crate::settings::Table>::describe();
                    keys.splice(0..0, flat.keys);
                    groups.extend(flat.groups);
                )?
                Description { docs: &[$($about),*], keys, groups }
            }

            fn each_change(
                &self,
                new: &Self,
                effect: $crate::settings::Effect,
                path: &mut Vec<String>,
                visit: &mut dyn FnMut(&[String], $crate::settings::Effect),
            ) {
                use $crate::settings::Effect;

                let _ = (new, effect, &path, &visit);
                $(
                    $crate::settings::Table::each_change(
                        &self.$flat,
                        &new.$flat,
                        effect,
                        path,
                        visit,
                    );
                )?
                $(
                    if self.$key != new.$key {
                        path.push(stringify!($key).to_owned());
                        visit(path, Effect::$effect.within(effect));
                        path.pop();
                    }
                )*
                $(
                    path.push(stringify!($table).to_owned());
                    let within = Effect::$within.within(effect);
                    $crate::settings::Table::each_change(
                        &self.$table,
                        &new.$table,
                        within,
                        path,
                        visit,
                    );
                    path.pop();
                )*
            }

            fn each_key(&self, path: &mut Vec<String>, visit: &mut dyn FnMut(&[String])) {
                use $crate::settings::Effect;

                $($crate::settings::Table::each_key(&self.$flat, path, visit);)?
                $(
                    if Effect::$effect != Effect::CodeOnly {
                        path.push(stringify!($key).to_owned());
                        visit(path);
                        path.pop();
                    }
                )*
                $(
                    path.push(stringify!($table).to_owned());
                    $crate::settings::Table::each_key(&self.$table, path, visit);
                    path.pop();
                )*
            }
        }
    };
}
