//! The name of a type.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Data, DeriveInput, Error, Fields, LitStr, Result};

/// Implements `TypeName` with the text of the fields.
pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    if !input.generics.params.is_empty() {
        let what = "a type with parameters cannot derive `TypeName`: implement it";
        return Err(Error::new_spanned(&input.generics, what));
    }
    let name = format!("{}{}", first_words(input)?, content(&input.data));
    Ok(implementation(input, &quote! { ::std::string::String::from(#name) }))
}

/// Implements `TypeName` for a key, with the names of the types of its fields.
pub(crate) fn of_key(input: &DeriveInput, fields: &Fields) -> Result<TokenStream> {
    let name = first_words(input)?;
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let parts: Vec<_> = match fields {
        Fields::Named(fields) => {
            let names = fields.named.iter().flat_map(|field| &field.ident);
            names.map(|name| format!("{}: ", unraw(name))).collect()
        }
        _ => vec![String::new(); types.len()],
    };
    let (open, close) = if matches!(fields, Fields::Named(_)) { (" { ", " }") } else { ("(", ")") };
    let body = quote! {
        let parts = [#(::std::format!("{}{}", #parts, <#types as ::quenchdb::TypeName>::type_name())),*];
        ::std::format!("{}{}{}{}", #name, #open, parts.join(", "), #close)
    };
    Ok(implementation(input, &body))
}

fn implementation(input: &DeriveInput, body: &TokenStream) -> TokenStream {
    let name = &input.ident;
    quote! {
        impl ::quenchdb::TypeName for #name {
            fn type_name() -> ::std::string::String {
                #body
            }
        }
    }
}

/// Returns the words with which the name begins.
fn first_words(input: &DeriveInput) -> Result<String> {
    let mut given = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("type_name")) {
        let words = attribute
            .parse_args::<LitStr>()
            .map_err(|_| Error::new_spanned(attribute, "write it as `#[type_name(\"the name\")]`"))?;
        if words.value().trim().is_empty() || given.is_some() {
            return Err(Error::new_spanned(attribute, "a type has one name, which is not empty"));
        }
        given = Some(words.value());
    }
    Ok(given.unwrap_or_else(|| unraw(&input.ident)))
}

fn unraw(name: &syn::Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_string()
}

/// Returns the fields or variants as text.
fn content(data: &Data) -> String {
    match data {
        Data::Struct(data) => of_fields(&data.fields),
        Data::Union(data) => of_fields(&Fields::Named(data.fields.clone())),
        Data::Enum(data) => {
            let variants = data.variants.iter().map(|variant| {
                let number = variant.discriminant.as_ref().map(|(_, number)| format!(" = {}", text(number)));
                format!(
                    "{}{}{}",
                    unraw(&variant.ident),
                    of_fields(&variant.fields),
                    number.unwrap_or_default()
                )
            });
            format!(" {{ {} }}", variants.collect::<Vec<_>>().join(", "))
        }
    }
}

fn of_fields(fields: &Fields) -> String {
    let types = fields.iter().map(|field| match &field.ident {
        Some(name) => format!("{}: {}", unraw(name), text(&field.ty)),
        None => text(&field.ty),
    });
    let types = types.collect::<Vec<_>>().join(", ");
    match fields {
        Fields::Named(_) => format!(" {{ {types} }}"),
        Fields::Unnamed(_) => format!("({types})"),
        Fields::Unit => String::new(),
    }
}

/// Returns tokens as text with the spaces that a reader expects, whatever the compiler puts there.
fn text(tokens: &impl ToTokens) -> String {
    let mut out = String::new();
    write_tokens(tokens.to_token_stream(), &mut out);
    out
}

fn write_tokens(tokens: TokenStream, out: &mut String) {
    use proc_macro2::{Delimiter, TokenTree};
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                out.push_str(open);
                write_tokens(group.stream(), out);
                out.push_str(close);
            }
            TokenTree::Punct(mark) => {
                out.push(mark.as_char());
                if matches!(mark.as_char(), ',' | ';') {
                    out.push(' ');
                }
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => {
                // Two words, such as `dyn Trait`.
                if out.ends_with(|last: char| last.is_alphanumeric() || last == '_') {
                    out.push(' ');
                }
                out.push_str(&token.to_string());
            }
        }
    }
}
