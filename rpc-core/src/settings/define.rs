//! Macros that declare settings, each of them once.

/// Declares settings of the program: a type with its fields, its defaults and its setters, and the
/// table of a file that has them.
///
/// ```text
/// define_settings! {
///     /// Documentation, whose first paragraph a settings file has, too.
///     Limits, LimitsOverlay, "limits", [const], derive(Copy, PartialEq, Eq) {
///         /// Documentation, whose first paragraph a settings file has, too.
///         max_calls, with_max_calls: u32 as Plain = 1024, Live, 1.., "no call could be made";
///     } groups {
///         connect, with_connect: ConnectOptions, ConnectOptionsOverlay, Start;
///     } private {
///         has_rules: bool = true;
///     } flat {
///         base: Others, OthersOverlay;
///     } gone {
///         enabled: "`max_calls = 0` switches it off";
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
/// it is not their name. A group may have defaults of its own where its type serves several,
/// `path_backoff: Backoff = Backoff::PATH, ..`; errors name its keys by the group then. Private
/// fields have no setter and no key. A flat field has settings whose keys stand in the same table,
/// behind its own. Keys that are gone fail in a file, with the text that says what is in their
/// place; so do keys that are `CodeOnly`, with the name of their field.
///
/// `DEFAULTS` has the defaults, and `check_each` checks every range. The type's `check`, which is
/// written by hand, adds the rules for several keys together. `Settings::resolve` lays an overlay
/// over the defaults.
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
                $group:ident $(, $group_setter:ident)?: $inner:ty $(= $group_default:expr)?,
                    $inner_overlay:ty, $within:ident $(, $heading:literal)?;
            )*
        })? $(private {
            $(
                $(#[doc = $hidden_doc:literal])*
                $hidden:ident: $hidden_type:ty = $hidden_default:expr;
            )*
        })? $(flat {
            $(#[doc = $flat_doc:literal])*
            $flat:ident: $flat_type:ty, $flat_overlay:ty;
        })? $(gone {
            $($gone:ident: $instead:literal;)*
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
            /// The defaults, also for constants.
            pub const DEFAULTS: Self = Self {
                $($key: $default,)*
                $($(
                    $group: $crate::define_settings!(@default [$inner] $($group_default)?),
                )*)?
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
                $($(
                    $crate::define_settings!(
                        @checked $group $($group_default)?;
                        $crate::settings::Settings::check_all(&self.$group)
                    )?;
                )*)?
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
            pub $overlay of $name {
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
                        = $crate::define_settings!(@heading $group $($heading)?), $within
                        $(, $group_default)?;
                )*)?
            } private {
                $($($hidden: $hidden_type;)*)?
            } $(flat {
                $flat: $flat_overlay;
            })? $(gone {
                $($gone: $instead;)*
            })?
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

            fn over(overlay: &$overlay, defaults: &Self) -> Self {
                Self {
                    $($key: overlay.$key.as_ref().unwrap_or(&defaults.$key).clone(),)*
                    $($(
                        $group: $crate::settings::Settings::over(
                            &overlay.$group,
                            &defaults.$group,
                        ),
                    )*)?
                    $($(
                        $hidden: overlay.$hidden.as_ref().unwrap_or(&defaults.$hidden).clone(),
                    )*)?
                    $($flat: $crate::settings::Settings::over(&overlay.$flat, &defaults.$flat),)?
                }
            }

            fn check_all(&self) -> Result<(), $crate::settings::InvalidSetting> {
                <$name>::check(self)
            }

            fn faults(&self) -> Vec<$crate::settings::InvalidSetting> {
                let parts: &[Vec<$crate::settings::InvalidSetting>] = &[
                    $($($crate::define_settings!(
                        @faults $group $($group_default)?;
                        $crate::settings::Settings::faults(&self.$group)
                    ),)*)?
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
    (@default [$inner:ty]) => { <$inner as $crate::settings::Settings>::DEFAULTS };
    (@default [$inner:ty] $default:expr) => { $default };
    (@checked $group:ident; $checked:expr) => { $checked };
    (@checked $group:ident $default:expr; $checked:expr) => {
        $checked.map_err(|error| error.in_group(stringify!($group)))
    };
    (@faults $group:ident; $faults:expr) => { $faults };
    (@faults $group:ident $default:expr; $faults:expr) => {
        $faults.into_iter().map(|error| error.in_group(stringify!($group))).collect()
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
/// that is `Start` has no key that is `Live`. The name of the type that has the fields in code is
/// behind `of`.
#[macro_export]
macro_rules! define_overlay {
    (
        $(#[doc = $about:literal])*
        $visible:vis $name:ident of $owner:ident {
            $(
                $(#[doc = $doc:literal])*
                $key:ident: $type:ty as $format:ident
                    = $shown:expr, $effect:ident, $range:expr, $reason:expr;
            )*
        } tables {
            $($table:ident: $inner:ty = $heading:expr, $within:ident $(, $table_shown:expr)?;)*
        } $(private {
            $($hidden:ident: $hidden_type:ty;)*
        })? $(flat {
            $flat:ident: $flat_type:ty;
        })? $(gone {
            $($gone:ident: $instead:literal;)*
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
                        stringify!($key) if Effect::$effect == Effect::CodeOnly => {
                            let field = concat!(stringify!($owner), "::", stringify!($key));
                            Some(Slot::Elsewhere(table::in_code(field)))
                        }
                        stringify!($key) => {
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
                    $($(stringify!($gone) => Some(Slot::Elsewhere(table::gone($instead))),)*)?
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
                            name: match Effect::$effect {
                                Effect::CodeOnly => {
                                    concat!(stringify!($owner), "::", stringify!($key))
                                }
                                _ => stringify!($key),
                            },
                            docs: &[$($doc),*],
                            shown: $shown.into(),
                            range: $crate::settings::table::range::<
                                $crate::settings::format::$format,
                                $type,
                            >($range, $reason),
                            effect: Effect::$effect,
                        },
                    )*
                ];
                let mut in_code: Vec<Key> = Vec::new();
                in_code.extend(keys.extract_if(.., |key| key.effect == Effect::CodeOnly));
                let mut groups: Vec<Group> = vec![
                    $(
                        Group {
                            name: stringify!($table),
                            heading: $heading,
                            table: <$inner as $crate::settings::Table>::describe()
                                $(.showing(&<$inner>::from($table_shown)))?,
                            effect: Effect::$within,
                        },
                    )*
                ];
                let _ = &mut groups;
                $(
                    let flat = <$flat_type as $crate::settings::Table>::describe();
                    keys.extend(flat.keys);
                    in_code.extend(flat.in_code);
                    groups.extend(flat.groups);
                )?
                Description { docs: &[$($about),*], keys, in_code, groups }
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
                    if self.$key != new.$key {
                        path.push(stringify!($key).to_owned());
                        visit(path, Effect::$effect.within(effect));
                        path.pop();
                    }
                )*
                $(
                    path.push(stringify!($table).to_owned());
                    let (was, is) = (&self.$table, &new.$table);
                    let within = Effect::$within.within(effect);
                    $crate::settings::Table::each_change(was, is, within, path, visit);
                    path.pop();
                )*
                $(
                    let (was, is) = (&self.$flat, &new.$flat);
                    $crate::settings::Table::each_change(was, is, effect, path, visit);
                )?
            }

            fn each_key(
                &self,
                path: &mut Vec<String>,
                visit: &mut dyn FnMut(&[String], Option<String>),
            ) {
                $(
                    let field = concat!(stringify!($owner), "::", stringify!($key));
                    let is_in_code =
                        $crate::settings::Effect::$effect == $crate::settings::Effect::CodeOnly;
                    path.push(stringify!($key).to_owned());
                    visit(path, is_in_code.then(|| $crate::settings::table::in_code(field)));
                    path.pop();
                )*
                $($(
                    path.push(stringify!($gone).to_owned());
                    visit(path, Some($crate::settings::table::gone($instead)));
                    path.pop();
                )*)?
                $(
                    path.push(stringify!($table).to_owned());
                    $crate::settings::Table::each_key(&self.$table, path, visit);
                    path.pop();
                )*
                $($crate::settings::Table::each_key(&self.$flat, path, visit);)?
            }

            fn written(&self, key: &str) -> Option<String> {
                match key {
                    $(stringify!($key) => {
                        <
                            $crate::settings::format::$format as
                            $crate::settings::format::Format<$type>
                        >::write(self.$key.as_ref()?)
                    })*
                    _ => {
                        let within = key.split_once('.').unwrap_or_default();
                        $(if within.0 == stringify!($table) {
                            return $crate::settings::Table::written(&self.$table, within.1);
                        })*
                        let _ = within;
                        $(if true {
                            return $crate::settings::Table::written(&self.$flat, key);
                        })?
                        None
                    }
                }
            }
        }
    };
}
