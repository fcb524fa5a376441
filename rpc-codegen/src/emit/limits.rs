//! The setters of message limits, which services and stubs share.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// The documentation's terms for one side.
pub(super) struct Side {
    /// The field that holds the settings.
    pub(super) field: &'static str,
    /// The generated type: `stub` or `service`.
    pub(super) name: &'static str,
    /// The kind of message that it receives, and the party whose own limit also applies.
    pub(super) takes: (&'static str, &'static str),
    /// The kind of message that it sends, and the party whose own limit also applies.
    pub(super) sends: (&'static str, &'static str),
}

/// Emits the setters for the `impl` of a type with this field.
pub(super) fn setters(side: &Side) -> TokenStream {
    let Side { field, name, takes: (taken, ours), sends: (sent, peers) } = side;
    let field = Ident::new(field, Span::call_site());
    let decoding = [
        format!(
            " Limits the length of each {taken} message that this {name} accepts, in bytes. The"
        ),
        format!(" {ours}'s own limit, 4 MiB by default, also applies."),
    ];
    let encoding = [
        format!(" Limits the length of each {sent} message that this {name} sends, in bytes. The"),
        format!(" {peers}'s own limit also applies."),
    ];
    let compressing = [
        format!(" Compresses {sent} messages of at least this length, in bytes, if the {peers}"),
        " accepts it. `usize::MAX` compresses none. Overrides the channel and the server."
            .to_owned(),
    ];
    quote! {
        #(#[doc = #decoding])*
        #[must_use]
        pub fn max_decoding_message_len(mut self, bytes: usize) -> Self {
            self.#field = self.#field.with_max_decoding(bytes);
            self
        }

        #(#[doc = #encoding])*
        #[must_use]
        pub fn max_encoding_message_len(mut self, bytes: usize) -> Self {
            self.#field = self.#field.with_max_encoding(bytes);
            self
        }

        #(#[doc = #compressing])*
        #[must_use]
        pub fn compress_from(mut self, bytes: usize) -> Self {
            self.#field = self.#field.with_compress_from(bytes);
            self
        }
    }
}
